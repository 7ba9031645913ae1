//! What a decision would do for one job if it came to it now. Nothing is changed: who explains, who previews and who
//! asks what another state of the queues would do all ask here.

use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{Job, JobSpec, LogTime, QueueAmount, State};

use crate::decide::place_admitted;
use crate::demand::Demand;
use crate::fit::Placement;
use crate::kept::Reservation;
use crate::pool::Pool;
use crate::preempt::{self, Beneficiary, InPlan, Victim};
use crate::queues::Queues;

/// A job that waits, or would.
pub(crate) struct Candidate<'a> {
    pub(crate) spec: &'a JobSpec,
    /// Its place in its queue.
    pub(crate) place: WaitingKey,
    /// Whether it gave way before.
    pub(crate) gave_way: bool,
    /// What it asks for.
    pub(crate) demand: Demand,
    /// The least that it starts with.
    pub(crate) least: Demand,
    /// What that counts for in its queue at least.
    pub(crate) amount: QueueAmount,
}

/// What there is for a job without anybody giving way.
pub(crate) enum Room {
    /// This.
    For(Placement),
    /// There is room, but its queue does not take as much as it would count for there.
    Forbidden,
    /// There is none for so many virtual cards, or its queue does not take the least that it asks for.
    Missing(u32),
}

/// Where a job would start, and who would give way for that.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) placement: Placement,
    pub(crate) victims: Vec<Arc<Victim>>,
}

impl<'a> Candidate<'a> {
    /// A job that waits.
    pub(crate) fn of(pool: &Pool, state: &State, job: &'a Job) -> Self {
        Self { gave_way: job.gave_way(), ..Self::new(pool, state, &job.spec, WaitingKey::of(job)) }
    }

    /// A job that never ran.
    pub(crate) fn new(pool: &Pool, state: &State, spec: &'a JobSpec, place: WaitingKey) -> Self {
        let demand = Demand::compile(spec, &pool.index.classes, state.config());
        let least = demand.of_gang(demand.gang_min);
        let amount = least.least(state.config().block_size);
        Self { spec, place, gave_way: false, demand, least, amount }
    }
}

impl Pool {
    /// Where a decision would start a job that it came to now, beside the cards that are kept from it; and those.
    pub(crate) fn verdict(
        &mut self,
        state: &State,
        job: &Candidate<'_>,
        now: LogTime,
    ) -> (Option<Verdict>, Vec<Reservation>) {
        let kept = self.binding(state, job, now);
        (self.beside(&kept, |pool| pool.try_now(state, job, now)), kept)
    }

    /// The same on the cards that are not hidden.
    pub(crate) fn try_now(&mut self, state: &State, job: &Candidate<'_>, now: LogTime) -> Option<Verdict> {
        match self.room_for(state, job) {
            Room::For(placement) => Some(Verdict { placement, victims: Vec::new() }),
            Room::Forbidden => None,
            Room::Missing(missing) => self.try_preempting(state, job, now, missing, None).0,
        }
    }

    /// Whether there is room for a job without anybody giving way.
    pub(crate) fn room_for(&mut self, state: &State, job: &Candidate<'_>) -> Room {
        let (queue, block_size) = (job.spec.queue.as_str(), state.config().block_size);
        if self.queues.admit(queue, job.amount, &[]).is_err() {
            return Room::Missing(0);
        }
        let mark = self.index.mark();
        let placed = place_admitted(&mut self.index, &job.demand, &self.queues, queue, block_size);
        self.index.undo_to(mark);
        match placed {
            Ok(Some(placement)) => Room::For(placement),
            Ok(None) => Room::Forbidden,
            Err(short) => Room::Missing(short.missing),
        }
    }

    /// Where a job would start if others gave way, as the queues let them, or would if they were as `other`; and when
    /// that may be tried again. Nobody gives way for more virtual cards than it needs.
    pub(crate) fn try_preempting(
        &mut self,
        state: &State,
        job: &Candidate<'_>,
        now: LogTime,
        missing: u32,
        other: Option<&Queues>,
    ) -> (Option<Verdict>, Option<LogTime>) {
        let (queue, least) = (job.spec.queue.as_str(), job.amount);
        let queues = other.unwrap_or(&self.queues);
        let (demand, priority, gave_way) = (&job.least, job.spec.priority, job.gave_way);
        let beneficiary = Beneficiary { demand, priority, queue, gave_way, least, missing };
        let search =
            preempt::search(&mut self.index, state, now, &self.victims, queues, beneficiary, &InPlan::default());
        (search.found.map(|(placement, victims)| Verdict { placement, victims }), search.retry_at)
    }
}
