//! Conversions between the messages of an agent's session, in both directions, and the ledger's types.

use std::collections::BTreeSet;

use tessera_ledger::wire::{FieldError, WireEnum, capacity_from_wire, card_from_wire, enum_from_wire, slice_to_wire};
use tessera_ledger::{
    AgentStart, Allocation, AllocationId, CardDescription, CheckpointKey, CheckpointPart, Containment, Epoch,
    HostCapacity, HostRequest, JobId, LogTime, Mebibytes, MilliTflops, NodeDescription, Observation, Owner, PartKey,
    Precision, Rank, SavedPart, Slice, State, StopCause, Worker, WorkerExit, WorkerReport,
};

use crate::error::Refusal;
use crate::fields::{Check, address, count, designation, host, line, line_within, name, number};
use crate::job_view::node_name;
use crate::limits;
use crate::v1::{self, ErrorReason, WorkerPhase};

/// A part of what a process tells of itself, as the wire has it.
#[must_use]
pub fn diagnostic_part(name: String, content: Result<Vec<u8>, String>) -> v1::DiagnosticPart {
    match content {
        Ok(content) => v1::DiagnosticPart { name, content: content.into(), missing: String::new() },
        Err(missing) => v1::DiagnosticPart { name, content: Vec::new().into(), missing },
    }
}

/// A sentence of an agent for people, cut where it is longer than one is kept.
#[must_use]
pub fn sentence(text: String) -> String {
    cut(text, limits::SENTENCE)
}

/// A text of somebody else, cut where it is longer than so many bytes.
#[must_use]
pub fn cut(mut text: String, most: usize) -> String {
    const CUT: &str = "...";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(CUT.len())));
        text.push_str(CUT);
    }
    text
}

/// Takes what a hello says of the node.
///
/// # Errors
/// A [`Refusal`] with the fields that are not acceptable.
pub fn node_of_hello(hello: &v1::Hello) -> Result<NodeDescription, Refusal> {
    let mut check = Check::default();
    check.of(name("hello.node_name", &hello.node_name));
    check.of(name("hello.node_uid", &hello.node_uid));
    check.of(line("hello.agent_version", &hello.agent_version));
    check.of(address("hello.address", &hello.address));
    check.of(host("hello.worker_host", &hello.worker_host));
    check.labels("hello.labels", &hello.labels);
    check.names("hello.cached", hello.cached.iter(), limits::CACHED);
    check.of(line("hello.cluster_id", &hello.cluster_id));
    check.of(line("hello.boot_id", &hello.boot_id));
    check.of(line("hello.start_nonce", &hello.start_nonce));
    let missing = hello.containment.as_ref().map_or("", |containment| containment.missing.as_str());
    check.of(line_within("hello.containment.missing", missing, limits::SENTENCE));
    let capacity = hello.host.map(capacity_from_wire);
    if let Some(HostCapacity { cpu, memory }) = capacity {
        check.host("hello.host", HostRequest { cpu, memory });
    }
    check.done()?;
    Ok(NodeDescription {
        name: hello.node_name.clone(),
        uid: hello.node_uid.clone(),
        incarnation: hello.incarnation,
        agent_version: hello.agent_version.clone(),
        address: hello.address.clone(),
        worker_host: hello.worker_host.clone(),
        labels: hello.labels.clone(),
        host: capacity,
        cached: hello.cached.iter().cloned().collect(),
        start: AgentStart { boot_id: hello.boot_id.clone(), nonce: hello.start_nonce.clone() },
        containment: match hello.containment.clone().unwrap_or_default() {
            v1::Containment { whole: true, .. } => Containment::Whole,
            v1::Containment { missing, .. } => Containment::Partial { missing },
        },
    })
}

/// Takes the names of the data on a node's disks.
///
/// # Errors
/// A [`Refusal`] with the names that are not acceptable.
pub fn cached(data: v1::CachedData) -> Result<BTreeSet<String>, Refusal> {
    let mut check = Check::default();
    check.names("report.cached", data.names.iter(), limits::CACHED);
    check.done().map(|()| data.names.into_iter().collect())
}

/// Takes cards as an agent declares them (P3). The ledger checks their order.
///
/// # Errors
/// A [`Refusal`] with CARD_INVALID that names the card and its field.
pub fn cards(cards: Vec<v1::CardDescription>) -> Result<Vec<CardDescription>, Refusal> {
    let refused = |error: FieldError| Refusal::new(ErrorReason::CardInvalid, error.to_string());
    count("cards", cards.len(), limits::CARDS).map_err(refused)?;
    let read = |(place, card)| {
        let read = check_card(&card).and_then(|()| card_from_wire(card));
        read.map_err(|error| refused(error.under(format_args!("cards[{place}]"))))
    };
    cards.into_iter().enumerate().map(read).collect()
}

