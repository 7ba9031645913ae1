//! Who goes before whom, and who may make whom give way. The order in which placement tries waiting jobs, and law L4,
//! rest on this alone.
//!
//! * **Within a queue** the job that has waited longest goes first, where each point of priority counts as
//!   [`HEAD_START`] of waiting. So a higher priority goes first, and yet only finitely many later jobs ever pass an
//!   earlier one: nothing starves.
//! * **Effective priority.** A running job has its priority, and a point more for each [`HEAD_START`] that it has
//!   waited for its grants in all. A job may preempt those of its queue whose effective priority is strictly below
//!   its own *priority*: waiting protects, it never attacks. Whoever may preempt another would also go before it in
//!   the line.
//! * **Between queues** priorities are not compared. A job whose queue, or one above it, stays within its guarantee
//!   may *recall* what that queue's neighbours hold above theirs; [`RECALL_PATIENCE`] bounds how long a job can put
//!   that off.

use std::time::Duration;

use crate::job::Job;
use crate::units::LogTime;

/// Waiting time that one point of priority counts for.
pub const HEAD_START: Duration = Duration::from_secs(15 * 60);

/// Longest that a job on loan can keep its blocks by the minimum time that it asked to run.
pub const RECALL_PATIENCE: Duration = Duration::from_secs(3600);

/// The time within which preemptions of one job are counted (law L4).
pub const PREEMPTION_WINDOW: Duration = Duration::from_secs(3600);

/// Milliseconds of a time, as the ledger counts.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Job {
    /// Since when it waits for a grant, or waited last.
    #[must_use]
    pub fn waiting_since(&self) -> LogTime {
        if self.queued_at == LogTime(0) { self.changed_at } else { self.queued_at }
    }

    /// The priority that protects it from other jobs of its queue while it holds blocks (law L4). It does not
    /// change meanwhile.
    #[must_use]
    pub fn effective_priority(&self) -> u32 {
        let points = millis(self.waited) / millis(HEAD_START);
        self.spec.priority.saturating_add(u32::try_from(points).unwrap_or(u32::MAX))
    }

    /// Whether it ever gave way to another job.
    #[must_use]
    pub fn gave_way(&self) -> bool {
        !self.preempted_at.is_empty()
    }

    /// When it may be preempted again, by a job of its queue or, with `recall`, for what its queue has borrowed: it was
    /// preempted too often within the last hour, or has not run as long as it asked to. `None`: now. `running_since` is
    /// when all its workers ran, or the time of its grant while they do not.
    #[must_use]
    pub fn preemptible_from(
        &self,
        running_since: LogTime,
        now: LogTime,
        per_hour: u32,
        recall: bool,
    ) -> Option<LogTime> {
        let shortest = if recall { self.spec.min_runtime.min(RECALL_PATIENCE) } else { self.spec.min_runtime };
        let has_run = Some(running_since.after(shortest)).filter(|at| *at > now);
        self.budget_from(now, per_hour, recall).max(has_run)
    }

    fn budget_from(&self, now: LogTime, per_hour: u32, recall: bool) -> Option<LogTime> {
        // Where operators want no preemption at all, a loan is still given back.
        let limit = if recall { per_hour.max(1) } else { per_hour };
        let mut recent: Vec<LogTime> =
            self.preempted_at.iter().copied().filter(|at| now.since(*at) < PREEMPTION_WINDOW).collect();
        recent.sort_unstable();
        let surplus = recent.len().checked_sub(limit as usize)?;
        // With a limit of zero nobody is ever preempted.
        Some(recent.get(surplus).map_or(LogTime(u64::MAX), |at| at.after(PREEMPTION_WINDOW)))
    }
}
