//! The messages of agents, checked and in the ledger's words.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use tessera_api::v1::session_request::Message;
use tessera_api::v1::{self, ErrorReason, SessionRequest, WorkerPhase};
use tessera_api::{Refusal, agent, limits};
use tessera_consensus::Term;
use tessera_ledger::wire::FieldError;
use tessera_ledger::{
    CardDescription, LogTime, Node, NodeDescription, Observation, Owner, PartKey, SavedPart, WorkerReport,
};

/// An agent's report on one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub worker: Owner,
    /// The observation that the ledger follows; `None` while the worker is being prepared or stopped.
    pub observation: Option<Observation>,
    /// The newest part of a checkpoint that was saved of it.
    pub saved: Option<SavedPart>,
}

impl Sighting {
    /// True if there is, or may be, a process.
    pub fn is_present(&self) -> bool {
        !matches!(self.observation, Some(Observation::Stopped(_) | Observation::Unusable { .. }))
    }

    /// The reports for the log. What was saved comes first: it counts for what follows from the end of a worker.
    pub fn reports(&self) -> impl Iterator<Item = WorkerReport> {
        let saved = self.saved.clone().map(Observation::Saved);
        let worker = self.worker;
        saved.into_iter().chain(self.observation.clone()).map(move |observation| WorkerReport { worker, observation })
    }
}

/// The identity of an agent, and what it really runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub node: NodeDescription,
    pub cards: Vec<CardDescription>,
    pub workers: Vec<Sighting>,
    pub highest_term: Term,
    /// Pool that the agent has joined; empty before its first session.
    pub cluster: String,
    /// The node's clock when it was sent; zero: not said.
    pub sent_at: LogTime,
}

impl Greeting {
    /// True if the agent runs in another boot of the host than the last known one of its node. False where no boot is
    /// known, or the `uid` differs; true where one is known and the agent states none.
    pub fn is_of_other_boot(&self, known: &Node) -> bool {
        let (before, now) = (&known.description.start.boot_id, &self.node.start.boot_id);
        known.description.uid == self.node.uid && !before.is_empty() && before != now
    }
}

/// A sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub sequence: u64,
    /// The agent's own clock; only ever sent back to it.
    pub sent_at_boottime_ms: u64,
    /// The node's clock when it was sent; zero: not said.
    pub sent_at: LogTime,
}

/// The checkpoints on a node's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The parts that were there when the agent last looked.
    pub parts: BTreeSet<PartKey>,
    /// The parts that the leader missed, and that were looked for in vain.
    pub absent: BTreeSet<PartKey>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    pub cards: Vec<v1::CardSample>,
    pub workers: Vec<v1::WorkerSample>,
}

/// Changes that must reach the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// To be acknowledged; the workers of a hello are a report without a number.
    pub id: Option<u64>,
    pub workers: Vec<Sighting>,
    pub cards: Vec<CardDescription>,
    /// Names of all data on the node's disks, when that changed.
    pub cached: Option<BTreeSet<String>>,
    /// Size of the message that it came as.
    pub bytes: usize,
}

/// A message of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Hello(Box<Greeting>),
    /// Besides the sign of life: what was measured, and what there is to say of the checkpoints on the node's disk.
    Heartbeat(Heartbeat, Measured, Option<Kept>),
    Report(Report),
}

/// Reads a message.
///
/// # Errors
/// What the session is to be closed with.
pub(crate) fn read(request: SessionRequest) -> Result<Heard, Refusal> {
    match request.message {
        Some(Message::Hello(hello)) => greeting(hello).map(|greeting| Heard::Hello(Box::new(greeting))),
        Some(Message::Heartbeat(beat)) => {
            let heartbeat = Heartbeat {
                sequence: beat.sequence,
                sent_at_boottime_ms: beat.sent_at_boottime_ms,
                sent_at: LogTime(beat.sent_at_unix_ms),
            };
            let parts = |names: Vec<v1::CheckpointName>| names.iter().map(agent::part_of).collect();
            let kept = beat.kept.map(|kept| Kept { parts: parts(kept.names), absent: parts(kept.absent) });
            Ok(Heard::Heartbeat(heartbeat, Measured { cards: beat.samples, workers: beat.workers }, kept))
        }
        Some(Message::Report(report)) => Ok(Heard::Report(Report {
            bytes: report.encoded_len(),
            id: Some(report.report_id),
            workers: sightings(report.workers)?,
            cards: agent::cards(report.cards)?,
            cached: report.cached.map(agent::cached).transpose()?,
        })),
        None => Err(violation("a message of a session must be a hello, a heartbeat or a report")),
    }
}

