//! One decision: the lines of waiting jobs are gone through once, whoever's turn it is, and everything that can start
//! is granted (P5).

use std::sync::Arc;

use tessera_ledger::{JobId, JobState, LogTime, MilliTflops, Plan, PlanPart, Span, State};

use crate::demand::{Demand, Offer};
use crate::fit::{self, Placement, Short};
use crate::index::Index;
use crate::kept::Keeping;
use crate::limits::{Decision, Limits};
use crate::line::order::{First, Order};
use crate::line::shape::{Block, LineId, ShapeId};
use crate::pool::Pool;
use crate::preempt::{self, Beneficiary, InPlan, Victim};
use crate::queues::{self, Giver, Queues};

/// A plan being made.
struct Round<'a> {
    state: &'a State,
    now: LogTime,
    limits: &'a Limits,
    plan: Plan,
    grants: usize,
    searches: usize,
    in_plan: InPlan,
    more: bool,
    order: Order,
    keeping: Keeping,
}

impl Pool {
    /// Decides what to do at `now`, the time that the plan will be written with or a little before. Costs as much as
    /// there are grants, jobs to be tried and queues, not as much as there are cards or jobs. The plan's effect is
    /// counted in until the next decision; by then the ledger must have answered, or the plan is taken as dropped.
    pub fn decide(&mut self, state: &State, now: LogTime, limits: &Limits) -> Decision {
        let now = now.max(state.time());
        self.settle(state, now);
        self.reprice_if_due(state);
        let mut round = Round {
            state,
            now,
            limits,
            plan: Plan { revision: state.revision(), parts: Vec::new() },
            grants: 0,
            searches: limits.preemption_searches,
            in_plan: InPlan::default(),
            more: false,
            order: Order::default(),
            keeping: self.begin_keeping(state, now, limits),
        };
        self.evict(&mut round);
        self.line.shapes.take_changed();
        self.enter_all(&mut round);
        loop {
            for line in self.line.shapes.take_changed() {
                self.enter(&mut round, line);
            }
            let turn = |line: LineId, least| self.queues.turn(&self.line.shapes.line(line).queue, least);
            let Some(next) = round.order.first(turn) else {
                // Nothing else is left to be tried.
                if self.release(&mut round.keeping, |_| true) { continue } else { break }
            };
            if self.line.shapes.line(next.line).first_ready().is_none_or(|(key, _)| key != next.key) {
                self.pass(&mut round.keeping, next.line, state, now, limits);
                self.enter(&mut round, next.line);
                continue;
            }
            if round.grants >= limits.grants {
                round.more = true;
                break;
            }
            self.reprice_if_due(state);
            self.consider(&mut round, next.line);
        }
        self.end_keeping(round.keeping);
        let patience = self.next_out_of_patience(state, now, limits);
        let next_wakeup = self.line.next_wakeup().into_iter().chain(patience).min();
        Decision { plan: round.plan, next_wakeup, more: round.more }
    }

    /// Enters the first jobs of all queues into the order.
    fn enter_all(&self, round: &mut Round<'_>) {
        for line in self.line.shapes.lines() {
            self.enter(round, line);
        }
    }

    /// Enters the first jobs of a queue into the order.
    fn enter(&self, round: &mut Round<'_>, line: LineId) {
        let of_line = self.line.shapes.line(line);
        let turn = |least| self.queues.turn(&of_line.queue, least);
        let block_size = round.state.config().block_size;
        let first = |(key, id)| Some(First { key, least: self.line.shapes.get(id)?.least(block_size) });
        let blocked = round.keeping.next_blocked(self, line);
        round.order.set(line, of_line.first_ready().into_iter().chain(blocked).min().and_then(first), turn);
    }

