//! One session, as plain state: what its agent said, what it was told, and what is under way in the log.

mod proposals;

use std::collections::VecDeque;
use std::time::Duration;

use planted::Bug;
use tessera_api::Refusal;
use tessera_api::v1::session_response::Message;
use tessera_api::v1::{self, ErrorReason};
use tessera_consensus::Term;
use tessera_ledger::wire::{FieldError, WireEnum as _, duration_to_wire};
use tessera_ledger::{Command, NodeId, NodeState, Request, State};

use super::book::OrderBook;
use super::concern::Concern;
use super::kept::{Elsewhere, KeptHere};
use super::messages::{Greeting, Heard, Heartbeat, Report, phase_name, violation};
use super::news::{known_as, other_name_of};
use super::said::{self, send};
use super::step::{Effect, Event, Step};
use crate::lifecycle::leases::Withheld;

/// Pause before a report is proposed again.
const PAUSE: Duration = Duration::from_millis(100);

/// Most reports that wait for the log; an agent that sends more without waiting for acknowledgements is cut.
const REPORTS: usize = 1024;

/// Most bytes of these reports, as they came: four of the largest messages.
const REPORT_BYTES: usize = 64 << 20;

/// Most workers that an agent can say to have, or to have had, before it is told to forget some of them.
const MOST_SIGHTED: usize = 1 << 17;

/// Most starts by which an agent may be ahead of what the ledger knows of it: more than it can have begun in vain.
const MOST_STARTS_AHEAD: u64 = 1 << 20;

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The agent has not said hello.
    Opening,
    /// It speaks from another boot than before, and it is asked whether that one is over.
    Outliving,
    /// Its node is being registered.
    Registering,
    /// Orders go out, reports and heartbeats come in.
    Serving {
        node: NodeId,
        /// The ledger has seen the node as ready during this session.
        ready: bool,
    },
    Closed,
}

#[derive(Debug)]
pub(crate) struct Session {
    term: Term,
    cluster: String,
    phase: Phase,
    greeting: Option<Box<Greeting>>,
    /// The orders to its agent, and the workers that it reports.
    book: OrderBook,
    reports: VecDeque<Report>,
    /// The step that is proposed and not answered.
    proposing: Option<Step>,
    /// The reports in what is proposed.
    in_flight: Vec<Report>,
    /// The newest heartbeat that came before the node was known or while another was being confirmed.
    waiting: Option<Heartbeat>,
    confirming: bool,
    /// The checkpoints on the node's disk.
    kept: KeptHere,
}

/// Refuses a count of starts that no agent can have reached: once kept, it would shut the true one out for ever.
fn check_starts(said: u64, known: u64) -> Result<(), Refusal> {
    if said <= known.saturating_add(MOST_STARTS_AHEAD) {
        return Ok(());
    }
    let problem = format!("must be the number of its starts: {said} is implausible after {known}");
    Err(FieldError::invalid("hello.incarnation", problem).into())
}

impl Session {
    /// A session with a leader of this term of this pool.
    pub fn new(term: Term, cluster: &str) -> Self {
        Self {
            term,
            cluster: cluster.to_owned(),
            phase: Phase::Opening,
            greeting: None,
            book: OrderBook::default(),
            reports: VecDeque::new(),
            proposing: None,
            in_flight: Vec::new(),
            waiting: None,
            confirming: false,
            kept: KeptHere::default(),
        }
    }