/// The refusal of an agent that does not keep to the protocol.
pub(crate) fn violation(what: &str) -> Refusal {
    Refusal::new(ErrorReason::ProtocolViolation, format!("{what}; use an agent of this release"))
}

fn greeting(hello: v1::Hello) -> Result<Greeting, Refusal> {
    let node = agent::node_of_hello(&hello)?;
    Ok(Greeting {
        node,
        cards: agent::cards(hello.cards)?,
        workers: sightings(hello.workers)?,
        highest_term: Term(hello.highest_term),
        cluster: hello.cluster_id,
        sent_at: LogTime(hello.sent_at_unix_ms),
    })
}

/// Reads what is said of workers; of one that is named twice, the last word counts.
fn sightings(reports: Vec<v1::WorkerReport>) -> Result<Vec<Sighting>, Refusal> {
    if reports.len() > limits::REPORTED {
        let problem = format!("must be at most {} in a message, are {}", limits::REPORTED, reports.len());
        return Err(FieldError::invalid("workers", problem).into());
    }
    let mut seen: BTreeMap<Owner, Sighting> = BTreeMap::new();
    for report in reports {
        let named = report.worker.as_ref().map(agent::owner);
        let worker = named.ok_or_else(|| violation("a report must name its worker"))?;
        let saved = report.saved.clone().map(agent::saved).transpose()?;
        let observation = agent::report(report)?.map(|report| report.observation);
        seen.insert(worker, Sighting { worker, observation, saved });
    }
    Ok(seen.into_values().collect())
}

/// The phase in words, for logs.
pub(crate) fn phase_name(sighting: &Sighting) -> &'static str {
    match sighting.observation {
        None => "starting or stopping",
        Some(Observation::Running | Observation::Saved(_)) => WorkerPhase::Running.as_str_name(),
        Some(Observation::Stopped(_) | Observation::Unusable { .. }) => WorkerPhase::Stopped.as_str_name(),
        Some(Observation::Unconfirmed { .. }) => WorkerPhase::Unconfirmed.as_str_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(phase: WorkerPhase) -> v1::WorkerReport {
        let worker = v1::WorkerRef { allocation_id: 4, epoch: 9, rank: 1 };
        v1::WorkerReport {
            worker: Some(worker),
            phase: phase.into(),
            cause: v1::StopCause::Exited.into(),
            exit_code: Some(0),
            ..v1::WorkerReport::default()
        }
    }

    fn request(workers: Vec<v1::WorkerReport>) -> SessionRequest {
        let report = v1::Report { report_id: 7, workers, ..Default::default() };
        SessionRequest { message: Some(Message::Report(report)) }
    }

    #[test]
    fn of_a_worker_named_twice_the_last_word_counts() {
        let both = vec![named(WorkerPhase::Running), named(WorkerPhase::Stopped)];
        let Ok(Heard::Report(report)) = read(request(both)) else { panic!("it is a report") };
        assert_eq!(report.id, Some(7));
        assert_eq!(report.workers.len(), 1);
        assert!(!report.workers[0].is_present());
    }

    #[test]
    fn a_worker_in_preparation_is_present_and_not_reported() {
        let Ok(Heard::Report(report)) = read(request(vec![named(WorkerPhase::Starting)])) else {
            panic!("it is a report")
        };
        assert!(report.workers[0].is_present());
        assert_eq!(report.workers[0].reports().count(), 0);
    }

    #[test]
    fn a_message_speaks_of_so_many_workers_and_no_more() {
        let many = |count| request(vec![named(WorkerPhase::Running); count]);
        assert!(read(many(limits::REPORTED)).is_ok());
        let refusal = read(many(limits::REPORTED + 1)).expect_err("it must be refused");
        assert_eq!((refusal.reason(), refusal.fields().len()), (ErrorReason::InvalidField, 1));
        assert_eq!(refusal.message(), "workers: must be at most 65536 in a message, are 65537");
    }

    #[test]
    fn what_makes_no_sense_closes_the_session() {
        for broken in [
            SessionRequest { message: None },
            request(vec![v1::WorkerReport::default()]),
            request(vec![named(WorkerPhase::Unspecified)]),
        ] {
            let refusal = read(broken).expect_err("it must be refused");
            assert_eq!(refusal.reason(), ErrorReason::ProtocolViolation);
        }
    }
}
