//! A preview of a job's start: the outcome of submitting it now, without doing so.

use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{Job, JobId, JobSpec, LogTime, PlannedWorker, Rejection, State};
use tessera_placement::{Loss, Pool, Start};

use crate::why::judge;
use crate::words::Explanation;

/// A job that would be preempted, and what it would lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviewedVictim {
    pub job: JobId,
    /// The compute that it would give back, and the work that it would lose.
    pub loss: Loss,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preview {
    /// It would start at once.
    Starts {
        /// The places of its workers, in order of rank.
        workers: Vec<PlannedWorker>,
    },
    /// It would start once these jobs have given their blocks back.
    Preempts {
        /// The places of its workers, in order of rank.
        workers: Vec<PlannedWorker>,
        /// For whom they would make room.
        victims: Vec<PreviewedVictim>,
    },
    /// It would wait.
    Waits(Explanation),
    /// It would be refused (P5b).
    Refused(Rejection),
}

/// Tries a job as if it were submitted at `now` and nobody else were granted anything before it, at the prices of room
/// that the next decision goes by. Leaves the pool as it was.
pub fn preview(pool: &mut Pool, state: &State, spec: &JobSpec, now: LogTime) -> Preview {
    if let Err(refusal) = spec.check().and_then(|()| state.admit(spec)) {
        return Preview::Refused(refusal);
    }
    if state.queue(&spec.queue).is_none() {
        return Preview::Refused(Rejection::UnknownQueue(spec.queue.clone()));
    }
    let now = now.max(state.time());
    pool.reprice_if_due(state);
    let mut asked = pool.inquire(state, &Arc::new(spec.clone()), now);
    match judge(&mut asked, WaitingKey::of_next(spec.priority, state.order_of(&spec.queue), now)) {
        Err(explanation) => Preview::Waits(explanation),
        Ok(Start { workers, victims }) if victims.is_empty() => Preview::Starts { workers },
        Ok(Start { workers, victims }) => {
            let told = |job: &Arc<Job>| PreviewedVictim { job: job.id, loss: Loss::of(state, job, now) };
            Preview::Preempts { workers, victims: victims.iter().map(told).collect() }
        }
    }
}
