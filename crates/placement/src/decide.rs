//! One decision: the lines of waiting jobs are gone through once, whoever's turn it is, and everything that can start
//! is granted (P5).

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::{JobId, JobState, LogTime, NodeId, Plan, PlanPart, State};

use crate::kept::Keeping;
use crate::line::Order;
use crate::line::shapes::{Block, LineId};
use crate::pool::{Moment, Pool};
use crate::preempt::{self, Found, InPlan};
use crate::queues::{self, Giver};

/// Bounds of one decision, so that one plan is never larger than one log entry should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most grants in one plan.
    pub grants: usize,
    /// Most jobs that one plan asks to leave nodes that are drained.
    pub evictions: usize,
    /// Most searches for jobs to preempt in one decision.
    pub preemption_searches: usize,
    /// The time that the first job of a queue waits before cards are kept free for it.
    pub reserve_after: Duration,
    /// The time that a job waits, for cards held by the same jobs without a time limit, before cards are kept for
    /// others beside it as well: those jobs may never end. In the meantime it stands for all that are behind it in its
    /// queue.
    pub stuck_after: Duration,
    /// Most jobs for which cards are kept free at once, of all queues together.
    pub reservations: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            grants: 256,
            evictions: 64,
            preemption_searches: 32,
            reserve_after: Duration::from_secs(30),
            stuck_after: Duration::from_secs(7 * 24 * 60 * 60),
            reservations: 4,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The plan; empty when nothing can be done.
    pub plan: Plan,
    /// The next time at which something changes by the passing of time alone: the end of a backoff, of a closed window,
    /// of a band or of a protection from preemption, the deadline of a drain, or a job has waited so long that cards
    /// are kept for it.
    pub next_wakeup: Option<LogTime>,
    /// True if a limit, or the plan made so far, cut the decision short: decide again once the plan is committed.
    pub more: bool,
}

/// A plan being made.
struct Round<'a> {
    at: Moment<'a>,
    limits: &'a Limits,
    plan: Plan,
    grants: usize,
    searches: usize,
    in_plan: InPlan,
    more: bool,
    order: Order,
    keeping: Keeping<'a>,
}

impl Pool {
    /// Decides what to do at `now`, the time that the plan will be written with or a little before. Costs as much as
    /// there are grants, jobs to be tried and queues, not as much as there are cards or jobs. The plan's effect is
    /// counted in until the next decision; by then the ledger must have answered, or the plan is taken as dropped.
    pub fn decide(&mut self, state: &State, now: LogTime, limits: &Limits) -> Decision {
        let at = Moment::of(state, now);
        self.settle(state, at.now);
        self.reprice_if_due(state);
        let mut round = Round {
            at,
            limits,
            plan: Plan { revision: state.revision(), parts: Vec::new() },
            grants: 0,
            searches: limits.preemption_searches,
            in_plan: InPlan::default(),
            more: false,
            order: Order::default(),
            keeping: self.begin_keeping(at, limits),
        };
        self.evict(&mut round);
        self.line.shapes.take_changed();
        self.enter(&mut round, self.line.shapes.lines());
        loop {
            let changed = self.line.shapes.take_changed();
            self.enter(&mut round, changed);
            let turn = |line: LineId, least| self.queues.turn(&self.line.shapes.line(line).queue, least);
            let Some((key, line)) = round.order.first(turn) else {
                // Nothing else is left to be tried.
                if self.release(&mut round.keeping, |_| true) { continue } else { break }
            };
            if self.line.shapes.line(line).first_ready().is_none_or(|(ready, _)| ready != key) {
                self.pass(&mut round.keeping, line);
                self.enter(&mut round, [line]);
                continue;
            }
            if round.grants >= limits.grants {
                round.more = true;
                break;
            }
            self.reprice_if_due(state);
            self.consider(&mut round, line);
        }
        self.end_keeping(round.keeping);
        let patience = self.next_out_of_patience(at, limits);
        let opening = self.queues.next_opening();
        let drained = self.draining.iter().filter_map(|node| state.node(*node)?.drain_by).filter(|by| *by > at.now);
        // A band that changes lets somebody in only where somebody waits.
        let band = self.victims.next_fall().filter(|_| self.line.shapes.is_anything_short());
        let next_wakeup = self.line.next_wakeup().into_iter().chain(patience).chain(opening).chain(band);
        let next_wakeup = next_wakeup.chain(drained).min();
        let more = self.ends_cut_short(round.more, &round.plan);
        Decision { plan: round.plan, next_wakeup, more }
    }

