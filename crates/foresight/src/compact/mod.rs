//! Compaction (P7, P10): what is free is brought together, so that large requests fit and cards switch between
//! fewer slices.
//!
//! It has two prices. Renumbering within a card is free: numbers change, the work does not notice. A move between cards
//! costs the job its suspension ([`Loss`]). [`compact`] therefore plans moves by gain against cost and within a budget:
//!
//! 1. moves that let a waiting job start which is too large for any place
//!    ([`Pool::make_room`](tessera_placement::Pool::make_room));
//! 2. moves that bring free room together, from cards with little on them to cards with more, as long as each gains;
//! 3. renumbering of the cards whose free blocks then lie scattered.
//!
//! [`make_way`] plans the first of these alone, for jobs of queues that go by attained service. Such a job takes from
//! others on the way (law L4), so that moves need only free what they do not give.
//!
//! A plan is a pure function of the state: it is previewed and carried out by the same code, step by step, each step
//! validated by [`check`](tessera_check::check) and by the ledger. It never makes the largest request that fits
//! smaller: in compute on a card, on a node and in the pool, in memory on a card. Memory beside compute that is used up
//! is the price of cards that are filled.
//!
//! What it leaves alone: jobs that lose work or are not preemptible, unless told otherwise, and jobs that asked for
//! places beside or apart from others. Where free room is only brought together, also virtual cards that spread over
//! several cards, jobs that asked for whole cards, and cards of other classes: a job that is moved for nobody computes
//! as fast as before.

mod measure;
mod place;
mod relocate;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::{CardId, Job, JobId, LogTime, Plan, PlanPart, Revision, State};
use tessera_placement::{Ask, CompactionOrder, PlannedMove, Rules};

pub use measure::{KindMeasure, Measure, Room};
pub use place::{MoveRefusal, move_job};

use crate::rehearsal::Rehearsal;
use view::{Movable, View};

/// Source cards of one class that are looked at for each move.
const SOURCES: usize = 32;

/// Waiting jobs for which room is looked for: those that are first among all who ask for the same.
const WAITING: usize = 8;

/// Waiting jobs among which those are.
const IN_LINE: usize = 4_096;

/// The planned steps, and the measures of the pool before and after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The state it was made against.
    pub revision: Revision,
    /// Moves, one after the other: a later one may need what an earlier one has left.
    pub moves: Vec<PlannedMove>,
    /// Cards that are renumbered after the moves.
    pub renumbers: Vec<CardId>,
    pub before: Measure,
    /// The pool as it would be.
    pub after: Measure,
}

impl CompactionPlan {
    /// Work that is lost, in TFLOPS times seconds.
    #[must_use]
    pub fn tflops_seconds_lost(&self) -> u64 {
        self.moves.iter().map(|planned| planned.loss.tflops_seconds()).fold(0, u64::saturating_add)
    }

    /// True if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.renumbers.is_empty()
    }
}

/// Plans compaction of the pool as it is at `now`. Nothing is changed; equal states give equal plans.
#[must_use]
pub fn compact(state: &State, now: LogTime, order: &CompactionOrder) -> CompactionPlan {
    let before = Measure::of(state);
    let mut planner = Planner::new(state, now, order);
    planner.make_room(|_| true);
    while planner.left() > 0 && planner.bring_together() {}
    let renumbers = planner.renumber();
    let after = Measure::of(&planner.rehearsal.state);
    CompactionPlan { revision: state.revision(), moves: planner.moves, renumbers, before, after }
}

/// The interval between looks at the jobs that [`make_way`] is for.
pub const WAY_EVERY: Duration = Duration::from_secs(60);

