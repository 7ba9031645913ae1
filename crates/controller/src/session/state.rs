//! One session, as plain state: what its agent said, what it was told, and what is under way in the log.

use std::collections::VecDeque;
use std::time::Duration;

use planted::Bug;
use tessera_api::Refusal;
use tessera_api::v1::session_response::Message;
use tessera_api::v1::{self, ErrorReason};
use tessera_consensus::Term;
use tessera_ledger::wire::{WireEnum as _, duration_to_wire};
use tessera_ledger::{Command, NodeId, NodeState, Outcome, Request, State};

use super::book::OrderBook;
use super::concern::Concern;
use super::kept::{Elsewhere, KeptHere};
use super::messages::{Greeting, Heard, Heartbeat, Report, phase_name, violation};
use super::news::{known_as, news};
use super::said::{self, acknowledge, not_registered, send};
use super::step::{Effect, Event, Step};
use crate::lifecycle::leases::Withheld;
use crate::pool::{Committed, ProposeError};

/// Pause before a report is proposed again.
const PAUSE: Duration = Duration::from_millis(100);

/// Most reports that wait for the log; an agent that sends more without waiting for acknowledgements is cut.
const REPORTS: usize = 1024;

/// How far the session is.
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
    /// Over.
    Closed,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    term: Term,
    cluster: String,
    phase: Phase,
    greeting: Option<Box<Greeting>>,
    /// What its agent was ordered, and what it says is there.
    book: OrderBook,
    reports: VecDeque<Report>,
    /// What is proposed and not answered.
    proposing: Option<Step>,
    /// The reports in what is proposed.
    in_flight: Vec<Report>,
    /// The newest heartbeat that came before the node was known or while another was being confirmed.
    waiting: Option<Heartbeat>,
    confirming: bool,
    /// The checkpoints on the node's disk.
    kept: KeptHere,
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
            Event::Heard(Heard::Report(report)) => self.take_report(report, state),
            Event::Tend(elsewhere) => {
                self.tend(elsewhere, state, effects);
                Ok(())
            }
            Event::Proposed(step, result) => self.proposed(step, result, state, effects),
            Event::Leased(heartbeat, granted) => {
                self.confirming = false;
                match granted {
                    Ok(timings) => effects.push(said::lease(self.term, &heartbeat, &timings)),
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
        if greeting.highest_term > self.term {
            let text = format!(
                "this agent has seen term {}, and this member leads in term {}; another member leads by now, ask it",
                greeting.highest_term.0, self.term.0
            );
            return Err(Refusal::new(ErrorReason::TermStale, text));
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
        effects.extend(
            self.kept.orders(self.term, node, elsewhere, state).map(|orders| send(Message::CheckpointOrders(orders))),
        );
        if self.proposing.is_some() {
            return;
        }
        if let Some(command) = self.kept.news(node, state) {
            let actor = self.greeting.as_ref().map(|greeting| greeting.node.name.clone()).unwrap_or_default();
            self.proposing = Some(Step::Kept);
            effects.push(Effect::Propose(Step::Kept, vec![Request { key: None, actor, command }]));
        }
    }

    fn take_report(&mut self, report: Report, state: &State) -> Result<(), Refusal> {
        if self.reports.len() >= REPORTS {
            return Err(Refusal::new(
                ErrorReason::Overloaded,
                "too many reports wait to be acknowledged; say hello again and wait for acknowledgements",
            ));
        }
        self.book.sight(&report.workers);
        self.kept.saved(&report.workers, state);
        self.reports.push_back(report);
        Ok(())
    }

    fn proposed(
        &mut self,
        step: Step,
        result: Result<Vec<Committed>, ProposeError>,
        state: &State,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.proposing = None;
        match (step, result) {
            (Step::Register, Ok(committed)) => match committed.first().map(|committed| &committed.outcome) {
                Some(Outcome::Registered { node, .. }) => self.welcome(*node, state, effects),
                Some(Outcome::Rejected(rejection)) => return Err(not_registered(rejection)),
                other => {
                    let text = format!("the ledger answered a registration with {other:?}; report this");
                    return Err(Refusal::new(ErrorReason::Internal, text));
                }
            },
            (Step::Report, Ok(committed)) => {
                for outcome in committed.iter().map(|committed| &committed.outcome) {
                    if let Outcome::Rejected(rejection) = outcome {
                        tracing::warn!(%rejection, "the ledger refused what an agent reported");
                    }
                }
                // A report that the ledger refused is out of date: it need not be sent again either.
                let reports = std::mem::take(&mut self.in_flight);
                let reported = reports.iter().flat_map(|report| &report.workers);
                self.book.touch(reported.map(|sighting| sighting.worker.allocation).collect());
                effects.extend(reports.into_iter().filter_map(|report| report.id).map(acknowledge));
            }
            (Step::Kept, Ok(_)) => {}
            (Step::Return, Ok(committed)) => {
                if let Some(Outcome::Rejected(rejection)) = committed.first().map(|committed| &committed.outcome) {
                    return Err(Refusal::from(rejection));
                }
            }
            (step, Err(error)) => return self.not_proposed(step, error, effects),
        }
        Ok(())
    }

    /// A proposal failed. Reports are proposed again by this session; everything else begins with another hello.
    fn not_proposed(&mut self, step: Step, error: ProposeError, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        use tessera_consensus::ProposeError as Cause;
        let text = format!("{error}; say hello again");
        match error {
            ProposeError::Consensus(Cause::NotLeader { leader }) => {
                let leader = leader.as_ref().map(|leader| (leader.address.as_str(), self.term.0));
                Err(Refusal::not_leader(leader))
            }
            ProposeError::Consensus(Cause::Stopped(_)) => Err(Refusal::new(ErrorReason::MemberStopped, text)),
            _ if step == Step::Report => {
                tracing::warn!(%error, "a report is not committed; it is proposed again");
                for report in std::mem::take(&mut self.in_flight).into_iter().rev() {
                    self.reports.push_front(report);
                }
                // Nothing is proposed before the pause is over.
                self.proposing = Some(Step::Report);
                effects.push(Effect::Pause(PAUSE));
                Ok(())
            }
            // It is compared again with the next heartbeat.
            _ if step == Step::Kept => {
                self.kept.compare_again();
                Ok(())
            }
            ProposeError::Consensus(Cause::Overloaded) => Err(Refusal::new(ErrorReason::Overloaded, text)),
            ProposeError::Consensus(Cause::OutcomeUnknown) => Err(Refusal::new(ErrorReason::OutcomeUnknown, text)),
            ProposeError::StorageFull { .. } => Err(Refusal::new(ErrorReason::StorageFull, text)),
            ProposeError::Consensus(_) => Err(Refusal::new(ErrorReason::NoQuorum, text)),
        }
    }

    /// Whether the session may go on with its node as the ledger sees it; answers whether the node is, or was, ready.
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

    /// Proposes everything that was reported since the last proposal, as far as the ledger does not know it.
    fn propose_reports(&mut self, node: NodeId, state: &State, effects: &mut Vec<Effect>) {
        if self.proposing.is_some() || self.reports.is_empty() {
            return;
        }
        let reports: Vec<Report> = self.reports.drain(..).collect();
        let news = news(node, &reports, state);
        if news.is_empty() {
            effects.extend(reports.into_iter().filter_map(|report| report.id).map(acknowledge));
            return;
        }
        let actor = self.greeting.as_ref().map(|greeting| greeting.node.name.clone()).unwrap_or_default();
        let request = |command| Request { key: None, actor: actor.clone(), command };
        self.in_flight = reports;
        self.proposing = Some(Step::Report);
        effects.push(Effect::Propose(Step::Report, news.into_iter().map(request).collect()));
    }

    /// A lost node is back once its agent has shown that nothing is there that was not granted (law L2).
    fn propose_return(&mut self, node: NodeId, state: &State, effects: &mut Vec<Effect>) {
        let lost = state.node(node).is_some_and(|node| node.state == NodeState::Lost);
        let Some(greeting) = self.greeting.as_ref().filter(|_| lost && self.proposing.is_none()) else { return };
        if !self.reports.is_empty() || !self.book.holds_only_granted(node, state) {
            return;
        }
        self.proposing = Some(Step::Return);
        let command = Command::NodeReturned { node, incarnation: greeting.node.incarnation };
        let request = Request { key: None, actor: greeting.node.name.clone(), command };
        effects.push(Effect::Propose(Step::Return, vec![request]));
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