    /// Something happened; `state` is the newest state of the ledger.
    pub fn on(&mut self, event: Event, state: &State) -> Vec<Effect> {
        if self.phase == Phase::Closed {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let result = self.react(event, state, &mut effects).and_then(|()| self.follow(state, &mut effects));
        if let Err(refusal) = result {
            self.phase = Phase::Closed;
            effects.push(Effect::Close(refusal));
        }
        effects
    }

    fn react(&mut self, event: Event, state: &State, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        match event {
            Event::Heard(Heard::Hello(greeting)) => self.greeted(greeting, state, effects),
            Event::Heard(_) if self.phase == Phase::Opening => Err(violation("a session begins with a hello")),
            Event::Heard(Heard::Heartbeat(heartbeat, measured, kept)) => {
                self.waiting = Some(heartbeat);
                if let Some(kept) = kept {
                    self.kept.said(kept);
                }
                if let Phase::Serving { node, .. } = self.phase {
                    effects.push(Effect::Note(node, measured));
                }
                Ok(())
            }
            Event::Heard(Heard::Report(report)) => self.take_report(report),
            Event::Tend(elsewhere) => {
                self.tend(elsewhere, state, effects);
                Ok(())
            }
            Event::Proposed(step, result) => self.proposed(step, result, state, effects),
            Event::Leased(heartbeat, granted) => {
                self.confirming = false;
                match granted {
                    Ok(timings) => effects.push(said::lease(self.term, &heartbeat, &timings, state.config())),
                    // Another member may lead by now, and would renew the lease before it ends.
                    Err(Withheld::Unconfirmed) if !planted::is(Bug::AgentsKept) => {
                        return Err(Refusal::not_leader(None));
                    }
                    Err(_) => {}
                }
                Ok(())
            }
            Event::Outlived(true) if self.phase == Phase::Outliving => {
                self.admit(state, effects);
                Ok(())
            }
            Event::Outlived(true) => Ok(()),
            Event::Outlived(false) => Err(Refusal::new(
                ErrorReason::NodeStillLeased,
                "an agent of this node spoke from another boot of its host so lately that its work may still run; if the \
                 host was started anew, this passes by itself; if the data folder was copied from a host that still runs, \
                 give the copy a folder of its own",
            )),
            Event::Resumed => {
                if self.in_flight.is_empty() && self.proposing == Some(Step::Report) {
                    self.proposing = None;
                }
                Ok(())
            }
            Event::Changed(concern) => {
                self.book.touch(concern);
                Ok(())
            }
        }
    }

    /// Does what has become possible: whatever happened, the same things are looked at.
    fn follow(&mut self, state: &State, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        let Phase::Serving { node, ready } = self.phase else { return Ok(()) };
        let is_ready = self.judge(node, ready, state)?;
        self.phase = Phase::Serving { node, ready: is_ready };
        self.send_changes(node, state, effects);
        self.propose_reports(node, state, effects);
        self.propose_return(node, state, effects);
        if let Some(heartbeat) = self.waiting.take_if(|_| !self.confirming) {
            self.confirming = true;
            effects.push(Effect::Confirm(node, heartbeat));
        }
        Ok(())
    }

    /// The agent says who it is and what it runs.
    fn greeted(&mut self, greeting: Box<Greeting>, state: &State, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        if self.phase != Phase::Opening {
            return Err(violation("a session has one hello"));
        }
        if !greeting.cluster.is_empty() && greeting.cluster != self.cluster {
            let text = format!(
                "this agent belongs to pool {:?} and called pool {:?}; correct the addresses of its members; if its pool was \
                 restored or recovered as {:?}, start it once with --accept-pool {}; to make it a new node, give it an empty data \
                 folder",
                greeting.cluster, self.cluster, self.cluster, self.cluster
            );
            return Err(Refusal::new(ErrorReason::ClusterMismatch, text));
        }
        if let Some(name) = other_name_of(&greeting, state) {
            let text = format!(
                "this agent has the data folder of node {name:?} and calls itself {:?}, which would be one host twice; \
                 start it with --name {name}, or, to give the node another name, drain and forget {name:?} and start \
                 the agent on an empty data folder",
                greeting.node.name
            );
            return Err(Refusal::new(ErrorReason::NodeCloned, text));
        }
        if greeting.highest_term > self.term {
            let text = format!(
                "this agent has seen term {}, and this member leads in term {}; another member leads by now, ask it",
                greeting.highest_term.0, self.term.0
            );
            return Err(Refusal::new(ErrorReason::TermStale, text));
        }
        if let Some(known) = state.node_by_name(&greeting.node.name) {
            check_starts(greeting.node.incarnation, known.description.incarnation)?;
        }
        tracing::info!(node = greeting.node.name, workers = greeting.workers.len(), "an agent says hello");
        for sighting in &greeting.workers {
            tracing::debug!(worker = ?sighting.worker, phase = phase_name(sighting), "an agent has a worker");
        }
        let before = state.node_by_name(&greeting.node.name).filter(|known| greeting.is_of_other_boot(known));
        // What a lost node ran is given up already, or kept until somebody says that it has stopped.
        let outlive = before.filter(|node| node.state == NodeState::Ready).map(|node| node.id);
        self.greeting = Some(greeting);
        match outlive {
            Some(node) => {
                self.phase = Phase::Outliving;
                effects.push(Effect::Outlive(node));
            }
            None => self.admit(state, effects),
        }
        Ok(())
    }

    /// The agent may speak for its node: what the ledger does not know of that is proposed first.
    fn admit(&mut self, state: &State, effects: &mut Vec<Effect>) {
        let Some(greeting) = &self.greeting else { return };
        let command = Command::RegisterNode { node: greeting.node.clone(), cards: greeting.cards.clone() };
        let actor = greeting.node.name.clone();
        match known_as(greeting, state) {
            Some(node) => self.welcome(node, state, effects),
            None => {
                self.phase = Phase::Registering;
                self.proposing = Some(Step::Register);
                let request = Request { key: None, actor, command };
                effects.push(Effect::Propose(Step::Register, vec![request]));
            }
        }
    }

    /// The node is known: from here on orders go out.
    fn welcome(&mut self, node: NodeId, state: &State, effects: &mut Vec<Effect>) {
        self.phase = Phase::Serving { node, ready: false };
        let workers = self.greeting.as_mut().map(|greeting| std::mem::take(&mut greeting.workers)).unwrap_or_default();
        effects.push(Effect::Meet(node));
        let config = state.config();
        effects.push(send(Message::Welcome(v1::Welcome {
            node_id: node.0,
            term: self.term.0,
            cluster_id: self.cluster.clone(),
            heartbeat_interval: Some(duration_to_wire(config.leases.heartbeat)),
            reference_precision: config.reference_precision.to_wire(),
            block_milli_tflops: config.block_size.0,
        })));
        self.book.sight(&workers);
        self.book.touch(Concern::Everything);
        let orders = self.book.changes(node, state, true);
        effects.extend(said::orders(self.term, state, orders, true));
        self.reports.push_front(Report { id: None, workers, ..Report::default() });
    }

    /// Has the node do what is to be done with its checkpoints, and the ledger know what it keeps.
    fn tend(&mut self, elsewhere: Elsewhere, state: &State, effects: &mut Vec<Effect>) {
        let Phase::Serving { node, .. } = self.phase else { return };
        let news = if self.proposing.is_none() { self.kept.news(node, state) } else { None };
        effects.extend(
            self.kept.orders(self.term, node, elsewhere, state).map(|orders| send(Message::CheckpointOrders(orders))),
        );
        if let Some(command) = news {
            let actor = self.greeting.as_ref().map(|greeting| greeting.node.name.clone()).unwrap_or_default();
            self.proposing = Some(Step::Kept);
            effects.push(Effect::Propose(Step::Kept, vec![Request { key: None, actor, command }]));
        }
    }

    /// Decides whether the session may continue with its node as the ledger has it; returns whether the node is, or
    /// was, ready.
    fn judge(&self, node: NodeId, ready: bool, state: &State) -> Result<bool, Refusal> {
        match state.node(node).map(|node| node.state) {
            Some(NodeState::Ready) => Ok(true),
            Some(NodeState::Lost) if ready => Err(Refusal::new(
                ErrorReason::NodeChanged,
                format!(
                    "{node} was declared lost while its agent was connected; say hello again with what it runs now"
                ),
            )),
            Some(NodeState::Lost) => Ok(false),
            Some(NodeState::Forgotten) | None => Err(Refusal::new(
                ErrorReason::NodeForgotten,
                format!("{node} was forgotten by an operator; say hello again to register it as a new node"),
            )),
        }
    }

    fn send_changes(&mut self, node: NodeId, state: &State, effects: &mut Vec<Effect>) {
        let orders = self.book.changes(node, state, false);
        if !orders.is_empty() {
            effects.extend(said::orders(self.term, state, orders, false));
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
