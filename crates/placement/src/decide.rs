//! One decision: the line of waiting jobs is gone through once, in order, and everything that can start is granted (P5).

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{CardId, JobId, JobState, LogTime, Plan, PlanPart, Span, State};

use crate::fit::{self, Placement};
use crate::limits::{Decision, Limits};
use crate::line::shape::{Block, Shape, ShapeId};
use crate::pool::Pool;
use crate::preempt::{self, Beneficiary, InPlan, Victim};
use crate::{queues, reserve};

/// How many jobs that could never be held are passed over in search of one to keep cards for.
const IMPOSSIBLE_PASSED_OVER: usize = 4;

/// Cards kept for a job in line from all jobs behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The job.
    pub(crate) holder: WaitingKey,
    /// The cards.
    pub(crate) cards: Vec<CardId>,
}

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
    /// The reservation in force for the jobs considered now.
    current: Option<Reservation>,
}

impl Pool {
    /// Decides what to do at `now`, the time that the plan will be written with or a little before. Costs as much as there are
    /// grants and jobs to be tried, not as much as there are cards or jobs. The plan's effect is counted in until
    /// the next decision; by then the ledger must have answered, or the plan is taken as dropped.
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
            current: None,
        };
        self.evict(&mut round);
        loop {
            let next = self.line.shapes.first_ready();
            if self.hold_back(&mut round, next.map(|(key, _)| key)) {
                continue;
            }
            let Some((key, shape)) = next else { break };
            if round.grants >= limits.grants {
                round.more = true;
                break;
            }
            self.reprice_if_due(state);
            self.consider(&mut round, key, shape);
        }
        if let Some(current) = round.current {
            self.index.set_hidden(&current.cards, false);
            self.reservation = Some(current);
        }
        Decision { plan: round.plan, next_wakeup: self.line.next_wakeup(), more: round.more }
    }

    /// Asks jobs to leave nodes that are drained.
    fn evict(&self, round: &mut Round<'_>) {
        for node in &self.draining {
            for allocation in round.state.allocations_on(*node) {
                let Some(job) = round.state.job(allocation.job) else { continue };
                let there = job.allocation == Some(allocation.id)
                    && matches!(job.state, JobState::Starting | JobState::Running)
                    && allocation.workers.iter().any(|worker| worker.node == *node);
                if !there || round.in_plan.leaving.contains(&job.id) {
                    continue;
                }
                if round.in_plan.leaving.len() >= round.limits.evictions {
                    round.more = true;
                    return;
                }
                round.in_plan.leaving.insert(job.id);
                round.plan.parts.push(PlanPart::Evict { job: job.id, node: *node });
            }
        }
    }

    /// Puts the reservation into force that holds for the job at `next`; answers whether jobs were put back in line by that.
    fn hold_back(&mut self, round: &mut Round<'_>, next: Option<WaitingKey>) -> bool {
        if let Some(current) = round.current.take_if(|current| next.is_some_and(|next| next <= current.holder)) {
            self.index.set_hidden(&current.cards, false);
            self.reservation = Some(current);
        }
        if round.current.is_some() {
            return false;
        }
        if let Some(fresh) = self.reservation_before(round, next) {
            let released = self.reservation.take().map_or_else(Vec::new, |old| match old.holder == fresh.holder {
                true => old.cards.into_iter().filter(|card| !fresh.cards.contains(card)).collect(),
                false => old.cards,
            });
            self.wake_for_cards(&released);
            self.index.set_hidden(&fresh.cards, true);
            round.current = Some(fresh);
            return !released.is_empty();
        }
        // The job that cards were kept for is in line no more: those behind it may use them.
        let gone = self.reservation.take_if(|old| next.is_none_or(|next| next > old.holder));
        if let Some(gone) = &gone {
            self.wake_for_cards(&gone.cards);
        }
        gone.is_some()
    }

    /// The reservation for the first job before `next` that waits for capacity, if it has waited long enough.
    fn reservation_before(&self, round: &Round<'_>, next: Option<WaitingKey>) -> Option<Reservation> {
        let short =
            self.line.shapes.short_before(next).filter_map(|(holder, id)| Some((holder, self.line.shapes.get(id)?)));
        // What its queue would not let start is not worth keeping cards for.
        let admitted = short.filter(|(_, shape)| self.admits_least(round.state, shape));
        for (holder, shape) in admitted.take(IMPOSSIBLE_PASSED_OVER) {
            let waited = waited(round.state, holder.job, round.now);
            if waited.is_none_or(|waited| waited < round.limits.reserve_after) {
                return None;
            }
            if let Some(cards) = reserve::cards_for(&self.index, &shape.demand) {
                return Some(Reservation { holder, cards });
            }
        }
        None
    }

    /// Whether the queue of a shape can take the least that such a job could be granted.
    fn admits_least(&self, state: &State, shape: &Shape) -> bool {
        self.queues.admit(&shape.spec.queue, shape.least(state.config().block_size), &[]).is_ok()
    }

    /// Tries the first job of a shape.
    fn consider(&mut self, round: &mut Round<'_>, key: WaitingKey, id: ShapeId) {
        let Some(shape) = self.line.shapes.get(id) else { return };
        let priority = 100u32.saturating_sub(key.inverse_priority);
        let may_preempt = self.victims.below(priority).next().is_some();
        if !self.admits_least(round.state, shape) {
            return match may_preempt {
                true => self.preempt_for(round, key, id, true, 0),
                false => self.line.shapes.block(id, Block::Queue),
            };
        }
        let mark = self.index.mark();
        match fit::place(&mut self.index, &shape.demand) {
            Ok(placement) => {
                let amount = queues::amount(placement.blocks(), placement.memory(), round.state.config().block_size);
                if self.queues.admit(&shape.spec.queue, amount, &[]).is_err() {
                    self.index.undo_to(mark);
                    return self.line.shapes.block(id, Block::Round);
                }
                self.queues.charge(&shape.spec.queue, amount);
                self.index.keep();
                self.grant(round, key.job, placement, Vec::new());
            }
            Err(short) if may_preempt => self.preempt_for(round, key, id, false, short.missing),
            Err(short) => {
                // Gangs whose virtual cards spread may find room for several where one more card is freed.
                let missing = if shape.demand.span == Span::Card { short.missing } else { 1 };
                let inverse_priority = key.inverse_priority;
                self.line
                    .shapes
                    .block(id, Block::Capacity { inverse_priority, retry_at: None, in_queue: false, missing });
            }
        }
    }

    /// Looks for jobs of lower priority to preempt for the first job of a shape, which lacks room on cards or in its queue.
    fn preempt_for(&mut self, round: &mut Round<'_>, key: WaitingKey, id: ShapeId, in_queue: bool, missing: u32) {
        let Some(shape) = self.line.shapes.get(id) else { return };
        if round.searches == 0 {
            round.more = true;
            return self.line.shapes.block(id, Block::Round);
        }
        round.searches -= 1;
        let block_size = round.state.config().block_size;
        let (priority, queue) = (100u32.saturating_sub(key.inverse_priority), shape.spec.queue.as_str());
        let job = Beneficiary { demand: &shape.demand, priority, queue, least: shape.least(block_size), missing };
        let search = preempt::search(&mut self.index, round.state, &self.victims, &self.queues, job, &round.in_plan);
        let Some((placement, victims)) = search.found else {
            round.more |= search.inexact;
            let (inverse_priority, retry_at) = (key.inverse_priority, search.retry_at);
            let short = Block::Capacity { inverse_priority, retry_at, in_queue, missing: 1 };
            return self.line.shapes.block(id, if search.inexact { Block::Round } else { short });
        };
        let amount = queues::amount(placement.blocks(), placement.memory(), block_size);
        let back = preempt::given_back(&victims, round.state);
        if self.queues.admit(queue, amount, &back).is_err() {
            return self.line.shapes.block(id, Block::Round);
        }
        self.queues.charge(queue, amount);
        preempt::take(&mut self.index, &placement, shape.demand.host);
        self.index.keep();
        self.grant(round, key.job, placement, victims);
    }

    /// Writes a grant into the plan; cards that it needs renumbered come before it.
    fn grant(&mut self, round: &mut Round<'_>, job: JobId, placement: Placement, victims: Vec<Arc<Victim>>) {
        for card in placement.renumbered {
            round.in_plan.renumbered.insert(card);
            round.plan.parts.push(PlanPart::Renumber { card });
        }
        if let Some(job) = round.state.job(job) {
            self.index.surroundings.plan(&job.spec, &placement.workers);
        }
        let victims: Vec<JobId> = victims.into_iter().map(|victim| victim.job).collect();
        round.in_plan.leaving.extend(&victims);
        round.plan.parts.push(PlanPart::Grant { job, workers: placement.workers, victims });
        round.grants += 1;
        self.tariff.changed(1);
        self.line.plan(job);
    }
}

/// How long a job has waited for its grant.
fn waited(state: &State, job: JobId, now: LogTime) -> Option<Duration> {
    let job = state.job(job)?;
    Some(now.since(job.changed_at.max(job.not_before)))
}
