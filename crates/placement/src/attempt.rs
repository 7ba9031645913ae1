//! One attempt: where a job would start now on the cards that it is shown, and who would give way for that. A round of
//! decisions keeps what an attempt takes; whoever explains, previews or asks what another state of the queues would do
//! undoes it. So all of them judge alike.

use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{LogTime, MilliTflops, Span, State};

use crate::applicant::Applicant;
use crate::demand::{Demand, Offer};
use crate::fit::{self, Placement, Short};
use crate::index::Index;
use crate::kept::Reservation;
use crate::line::shape::Block;
use crate::pool::Pool;
use crate::preempt::{self, InPlan, Search, Victim};
use crate::queues::{self, Queues};

/// Where a job starts, and who gives way for that.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) placement: Placement,
    pub(crate) victims: Vec<Arc<Victim>>,
}

impl Pool {
    /// Where a job starts, or what keeps it from that: room in its queue, or on cards, and whoever could give way for it
    /// does not help. One of `searches` is used up if others are looked for who give way. What is taken is in the
    /// index's journal, but not what comes from victims.
    pub(crate) fn attempt(
        &mut self,
        state: &State,
        now: LogTime,
        job: &Applicant,
        in_plan: &InPlan,
        searches: &mut usize,
    ) -> Result<Start, Block> {
        let admitted = self.queues.admit(job.queue(), job.amount, &[]).is_ok();
        let mut missing = 0;
        if admitted {
            let block_size = state.config().block_size;
            match place_admitted(&mut self.index, &job.demand, &self.queues, job.queue(), block_size) {
                Ok(Some(placement)) => return Ok(Start { placement, victims: Vec::new() }),
                Ok(None) => return Err(Block::Round { cut_short: false }),
                Err(short) => missing = short.missing,
            }
        }
        if !self.may_preempt(job) {
            // Gangs whose virtual cards spread may find room for several where one more card is freed.
            let missing = if job.demand.span == Span::Card { missing } else { 1 };
            let short = Block::Capacity { retry_at: None, in_queue: false, over_maximum: false, missing };
            return Err(if admitted { short } else { Block::Queue });
        }
        if *searches == 0 {
            return Err(Block::Round { cut_short: true });
        }
        *searches -= 1;
        let search = self.search(state, now, job, missing, None, in_plan);
        let Search { found, retry_at, inexact, over_maximum } = search;
        let short = Block::Capacity { retry_at, in_queue: !admitted, over_maximum, missing: 1 };
        let (placement, victims) = found.ok_or(if inexact { Block::Round { cut_short: true } } else { short })?;
        Ok(Start { placement, victims })
    }

    /// Whether there is anybody who could be asked to give way for a job.
    fn may_preempt(&self, job: &Applicant) -> bool {
        self.victims.below(job.queue(), job.request.priority).next().is_some()
            || self.queues.may_recall_for(job.queue(), job.amount)
                && self.victims.queues().any(|queue| queue != job.queue())
    }

    /// Whom a job could replace, as the queues let it, or would if they were as `other`.
    pub(crate) fn search(
        &mut self,
        state: &State,
        now: LogTime,
        job: &Applicant,
        missing: u32,
        other: Option<&Queues>,
        in_plan: &InPlan,
    ) -> Search {
        let queues = other.unwrap_or(&self.queues);
        preempt::search(&mut self.index, state, now, (&self.victims, queues), job, missing, in_plan)
    }

    /// Where a job would start now on the cards that are not hidden. Nothing is changed.
    pub(crate) fn try_now(&mut self, state: &State, job: &Applicant, now: LogTime) -> Option<Start> {
        let mark = self.index.mark();
        let start = self.attempt(state, now, job, &InPlan::default(), &mut 1);
        self.index.undo_to(mark);
        start.ok()
    }

    /// Where a decision would start a job that it came to now, beside the cards that are kept from it; and those.
    pub(crate) fn verdict(
        &mut self,
        state: &State,
        job: &Applicant,
        place: WaitingKey,
        now: LogTime,
    ) -> (Option<Start>, Vec<Reservation>) {
        let kept = self.binding(state, job, place, now);
        (self.beside(&kept, |pool| pool.try_now(state, job, now)), kept)
    }
}

/// Places as many virtual cards of a gang as fit and its queue takes, at least the least number. `Ok(None)`: that fits,
/// but the queue does not take it.
fn place_admitted(
    index: &mut Index,
    demand: &Demand,
    queues: &Queues,
    queue: &str,
    block_size: MilliTflops,
) -> Result<Option<Placement>, Short> {
    let amount_of = |place: &Placement| queues::amount_of(place.slices(), block_size);
    let admits = |place: &Placement| queues.admit(queue, amount_of(place), &[]).is_ok();
    let placed = fit::elastic::place(index, demand, admits);
    if let Ok(None) = &placed
        && let Some(demand) = affordable(demand, queues, queue, block_size)
    {
        return fit::elastic::place(index, &demand, admits).or(Ok(None));
    }
    placed
}

/// The same request for fewer kinds of cards: those of which its queue could take the least that it would be granted.
/// On some it counts for more, because it takes them whole or because they have more to spare than the precision asked
/// for. `None`: that leaves nothing, or everything.
fn affordable(demand: &Demand, queues: &Queues, queue: &str, block_size: MilliTflops) -> Option<Demand> {
    let is_affordable = |offer: &Offer| queues.admit(queue, demand.least_of(offer.need, block_size), &[]).is_ok();
    let count = demand.offers.iter().filter(|offer| is_affordable(offer)).count();
    let some = count > 0 && count < demand.offers.len();
    some.then(|| demand.changed(|demand| demand.offers.retain(is_affordable)))
}
