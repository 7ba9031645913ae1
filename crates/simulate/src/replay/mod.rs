//! The past decisions of a live pool, made again: its log is applied entry by entry, and at each plan in it placement
//! decides anew on the state that the plan was made against.
//!
//! A plan depends on the state it was made against, on the time, on the limits of one decision, and on nothing else, so
//! that the same plan must come out. The log has the state; of the time it only says that it lies between that state's
//! and the entry's, so both are tried. Where another plan comes out, [`Difference`] says in what way.

mod compare;

use std::collections::VecDeque;

use tessera_explain::{Explanation, explain};
use tessera_ledger::{
    Command, EntryPosition, JobId, LogTime, Outcome, Plan, PlanPart, Rejection, Request, Revision, State, Touched,
};
use tessera_placement::{Limits, Pool};

pub use compare::Difference;

/// Entries whose states are kept for plans that were made against them; a leader's plan lags its commit by far fewer.
const KEPT_STATES: usize = 1024;

/// Most decisions that are made one after the other because each was cut short.
const MOST_CUT_SHORT: usize = 1000;

/// The result of making a decision again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Same,
    /// The same plan, but only from an index read anew: a leader had just begun, or had forgotten something.
    SameFromFreshIndex,
    /// The state that the plan was made against lies before the beginning of the log that is left.
    StateGone,
    /// Another plan.
    Differs(Difference),
}

/// A past decision and what became of it.
#[derive(Clone, Debug)]
pub struct PastDecision {
    pub revision: Revision,
    pub time: LogTime,
    /// The state it was made against.
    pub made_against: Revision,
    pub parts: Vec<PlanPart>,
    /// The ledger's answer to each part: a refusal means that the state had changed meanwhile.
    pub refused: Vec<Option<Rejection>>,
    /// The result of making it again.
    pub finding: Finding,
    /// The reason why the followed job waited just before; `None` when none is followed or it is unknown.
    pub explanation: Option<Explanation>,
}

impl PastDecision {
    /// Returns whether the decision is about a job: grants, preempts, moves or evicts it.
    #[must_use]
    pub fn concerns(&self, id: JobId) -> bool {
        self.parts.iter().any(|part| match part {
            PlanPart::Grant { job, victims, .. } => *job == id || victims.contains(&id),
            PlanPart::Evict { job, .. } | PlanPart::Move { job, .. } => *job == id,
            PlanPart::Renumber { .. } => false,
        })
    }
}

/// A state that was, and what was touched to come to it.
struct Kept {
    state: State,
    touched: Vec<Touched>,
}

/// A ledger that is led through its past.
pub struct Replay {
    state: State,
    pool: Pool,
    /// The revision that the pool reflects.
    pool_at: Revision,
    /// States after the pool's, oldest first.
    kept: VecDeque<Kept>,
    limits: Limits,
    follows: Option<JobId>,
}

impl Replay {
    /// Begins with a state; `follows` is a job that decisions are explained for.
    #[must_use]
    pub fn new(state: State, limits: Limits, follows: Option<JobId>) -> Self {
        let (pool, pool_at) = (Pool::new(&state), state.revision());
        let kept = VecDeque::from([Kept { state: state.clone(), touched: Vec::new() }]);
        Self { state, pool, pool_at, kept, limits, follows }
    }

    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Applies the next entry; answers the decisions in it.
    pub fn apply(&mut self, at: EntryPosition, requests: Option<&[Request]>) -> Vec<PastDecision> {
        let plans: Vec<(usize, &Plan)> = (0..).zip(requests.unwrap_or_default()).filter_map(plan_of).collect();
        let mut decisions: Vec<PastDecision> = plans.iter().map(|(_, plan)| self.decide_again(plan, at)).collect();
        let outcomes = match requests {
            Some(requests) => self.state.apply(at, requests),
            None => {
                self.state.observe(at);
                Vec::new()
            }
        };
        for (decision, (place, _)) in decisions.iter_mut().zip(&plans) {
            decision.refused = refusals(outcomes.get(*place));
        }
        self.keep();
        decisions
    }

