//! Making room: few moves of running jobs after which a job fits that does not fit now.
//!
//! Room for one more job is often there, but divided: cards with room on a node whose host is used up, hosts with room
//! beside full cards, halves of cards on several nodes. A few moves put it together. Nodes are looked at where so few
//! moves would be enough by the numbers; the cheapest ways are tried out on the index, and every trial is undone.
//! Whoever is moved goes where it costs least of what the room could have been used for, as if it were placed for the
//! first time.

use std::collections::BTreeSet;

use tessera_ledger::{CardId, CheckpointMode, Job, JobId, LogTime, NodeId, Span, State};

use super::ways::{Mover, Way, Yielding, movers_by_node, without_yielding};
use super::{CompactionOrder, PlannedMove, Rules};
use crate::demand::{Applicant, Demand};
use crate::fit::{self, Placement, fits};
use crate::index::Index;
use crate::index::class::ClassId;
use crate::pool::Pool;
use crate::preempt::vacate;
use crate::queues::{Queues, amount_of};

/// Most ways that are tried out, of those that are alike in whether they lose work.
const TRIED: usize = 48;

impl Pool {
    /// Looks for moves of running jobs, within what the order allows, after which `job`, which waits and does not fit,
    /// would fit. They are made one after the other. Moves that lose no work go before those that do, then fewer before
    /// more, then those that lose less and are of jobs that hold less. Answers `None` when it finds none; leaves
    /// everything as it was.
    pub fn make_room(
        &mut self,
        state: &State,
        now: LogTime,
        job: JobId,
        order: &CompactionOrder,
    ) -> Option<Vec<PlannedMove>> {
        let rules = Rules { order, now, stay: &BTreeSet::new() };
        self.make_room_if(state, &rules, job, &mut |_| true)
    }

    /// The same by moves that somebody else accepts as well.
    pub fn make_room_if(
        &mut self,
        state: &State,
        rules: &Rules<'_>,
        job: JobId,
        accept: &mut dyn FnMut(&[PlannedMove]) -> bool,
    ) -> Option<Vec<PlannedMove>> {
        self.settle(state, state.time());
        self.reprice_if_due(state);
        let waiting = state.job(job).filter(|job| job.is_waiting())?;
        let demand = Applicant::of(&waiting.spec, &self.index.classes, state.config()).least;
        // Virtual cards of a gang are found room for one by one; which room that is must not matter to the others.
        let apart = demand.gang == 1 || demand.span == Span::Card && !demand.has_hard_wishes();
        if demand.offers.is_empty() || !apart || fits(&mut self.index, &demand) {
            return None;
        }
        let mark = self.index.mark();
        let mut found = self.room_for_gang(state, rules, Yielding::to(state, waiting, rules.now), &demand, accept);
        self.index.undo_to(mark);
        found.iter_mut().flatten().for_each(|planned| planned.makes_room_for = Some(job));
        found
    }

    /// Returns whether a waiting job lacks nothing but room.
    pub fn lacks_room(&mut self, state: &State, job: &Job) -> bool {
        let job = Applicant::of(&job.spec, &self.index.classes, state.config());
        self.queues.admit(job.queue(), job.amount).is_ok() && !fits(&mut self.index, &job.least)
    }

    /// Room for each virtual card for which there is none beside the others, one after the other; what was found
    /// stays taken.
    fn room_for_gang(
        &mut self,
        state: &State,
        rules: &Rules<'_>,
        yielding: Option<Yielding<'_>>,
        demand: &Demand,
        accept: &mut dyn FnMut(&[PlannedMove]) -> bool,
    ) -> Option<Vec<PlannedMove>> {
        let one = demand.of_gang(1);
        let mut missing = demand.gang;
        while missing > 0 && fit::place(&mut self.index, &one).is_ok() {
            missing -= 1;
        }
        let mut stay = rules.stay.clone();
        let mut moves: Vec<PlannedMove> = Vec::new();
        for left in (0..missing).rev() {
            let most = (rules.order.moves as usize).saturating_sub(moves.len());
            let rules = Rules { stay: &stay, ..*rules };
            let mut with_those_before = |more: &[PlannedMove]| accept(&[&moves[..], more].concat());
            let more = self.room_for_one(state, &rules, yielding, &one, most, &mut with_those_before)?;
            stay.extend(more.iter().map(|planned| planned.job));
            moves.extend(more);
            // What is left over of the room that was made may be enough for the next one too.
            if left > 0 && fits(&mut self.index, &demand.of_gang(left)) {
                break;
            }
        }
        Some(moves).filter(|moves| !moves.is_empty())
    }

    /// Moves after which one virtual card fits. They and the virtual card stay in the index.
    fn room_for_one(
        &mut self,
        state: &State,
        rules: &Rules<'_>,
        yielding: Option<Yielding<'_>>,
        demand: &Demand,
        most: usize,
        accept: &mut dyn FnMut(&[PlannedMove]) -> bool,
    ) -> Option<Vec<PlannedMove>> {
        let nodes = movers_by_node(&mut self.index, state, rules, yielding, demand);
        let mut losing = [false, true].into_iter().filter(|losing_work| rules.order.losing_work || !losing_work);
        losing.find_map(|losing| {
            let cheapest = |all: &Way| {
                let look = |index: &mut Index| all.cheapest(index, demand, losing, most);
                without_yielding(&mut self.index, state, yielding, all.node, look)
            };
            let mut ways: Vec<Way> = nodes.iter().filter_map(cheapest).collect();
            ways.sort_by_key(Way::cost);
            ways.iter().take(TRIED).find_map(|way| self.try_out(state, way, yielding, demand, accept))
        })
    }

