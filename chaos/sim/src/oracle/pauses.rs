//! A leader that stood still for a little longer than a lease costs hardly more than that: when it goes on, somebody
//! leads again soon.

use std::time::Duration;

use super::{Oracle, View};
use crate::script::Script;

/// Longest time from then until a quorum acknowledges whoever leads: less than the shortest time in which followers
/// begin an election by themselves.
const BOUND: Duration = Duration::from_millis(300);
/// Time for which a leader that went on may say what it knew before.
const STALE: Duration = Duration::from_millis(140);

#[derive(Default)]
pub struct Pauses {
    /// The name and the term of a leader that stands still.
    still: Option<(String, u64)>,
    /// The time at which it went on.
    went_on: Option<Duration>,
}

impl Oracle for Pauses {
    fn name(&self) -> &'static str {
        "a leader that stood still costs hardly more than that"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        if view.script != Some(Script::Pauses) {
            return Ok(());
        }
        let Some((term, leader)) = view.leader() else { return Ok(()) };
        if leader.stopped {
            (self.still, self.went_on) = (Some((leader.name.clone(), term)), None);
        } else if self.still.take().is_some_and(|(name, before)| name == leader.name && before == term) {
            self.went_on = Some(view.now);
        }
        let Some(at) = self.went_on else { return Ok(()) };
        if leader.fresh && view.now >= at + STALE {
            self.went_on = None;
        } else if view.now > at + BOUND {
            return Err(format!("{} went on at {at:?}, and no quorum acknowledges it or another one", leader.name));
        }
        Ok(())
    }
}