    fn keep(&mut self) {
        let touched = self.state.take_touched();
        self.kept.push_back(Kept { state: self.state.clone(), touched });
        while self.kept.len() > KEPT_STATES {
            self.bring_pool_to(self.kept[1].state.revision());
            self.kept.pop_front();
        }
    }

    /// Lets the pool take over what was touched up to a state that is kept.
    fn bring_pool_to(&mut self, revision: Revision) {
        let later = |kept: &&Kept| kept.state.revision() > self.pool_at && kept.state.revision() <= revision;
        let mut touched: Vec<Touched> = self.kept.iter().filter(later).flat_map(|kept| kept.touched.clone()).collect();
        touched.sort_unstable();
        touched.dedup();
        if let Some(kept) = self.kept.iter().rev().find(|kept| kept.state.revision() <= revision) {
            self.pool.refresh(&kept.state, &touched);
            self.pool_at = self.pool_at.max(revision);
        }
    }

    fn decide_again(&mut self, plan: &Plan, at: EntryPosition) -> PastDecision {
        let known = self.kept.front().is_some_and(|first| first.state.revision() <= plan.revision);
        let (finding, explanation) = if known && plan.revision >= self.pool_at {
            self.bring_pool_to(plan.revision);
            self.compare(plan, at.time)
        } else {
            (Finding::StateGone, None)
        };
        PastDecision {
            revision: at.revision,
            time: at.time,
            made_against: plan.revision,
            parts: plan.parts.clone(),
            refused: Vec::new(),
            finding,
            explanation,
        }
    }

    fn compare(&mut self, plan: &Plan, committed_at: LogTime) -> (Finding, Option<Explanation>) {
        let Some(kept) = self.kept.iter().rev().find(|kept| kept.state.revision() <= plan.revision) else {
            return (Finding::StateGone, None);
        };
        let state = &kept.state;
        let followed = self.follows.and_then(|id| state.job(id)).cloned();
        let explanation = followed.map(|job| explain(&mut self.pool.clone(), state, &job, state.time()));
        let again = |pool: &Pool| {
            [committed_at, state.time()].into_iter().find_map(|now| {
                let mut trial = pool.clone();
                (decided(&mut trial, state, now, &self.limits).parts == plan.parts).then_some(trial)
            })
        };
        // Each is a copy of the index: what it counts in of the plan is what the leader's index counted in.
        if let Some(pool) = again(&self.pool) {
            self.pool = pool;
            return (Finding::Same, explanation);
        }
        if let Some(pool) = again(&Pool::new(state)) {
            self.pool = pool;
            return (Finding::SameFromFreshIndex, explanation);
        }
        let again = decided(&mut self.pool, state, committed_at, &self.limits);
        (Finding::Differs(Difference::between(&plan.parts, &again.parts)), explanation)
    }
}

/// The first plan that a leader commits: one that finds nothing in a decision that was cut short goes on with it.
fn decided(pool: &mut Pool, state: &State, now: LogTime, limits: &Limits) -> Plan {
    let mut decision = pool.decide(state, now, limits);
    for _ in 0..MOST_CUT_SHORT {
        if !decision.more || !decision.plan.parts.is_empty() {
            break;
        }
        decision = pool.decide(state, now, limits);
    }
    decision.plan
}

fn plan_of((place, request): (usize, &Request)) -> Option<(usize, &Plan)> {
    match &request.command {
        Command::CommitPlan { plan } => Some((place, plan)),
        _ => None,
    }
}

fn refusals(outcome: Option<&Outcome>) -> Vec<Option<Rejection>> {
    match outcome {
        Some(Outcome::Planned(parts)) => parts.iter().map(|part| part.as_ref().err().cloned()).collect(),
        _ => Vec::new(),
    }
}