/// Plans moves that let jobs start which wait in queues by attained service, and nothing else; the pool is not measured
/// for them. Nothing is changed; equal states give equal plans.
#[must_use]
pub fn make_way(state: &State, now: LogTime, order: &CompactionOrder) -> CompactionPlan {
    let goes_by_it = |job: &Job| state.order_of(&job.spec.queue).is_some();
    if order.moves == 0 || !state.waiting().any(|job| goes_by_it(job)) {
        return CompactionPlan { revision: state.revision(), ..CompactionPlan::default() };
    }
    let mut planner = Planner::new(state, now, order);
    // Nobody said of other queues that their jobs may be interrupted for such a reason.
    let running = state.allocations().filter_map(|allocation| state.job(allocation.job));
    planner.stay = running.filter(|job| !goes_by_it(job)).map(|job| job.id).collect();
    planner.make_room(goes_by_it);
    CompactionPlan { revision: state.revision(), moves: planner.moves, ..CompactionPlan::default() }
}

/// A plan being made: every move is played through before the next one is looked for.
struct Planner<'a> {
    rehearsal: Rehearsal,
    view: View,
    order: &'a CompactionOrder,
    moves: Vec<PlannedMove>,
    /// Jobs that are left where they are: some from the beginning, and those that were moved.
    stay: BTreeSet<JobId>,
}

/// A move that was found: the card that each piece of the job goes to.
#[derive(Clone, Debug)]
struct Found {
    job: Movable,
    targets: Vec<CardId>,
}

impl<'a> Planner<'a> {
    fn new(state: &State, now: LogTime, order: &'a CompactionOrder) -> Self {
        let rehearsal = Rehearsal::of(state, now);
        let view = View::new(&rehearsal.state, rehearsal.now, order);
        Self { rehearsal, view, order, moves: Vec::new(), stay: BTreeSet::new() }
    }

    fn left(&self) -> u32 {
        self.order.moves.saturating_sub(u32::try_from(self.moves.len()).unwrap_or(u32::MAX))
    }

    /// Finds the move that gains most for what it costs, and makes it; false when none gains anything.
    fn bring_together(&mut self) -> bool {
        loop {
            let Some(found) = self.best() else { return false };
            let job = found.job.id;
            if self.make_found(&found) {
                return true;
            }
            // What the ledger would not take is not looked at again: there are fewer jobs every time.
            self.view.settle(job);
        }
    }

    fn best(&mut self) -> Option<Found> {
        let mut best: Option<(u64, std::cmp::Reverse<JobId>, Found)> = None;
        for job in self.candidates() {
            let Some(job) = self.view.jobs.get(&job).cloned() else { continue };
            let Some((gain, targets)) = self.gain_of(&job) else { continue };
            // One second of one TFLOPS lost counts like a thousandth of the gain.
            let rank = gain.saturating_mul(1_000) / 1_000u64.saturating_add(job.loss.tflops_seconds());
            let key = (rank, std::cmp::Reverse(job.id));
            if best.as_ref().is_none_or(|(rank, id, _)| key > (*rank, *id)) {
                best = Some((key.0, key.1, Found { job, targets }));
            }
        }
        best.map(|(.., found)| found)
    }

    /// The jobs on the cards with least on them, class by class.
    fn candidates(&self) -> BTreeSet<JobId> {
        let mut by_used: std::collections::BTreeMap<usize, BTreeSet<(u32, CardId)>> = Default::default();
        for card in self.view.on_card.iter().filter(|(_, jobs)| !jobs.is_empty()).map(|(card, _)| card) {
            if let Some(seen) = self.view.cards.get(card) {
                by_used.entry(seen.class).or_default().insert((seen.used, *card));
            }
        }
        let sources = by_used.values().flat_map(|cards| cards.iter().take(SOURCES));
        sources.flat_map(|(_, card)| self.view.on_card.get(card).into_iter().flatten()).copied().collect()
    }