/// Refuses a card that nobody has made.
fn check_card(card: &v1::CardDescription) -> Result<(), FieldError> {
    let v1::CardDescription {
        vendor, model, uuid, pci_address, links, memory_mib, rated, measured, max_slices, ..
    } = card;
    for (field, text) in [("vendor", vendor), ("model", model), ("uuid", uuid), ("pci_address", pci_address)] {
        designation(field, text)?;
    }
    number("memory_mib", Mebibytes(*memory_mib), Mebibytes::ZERO..=limits::MEMORY)?;
    number("max_slices", *max_slices, 0..=limits::CARD_PARTS)?;
    for (field, ratings) in [("rated", rated), ("measured", measured)] {
        for (place, rating) in ratings.iter().enumerate() {
            let field = format!("{field}[{place}].milli_tflops");
            number(&field, MilliTflops(rating.milli_tflops), MilliTflops::ZERO..=limits::COMPUTE)?;
        }
    }
    count("links", links.len(), limits::CARDS)?;
    for (place, link) in links.iter().enumerate() {
        let field = |name: &str| format!("links[{place}].{name}");
        number(&field("peer_index"), link.peer_index as usize, 0..=limits::CARDS)?;
        number(&field("megabytes_per_second"), link.megabytes_per_second, 0..=limits::LINK_SPEED)?;
    }
    Ok(())
}

#[must_use]
pub fn worker_ref(owner: Owner) -> v1::WorkerRef {
    v1::WorkerRef { allocation_id: owner.allocation.0, epoch: owner.epoch.0, rank: owner.rank.0 }
}

#[must_use]
pub fn owner(worker: &v1::WorkerRef) -> Owner {
    Owner { allocation: AllocationId(worker.allocation_id), epoch: Epoch(worker.epoch), rank: Rank(worker.rank) }
}

/// Takes what an agent reports of a worker; `None` for phases that the ledger does not follow (being prepared, being
/// stopped). Its sentences are cut where they are longer than the ledger keeps.
///
/// # Errors
/// A [`Refusal`] with PROTOCOL_VIOLATION when the worker, the phase or the cause is missing or not known, or
/// it ended in two ways.
pub fn report(report: v1::WorkerReport) -> Result<Option<WorkerReport>, Refusal> {
    let violation =
        |error: FieldError| Refusal::new(ErrorReason::ProtocolViolation, error.under("worker_report").to_string());
    let worker = owner(&report.worker.ok_or_else(|| violation(FieldError::missing("worker")))?);
    let phase = WorkerPhase::try_from(report.phase).unwrap_or(WorkerPhase::Unspecified);
    let observation = match phase {
        WorkerPhase::Unspecified => {
            let problem = format!("must be a phase that this release knows, is {}", report.phase);
            return Err(violation(FieldError::invalid("phase", problem)));
        }
        WorkerPhase::Starting | WorkerPhase::Stopping => return Ok(None),
        WorkerPhase::Running => Observation::Running,
        WorkerPhase::Unconfirmed => Observation::Unconfirmed { message: sentence(report.message) },
        WorkerPhase::Stopped if report.unusable => {
            Observation::Unusable { lost: report.unusable_for_good, message: sentence(report.message) }
        }
        WorkerPhase::Stopped if report.exit_code.is_some() && report.signal.is_some() => {
            return Err(violation(FieldError::invalid("signal", "must not be given beside exit_code")));
        }
        WorkerPhase::Stopped => {
            let cause: Option<StopCause> = enum_from_wire("cause", report.cause).map_err(violation)?;
            Observation::Stopped(WorkerExit {
                cause: cause.ok_or_else(|| violation(FieldError::missing("cause")))?,
                code: report.exit_code,
                signal: report.signal,
                checkpointed: report.checkpointed,
                message: sentence(report.message),
                not_saved: sentence(report.not_saved),
                ended_at: report.exited_at.and_then(unix_ms).unwrap_or_default(),
            })
        }
    };
    Ok(Some(WorkerReport { worker, observation }))
}