    /// Asks jobs to leave nodes that are drained. What they give back counts for all that comes later in the plan, as
    /// the ledger counts: their queues have less on loan, and may recall more.
    fn evict(&mut self, round: &mut Round<'_>) {
        let state = round.state;
        let mut givers = Vec::new();
        'nodes: for node in &self.draining {
            for allocation in state.allocations_on(*node) {
                let Some(job) = state.job(allocation.job) else { continue };
                let there = job.allocation == Some(allocation.id)
                    && matches!(job.state, JobState::Starting | JobState::Running)
                    && allocation.workers.iter().any(|worker| worker.node == *node);
                if !there || round.in_plan.leaving.contains(&job.id) {
                    continue;
                }
                if round.in_plan.leaving.len() >= round.limits.evictions {
                    round.more = true;
                    break 'nodes;
                }
                round.in_plan.leaving.insert(job.id);
                round.plan.parts.push(PlanPart::Evict { job: job.id, node: *node });
                givers.push(Giver::of(job, allocation, state.config().block_size));
            }
        }
        givers.iter().for_each(|giver| self.queues.take_back(*giver));
        let claims = self.queues.claims_of(givers.iter().map(|giver| giver.queue));
        self.line.shapes.recall_changed(&self.queues, &claims);
    }

    /// Tries the first job of a queue.
    fn consider(&mut self, round: &mut Round<'_>, line: LineId) {
        let Some((key, id)) = self.line.shapes.line(line).first_ready() else { return };
        self.work.tried += 1;
        self.show_to(&mut round.keeping, id, round.now);
        let Some(shape) = self.line.shapes.get(id) else { return };
        let spec = &shape.spec;
        let may_preempt = self.victims.below(&spec.queue, spec.priority).next().is_some()
            || self.queues.may_recall_for(&spec.queue, shape.least(round.state.config().block_size))
                && self.victims.queues().any(|queue| queue != spec.queue);
        if !self.admits_least(round.state, shape) {
            return match may_preempt {
                true => self.preempt_for(round, key.job, id, true, 0),
                false => self.line.shapes.block(id, Block::Queue),
            };
        }
        let (queues, block_size) = (&self.queues, round.state.config().block_size);
        match place_admitted(&mut self.index, &shape.demand, queues, &spec.queue, block_size) {
            Ok(Some(placement)) => {
                let amount = queues::amount(placement.blocks(), placement.memory(), block_size);
                self.queues.charge(&spec.queue, amount, spec.preemptible);
                self.index.keep();
                self.grant(round, key.job, placement, Vec::new());
            }
            Ok(None) => self.line.shapes.block(id, Block::Round),
            Err(short) if may_preempt => self.preempt_for(round, key.job, id, false, short.missing),
            Err(short) => {
                // Gangs whose virtual cards spread may find room for several where one more card is freed.
                let missing = if shape.demand.span == Span::Card { short.missing } else { 1 };
                self.line
                    .shapes
                    .block(id, Block::Capacity { retry_at: None, in_queue: false, over_maximum: false, missing });
            }
        }
    }

    /// Looks for jobs that may be made to give way for the first job of a shape, which lacks room on cards or in
    /// its queue.
    fn preempt_for(&mut self, round: &mut Round<'_>, job: JobId, id: ShapeId, in_queue: bool, missing: u32) {
        let Some(shape) = self.line.shapes.get(id) else { return };
        if round.searches == 0 {
            round.more = true;
            return self.line.shapes.block(id, Block::Round);
        }
        round.searches -= 1;
        let block_size = round.state.config().block_size;
        let (spec, least) = (Arc::clone(&shape.spec), shape.least(block_size));
        let queue = spec.queue.as_str();
        // Nobody gives way for more virtual cards than the job needs.
        let demand = &shape.demand.of_gang(shape.demand.gang_min);
        let (priority, gave_way) = (spec.priority, shape.key.gave_way);
        let beneficiary = Beneficiary { demand, priority, queue, gave_way, least, missing };
        let search = preempt::search(
            &mut self.index,
            round.state,
            round.now,
            &self.victims,
            &self.queues,
            beneficiary,
            &round.in_plan,
        );
        let Some((placement, victims)) = search.found else {
            round.more |= search.inexact;
            let (retry_at, over_maximum) = (search.retry_at, search.over_maximum);
            let short = Block::Capacity { retry_at, in_queue, over_maximum, missing: 1 };
            return self.line.shapes.block(id, if search.inexact { Block::Round } else { short });
        };
        let amount = queues::amount(placement.blocks(), placement.memory(), block_size);
        self.queues.charge(queue, amount, spec.preemptible);
        victims.iter().for_each(|victim| self.queues.take_back(victim.giver()));
        preempt::take(&mut self.index, &placement, spec.host);
        self.index.keep();
        let claims = self.queues.claims_of(victims.iter().map(|victim| victim.giver().queue));
        self.grant(round, job, placement, victims);
        // What the victims' queues hold less may make it their turn earlier, or let them recall something.
        self.line.shapes.recall_changed(&self.queues, &claims);
        self.enter_all(round);
    }

    /// Writes a grant into the plan; cards that it needs renumbered come before it.
    fn grant(&mut self, round: &mut Round<'_>, job: JobId, placement: Placement, victims: Vec<Arc<Victim>>) {
        for card in placement.renumbered {
            round.in_plan.renumbered.insert(card);
            round.plan.parts.push(PlanPart::Renumber { card });
        }
        if let Some(job) = round.state.job(job) {
            self.index.plan(&job.spec, &placement.workers, round.now);
        }
        let victims: Vec<JobId> = victims.into_iter().map(|victim| victim.job).collect();
        round.in_plan.leaving.extend(&victims);
        round.plan.parts.push(PlanPart::Grant { job, workers: placement.workers, victims });
        round.grants += 1;
        self.tariff.changed(1);
        self.line.plan(job);
    }
}

/// Places as many virtual cards of a gang as fit and its queue takes, at least the least number. `Ok(None)`: that fits,
/// but the queue does not take it.
pub(crate) fn place_admitted(
    index: &mut Index,
    demand: &Demand,
    queues: &Queues,
    queue: &str,
    block_size: MilliTflops,
) -> Result<Option<Placement>, Short> {
    let amount_of = |place: &Placement| queues::amount(place.blocks(), place.memory(), block_size);
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
