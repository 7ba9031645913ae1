//! What would happen to a job if it were submitted now, without doing it.

use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{JobId, JobSpec, LogTime, PlannedWorker, Rejection, State};

use crate::demand::Applicant;
use crate::loss::Loss;
use crate::pool::{Moment, Pool};
use crate::preempt::Victim;
use crate::why::Explanation;

/// A job that would be preempted, and what it would lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviewedVictim {
    /// The job.
    pub job: JobId,
    /// What it would give back, and lose.
    pub loss: Loss,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preview {
    /// It would start at once.
    Starts {
        /// Where, in order of rank.
        workers: Vec<PlannedWorker>,
    },
    /// It would start once these jobs have given their blocks back.
    Preempts {
        /// Where, in order of rank.
        workers: Vec<PlannedWorker>,
        /// For whom they would make room.
        victims: Vec<PreviewedVictim>,
    },
    /// It would wait.
    Waits(Explanation),
    /// It would be refused (P5b).
    Refused(Rejection),
}

impl Pool {
    /// Tries a job as if it were submitted at `now` and nobody else were granted anything before it, at the
    /// prices of room that the next decision goes by. Leaves everything as it was.
    pub fn preview(&mut self, state: &State, spec: &JobSpec, now: LogTime) -> Preview {
        let at = Moment::of(state, now);
        if let Err(refusal) = spec.check() {
            return Preview::Refused(refusal);
        }
        if let Err(refusal) = state.admit(spec) {
            return Preview::Refused(refusal);
        }
        if state.queue(&spec.queue).is_none() {
            return Preview::Refused(Rejection::UnknownQueue(spec.queue.clone()));
        }
        self.reprice_if_due(state);
        let job = Applicant::of(&Arc::new(spec.clone()), false, &self.index.classes, state.config());
        match self.judge(at, &job, WaitingKey::of_next(spec.priority, at.now)) {
            Err(explanation) => Preview::Waits(explanation),
            Ok((placement, victims)) if victims.is_empty() => Preview::Starts { workers: placement.workers },
            Ok((placement, victims)) => {
                let told = |victim: &Arc<Victim>| PreviewedVictim {
                    job: victim.job.id,
                    loss: Loss::of(state, &victim.job, at.now),
                };
                let victims = victims.iter().map(told).collect();
                Preview::Preempts { workers: placement.workers, victims }
            }
        }
    }
}
