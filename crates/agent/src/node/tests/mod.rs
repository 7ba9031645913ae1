//! Every rule of a node, by events alone.

mod orders;
mod random;
mod reports;
mod sessions;

use std::time::Duration;

use tessera_api::v1 as wire;
use tessera_ledger::{AllocationId, Epoch, Rank};
use wire::session_response::Message as FromLeader;

use super::super::event::{Effect, Event};
use super::super::record::{WorkerRecord, to_ref};
use super::super::state::{Node, NodeFacts};
use crate::boot::BootTime;
use crate::process::ProcessId;
use crate::supervisor::status::{Cause, Exit, Phase, Status};
use crate::worker::{Fence, Term, WorkerId};

/// A node with the leader's side in the test's hands.
struct Bench {
    node: Node,
    now: BootTime,
}

fn worker(allocation: u64, epoch: u64, rank: u32) -> WorkerId {
    WorkerId { allocation: AllocationId(allocation), epoch: Epoch(epoch), rank: Rank(rank) }
}

fn status(worker: WorkerId, phase: Phase) -> Status {
    let mut status = Status::new(worker, 100, Fence { term: Term(1), epoch: worker.epoch }, "boot".to_owned());
    status.phase = phase;
    status.process = Some(ProcessId { pid: 42, start_ticks: 1 });
    status
}

fn exited(worker: WorkerId, code: i32) -> Status {
    let mut status = status(worker, Phase::Stopped);
    status.cause = Some(Cause::Exited);
    status.exit = Some(Exit::Code(code));
    status
}

fn order(worker: WorkerId, desire: wire::WorkerDesire) -> wire::WorkerOrder {
    wire::WorkerOrder {
        worker: Some(to_ref(worker)),
        job_id: 100,
        attempt: 1,
        desire: desire.into(),
        stop: Some(wire::StopPolicy {
            signal: "SIGUSR1".to_owned(),
            grace: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
            save: false,
        }),
        spec: Some(wire::JobSpec { command: vec!["true".to_owned()], ..Default::default() }),
        world_size: 1,
        ..Default::default()
    }
}

fn orders(term: u64, complete: bool, workers: Vec<wire::WorkerOrder>) -> FromLeader {
    FromLeader::Orders(wire::Orders { term, revision: 1, complete, workers })
}

fn welcome(term: u64) -> FromLeader {
    FromLeader::Welcome(wire::Welcome {
        node_id: 3,
        term,
        cluster_id: "pool".to_owned(),
        heartbeat_interval: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        reference_precision: wire::Precision::Fp16.into(),
        block_milli_tflops: 1000,
    })
}

impl Bench {
    /// A node that was here before in a term, with workers found.
    fn with(highest_term: u64, found: Vec<WorkerRecord>) -> Self {
        let facts =
            NodeFacts { name: "node-a".to_owned(), uid: "uid".to_owned(), incarnation: 4, ..Default::default() };
        let cluster = if highest_term > 0 { "pool" } else { "" };
        let node = Node::new(facts, Vec::new(), Term(highest_term), cluster.to_owned(), found);
        Self { node, now: BootTime(1_000_000) }
    }

    /// A node that was welcomed in term 5, whose term is on disk and whose lease is valid.
    fn leased() -> Self {
        let mut bench = Self::with(0, Vec::new());
        bench.welcome_in(5);
        bench.lease(9_000);
        bench
    }

    fn on(&mut self, event: Event) -> Vec<Effect> {
        self.node.on(self.now, event)
    }

    fn hear(&mut self, message: FromLeader) -> Vec<Effect> {
        self.on(Event::FromLeader(Box::new(wire::SessionResponse { message: Some(message) })))
    }

    fn hello(&mut self) -> wire::Hello {
        let effects = self.on(Event::HelloWanted);
        let hello = effects
            .into_iter()
            .find_map(|effect| if let Effect::SayHello(hello) = effect { Some(*hello) } else { None });
        hello.expect("a hello is said")
    }

