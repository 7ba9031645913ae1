//! What it costs that a job gives way: the work it did since its newest checkpoint, times its TFLOPS, and what it takes
//! to start again.

use std::iter::Sum;
use std::time::Duration;

use tessera_ledger::{Job, LogTime};

use crate::loss::work_lost;

/// Time that a job needs until it is where it was, beside the work that it lost: placing it, starting it, reading
/// its data.
const START_AGAIN: Duration = Duration::from_secs(30);

/// What it costs that jobs give way; less is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// How far the highest effective priority among them is above the lowest that runs in its queue. It comes first,
    /// because whoever gives way makes those below in its own queue give way in turn: all of that would have to be paid
    /// as well.
    level: u32,
    /// Blocks times seconds.
    work: u128,
}

impl Cost {
    /// The cost of a whole gang. Whoever gave way lately costs more, so that it does not always hit the same.
    pub(crate) fn of(job: &Job, blocks: u64, now: LogTime, lowest: u32) -> Self {
        let lost = work_lost(job, now);
        let seconds = lost.saturating_add(START_AGAIN).saturating_add(job.spec.checkpoint.grace).as_secs();
        let times = job.preempted_at.len() as u128 + 1;
        let work = u128::from(seconds).saturating_mul(u128::from(blocks)).saturating_mul(times);
        Self { level: job.effective_priority().saturating_sub(lowest), work }
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
