//! Precedence and preemption between jobs. The order in which placement tries waiting jobs, and law L4, rest on this
//! alone.
//!
//! * **Within a queue** the job that has waited longest goes first, where each point of priority counts as
//!   [`HEAD_START`] of waiting. So a higher priority goes first, and yet only finitely many later jobs ever pass an
//!   earlier one: nothing starves.
//! * **Effective priority.** A running job has its priority, and a point more for each [`HEAD_START`] that it has
//!   waited for its allocations in all. A job may preempt those of its queue whose effective priority is strictly below
//!   its own *priority*: waiting protects, it never attacks. Whoever may preempt another would also go before it in the
//!   line.
//! * **Between queues** priorities are not compared. A job whose queue, or one above it, stays within its guarantee
//!   may *recall* what that queue's neighbours hold above theirs; [`RECALL_PATIENCE`] bounds how long a job can put
//!   that off.

use std::time::Duration;

use crate::job::Job;
use crate::order::{BAND_PATIENCE, Claim};
use crate::queue::QueueAmount;
use crate::reason::Reason;
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

/// The amounts held of a queue, or of its part for the jobs that name it, with the guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// By all jobs that were not told to stop.
    pub all: QueueAmount,
    /// The part of `all` that non-preemptible jobs hold.
    pub firm: QueueAmount,
    pub guaranteed: QueueAmount,
}

impl Held {
    /// Once so much is given back, of which so much is of jobs that are not preemptible.
    #[must_use]
    pub fn without(self, all: QueueAmount, firm: QueueAmount) -> Self {
        Self { all: self.all.minus(all), firm: self.firm.minus(firm), ..self }
    }

    /// Checks that the queue lends something that a job with `gives` could give back: the queue is above its guarantee
    /// in a resource of which `gives` is not zero. For a job that is not preemptible, what such jobs hold must also be
    /// above the guarantee in such a resource.
    fn lends(self, gives: QueueAmount, preemptible: bool) -> Result<(), &'static str> {
        if self.all.within(self.guaranteed) {
            return Err("its queue holds no more than it is guaranteed");
        }
        if !self.all.is_above_with(self.guaranteed, gives) {
            return Err("its queue is guaranteed what it holds");
        }
        if !preemptible && !self.firm.is_above_with(self.guaranteed, gives) {
            return Err("it is not preemptible, and its queue is guaranteed what such jobs hold");
        }
        Ok(())
    }
}

/// Law L4 between queues: whether a job that gives so much may be recalled for one of another queue that is granted
/// `asked`.
///
/// `branch` is the queue of the one that asks directly below the lowest queue that both have above them, once all who
/// give way are gone: it stays within its guarantee; what is guaranteed further down is settled among those there.
/// `lenders` are, once those before this one are gone, what is for the jobs that name its queue, and every queue from
/// there up to the one directly below that lowest common one: each holds more than its guarantee, in a resource that
/// the job gives. So no guarantee is cut by more than the rest of one job.
///
/// Jobs that name a queue with queues below it are one more queue there, guaranteed what the queue's guarantee leaves
/// beside theirs: what is recalled of them is lent, by the queues below or by others. So a queue takes back from the
/// one above it only what is its own, and nothing that the guarantee above covers for the jobs there.
///
/// # Errors
/// What forbids it.
pub fn may_recall(
    asked: QueueAmount,
    branch: Option<Held>,
    lenders: impl IntoIterator<Item = Held>,
    gives: QueueAmount,
    preemptible: bool,
) -> Result<(), &'static str> {
    if !branch.is_some_and(|branch| branch.all.plus(asked).within(branch.guaranteed)) {
        return Err("it is of another queue, and the job's own would hold more than it is guaranteed");
    }
    lenders.into_iter().try_for_each(|held| held.lends(gives, preemptible))
}

impl Job {
    /// Since when it waits for an allocation, or waited last.
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

    /// Returns whether the job ever gave way to another job.
    #[must_use]
    pub fn gave_way(&self) -> bool {
        !self.preempted_at.is_empty()
    }

    /// The time from which it may be preempted again by that right: it was preempted too often within the last hour, or
    /// has not run as long as it asked to; for its band, not more than once an hour, moves counted too, and not before
    /// it ran for [`BAND_PATIENCE`]. `None`: now.
    /// `running_since` is when all its workers ran, or the time of its allocation while they do not.
    #[must_use]
    pub fn preemptible_from(
        &self,
        running_since: LogTime,
        now: LogTime,
        per_hour: u32,
        claim: Claim,
    ) -> Option<LogTime> {
        let shortest = match (self.gives_way_for_idleness(), claim) {
            (true, _) => Duration::ZERO,
            (false, Claim::Recall) => self.spec.min_runtime.min(RECALL_PATIENCE),
            (false, Claim::Priority) => self.spec.min_runtime,
            (false, Claim::Band) => self.spec.min_runtime.max(BAND_PATIENCE),
        };
        let has_run = Some(running_since.after(shortest)).filter(|at| *at > now);
        self.budget_from(now, per_hour, claim).max(has_run)
    }

    fn budget_from(&self, now: LogTime, per_hour: u32, claim: Claim) -> Option<LogTime> {
        let limit = match claim {
            // Where operators want no preemption at all, a loan is still given back.
            Claim::Recall => per_hour.max(1),
            Claim::Priority => per_hour,
            Claim::Band => per_hour.min(1),
        };
        let moved = self.history.iter().filter(|attempt| attempt.reason == Some(Reason::Moving));
        let moved = moved.filter_map(|attempt| attempt.ended_at).filter(|_| claim == Claim::Band);
        let stopped = self.preempted_at.iter().copied().chain(moved);
        let mut recent: Vec<LogTime> = stopped.filter(|at| now.since(*at) < PREEMPTION_WINDOW).collect();
        recent.sort_unstable();
        let surplus = recent.len().checked_sub(limit as usize)?;
        // With a limit of zero nobody is ever preempted.
        Some(recent.get(surplus).map_or(LogTime(u64::MAX), |at| at.after(PREEMPTION_WINDOW)))
    }
}