    fn welcome_in(&mut self, term: u64) -> Vec<Effect> {
        self.hello();
        let mut effects = self.hear(welcome(term));
        effects.extend(self.on(Event::TermKept(Term(term))));
        effects
    }

    /// Sends a heartbeat and has it answered with a lease, unless a silent leader is left instead.
    fn lease(&mut self, stop_after_ms: u64) -> Vec<Effect> {
        let effects = self.on(Event::HeartbeatDue);
        if leaves(&effects) {
            return effects;
        }
        let heartbeat = heartbeat_in(effects);
        self.hear(FromLeader::LeaseGrant(wire::LeaseGrant {
            heartbeat_sequence: heartbeat.sequence,
            sent_at_boottime_ms: heartbeat.sent_at_boottime_ms,
            stop_after_ms,
            kill_after_ms: stop_after_ms + 3_000,
            term: self.node.highest_term().0,
            heartbeat_interval: None,
            output_retention: None,
        }))
    }

    fn heartbeat(&mut self) -> wire::Heartbeat {
        heartbeat_in(self.on(Event::HeartbeatDue))
    }

    fn order(&mut self, worker: WorkerId, desire: wire::WorkerDesire) -> Vec<Effect> {
        let term = self.node.highest_term().0;
        self.hear(orders(term, false, vec![order(worker, desire)]))
    }

    fn told(&mut self, status: Status) -> Vec<Effect> {
        self.on(Event::WorkerStatus(Box::new(status)))
    }

    /// Acknowledges every report among effects.
    fn acknowledge(&mut self, effects: &[Effect]) -> Vec<Effect> {
        let ids: Vec<u64> = reports(effects).iter().map(|report| report.report_id).collect();
        ids.into_iter()
            .flat_map(|report_id| self.hear(FromLeader::ReportAcknowledged(wire::ReportAcknowledged { report_id })))
            .collect()
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
    }
}

fn launched(effects: &[Effect]) -> Vec<WorkerId> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Launch(order) = effect { Some(order.worker) } else { None })
        .collect()
}

fn stopped(effects: &[Effect]) -> Vec<(WorkerId, Cause)> {
    let stop =
        |effect: &Effect| if let Effect::Stop { worker, cause, .. } = effect { Some((*worker, *cause)) } else { None };
    effects.iter().filter_map(stop).collect()
}

fn forgotten(effects: &[Effect]) -> Vec<WorkerId> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Forget { worker, .. } = effect { Some(*worker) } else { None })
        .collect()
}

fn reports(effects: &[Effect]) -> Vec<wire::Report> {
    let report = |effect: &Effect| match effect {
        Effect::Send(request) => match &request.message {
            Some(wire::session_request::Message::Report(report)) => Some(report.clone()),
            _ => None,
        },
        _ => None,
    };
    effects.iter().filter_map(report).collect()
}

/// The workers reported, with phase and cause.
fn reported(effects: &[Effect]) -> Vec<(u64, wire::WorkerPhase, wire::StopCause)> {
    let workers = reports(effects).into_iter().flat_map(|report| report.workers);
    workers.map(|report| (report.worker.unwrap_or_default().epoch, report.phase(), report.cause())).collect()
}

fn heartbeat_in(effects: Vec<Effect>) -> wire::Heartbeat {
    let sent = effects.into_iter().find_map(|effect| match effect {
        Effect::Send(request) => match request.message {
            Some(wire::session_request::Message::Heartbeat(heartbeat)) => Some(heartbeat),
            _ => None,
        },
        _ => None,
    });
    sent.expect("a heartbeat is sent")
}

fn leaves(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::LeaveLeader(_)))
}

fn closes(effects: &[Effect]) -> Option<&str> {
    effects
        .iter()
        .find_map(|effect| if let Effect::CloseSession(reason) = effect { Some(reason.as_str()) } else { None })
}
