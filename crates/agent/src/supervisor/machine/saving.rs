//! A supervisor's part in dumping and restoring its worker: what follows when that is done, or fails.

use super::{Effect, Machine, Now};
use crate::supervisor::image::{ImageRecord, Snapshot};
use crate::supervisor::program::NoStart;
use crate::supervisor::status::{Cause, Exit, Phase};

impl Machine {
    /// Handles a start that failed. The remains of a failed restore are killed, and probed for, like anything else.
    pub(super) fn start_failed(&mut self, now: Now, failure: NoStart) -> Vec<Effect> {
        self.starting = false;
        if self.killing_since.is_some() {
            return vec![Effect::Probe];
        }
        let NoStart { cause, message } = failure;
        if self.rules.dumps { self.abort(now, cause, message) } else { self.never_started(now, cause, message) }
    }

    /// Ends a start that has not come to a process.
    pub(super) fn abort(&mut self, now: Now, cause: Cause, message: String) -> Vec<Effect> {
        self.status.cause = Some(cause);
        self.status.message = message;
        self.status.phase = Phase::Stopping;
        let mut effects = vec![Effect::Publish];
        effects.extend(self.kill(now));
        effects
    }

    /// Without its card the program only waits: the worker is over, and its job goes on from what was saved before.
    pub(super) fn card_lost(&mut self, now: Now, cause: Cause, message: String) -> Vec<Effect> {
        let is_over = self.killing_since.is_some() || self.status.exit.is_some() || self.status.image.is_some();
        if is_over || !self.exists() {
            return Vec::new();
        }
        if self.status.cause.is_none() {
            return self.abort(now, cause, message);
        }
        // It was to stop anyway: that it is not saved is all that changes.
        if self.dumping.take().is_some() {
            self.status.not_saved = message;
        }
        self.kill(now)
    }

    /// A stop may have come meanwhile.
    pub(super) fn snapshotted(&mut self, snapshot: Snapshot) -> Vec<Effect> {
        self.snapshotting = false;
        self.status.snapshot = Some(snapshot);
        match self.dumping {
            Some(_) if self.status.exit.is_none() => vec![Effect::Publish, Effect::Dump],
            // It was over meanwhile.
            Some(_) => {
                self.dumping = None;
                vec![Effect::Publish, Effect::Probe]
            }
            None => vec![Effect::Publish],
        }
    }

    /// Handles the outcome of a dump. Dumped processes are gone; those that could not be dumped are sent the signal of
    /// their stop policy.
    pub(super) fn dumped(&mut self, outcome: Result<Box<ImageRecord>, String>) -> Vec<Effect> {
        // Nothing that was killed meanwhile is whole.
        let Some(signal) = self.dumping.take() else { return Vec::new() };
        let gone = self.status.exit.is_some();
        match outcome {
            // It was over before it could be dumped: there is nothing to go on with.
            _ if matches!(self.status.exit, Some(Exit::Code(_))) => vec![Effect::Publish, Effect::Probe],
            Ok(image) => {
                self.status.image = Some(*image);
                self.status.message.push_str("; its processes were dumped");
                vec![Effect::Publish, Effect::Probe]
            }
            Err(why) => {
                self.status.not_saved = format!("its processes cannot be dumped: {why}");
                if gone { vec![Effect::Publish, Effect::Probe] } else { vec![Effect::Signal(signal), Effect::Publish] }
            }
        }
    }
}
