//! What suspending or moving a job costs it (law L5): its mode, and the work that is gone with it.

use std::time::Duration;

use tessera_ledger::{CheckpointMode, Job, LogTime, MilliTflops, State};

use crate::victims::live_blocks;

/// What a job loses when it is told to stop now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// How it is suspended.
    pub mode: CheckpointMode,
    /// Work that it does again, as time of its run. Zero for a cooperative job, which saves itself on the way out:
    /// whether it does, and where, is its program's business.
    pub work: Duration,
    /// Compute that it holds, at the pool's reference precision.
    pub compute: MilliTflops,
}

impl Loss {
    /// The loss of a job that holds blocks, were it stopped at `now`.
    #[must_use]
    pub fn of(state: &State, job: &Job, now: LogTime) -> Self {
        let mode = job.spec.checkpoint.mode;
        let started = job.history.last().and_then(|attempt| attempt.started_at);
        let work = work_lost(mode, started, now);
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

/// The work that is gone when a run that began at `started` is stopped at `now`. No agent of this release dumps
/// images of processes, so that a job in mode `transparent` is counted to lose as much as one that starts again from
/// the beginning.
pub(crate) fn work_lost(mode: CheckpointMode, started: Option<LogTime>, now: LogTime) -> Duration {
    match mode {
        CheckpointMode::Cooperative => Duration::ZERO,
        CheckpointMode::Transparent | CheckpointMode::Requeue => {
            started.map_or(Duration::ZERO, |started| now.since(started))
        }
    }
}
