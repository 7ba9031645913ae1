//! One attempt: where a job would start now on the cards that it is shown, and who would give way for that. A round of
//! decisions keeps what an attempt takes; whoever explains, previews or asks what another state of the queues would do
//! undoes it. So all of them judge alike.

use tessera_ledger::{Span, State};

use crate::bisect;
use crate::demand::{Applicant, Demand, Offer};
use crate::fit::{self, Placement, Short};
use crate::index::Index;
use crate::line::shapes::Block;
use crate::pool::{Moment, Pool};
use crate::preempt::{self, Found, InPlan, Search};
use crate::queues::{self, Queues};

impl Pool {
    /// Returns the placement of a job and the victims that make room for it, or the block that keeps it from starting:
    /// no room in its queue or on cards, and victims do not help. Uses up one of `searches` if it searches for victims.
    /// A placement without victims is taken in the index's journal; one with victims is not.
    pub(crate) fn attempt(
        &mut self,
        at: Moment<'_>,
        job: &Applicant,
        in_plan: &InPlan,
        searches: &mut usize,
    ) -> Result<Found, Block> {
        let admitted = self.queues.admit(job.queue(), job.amount).is_ok();
        let mut missing = 0;
        if admitted {
            match self.place_admitted(at.state, job) {
                Ok(Some(placement)) => return Ok((placement, Vec::new())),
                Ok(None) => return Err(Block::Round { cut_short: false }),
                Err(short) => missing = short.missing,
            }
        }
        let may_preempt = self.victims.below(job.queue(), job.request.precedence).next().is_some()
            || self.queues.may_recall_for(job.queue(), job.amount)
                && self.victims.queues().any(|queue| queue != job.queue());
        if !may_preempt {
            // Gangs whose virtual cards spread may find room for several where one more card is freed.
            let missing = if job.demand.span == Span::Card { missing } else { 1 };
            let short = Block::Capacity { retry_at: None, in_queue: false, over_maximum: false, missing };
            return Err(if admitted { short } else { Block::Queue });
        }
        if *searches == 0 {
            return Err(Block::Round { cut_short: true });
        }
        *searches -= 1;
        let Search { found, retry_at, inexact, over_maximum } = self.search(at, job, missing, None, in_plan);
        let short = Block::Capacity { retry_at, in_queue: !admitted, over_maximum, missing: 1 };
        found.ok_or(if inexact { Block::Round { cut_short: true } } else { short })
    }

    /// Searches for the victims that a job could replace, as the pool's queues let it, or as they would if they were
    /// `other`.
    pub(crate) fn search(
        &mut self,
        at: Moment<'_>,
        job: &Applicant,
        missing: u32,
        other: Option<&Queues>,
        in_plan: &InPlan,
    ) -> Search {
        let queues = other.unwrap_or(&self.queues);
        preempt::search(&mut self.index, at, (&self.victims, queues), job, missing, in_plan)
    }

    /// Finds the placement and the victims with which a job would start now, on the cards that are not hidden. Nothing
    /// is changed.
    pub(crate) fn try_now(&mut self, at: Moment<'_>, job: &Applicant) -> Option<Found> {
        let mark = self.index.mark();
        let start = self.attempt(at, job, &InPlan::default(), &mut 1);
        self.index.undo_to(mark);
        start.ok()
    }

    /// Places as many virtual cards of a gang as fit and its queue takes, at least the least number. `Ok(None)`: that
    /// fits, but the queue does not take it.
    fn place_admitted(&mut self, state: &State, job: &Applicant) -> Result<Option<Placement>, Short> {
        let (queues, demand, block_size) = (&self.queues, &*job.demand, state.config().block_size);
        let takes = |amount| queues.admit(job.queue(), amount).is_ok();
        let admits = |place: &Placement| takes(queues::amount_of(place.slices(), block_size));
        let placed = place_elastic(&mut self.index, demand, admits)?;
        if placed.is_some() {
            return Ok(placed);
        }
        // The same for fewer kinds of cards: those of which the queue could take the least that would be granted. On
        // some it counts for more, because they are taken whole or have more to spare than the precision asked for.
        let is_affordable = |offer: &Offer| takes(demand.least_of(offer.need, block_size));
        let count = demand.offers.iter().filter(|offer| is_affordable(offer)).count();
        if count == 0 || count == demand.offers.len() {
            return Ok(None);
        }
        let affordable = demand.changed(|demand| demand.offers.retain(is_affordable));
        Ok(place_elastic(&mut self.index, &affordable, admits).unwrap_or(None))
    }
}

/// Places as many virtual cards of a gang that may start with fewer as fit and `admits` takes, all or nothing at the
/// least number. `Ok(None)`: even the least number fits, and is not admitted. What it took is in the index's journal.
fn place_elastic(
    index: &mut Index,
    demand: &Demand,
    admits: impl Fn(&Placement) -> bool,
) -> Result<Option<Placement>, Short> {
    let mark = index.mark();
    let mut try_with = |demand: &Demand| {
        index.undo_to(mark);
        let taken = fit::place(index, demand).map(|placement| Some(placement).filter(&admits));
        if !matches!(taken, Ok(Some(_))) {
            index.undo_to(mark);
        }
        taken
    };
    let (least, most) = (demand.gang_min(), demand.gang);
    let all = try_with(demand);
    if least >= most || matches!(all, Ok(Some(_))) {
        return all;
    }
    if try_with(&demand.of_gang(least))?.is_none() {
        return Ok(None);
    }
    let with = |gang: usize| demand.of_gang(u32::try_from(gang).unwrap_or(u32::MAX));
    let largest = bisect(least as usize, most as usize, |gang| matches!(try_with(&with(gang)), Ok(Some(_))));
    try_with(&with(largest))
}
