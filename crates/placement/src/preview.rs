//! What would happen to a job if it were submitted now, without doing it.

use tessera_ledger::{JobId, JobSpec, LogTime, MilliTflops, PlannedWorker, Rejection, State};

use crate::decide::place_admitted;
use crate::demand::Demand;
use crate::fit;
use crate::pool::Pool;
use crate::preempt::{self, Beneficiary, InPlan};
use crate::why::Explanation;

/// A job that would be preempted, and what it would lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviewedVictim {
    /// The job.
    pub job: JobId,
    /// Compute that it would give back, at the pool's reference precision.
    pub compute: MilliTflops,
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
    /// Tries a job as if it had been submitted at `now`, before all others of its priority. Leaves everything as it was.
    pub fn preview(&mut self, state: &State, spec: &JobSpec, now: LogTime) -> Preview {
        if let Err(refusal) = spec.check() {
            return Preview::Refused(refusal);
        }
        if let Err(refusal) = state.capacity().admit(spec, state.config().reference_precision) {
            return Preview::Refused(refusal);
        }
        if state.queue(&spec.queue).is_none() {
            return Preview::Refused(Rejection::UnknownQueue(spec.queue.clone()));
        }
        let all = Demand::compile(spec, &self.index.classes, state.config());
        // It waits, and others give way, for the least number of virtual cards; it starts with as many as fit.
        let demand = all.of_gang(all.gang_min);
        let Some(shortage) = self.shortage(state, &spec.queue, &demand, None) else {
            let kept: Vec<_> = self.reservations.iter().flat_map(|kept| kept.cards.clone()).collect();
            self.index.set_hidden(&kept, true);
            let mark = self.index.mark();
            let placed = place_admitted(&mut self.index, &all, &self.queues, &spec.queue, state.config().block_size);
            self.index.undo_to(mark);
            self.index.set_hidden(&kept, false);
            return Preview::Starts { workers: placed.ok().flatten().unwrap_or_default().workers };
        };
        let mark = self.index.mark();
        let missing = fit::place(&mut self.index, &demand).err().map_or(0, |short| short.missing);
        self.index.undo_to(mark);
        let least = demand.least(state.config().block_size);
        let job = Beneficiary { demand: &demand, priority: spec.priority, queue: &spec.queue, least, missing };
        let search = preempt::search(&mut self.index, state, now, &self.victims, &self.queues, job, &InPlan::default());
        let Some((placement, victims)) = search.found else { return Preview::Waits(shortage) };
        let amount = crate::queues::amount(placement.blocks(), placement.memory(), state.config().block_size);
        if !preempt::legal(&self.queues, &spec.queue, amount, &victims) {
            return Preview::Waits(shortage);
        }
        if self.queues.admit(&spec.queue, amount, &preempt::given_back(&victims)).is_err() {
            return Preview::Waits(shortage);
        }
        let block_size = state.config().block_size.0;
        let victims = victims.into_iter().map(|victim| PreviewedVictim {
            job: victim.job,
            compute: MilliTflops(victim.blocks.saturating_mul(block_size)),
        });
        Preview::Preempts { workers: placement.workers, victims: victims.collect() }
    }
}
