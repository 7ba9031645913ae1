//! A kill is repeated until a probe finds nothing alive; only then is the worker called stopped.

use std::time::Duration;

use planted::Bug;

use super::super::status::Phase;
use super::{Effect, Machine, Now};

/// Wait before a kill is tried again, at first and later.
const KILL_RETRY: Duration = Duration::from_millis(10);
const KILL_RETRY_LATER: Duration = Duration::from_millis(200);
/// The time for which the shorter wait is used.
const KILL_IMPATIENCE: Duration = Duration::from_millis(500);

impl Machine {
    pub(super) fn kill(&mut self, now: Now) -> Vec<Effect> {
        if self.status.exit.is_none() {
            self.status.within_grace = false;
        }
        if self.dumping.take().is_some() {
            "its processes were not dumped in time".clone_into(&mut self.status.not_saved);
        }
        self.killing_since.get_or_insert(now.boot);
        self.kill_again_at = None;
        self.awake(vec![Effect::Kill, Effect::Probe])
    }

    pub(super) fn probed(&mut self, now: Now, empty: bool) -> Vec<Effect> {
        if planted::is(Bug::KillBelieved) && self.killing_since.is_some() {
            return self.finish(now);
        }
        if empty {
            // Its exit status is still to be fetched, and makes the next probe.
            let never_was = !self.exists();
            return if self.status.exit.is_some() || never_was { self.finish(now) } else { Vec::new() };
        }
        let Some(since) = self.killing_since else {
            // The first process is over and has left others behind: they are part of the worker and end with it.
            return if self.status.exit.is_some() { self.kill(now) } else { Vec::new() };
        };
        let waited = since.until(now.boot);
        let wait = if waited < KILL_IMPATIENCE { KILL_RETRY } else { KILL_RETRY_LATER };
        self.kill_again_at = Some(now.boot.after(wait));
        if waited >= self.rules.kill_confirmation && self.status.phase != Phase::Unconfirmed {
            self.status.phase = Phase::Unconfirmed;
            self.status.message = format!("killed {} ms ago, but something of it is still there", waited.as_millis());
            return vec![Effect::Publish];
        }
        Vec::new()
    }
}
