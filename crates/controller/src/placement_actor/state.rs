//! The state of the placement actor, and its reactions to events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tessera_explain::{explain, preview, waits_by_queue, waits_for};
use tessera_foresight::CompactionPlan;
use tessera_ledger::{Command, Job, JobState, LogTime, NodeId, Outcome, Percent, Plan, Request, Revision, State};
use tessera_placement::{Fragmentation, Limits, Pool};

use super::compaction::{Compaction, Errand};
use super::emptying::Emptying;
use super::{NAME, Question};
use crate::feed::{Change, Scope};
use crate::metrics::Waits;
use crate::pool::{Committed, ProposeError};

/// Pause before another plan after one could not be proposed, or after a decision was cut short without a plan.
const PAUSE: Duration = Duration::from_millis(50);

/// Everything that can happen to the actor.
#[derive(Debug)]
pub(super) enum Event {
    /// Entries were applied.
    Changed(Change),
    /// The plan that was proposed is committed, or is not.
    Answered(Result<Committed, ProposeError>),
    /// The time that it asked to be woken at has come.
    Woke,
    /// A plan of compaction was made.
    Compacted(Box<CompactionPlan>),
    /// The load of nodes was read.
    Load(BTreeMap<NodeId, Percent>),
    Asked(Question),
}

/// An action for the shell of the actor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Propose a plan and tell what came of it.
    Propose { request: Box<Request>, within: Duration },
    /// Forget any earlier wish to be woken, and wake it then.
    Wake(Wake),
    /// A plan was made, for which so many requests were tried.
    Planned { tried: u64 },
    /// Count what the ledger said of a plan's parts.
    Count { accepted: u64, rejected: u64 },
    /// Tell how much of what is free cannot be used.
    Measured(Fragmentation),
    /// Publish the number of waiting jobs per queue and wait code.
    Waits(Waits),
    /// Plan compaction beside the actor and tell what came of it.
    Compact(Box<Errand>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    At(LogTime),
    In(Duration),
    Never,
}

/// The plan that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    /// None.
    Landed,
    Proposed,
    /// Committed at this revision, which the feed has not shown yet.
    Committed(Revision),
}

/// The index with the state that it reflects.
#[derive(Debug)]
struct Known {
    pool: Pool,
    state: Arc<State>,
}

/// The actor's memory. All of it is rebuilt from the ledger.
#[derive(Debug)]
pub(super) struct Placement {
    known: Option<Known>,
    flight: Flight,
    /// Something happened since the last decision.
    due: bool,
    compaction: Compaction,
    emptying: Emptying,
    limits: Limits,
    propose_within: Duration,
    /// The load of nodes as telemetry reports it: it is not in the ledger, and a change of it never triggers a
    /// decision.
    load: BTreeMap<NodeId, Percent>,
}

impl Placement {
    pub(super) fn new(propose_within: Duration) -> Self {
        Self {
            known: None,
            flight: Flight::Landed,
            due: false,
            compaction: Compaction::default(),
            emptying: Emptying::default(),
            limits: Limits::default(),
            propose_within,
            load: BTreeMap::new(),
        }
    }

