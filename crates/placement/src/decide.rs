//! One decision: the lines of waiting jobs are gone through once, whoever's turn it is, and everything that can start
//! is granted (P5).

use std::sync::Arc;

use tessera_ledger::{JobId, JobState, LogTime, Plan, PlanPart, State};

use crate::attempt::Start;
use crate::fit::Placement;
use crate::kept::Keeping;
use crate::limits::{Decision, Limits};
use crate::line::order::{First, Order};
use crate::line::shape::{Block, LineId};
use crate::pool::Pool;
use crate::preempt::{self, InPlan, Victim};
use crate::queues::{self, Giver};

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
        let opening = self.queues.next_opening();
        let next_wakeup = self.line.next_wakeup().into_iter().chain(patience).chain(opening).min();
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
        let first = |(key, id)| Some(First { key, least: self.line.shapes.get(id)?.one.amount });
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

    /// Tries the first job of a queue, and keeps what it is granted.
    fn consider(&mut self, round: &mut Round<'_>, line: LineId) {
        let Some((key, id)) = self.line.shapes.line(line).first_ready() else { return };
        self.work.tried += 1;
        self.show_to(&mut round.keeping, id, round.now);
        let Some(job) = self.line.shapes.get(id).map(|shape| Arc::clone(&shape.one)) else { return };
        let found = self.attempt(round.state, round.now, &job, &round.in_plan, &mut round.searches);
        let Start { placement, victims } = match found {
            Ok(start) => start,
            Err(block) => {
                round.more |= block == Block::Round { cut_short: true };
                return self.line.shapes.block(id, block);
            }
        };
        let amount = queues::amount_of(placement.slices(), round.state.config().block_size);
        self.queues.charge(job.queue(), amount, job.spec.preemptible);
        victims.iter().for_each(|victim| self.queues.take_back(victim.giver()));
        if !victims.is_empty() {
            preempt::take(&mut self.index, &placement, job.spec.host);
        }
        self.index.keep();
        self.grant(round, key.job, placement, &victims);
        if !victims.is_empty() {
            // What the victims' queues hold less may make it their turn earlier, or let them recall something.
            let claims = self.queues.claims_of(victims.iter().map(|victim| victim.giver().queue));
            self.line.shapes.recall_changed(&self.queues, &claims);
            self.enter_all(round);
        }
    }

    /// Writes a grant into the plan; cards that it needs renumbered come before it.
    fn grant(&mut self, round: &mut Round<'_>, job: JobId, placement: Placement, victims: &[Arc<Victim>]) {
        for card in placement.renumbered {
            round.in_plan.renumbered.insert(card);
            round.plan.parts.push(PlanPart::Renumber { card });
        }
        if let Some(job) = round.state.job(job) {
            self.index.plan(&job.spec, &placement.workers, round.now);
        }
        let victims: Vec<JobId> = victims.iter().map(|victim| victim.job).collect();
        round.in_plan.leaving.extend(&victims);
        round.plan.parts.push(PlanPart::Grant { job, workers: placement.workers, victims });
        round.grants += 1;
        self.tariff.changed(1);
        self.line.plan(job);
    }
}