    /// Notes whether the next decision is to go on with one that was cut short; returns whether it is to come soon.
    /// When those that went on have come to their end, what has changed since the first is a reason for a whole one.
    fn ends_cut_short(&mut self, more: bool, plan: &Plan) -> bool {
        let came_to_nothing = plan.parts.is_empty();
        let first = self.cut_short_at.take();
        if more && came_to_nothing {
            self.cut_short_at = Some(first.unwrap_or(plan.revision));
        }
        more || came_to_nothing && first.is_some_and(|first| first != plan.revision)
    }

    /// Enters the first jobs of queues into the order.
    fn enter(&self, round: &mut Round<'_>, lines: impl IntoIterator<Item = LineId>) {
        for line in lines {
            let of_line = self.line.shapes.line(line);
            let first = of_line.first_ready().into_iter().chain(round.keeping.next_blocked(self, line)).min();
            let first = first.and_then(|(key, id)| Some((key, self.line.shapes.get(id)?.one.amount)));
            round.order.set(line, first, |least| self.queues.turn(&of_line.queue, least));
        }
    }

    /// Asks jobs to leave nodes that are drained. What they give back counts for all that comes later in the plan, as
    /// the ledger counts: their queues have less on loan, and may recall more.
    fn evict(&mut self, round: &mut Round<'_>) {
        let state = round.at.state;
        let mut givers = Vec::new();
        let now = round.at.now;
        let must_be_left = |id: &NodeId| state.node(*id).is_some_and(|node| node.must_be_left(now));
        let on_node = |node: NodeId| state.allocations_on(node).map(move |allocation| (node, allocation));
        for (node, allocation) in self.draining.iter().copied().filter(must_be_left).flat_map(on_node) {
            let Some(job) = state.job(allocation.job) else { continue };
            let there = job.allocation == Some(allocation.id)
                && matches!(job.state, JobState::Starting | JobState::Running)
                && allocation.workers.iter().any(|worker| worker.node == node);
            if !there || round.in_plan.leaving.contains(&job.id) {
                continue;
            }
            if round.in_plan.leaving.len() >= round.limits.evictions {
                round.more = true;
                break;
            }
            round.in_plan.leaving.insert(job.id);
            round.plan.parts.push(PlanPart::Evict { job: job.id, node });
            givers.push(Giver::of(job, allocation, state.config().block_size));
        }
        givers.iter().for_each(|giver| self.queues.take_back(*giver));
        let claims = self.queues.claims_of(givers.iter().map(|giver| giver.queue));
        self.line.shapes.recall_changed(&self.queues, &claims);
    }

    /// Tries the first job of a queue, and keeps what it is granted.
    fn consider(&mut self, round: &mut Round<'_>, line: LineId) {
        let Some((key, id)) = self.line.shapes.line(line).first_ready() else { return };
        self.work.tried += 1;
        self.show_to(&mut round.keeping, id);
        let Some(job) = self.line.shapes.get(id).map(|shape| Arc::clone(&shape.one)) else { return };
        let found = self.attempt(round.at, &job, &round.in_plan, &mut round.searches);
        let (placement, victims) = match found {
            Ok(start) => start,
            Err(block) => {
                round.more |= block == Block::Round { cut_short: true };
                return self.line.shapes.block(id, block);
            }
        };
        let amount = queues::amount_of(placement.slices(), round.at.state.config().block_size);
        self.queues.charge(job.queue(), amount, job.spec.preemptible);
        victims.iter().for_each(|victim| self.queues.take_back(victim.giver()));
        if !victims.is_empty() {
            preempt::take(&mut self.index, &placement, &job.spec);
        }
        self.index.keep();
        let claims = self.queues.claims_of(victims.iter().map(|victim| victim.giver().queue));
        let makes_room = !victims.is_empty();
        self.grant(round, key.job, (placement, victims));
        if makes_room {
            // What the victims' queues hold less may make it their turn earlier, or let them recall something.
            self.line.shapes.recall_changed(&self.queues, &claims);
            self.enter(round, self.line.shapes.lines());
        }
    }

    /// Writes a grant into the plan; cards that it needs renumbered come before it.
    fn grant(&mut self, round: &mut Round<'_>, job: JobId, (placement, victims): Found) {
        for card in placement.renumbered {
            round.in_plan.renumbered.insert(card);
            round.plan.parts.push(PlanPart::Renumber { card });
        }
        if let Some(job) = round.at.state.job(job) {
            self.index.plan(&job.spec, &placement.workers, round.at.now);
        }
        let victims: Vec<JobId> = victims.iter().map(|victim| victim.job.id).collect();
        round.in_plan.leaving.extend(&victims);
        round.plan.parts.push(PlanPart::Grant { job, workers: placement.workers, victims });
        round.grants += 1;
        self.tariff.changed(1);
        self.line.plan(job);
    }
}
