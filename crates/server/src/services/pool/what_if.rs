//! The effect of a change on the pool, computed without making it.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::error::Refusal;
use tessera_api::fields::{count, labels, line, number};
use tessera_api::pool_view::node_of_ref;
use tessera_api::{job_view, limits, queue_view, v1};
use tessera_foresight::{AddedNodes, Capacity, Change, Moved, Moves, WhatIf, what_if};
use tessera_ledger::wire::{FieldError, WireEnum, enum_from_wire};
use tessera_ledger::{CardDescription, CardHealth, CardKind, Isolation, Mebibytes, MilliCpus, MilliTflops, State};
use tokio::time::Instant;
use tonic::Status;

use super::compaction::within;
use crate::services::jobs::why::explanation;
use crate::services::{Desk, refusal};

/// Most nodes that can be thought of, and most cards of one.
const NODES: u32 = 10_000;
const CARDS: u32 = 1_000;

/// Plays a change through.
pub(super) async fn answer(
    desk: &Desk,
    deadline: Instant,
    request: v1::WhatIfRequest,
) -> Result<v1::WhatIfResponse, Status> {
    let reading = desk.read(request.consistency, deadline).await?;
    let change = change_of(&reading.state, request.change)?;
    let played = desk.rehearse(&reading, deadline, move |state, now| what_if(state, now, &change)).await?;
    // Nodes that are thought of are only in the state that was played.
    let (found, state) = played.map_err(|rejection| refusal::of_rejection(&rejection))?;
    Ok(v1::WhatIfResponse {
        capacity: capacity(&found),
        displaced: found.displaced.iter().map(|moved| affected(&state, moved)).collect(),
        started: found.started.iter().map(|moved| affected(&state, moved)).collect(),
        waiting_before: found.waiting_before,
        waiting_after: found.waiting_after,
        whole: found.whole,
        read: reading.read_state(),
        like_node: found.like.map(|node| job_view::node_name(&state, node)).unwrap_or_default(),
    })
}

fn change_of(state: &State, change: Option<v1::what_if_request::Change>) -> Result<Change, Refusal> {
    use v1::what_if_request::Change as Asked;
    match change {
        None => Err(FieldError::missing("change").into()),
        Some(Asked::Drain(drain)) => {
            count("drain.nodes", drain.nodes.len(), NODES as usize)?;
            let named = |(place, node)| node_of_ref(&format!("drain.nodes[{place}]"), state, Some(node));
            let nodes: BTreeSet<_> = drain.nodes.iter().enumerate().map(named).collect::<Result<_, _>>()?;
            if nodes.is_empty() {
                return Err(FieldError::missing("drain.nodes").into());
            }
            Ok(Change::Drain(nodes))
        }
        Some(Asked::Queue(queue)) => Ok(Change::Queue(queue_view::settings_of_request(Some(queue))?)),
        Some(Asked::Add(add)) => Ok(Change::Add(added(state, add)?)),
    }
}

fn added(state: &State, add: v1::AddedNodes) -> Result<AddedNodes, Refusal> {
    let nodes = within("add.nodes", add.nodes, 1, NODES)?;
    labels("add.labels", &add.labels)?;
    let mut cards = Vec::new();
    for (place, added) in add.cards.iter().enumerate() {
        let field = format!("add.cards[{place}]");
        let many = within(&format!("{field}.count"), added.count, 1, CARDS)? as usize;
        count("add.cards", cards.len() + many, CARDS as usize)?;
        let card = card_of(state, added).map_err(|error| error.under(&field))?;
        cards.extend(std::iter::repeat_n(card, many));
    }
    if cards.is_empty() {
        let problem = format!("must be 1 to {CARDS} cards on a node, are none");
        return Err(FieldError::invalid("add.cards", problem).into());
    }
    cards.sort_by_key(|card| card.kind);
    let like = add.like.map(|node| node_of_ref("add.like", state, Some(&node))).transpose()?;
    let (cpu, memory) = (MilliCpus(add.host_milli_cpus), Mebibytes(add.host_memory_mib));
    number("add.host_milli_cpus", cpu, MilliCpus::ZERO..=limits::CPUS)?;
    number("add.host_memory_mib", memory, Mebibytes::ZERO..=limits::MEMORY)?;
    let cpu = Some(cpu).filter(|cpu| *cpu > MilliCpus::ZERO);
    let memory = Some(memory).filter(|memory| *memory > Mebibytes::ZERO);
    let added = AddedNodes { cards, nodes, like, cpu, memory, labels: add.labels.into_iter().collect() };
    if let Some(missing) = added.unknown_of_host(state) {
        let problem = "must be given as well: there is no node like these whose host is known";
        return Err(FieldError::invalid(format!("add.{missing}"), problem).into());
    }
    Ok(added)
}