    /// Something happened at `now`, by the clock that entries carry.
    pub(super) fn on(&mut self, event: Event, now: LogTime) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Changed(change) => self.take_in(change),
            Event::Woke => self.due = true,
            Event::Load(load) => {
                if let Some(known) = &mut self.known {
                    known.pool.set_load(load.clone());
                    effects.push(Effect::Measured(known.pool.fragmentation(&known.state)));
                    effects.push(Effect::Waits(waits_by_queue(&known.pool, &known.state)));
                }
                self.load = load;
                return effects;
            }
            Event::Asked(question) => {
                let steers = question.steers();
                self.answer(question, now);
                if !steers {
                    return effects;
                }
            }
            Event::Compacted(plan) => {
                // Asks to be woken for the next look.
                self.due = true;
                if let Some(known) = &self.known {
                    self.compaction.planned(&known.state, &plan);
                }
            }
            Event::Answered(Ok(committed)) => {
                self.compaction.answered(Some(&committed));
                self.flight = Flight::Committed(committed.revision);
                let counted = count(&committed.outcome);
                let in_vain = matches!(counted, Effect::Count { accepted: 0, .. });
                effects.push(counted);
                if in_vain {
                    // Decided again at once it would be refused again at once, for ever.
                    self.due = false;
                    effects.push(Effect::Wake(Wake::In(PAUSE)));
                    return effects;
                }
                self.due = true;
            }
            Event::Answered(Err(error)) => {
                // Whatever became of the plan: its parts are checked when they are applied, and a part that is decided
                // twice is refused the second time.
                tracing::warn!(%error, "a plan was not committed; it is decided anew");
                self.compaction.answered(None);
                self.flight = Flight::Landed;
                self.due = false;
                effects.push(Effect::Wake(Wake::In(PAUSE)));
                return effects;
            }
        }
        self.decide(now, &mut effects);
        self.empty(now, &mut effects);
        self.compact(now, &mut effects);
        effects
    }

    fn take_in(&mut self, change: Change) {
        let Change { state, scope } = change;
        match (&mut self.known, scope) {
            (Some(known), Scope::Keys(keys)) => {
                self.due |= !keys.is_empty();
                known.pool.refresh(&state, &keys);
                known.state = state;
            }
            (known, _) => {
                self.due = true;
                let mut pool = Pool::new(&state);
                pool.set_load(self.load.clone());
                *known = Some(Known { pool, state });
            }
        }
        if let Some(known) = &self.known {
            self.compaction.watch(&known.state);
        }
    }

    /// Moves jobs away from nodes that are to be empty when nothing else is to be done.
    fn empty(&mut self, now: LogTime, effects: &mut Vec<Effect>) {
        let Some(known) = self.known.as_mut().filter(|_| self.flight == Flight::Landed) else { return };
        let parts = self.emptying.parts(&mut known.pool, &known.state, now);
        if !parts.is_empty() {
            let plan = Plan { revision: known.state.revision(), parts };
            self.propose(plan, effects);
        }
    }

    fn propose(&mut self, plan: Plan, effects: &mut Vec<Effect>) {
        self.flight = Flight::Proposed;
        effects.push(Effect::Propose { request: Box::new(request(plan)), within: self.propose_within });
    }

    /// Goes on with compaction when nothing else is to be done: jobs that wait go first.
    fn compact(&mut self, now: LogTime, effects: &mut Vec<Effect>) {
        let Some(known) = &self.known else { return };
        if self.flight != Flight::Landed {
            return;
        }
        let parts = self.compaction.take_staged();
        if parts.is_empty() {
            let errand = self.compaction.errand(&known.state, now);
            effects.extend(errand.map(|errand| Effect::Compact(Box::new(errand))));
            return;
        }
        let plan = Plan { revision: known.state.revision(), parts };
        self.propose(plan, effects);
    }

    fn decide(&mut self, now: LogTime, effects: &mut Vec<Effect>) {
        let Some(known) = &mut self.known else { return };
        if let Flight::Committed(revision) = self.flight
            && known.state.revision() >= revision
        {
            self.flight = Flight::Landed;
        }
        if !self.due || self.flight != Flight::Landed {
            return;
        }
        self.due = false;
        let tried = known.pool.work().tried;
        let decision = known.pool.decide(&known.state, now, &self.limits);
        let look = self.compaction.next_look(&known.state).filter(|look| *look > now);
        let looks = look.into_iter().chain(self.emptying.next_look(&known.pool, &known.state, now));
        let wake = match (decision.more, decision.next_wakeup.into_iter().chain(looks).min()) {
            (true, _) if decision.plan.parts.is_empty() => Wake::In(PAUSE),
            (_, Some(time)) => Wake::At(time),
            (_, None) => Wake::Never,
        };
        effects.push(Effect::Wake(wake));
        if decision.plan.parts.is_empty() {
            return;
        }
        tracing::debug!(revision = decision.plan.revision.0, parts = decision.plan.parts.len(), "a plan is decided");
        // The count begins anew when the settings changed.
        effects.push(Effect::Planned { tried: known.pool.work().tried.saturating_sub(tried) });
        self.propose(decision.plan, effects);
    }

    fn answer(&mut self, question: Question, now: LogTime) {
        // Questions that come before the first state is read are dropped, which tells the asker to come again.
        let Some(known) = &mut self.known else { return };
        match question {
            Question::Explain { job, reply } => {
                let explanation = known.state.job(job).map(|job| explain(&mut known.pool, &known.state, job, now));
                reply.send(explanation);
            }
            Question::Waits { jobs, reply } => {
                let waiting = jobs.iter().filter_map(|job| known.state.job(*job)).filter(|job| is_waiting(job));
                let waits = waiting.map(|job| (job.id, waits_for(&known.pool, &known.state, job, now)));
                reply.send(waits.collect());
            }
            Question::Preview { spec, reply } => reply.send(preview(&mut known.pool, &known.state, &spec, now)),
            Question::Compaction(reply) => reply.send(self.compaction.progress()),
            Question::StopCompaction(reply) => {
                self.compaction.stop();
                reply.send(self.compaction.progress());
            }
            Question::StartCompaction { order, at_once, reply } => {
                let started = self.compaction.start(order, at_once, false);
                reply.send((started, self.compaction.progress()));
            }
        }
    }
}

/// True if a job waits for an allocation, or would wait if nobody kept it back.
fn is_waiting(job: &Job) -> bool {
    matches!(job.state, JobState::Pending | JobState::Suspended)
}

fn request(plan: Plan) -> Request {
    Request { key: None, actor: NAME.to_owned(), command: Command::CommitPlan { plan } }
}

fn count(outcome: &Outcome) -> Effect {
    let Outcome::Planned(parts) = outcome else { return Effect::Count { accepted: 0, rejected: 1 } };
    for refusal in parts.iter().filter_map(|part| part.as_ref().err()) {
        tracing::debug!(%refusal, "a part of a plan was refused; it is decided anew");
    }
    let accepted = parts.iter().filter(|part| part.is_ok()).count() as u64;
    Effect::Count { accepted, rejected: parts.len() as u64 - accepted }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
