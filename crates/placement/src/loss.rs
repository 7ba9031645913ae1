//! What suspending or moving a job costs it (law L5): its mode, and the work that is gone with it.

use std::time::Duration;

use tessera_ledger::{CheckpointKey, CheckpointMode, Job, LogTime, MilliTflops, State};

use crate::victims::live_blocks;

/// What a job loses when it is told to stop now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// How it is suspended.
    pub mode: CheckpointMode,
    /// Work that it does again, as time of its run: since its newest checkpoint. Zero for a job that was seen to save
    /// itself when it was stopped before.
    pub work: Duration,
    /// Compute that it holds, at the pool's reference precision.
    pub compute: MilliTflops,
}

impl Loss {
    /// The loss of a job that holds blocks, were it stopped at `now`.
    #[must_use]
    pub fn of(state: &State, job: &Job, now: LogTime) -> Self {
        let mode = job.spec.checkpoint.mode;
        let work = work_lost(job, now);
        let allocation = job.allocation.and_then(|id| state.allocation(id));
        let blocks = allocation.map_or(0, |grant| live_blocks(grant));
        Self { mode, work, compute: MilliTflops(blocks.saturating_mul(state.config().block_size.0)) }
    }

    /// The work that is gone, as compute times time: TFLOPS times seconds.
    #[must_use]
    pub fn tflops_seconds(&self) -> u64 {
        self.compute.0.saturating_mul(self.work.as_secs()) / 1_000
    }
}

/// The work that is gone when a job is stopped at `now`: what it computed since the newest checkpoint that counts. One
/// that was seen to save itself when it was stopped before is taken to do so again; that it says it would is not
/// enough.
pub(crate) fn work_lost(job: &Job, now: LogTime) -> Duration {
    let saves_itself = job.spec.checkpoint.mode != CheckpointMode::Requeue
        && job.checkpoints.that_count().any(|checkpoint| checkpoint.key.sequence == CheckpointKey::LAST);
    match job.history.last() {
        Some(attempt) if !saves_itself => attempt.unsaved(now),
        _ => Duration::ZERO,
    }
}
