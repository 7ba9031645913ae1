//! Idle reclaim: jobs that hold blocks and compute next to nothing with them.
//!
//! What a job uses is not in the log, so the ledger cannot see that one is idle. A queue says what counts as idle and
//! what follows after how long ([`IdlePolicy`]: a ladder of steps); the leader measures, and tells the ledger of each
//! step by itself ([`Command::NoteIdle`](crate::Command::NoteIdle)). Here it is checked that the step is due by the
//! ladder and that it is about the attempt that was measured, and then
//!
//! * [`IdleStep::Noticed`]: it is said, and nothing else;
//! * [`IdleStep::Preemptible`]: it counts as preemptible, whatever it asked for, and its least run time protects it no
//!   longer;
//! * [`IdleStep::Suspended`]: it is suspended until somebody resumes it;
//! * [`IdleStep::Released`]: it is ended, and its checkpoints with it.
//!
//! The first two are undone when it is busy again. A queue without a ladder has that of the nearest queue above it. A
//! job with the label [`KEEP_LABEL`] is left alone.

use std::sync::Arc;
use std::time::Duration;

use crate::checks::LONGEST;
use crate::job::{Job, JobState};
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::{LogTime, Percent};

/// The label of jobs that are left alone however idle they are, and its value.
pub const KEEP_LABEL: (&str, &str) = ("tessera.idle", "keep");

/// Highest share of use that a ladder may call idle: twice as much is busy, and must be something.
pub const MOST_IDLE: Percent = Percent(50);

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdleStep {
    /// It is said that it is idle.
    Noticed,
    Preemptible,
    /// It is suspended until somebody resumes it.
    Suspended,
    /// It is ended.
    Released,
}

impl IdleStep {
    /// Every step, in their order.
    pub const ALL: [Self; 4] = [Self::Noticed, Self::Preemptible, Self::Suspended, Self::Released];

    /// The word used in labels of metrics and in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Preemptible => "preemptible",
            Self::Suspended => "suspended",
            Self::Released => "released",
        }
    }

    /// The field of a ladder that says after how long it is taken.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Noticed => "notify_after",
            Self::Preemptible => "preemptible_after",
            Self::Suspended => "suspend_after",
            Self::Released => "release_after",
        }
    }

    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Noticed => Reason::IdleNoticed,
            Self::Preemptible => Reason::IdlePreemptible,
            Self::Suspended => Reason::IdleSuspended,
            Self::Released => Reason::IdleReleased,
        }
    }
}

/// The idle ladder of a queue: the use that counts as idle, and when each step follows; a step without a time is not
/// taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdlePolicy {
    /// A job is idle that computes less than this share of what it was granted.
    pub below: Percent,
    pub notify_after: Option<Duration>,
    pub preemptible_after: Option<Duration>,
    pub suspend_after: Option<Duration>,
    /// It is ended; counted from when it became idle, as the others are.
    pub release_after: Option<Duration>,
}

impl IdlePolicy {
    /// After how long a step is due; `None`: it is not taken.
    #[must_use]
    pub const fn after(&self, step: IdleStep) -> Option<Duration> {
        match step {
            IdleStep::Noticed => self.notify_after,
            IdleStep::Preemptible => self.preemptible_after,
            IdleStep::Suspended => self.suspend_after,
            IdleStep::Released => self.release_after,
        }
    }

    /// The share from which on a job is busy again: twice what is idle, so that one between them does not go back and
    /// forth.
    #[must_use]
    pub const fn busy_from(&self) -> Percent {
        Percent(self.below.0.saturating_mul(2))
    }

