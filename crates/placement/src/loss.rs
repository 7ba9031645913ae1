//! The cost of stopping a job: its own loss (law L5), that is its mode and the work that is gone with it; and when it
//! gives way for another, that work times its TFLOPS, and the effort to start again.

use std::iter::Sum;
use std::time::Duration;

use tessera_ledger::{CheckpointKey, CheckpointMode, Job, LogTime, MilliTflops, State};

use crate::victims::live_blocks;

/// The loss of a job that is told to stop now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
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
        let blocks = allocation.map_or(0, |held| live_blocks(held));
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
fn work_lost(job: &Job, now: LogTime) -> Duration {
    let saves_itself = job.spec.checkpoint.mode != CheckpointMode::Requeue
        && job.checkpoints.that_count().any(|checkpoint| checkpoint.key.sequence == CheckpointKey::LAST);
    match job.history.last() {
        Some(attempt) if !saves_itself => attempt.unsaved(now),
        _ => Duration::ZERO,
    }
}

/// Time that a job needs until it is where it was, beside the work that it lost: placing it, starting it, reading
/// its data.
const START_AGAIN: Duration = Duration::from_secs(30);

/// The cost of jobs that give way; less is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// Greatest difference, over these jobs, between a job's precedence and the lowest in its queue that could give
    /// way. It comes first, because a job that gives way makes those below it in its own queue give way in turn: all of
    /// that would have to be paid as well.
    level: u64,
    /// Blocks times seconds.
    work: u128,
}

impl Cost {
    /// The cost of a whole gang, so many levels above the lowest of its queue. Whoever gave way lately costs more, so
    /// that it does not always hit the same.
    pub(crate) fn of(job: &Job, blocks: u64, now: LogTime, level: u64) -> Self {
        let lost = work_lost(job, now);
        let seconds = lost.saturating_add(START_AGAIN).saturating_add(job.spec.checkpoint.grace).as_secs();
        let times = job.preempted_at.len() as u128 + 1;
        let work = u128::from(seconds).saturating_mul(u128::from(blocks)).saturating_mul(times);
        Self { level, work }
    }

    /// The cost of each block that is given back.
    pub(crate) fn per_block(self, blocks: u64) -> Self {
        Self { work: self.work / u128::from(blocks.max(1)), ..self }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |sum, cost| Self {
            level: sum.level.max(cost.level),
            work: sum.work.saturating_add(cost.work),
        })
    }
}