    /// Moves these away and places the virtual card. They leave the node; if that cannot be, only the cards that they
    /// are on.
    fn try_out(
        &mut self,
        state: &State,
        way: &Way,
        yielding: Option<Yielding<'_>>,
        demand: &Demand,
        accept: &mut dyn FnMut(&[PlannedMove]) -> bool,
    ) -> Option<Vec<PlannedMove>> {
        let sources: BTreeSet<CardId> = way.movers.iter().flat_map(|mover| mover.cards()).collect();
        let of_node: BTreeSet<CardId> = self.index.node(way.node)?.cards.iter().map(|card| card.id).collect();
        let whole: BTreeSet<CardId> = of_node.union(&sources).copied().collect();
        let narrow = (whole != sources).then_some(sources);
        std::iter::once(whole).chain(narrow).find_map(|closed| {
            let mark = self.index.mark();
            if let Some(yielding) = yielding {
                yielding.leave(&mut self.index, state, way.node);
            }
            let moves = self.move_away(state, &way.movers, closed);
            let done = moves.filter(|moves| fit::place(&mut self.index, demand).is_ok() && accept(moves));
            if done.is_none() {
                self.index.undo_to(mark);
            }
            done
        })
    }

    /// Plans the move of one running job to other cards of the classes that it is on, or else of others that it may use
    /// and go on with; on a given node or wherever it costs least. `None`: not all of it runs, its places depend on
    /// other workers or jobs, or there is no room. Leaves everything as it was.
    pub fn move_one(&mut self, state: &State, now: LogTime, job: JobId, to: Option<NodeId>) -> Option<PlannedMove> {
        self.settle(state, state.time());
        self.reprice_if_due(state);
        let order = CompactionOrder { losing_work: true, not_preemptible: true, ..CompactionOrder::default() };
        let rules = Rules { order: &order, now, stay: &BTreeSet::new() };
        let mover = Mover::of(state, &rules, state.allocation(state.job(job)?.allocation?)?)?;
        let any = own_demand(&self.index, state, &mover);
        let same = of_its_classes(&self.index, &mover, &any);
        [same, any].into_iter().find_map(|own| {
            let own = to.map_or_else(|| own.clone(), |node| own.among([node]));
            let mark = self.index.mark();
            let planned = self.index.beside_closed(mover.cards(), |index| target_of(index, &mover, &own));
            self.index.undo_to(mark);
            planned
        })
    }

    /// Finds other places for the movers beside the closed cards. Their targets are taken before their sources are
    /// given back, as the ledger does it.
    fn move_away(&mut self, state: &State, movers: &[Mover], closed: BTreeSet<CardId>) -> Option<Vec<PlannedMove>> {
        let queues = &self.queues;
        let moves: Option<Vec<PlannedMove>> = self.index.beside_closed(closed, |index| {
            let target = |mover| {
                let own = own_demand(index, state, mover);
                target_of(index, mover, &own).filter(|planned| admits_twice(queues, state, mover, planned))
            };
            movers.iter().map(target).collect()
        });
        if moves.is_some() {
            // They have left when the job is placed, so that their cards can be renumbered as before.
            let leave = |mover: &Mover| vacate(&mut self.index, &mover.allocation, &mover.job.spec, false);
            movers.iter().for_each(leave);
        }
        moves
    }
}

/// The demand of a mover, for as many virtual cards as it has. Dumped processes resume only on cards of the classes
/// that they had, since a driver restores the contents of a card to no others; a program with a device resumes on any
/// cards that the job accepts.
fn own_demand(index: &Index, state: &State, mover: &Mover) -> Demand {
    let applicant = Applicant::of(&mover.job.spec, &index.classes, state.config());
    let own = applicant.demand.of_gang(mover.allocation.virtual_cards());
    let spec = &mover.job.spec;
    let is_bound = spec.checkpoint.mode == CheckpointMode::Transparent && !spec.virtual_card.access.is_device();
    if is_bound { of_its_classes(index, mover, &own) } else { own }
}

/// The same on cards of the classes that a mover is on.
fn of_its_classes(index: &Index, mover: &Mover, own: &Demand) -> Demand {
    let class = |card| index.card(card).map(|card| card.class);
    let classes: BTreeSet<ClassId> = mover.cards().filter_map(class).collect();
    own.changed(|own| own.offers.retain(|offer| classes.contains(&offer.class)))
}

/// Plans the move of a mover to another place, if the same virtual cards run a program there as now. The room that it
/// takes is in the index's journal.
fn target_of(index: &mut Index, mover: &Mover, own: &Demand) -> Option<PlannedMove> {
    let Placement { workers, renumbered } = fit::place(index, own).ok()?;
    let spec = &mover.job.spec;
    let now = mover.allocation.programs(&spec.virtual_card).map(|worker| worker.virtual_card);
    spec.cards_with_programs(&workers).eq(now).then(|| PlannedMove {
        job: mover.job.id,
        from: mover.allocation.workers.iter().flat_map(|worker| worker.slices.iter().copied()).collect(),
        workers,
        renumbered: renumbered.into_iter().collect(),
        loss: mover.loss,
        makes_room_for: None,
    })
}

/// Returns whether the queue of a mover takes its new place beside its present one: until it has moved it has both.
fn admits_twice(queues: &Queues, state: &State, mover: &Mover, planned: &PlannedMove) -> bool {
    let slices = planned.workers.iter().flat_map(|worker| &worker.slices);
    let amount = amount_of(slices, state.config().block_size);
    queues.admit(&mover.job.spec.queue, amount).is_ok()
}