/// A time of a node's clock in milliseconds, if it is one after 1970. Whoever keeps it corrects it by what is known of
/// that clock.
fn unix_ms(time: prost_types::Timestamp) -> Option<LogTime> {
    let seconds = u64::try_from(time.seconds).ok()?.checked_mul(1_000)?;
    let nanos = u64::try_from(time.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    seconds.checked_add(nanos / 1_000_000).map(LogTime)
}

/// Takes what an agent says that it has saved of a worker.
///
/// # Errors
/// A [`Refusal`] with PROTOCOL_VIOLATION when the hash or the ticket has another length than it must have, or the mode
/// is missing.
pub fn saved(saved: v1::SavedCheckpoint) -> Result<SavedPart, Refusal> {
    let violation = |field: &str, length: usize| {
        let text = format!("worker_report.saved.{field}: must have {length} bytes");
        Refusal::new(ErrorReason::ProtocolViolation, text)
    };
    let mode = enum_from_wire("worker_report.saved.mode", saved.mode).ok().flatten();
    let mode = mode.ok_or_else(|| {
        Refusal::new(ErrorReason::ProtocolViolation, "worker_report.saved.mode: must say how it was saved")
    })?;
    Ok(SavedPart {
        sequence: saved.sequence,
        progress: saved.progress,
        bytes: saved.bytes,
        hash: saved.hash.as_ref().try_into().map_err(|_| violation("hash", 32))?,
        ticket: u128::from_be_bytes(saved.ticket.as_ref().try_into().map_err(|_| violation("ticket", 16))?),
        shared: saved.shared,
        mode,
    })
}

#[must_use]
pub const fn part_of(name: &v1::CheckpointName) -> PartKey {
    PartKey {
        job: JobId(name.job_id),
        checkpoint: CheckpointKey { attempt: name.attempt, sequence: name.sequence },
        epoch: Epoch(name.epoch),
        rank: Rank(name.rank),
    }
}

#[must_use]
pub const fn part_name(part: &PartKey) -> v1::CheckpointName {
    v1::CheckpointName {
        job_id: part.job.0,
        attempt: part.checkpoint.attempt,
        epoch: part.epoch.0,
        sequence: part.checkpoint.sequence,
        rank: part.rank.0,
    }
}

/// The source of a part of a checkpoint: the addresses of the nodes that have it, its hash, ticket and progress.
#[must_use]
pub fn checkpoint_source(state: &State, key: &PartKey, part: &CheckpointPart) -> v1::CheckpointSource {
    let address = |node| state.node(node).map(|node| node.description.address.clone());
    v1::CheckpointSource {
        name: Some(part_name(key)),
        hash: part.saved.hash.to_vec().into(),
        shared: part.saved.shared,
        addresses: state.sources_of(part).filter_map(address).collect(),
        ticket: part.saved.ticket.to_be_bytes().to_vec().into(),
        progress: part.saved.progress,
        mode: part.saved.mode.to_wire(),
    }
}

/// The slices of the virtual card that a worker backs, over all its nodes, with their addresses for people (P6) and
/// their shares of its compute.
#[must_use]
pub fn placed_slices(state: &State, allocation: &Allocation, worker: &Worker) -> Vec<v1::PlacedSlice> {
    let precision = state
        .job(allocation.job)
        .and_then(|job| job.spec.virtual_card.precision)
        .unwrap_or(state.config().reference_precision);
    let rate = |slice: &Slice| rate_of(state, slice, precision).0;
    let backing = allocation.workers.iter().filter(|other| other.virtual_card == worker.virtual_card);
    let slices: Vec<(Rank, &Slice)> =
        backing.flat_map(|worker| worker.slices.iter().map(|slice| (worker.rank, slice))).collect();
    let total = slices.iter().map(|(_, slice)| rate(slice)).sum::<u64>().max(1);
    slices.into_iter().map(|(rank, slice)| placed_slice(state, slice, rank, ratio(rate(slice), total))).collect()
}

fn placed_slice(state: &State, slice: &Slice, rank: Rank, weight: f64) -> v1::PlacedSlice {
    let card = state.card(slice.card).map(|card| &card.description);
    v1::PlacedSlice {
        slice: Some(slice_to_wire(slice)),
        node_name: node_name(state, slice.card.node),
        kind: card.map_or(0, |card| card.kind.to_wire()),
        vendor: card.map(|card| card.vendor.clone()).unwrap_or_default(),
        model: card.map(|card| card.model.clone()).unwrap_or_default(),
        card_uuid: card.map(|card| card.uuid.clone()).unwrap_or_default(),
        first_block_number: state.block_number(slice.card, slice.start.0).map_or(0, |number| number.0),
        rank: rank.0,
        weight,
    }
}

fn rate_of(state: &State, slice: &Slice, precision: Precision) -> MilliTflops {
    state.card(slice.card).map_or(MilliTflops::ZERO, |card| card.rate_of(slice.length, precision))
}

/// A share of a total, both far below what a double holds exactly.
#[allow(clippy::cast_precision_loss)]
fn ratio(part: u64, total: u64) -> f64 {
    part as f64 / total as f64
}

/// The signal and the grace time with which a job's workers are stopped.
#[must_use]
pub fn stop_policy(job: &tessera_ledger::JobSpec) -> v1::StopPolicy {
    v1::StopPolicy {
        signal: job.checkpoint.signal.clone(),
        grace: Some(tessera_ledger::wire::duration_to_wire(job.checkpoint.grace)),
        save: false,
    }
}
