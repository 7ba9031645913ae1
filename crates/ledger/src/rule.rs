//! Behaviour that differs from a release level on: one row for each change of what old commands do.

use crate::level::Level;
use crate::state::State;

/// A change in what `apply` does that counts from one release level on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A queue may not be called [`DRILL_QUEUE`]: a new refusal, as a release may bring.
    DrillQueueRefused,
}

/// The name that is refused at [`Level::Drill`].
pub const DRILL_QUEUE: &str = "drill";

impl Rule {
    /// The level from which on it is followed.
    #[must_use]
    pub const fn since(self) -> Level {
        match self {
            Self::DrillQueueRefused => Level::Drill,
        }
    }
}

impl State {
    /// Returns whether a rule applies at the level in force.
    #[must_use]
    pub fn follows(&self, rule: Rule) -> bool {
        self.level >= rule.since()
    }
}