    /// The gain of a move of the job to the best places, and these; `None` when it gains nothing or makes something
    /// smaller.
    fn gain_of(&mut self, job: &Movable) -> Option<(u64, Vec<CardId>)> {
        let largest = self.view.largest();
        let targets = relocate::relocate(&mut self.view, &self.rehearsal.state, job)?;
        let worse = relocate::is_worse(&largest, &self.view.largest());
        let cards: BTreeSet<CardId> =
            job.pieces.iter().map(|piece| piece.card).chain(targets.iter().copied()).collect();
        let worth =
            |view: &View| cards.iter().filter_map(|card| view.cards.get(card)).map(|card| card.worth()).sum::<u64>();
        let after = worth(&self.view);
        relocate::put_back(&mut self.view, job, &targets);
        let gain = after.checked_sub(worth(&self.view)).filter(|gain| *gain > 0)?;
        (!worse).then_some((gain, targets))
    }

    /// Makes moves that let waiting jobs start for which there are to be any, first in line first.
    fn make_room(&mut self, is_for: impl Fn(&Job) -> bool) {
        let state = &self.rehearsal.state;
        let eligible = state
            .waiting()
            .filter(|job| is_for(job) && job.is_eligible(state.time()))
            .filter(|job| state.queue_closed_until(&job.spec.queue) <= state.time())
            .take(IN_LINE);
        let mut asked = BTreeSet::new();
        let firsts = eligible.filter(|job| asked.insert(Ask::of(&job.spec)));
        let waiting: Vec<Arc<Job>> = firsts.map(Arc::clone).collect();
        let mut short = 0;
        for job in waiting {
            if self.left() == 0 || short >= WAITING {
                return;
            }
            let (pool, state) = self.rehearsal.pool();
            if !pool.lacks_room(state, &job) {
                continue;
            }
            short += 1;
            for planned in self.room_for(job.id).into_iter().flatten() {
                let job = planned.job;
                if !self.make(planned) {
                    self.view.settle(job);
                    break;
                }
            }
        }
    }

    /// Moves that make room for a waiting job, within what is left of the budget, and nothing smaller that fits.
    fn room_for(&mut self, job: JobId) -> Option<Vec<PlannedMove>> {
        let order = CompactionOrder { moves: self.left(), ..*self.order };
        let rules = Rules { order: &order, now: self.rehearsal.now, stay: &self.stay };
        let view = &mut self.view;
        let (pool, state) = self.rehearsal.pool();
        // Who is moved for a job that takes from others leaves no room of its own before they have gone.
        let takes = state.job(job).is_some_and(|job| state.order_of(&job.spec.queue).is_some());
        pool.make_room_if(state, &rules, job, &mut |moves| takes || !view.would_be_worse(moves))
    }

    /// Writes a move to other cards of the same classes down and makes it.
    fn make_found(&mut self, found: &Found) -> bool {
        let planned = place::write_down(&self.rehearsal.state, found.job.id, &found.job.pieces, &found.targets);
        planned.is_some_and(|planned| self.make(PlannedMove { loss: found.job.loss, ..planned }))
    }

    /// Plays a move through; false when it would not be accepted.
    fn make(&mut self, planned: PlannedMove) -> bool {
        let state = &self.rehearsal.state;
        let plan = Plan { revision: state.revision(), parts: planned.parts() };
        if tessera_check::check(state, &plan).is_err() || !self.rehearsal.carry_out(plan) {
            return false;
        }
        self.view.settle(planned.job);
        for card in planned.cards().collect::<BTreeSet<_>>() {
            self.view.read(&self.rehearsal.state, card);
        }
        self.stay.insert(planned.job);
        self.moves.push(planned);
        true
    }

    /// Renumbers the cards whose free blocks lie scattered.
    fn renumber(&mut self) -> Vec<CardId> {
        let cards: Vec<CardId> = place::scattered(&self.rehearsal.state).collect();
        let parts = cards.iter().map(|card| PlanPart::Renumber { card: *card }).collect();
        if !cards.is_empty() {
            self.rehearsal.carry_out(Plan { revision: self.rehearsal.state.revision(), parts });
        }
        cards
    }
}
