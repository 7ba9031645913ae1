//! What it costs that a job gives way: the work it loses, times its TFLOPS, and what it takes to start again.

use std::iter::Sum;
use std::time::Duration;

use tessera_ledger::{Allocation, CheckpointMode, Job, LogTime};

/// Time that a job needs until it is where it was, beside the work that it lost: placing it, starting it, reading its data.
const START_AGAIN: Duration = Duration::from_secs(30);

/// A cost, in blocks times seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Price(u128);

impl Price {
    /// The price of a whole gang. What a job that writes a checkpoint when it is asked to stop has done so far is kept; what another
    /// has done since it was started is lost. Whoever gave way lately costs more, so that it does not always hit the same.
    pub(crate) fn of(job: &Job, allocation: &Allocation, blocks: u64, now: LogTime) -> Self {
        let checkpoint = &job.spec.checkpoint;
        let lost = match checkpoint.mode {
            CheckpointMode::Requeue => allocation.started_at.map_or(Duration::ZERO, |started| now.since(started)),
            CheckpointMode::Cooperative | CheckpointMode::Transparent => Duration::ZERO,
        };
        let seconds = lost.saturating_add(START_AGAIN).saturating_add(checkpoint.grace).as_secs();
        let times = job.preempted_at.len() as u128 + 1;
        Self(u128::from(seconds).saturating_mul(u128::from(blocks)).saturating_mul(times))
    }

    /// The price of each block that is given back.
    pub(crate) fn per_block(self, blocks: u64) -> Self {
        Self(self.0 / u128::from(blocks.max(1)))
    }
}

impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        Self(prices.map(|price| price.0).fold(0, u128::saturating_add))
    }
}