    /// Refuses a ladder that nobody could have meant.
    ///
    /// # Errors
    /// [`Rejection::Invalid`] with the path of the first field that is not acceptable.
    pub fn check(&self, field: &str) -> Result<(), Rejection> {
        let invalid = |name: &str, problem: &str| Err(Rejection::invalid(format!("{field}.{name}"), problem));
        if self.below.0 == 0 || self.below > MOST_IDLE {
            return invalid("below_percent", &format!("must be 1 to {}", MOST_IDLE.0));
        }
        let mut last = Duration::ZERO;
        for step in IdleStep::ALL {
            let Some(after) = self.after(step) else { continue };
            let name = step.field();
            if after.is_zero() || after > LONGEST {
                return invalid(name, "must be more than no time and at most ten years");
            }
            if after < last {
                return invalid(name, "must not be sooner than the step before it");
            }
            last = after;
        }
        if last.is_zero() {
            return invalid("notify_after", "or the time of another step must be given");
        }
        if self.release_after.is_some() && self.suspend_after.is_none() {
            return invalid("suspend_after", "must be given when release_after is: only a suspended job is released");
        }
        Ok(())
    }
}

/// That a job is idle, as the ledger was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Idle {
    /// Since when, as far as whoever told of the first step had seen it.
    pub since: LogTime,
    /// The newest step that was taken.
    pub step: IdleStep,
}

impl Job {
    /// The newest idle step of the job; `None`: it is not idle.
    #[must_use]
    pub fn idle_step(&self) -> Option<IdleStep> {
        self.idle.map(|idle| idle.step)
    }

    /// Returns whether the job is not over and counts as idle.
    pub(crate) fn is_idler(&self) -> bool {
        self.idle.is_some() && !self.state.is_terminal()
    }

    /// Returns whether jobs of its queue may preempt the job: its spec allows that, or it has been idle for so long
    /// that the spec no longer counts.
    #[must_use]
    pub fn is_preemptible(&self) -> bool {
        self.spec.preemptible || self.gives_way_for_idleness()
    }

    /// Returns whether the job has been idle for so long that the protections in its spec no longer count.
    #[must_use]
    pub fn gives_way_for_idleness(&self) -> bool {
        self.idle_step() >= Some(IdleStep::Preemptible)
    }

    /// The reason for which the job stays suspended until somebody resumes it.
    pub(crate) fn parked_for(&self) -> Reason {
        match self.idle_step() {
            Some(step @ IdleStep::Suspended) => step.reason(),
            _ => Reason::SuspendedByUser,
        }
    }

    /// Returns whether the job is left alone however long it is idle: it has the label `KEEP_LABEL`.
    #[must_use]
    pub fn is_kept_idle(&self) -> bool {
        let (key, value) = KEEP_LABEL;
        self.spec.labels.get(key).is_some_and(|has| has == value)
    }
}

impl State {
    /// Returns whether any queue has a ladder.
    #[must_use]
    pub fn reclaims_idle(&self) -> bool {
        self.queues().any(|queue| queue.settings.idle.is_some())
    }

    /// The ladder of a job: its queue's, or that of the nearest queue above which has one; none when the job is left
    /// alone.
    #[must_use]
    pub fn idle_policy(&self, job: &Job) -> Option<IdlePolicy> {
        if job.is_kept_idle() {
            return None;
        }
        let line = self.queue_line(&job.spec.queue);
        line.iter().filter_map(|name| self.queues.get(name)).find_map(|queue| queue.settings.idle)
    }

    /// Since when a job has been idle that is to be released by now. It was suspended for that and uses nothing: what
    /// the ledger says of it is all there is to know.
    #[must_use]
    pub fn release_due(&self, job: &Job, now: LogTime) -> Option<LogTime> {
        let idle = job.idle.filter(|idle| idle.step == IdleStep::Suspended)?;
        let after = self.idle_policy(job)?.after(IdleStep::Released)?;
        let is_due = job.state == JobState::Suspended && job.parked && idle.since.after(after) <= now;
        is_due.then_some(idle.since)
    }

    /// The jobs that are not over and of which the ledger was told that they are idle.
    pub fn idle_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.idlers.into_iter().filter_map(|(id, ())| self.jobs.get(id))
    }
}
