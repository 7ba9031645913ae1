//! Jobs, nodes, cards and checkpoints for tests: ordinary ones, of which a test changes what it is about; and how they
//! come into a ledger. Besides, what tests and benchmarks need of a host.
//!
//! ```
//! use tessera_ledger::JobSpec;
//! use tessera_testkit::job;
//!
//! let urgent = JobSpec { priority: 90, ..job(4, 1024) };
//! assert_eq!((urgent.priority, urgent.gang), (90, 1));
//! ```
//!
//! A field that the ledger gains is said here at most, and no test that is not about it has to change. Nothing that is
//! shipped depends on this crate.

mod bucket;
mod dumping;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{
    AgentStart, CardDescription, CardHealth, CardKind, CheckpointMode, Command, Containment, EntryPosition, Isolation,
    JobSpec, LogTime, Mebibytes, MilliTflops, NodeDescription, Outcome, Precision, Request, Revision, SavedPart, State,
    StopCause, VirtualCardRequest, WorkerExit,
};

pub use bucket::BucketServer;
pub use dumping::{config_that_dumps, criu};

/// A job of one virtual card, on one card of any kind, with so many TFLOPS and MiB.
#[must_use]
pub fn job(tflops: u64, memory_mib: u64) -> JobSpec {
    let virtual_card = VirtualCardRequest::new(MilliTflops::from_tflops(tflops), Mebibytes(memory_mib));
    JobSpec::new(vec!["true".to_owned()], virtual_card)
}

/// A node that says nothing of its host.
#[must_use]
pub fn node(name: &str) -> NodeDescription {
    NodeDescription {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        incarnation: 1,
        agent_version: "0.1.0".to_owned(),
        address: "127.0.0.1:7000".to_owned(),
        worker_host: "127.0.0.1".to_owned(),
        labels: BTreeMap::new(),
        host: None,
        cached: BTreeSet::new(),
        start: AgentStart::default(),
        containment: Containment::Whole,
    }
}

/// A healthy simulated card with so many FP16 TFLOPS and MiB, the first of its node. Cards are of one model where kind
/// and rate are the same.
#[must_use]
pub fn card(kind: CardKind, tflops: u64, memory_mib: u64) -> CardDescription {
    CardDescription {
        index: 0,
        kind,
        vendor: "acme".to_owned(),
        model: format!("{}-{tflops}", kind.name()),
        uuid: String::new(),
        memory: Mebibytes(memory_mib),
        rated: BTreeMap::from([(Precision::Fp16, MilliTflops::from_tflops(tflops))]),
        measured: BTreeMap::new(),
        links: Vec::new(),
        isolation: Isolation::Soft,
        simulated: true,
        pci_address: String::new(),
        max_slices: 0,
        health: CardHealth::Healthy,
    }
}

/// An agent's report of a worker's part of a checkpoint that is saved on its own disk: the part's number among those of
/// the attempt, and the bytes of a program that did not report its progress.
#[must_use]
pub fn saved(sequence: u64, bytes: u64) -> SavedPart {
    SavedPart {
        sequence,
        progress: 0,
        bytes,
        hash: [7; 32],
        ticket: 9,
        shared: false,
        mode: CheckpointMode::Cooperative,
    }
}

/// The exit of a worker that says nothing of it: by itself or by somebody else, with a code if it had one.
#[must_use]
pub fn exit(cause: StopCause, code: Option<i32>) -> WorkerExit {
    WorkerExit {
        cause,
        code,
        signal: None,
        checkpointed: false,
        message: String::new(),
        not_saved: String::new(),
        ended_at: LogTime(0),
    }
}

/// The cards of one node, numbered in their order.
#[must_use]
pub fn numbered(cards: impl IntoIterator<Item = CardDescription>) -> Vec<CardDescription> {
    (0..).zip(cards).map(|(index, card)| CardDescription { index, ..card }).collect()
}

/// A command as somebody asks for it who needs no answer to come twice.
#[must_use]
pub fn request(command: Command) -> Request {
    Request { key: None, actor: "test".to_owned(), command }
}

#[must_use]
pub fn submission(spec: impl Into<Arc<JobSpec>>) -> Command {
    Command::SubmitJob { spec: spec.into(), traceparent: String::new(), secret: None }
}

/// Applies a command in an entry of its own, the next one, at that time.
pub fn apply(state: &mut State, time: LogTime, command: Command) -> Outcome {
    let at = EntryPosition { revision: Revision(state.revision().0 + 1), time };
    state.apply(at, &[request(command)]).remove(0)
}
