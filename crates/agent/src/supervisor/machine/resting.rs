//! A worker that stands still while it is the turn of others on its card ([`crate::turns`]).
//!
//! The agent says when, and for how long at most: an agent that is stopped or dead leaves nobody standing still. A
//! worker goes on before anything is wanted of it: to stop, to be dumped, to be killed.

use std::time::Duration;

use super::{Effect, Machine, Now};
use crate::supervisor::status::Phase;

/// Longest rest, whoever asks for it.
const LONGEST_REST: Duration = Duration::from_secs(60);

impl Machine {
    /// Lets it stand still, or for longer if it does already. One of which something else is wanted does not.
    pub(super) fn rest(&mut self, now: Now, at_most: Duration) -> Vec<Effect> {
        let may = self.status.phase == Phase::Running && self.status.exit.is_none() && !self.snapshotting;
        if !may {
            return Vec::new();
        }
        let rested = self.rests_until.replace(now.boot.after(at_most.min(LONGEST_REST))).is_some();
        if rested { Vec::new() } else { vec![Effect::Rest] }
    }

    /// Lets it go on, if it stands still.
    pub(super) fn go_on(&mut self) -> Vec<Effect> {
        if self.rests_until.take().is_some() { vec![Effect::GoOn] } else { Vec::new() }
    }

    /// Its turn did not come in time.
    pub(super) fn rested(&mut self, now: Now) -> Vec<Effect> {
        if self.rests_until.is_some_and(|until| until <= now.boot) { self.go_on() } else { Vec::new() }
    }

    /// The same effects, after it was let go on.
    pub(super) fn awake(&mut self, then: Vec<Effect>) -> Vec<Effect> {
        let mut effects = self.go_on();
        effects.extend(then);
        effects
    }
}
