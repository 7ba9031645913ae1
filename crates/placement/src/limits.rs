//! What bounds one decision, and what it answers.

use std::time::Duration;

use tessera_ledger::{LogTime, Plan};

/// Bounds of one decision, so that one plan is never larger than one log entry should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most grants in one plan.
    pub grants: usize,
    /// Most jobs that one plan asks to leave nodes that are drained.
    pub evictions: usize,
    /// Most searches for jobs to preempt in one decision.
    pub preemption_searches: usize,
    /// How long the first job of a queue waits before cards are kept free for it.
    pub reserve_after: Duration,
    /// How long a job waits, for cards that the same jobs without a time limit hold, until cards are kept for others
    /// beside it as well: those jobs may never end. In the meantime it stands for all that are behind it in its queue.
    pub stuck_after: Duration,
    /// Most jobs for which cards are kept free at once, of all queues together.
    pub reservations: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            grants: 256,
            evictions: 64,
            preemption_searches: 32,
            reserve_after: Duration::from_secs(30),
            stuck_after: Duration::from_secs(7 * 24 * 60 * 60),
            reservations: 4,
        }
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The plan; empty when nothing can be done.
    pub plan: Plan,
    /// When something will change by the passing of time alone: the end of a backoff, or of a protection from
    /// preemption, or a job has waited so long that cards are kept for it.
    pub next_wakeup: Option<LogTime>,
    /// Whether a limit cut the decision short: decide again once the plan is committed.
    pub more: bool,
}