/// A card that is thought of: like one that the pool has, or as described.
fn card_of(state: &State, added: &v1::AddedCards) -> Result<CardDescription, FieldError> {
    let (compute, memory) = (MilliTflops(added.milli_tflops), Mebibytes(added.memory_mib));
    line("model", &added.model)?;
    number("milli_tflops", compute, MilliTflops::ZERO..=limits::COMPUTE)?;
    number("memory_mib", memory, Mebibytes::ZERO..=limits::MEMORY)?;
    let kind: Option<CardKind> = enum_from_wire("kind", added.kind)?;
    let known = state.cards().find(|(_, card)| card.description.model == added.model && !added.model.is_empty());
    if let Some((_, card)) = known {
        let uuid = String::new();
        return Ok(CardDescription {
            uuid,
            links: Vec::new(),
            health: CardHealth::Healthy,
            ..card.description.clone()
        });
    }
    if added.milli_tflops == 0 {
        let problem = if added.model.is_empty() {
            "must be more than 0, unless a model is named that the pool has".to_owned()
        } else {
            format!("must be given: the pool has no card of model {:?} to take it from", added.model)
        };
        return Err(FieldError::invalid("milli_tflops", problem));
    }
    let kind = kind.ok_or_else(|| FieldError::missing("kind"))?;
    Ok(CardDescription {
        index: 0,
        kind,
        vendor: String::new(),
        model: added.model.clone(),
        uuid: String::new(),
        memory,
        rated: BTreeMap::from([(state.config().reference_precision, compute)]),
        measured: BTreeMap::new(),
        links: Vec::new(),
        isolation: Isolation::Hard,
        simulated: true,
        pci_address: String::new(),
        max_slices: 0,
        health: CardHealth::Healthy,
    })
}

fn capacity(found: &WhatIf) -> Vec<v1::CapacityChange> {
    let room = |of: Capacity| v1::FreeRoom { milli_tflops: of.compute.0, memory_mib: of.memory.0 };
    let kinds: BTreeSet<CardKind> = found.before.keys().chain(found.after.keys()).copied().collect();
    let change = |kind: CardKind| {
        let before = found.before.get(&kind).copied().unwrap_or_default();
        let after = found.after.get(&kind).copied().unwrap_or_default();
        v1::CapacityChange {
            kind: kind.to_wire(),
            cards_before: before.cards,
            cards_after: after.cards,
            before: Some(room(before)),
            after: Some(room(after)),
        }
    };
    kinds.into_iter().map(change).collect()
}

fn affected(state: &State, moved: &Moved) -> v1::AffectedJob {
    let job = state.job(moved.job);
    let (to, explained) = match &moved.then {
        Moves::Runs(workers) => {
            (job.map(|job| job_view::planned_workers(state, &job.spec, workers)).unwrap_or_default(), None)
        }
        Moves::Waits(why) => (Vec::new(), Some(explanation(why))),
    };
    v1::AffectedJob {
        job_id: moved.job.0,
        queue: job.map(|job| job.spec.queue.clone()).unwrap_or_default(),
        priority: job.map_or(0, |job| job.spec.priority),
        from: moved.from.iter().map(|node| job_view::node_name(state, *node)).collect(),
        to,
        explanation: explained,
        checkpoint_mode: job.map_or(0, |job| job.spec.checkpoint.mode.to_wire()),
    }
}
