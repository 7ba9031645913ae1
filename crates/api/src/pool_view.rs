//! The pool of the ledger as the API shows it: nodes, cards, blocks, settings; and settings as they come in.

use std::collections::BTreeMap;

use tessera_ledger::wire::{
    FieldError, WireEnum, capacity_to_wire, card_to_wire, duration_from_wire, duration_to_wire, enum_from_wire,
    host_to_wire, leases_from_wire, leases_to_wire,
};
use tessera_ledger::{
    BlockCounts, BlockState, Card, CardId, CardKind, CompactionPolicy, Containment, JobState, LeaseTimings,
    MilliTflops, Node, NodeId, NodeState, Owner, Percent, PoolConfig, PoolLimits, State, WorkerState,
};

use crate::error::Refusal;
use crate::fields::{line, number, quoted, time, time_within};
use crate::job_view::node_name;
use crate::time::timestamp;
use crate::{limits, v1};

/// The pool in numbers.
#[must_use]
pub fn pool(state: &State, cluster_id: &str) -> v1::Pool {
    let mut kinds: BTreeMap<CardKind, v1::KindSummary> = BTreeMap::new();
    for (_, card) in state.cards() {
        let kind = card.description.kind;
        let sum = kinds.entry(kind).or_insert_with(|| v1::KindSummary { kind: kind.to_wire(), ..Default::default() });
        sum.cards += 1;
        add_counts(sum.blocks.get_or_insert_default(), card.extents.counts());
        sum.memory_mib = sum.memory_mib.saturating_add(card.description.memory.0);
        let used = card.memory_used.saturating_add(card.memory_promised);
        sum.memory_used_mib = sum.memory_used_mib.saturating_add(used.0);
    }
    let mut nodes: BTreeMap<NodeState, u64> = BTreeMap::new();
    for node in state.nodes() {
        *nodes.entry(node.state).or_insert(0) += 1;
    }
    let job_count =
        |job_state: JobState| v1::JobCount { state: job_state.to_wire(), count: state.job_count(job_state) };
    v1::Pool {
        cluster_id: cluster_id.to_owned(),
        config: Some(config(state.config())),
        blocks: Some(block_counts(state.block_counts())),
        kinds: kinds.into_values().collect(),
        nodes: nodes.into_iter().map(|(state, count)| v1::NodeCount { state: state.to_wire(), count }).collect(),
        jobs: JobState::ALL.into_iter().map(job_count).collect(),
    }
}

#[must_use]
pub fn block_counts(counts: BlockCounts) -> v1::BlockCounts {
    let mut sum = v1::BlockCounts::default();
    add_counts(&mut sum, counts);
    sum
}

fn add_counts(sum: &mut v1::BlockCounts, counts: BlockCounts) {
    sum.free += counts.free;
    sum.held += counts.held;
    sum.running += counts.running;
    sum.draining += counts.draining;
    sum.lost += counts.lost;
    sum.offline += counts.offline;
}

/// A node. Its agent's session is not replicated: the leader adds it.
#[must_use]
pub fn node(state: &State, node: &Node) -> v1::Node {
    let mut blocks = v1::BlockCounts::default();
    for (_, card) in state.cards_of(node.id) {
        add_counts(&mut blocks, card.extents.counts());
    }
    let description = &node.description;
    v1::Node {
        id: node.id.0,
        name: description.name.clone(),
        uid: description.uid.clone(),
        incarnation: description.incarnation,
        agent_version: description.agent_version.clone(),
        address: description.address.clone(),
        worker_host: description.worker_host.clone(),
        labels: description.labels.clone(),
        state: node.state.to_wire(),
        eligibility: node.eligibility.to_wire(),
        eligibility_reason: node.eligibility_reason.clone(),
        first_block_number: node.base.0,
        cards: node.cards,
        epoch: node.epoch.0,
        changed_at: Some(timestamp(node.changed_at)),
        blocks: Some(blocks),
        job_ids: jobs_on(state, node.id),
        session: None,
        host: description.host.map(capacity_to_wire),
        host_used: Some(host_to_wire(state.host_use(node.id).used)),
        host_promised: Some(host_to_wire(state.host_use(node.id).promised)),
        cached: description.cached.iter().cloned().collect(),
        containment: Some(match &description.containment {
            Containment::Whole => v1::Containment { whole: true, missing: String::new() },
            Containment::Partial { missing } => v1::Containment { whole: false, missing: missing.clone() },
        }),
        faults: node.faults,
        drain_by: node.drain_by.map(timestamp),
    }
}

/// The jobs with a worker on a node that is not over.
fn jobs_on(state: &State, node: NodeId) -> Vec<u64> {
    let holds = |worker: &tessera_ledger::Worker| worker.node == node && worker.state != WorkerState::Stopped;
    let allocations = state.allocations_on(node).filter(|allocation| allocation.workers.iter().any(holds));
    let mut jobs: Vec<u64> = allocations.map(|allocation| allocation.job.0).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

/// A card. Readings are not replicated: the leader adds them.
#[must_use]
pub fn card(state: &State, id: CardId, card: &Card) -> v1::Card {
    let config = state.config();
    let lack_of_blocks = card.description.lack_of_blocks(config.reference_precision, config.block_size);
    v1::Card {
        node_id: id.node.0,
        node_name: node_name(state, id.node),
        description: Some(card_to_wire(&card.description)),
        blocks: card.blocks.0,
        block_counts: Some(block_counts(card.extents.counts())),
        first_block_number: state.block_number(id, 0).map_or(0, |number| number.0),
        memory_used_mib: card.memory_used.0,
        memory_promised_mib: card.memory_promised.0,
        slices: card.slices,
        sample: None,
        sampled_at: None,
        oversubscription_percent: card.oversubscription.0,
        isolation: card.isolation().to_wire(),
        lack_of_blocks: lack_of_blocks.unwrap_or_default(),
    }
}

/// The blocks of a card: which are free, and who holds the others (P4).
#[must_use]
pub fn card_blocks(state: &State, id: CardId, card: &Card) -> v1::CardBlocks {
    let number = |index: u32| state.block_number(id, index).map_or(0, |number| number.0);
    let runs = card.extents.as_slice().iter().map(|extent| v1::BlockRun {
        start: extent.start.0,
        blocks: extent.length.0,
        first_block_number: number(extent.start.0),
        last_block_number: number(extent.end().saturating_sub(1)),
        state: block_state(extent.state).into(),
        owner: extent.state.owner().map(|owner| block_owner(state, owner)),
        next: match extent.state {
            BlockState::Draining { next, .. } => next.map(|next| block_owner(state, next)),
            _ => None,
        },
    });
    v1::CardBlocks {
        node_id: id.node.0,
        node_name: node_name(state, id.node),
        card_index: id.index,
        kind: card.description.kind.to_wire(),
        model: card.description.model.clone(),
        runs: runs.collect(),
    }
}

fn block_state(state: BlockState) -> v1::BlockState {
    match state {
        BlockState::Free => v1::BlockState::Free,
        BlockState::Offline => v1::BlockState::Offline,
        BlockState::Held(_) => v1::BlockState::Held,
        BlockState::Running(_) => v1::BlockState::Running,
        BlockState::Draining { .. } => v1::BlockState::Draining,
        BlockState::Lost(_) => v1::BlockState::Lost,
    }
}

fn block_owner(state: &State, owner: Owner) -> v1::BlockOwner {
    let job = state.allocation(owner.allocation).and_then(|allocation| state.job(allocation.job));
    v1::BlockOwner {
        job_id: job.map_or(0, |job| job.id.0),
        priority: job.map_or(0, |job| job.spec.priority),
        allocation_id: owner.allocation.0,
        epoch: owner.epoch.0,
        rank: owner.rank.0,
    }
}

/// The node that a reference in a field names.
///
/// # Errors
/// A [`Refusal`] with INVALID_FIELD when nothing is named, or what no node can be called; or NODE_UNKNOWN.
pub fn node_of_ref(field: &str, state: &State, node: Option<&v1::NodeRef>) -> Result<NodeId, Refusal> {
    use v1::node_ref::Ref;
    let unknown = |name: String| {
        let message = format!("{name} is not known; list the nodes to see their names");
        Refusal::new(v1::ErrorReason::NodeUnknown, message)
    };
    match node.and_then(|node| node.r#ref.as_ref()) {
        None => Err(FieldError::missing(field).into()),
        Some(Ref::Id(id)) => {
            let id = NodeId(*id);
            state.node(id).map(|node| node.id).ok_or_else(|| unknown(id.to_string()))
        }
        Some(Ref::Name(name)) => {
            line(&format!("{field}.name"), name)?;
            state.node_by_name(name).map(|node| node.id).ok_or_else(|| unknown(format!("node {}", quoted(name))))
        }
    }
}

#[must_use]
pub fn config(config: &PoolConfig) -> v1::PoolConfig {
    v1::PoolConfig {
        reference_precision: config.reference_precision.to_wire(),
        block_milli_tflops: config.block_size.0,
        request_retention: Some(duration_to_wire(config.request_retention)),
        request_limit: config.request_limit,
        job_retention: Some(duration_to_wire(config.job_retention)),
        ended_job_limit: config.ended_job_limit,
        job_limit: config.job_limit,
        output_retention: Some(duration_to_wire(config.output_retention)),
        event_limit: config.event_limit,
        preemptions_per_hour: config.preemptions_per_hour,
        first_master_port: u32::from(config.first_master_port),
        master_ports: u32::from(config.master_ports),
        packing: config.packing.to_wire(),
        fair_share_half_life: Some(duration_to_wire(config.fair_share_half_life)),
        oversubscription: config
            .oversubscription
            .iter()
            .map(|(kind, percent)| v1::Oversubscription { kind: kind.to_wire(), percent: percent.0 })
            .collect(),
        compaction: Some(v1::CompactionPolicy {
            automatic: config.compaction.automatic,
            threshold_percent: config.compaction.threshold.0,
            moves_per_hour: config.compaction.moves_per_hour,
        }),
        limits: Some(v1::PoolLimits {
            spec_bytes: config.limits.spec_bytes,
            queues: config.limits.queues,
            nodes: config.limits.nodes,
            cards: config.limits.cards,
            events: config.limits.events,
        }),
        leases: Some(leases_to_wire(&config.leases)),
        hold_level: config.hold_level,
    }
}

/// Takes the settings of a request. What must be given and what an absent one means is in `pool.proto`.
///
/// # Errors
/// A [`Refusal`] with the fields that are not acceptable.
pub fn config_of_request(config: Option<&v1::PoolConfig>) -> Result<PoolConfig, Refusal> {
    let config = config.ok_or_else(|| Refusal::from(FieldError::missing("config")))?;
    let config = read_config(config).and_then(|config| check_config(&config).map(|()| config));
    config.map_err(|error| error.under("config").into())
}

/// Takes the settings that those of a request were made from, if it names them. They are only compared: a pool may have
/// some that could not be set today.
///
/// # Errors
/// A [`Refusal`] with the fields that cannot be read.
pub fn expected_config_of_request(expected: Option<&v1::PoolConfig>) -> Result<Option<Box<PoolConfig>>, Refusal> {
    let read = |expected| read_config(expected).map_err(|error| Refusal::from(error.under("expected")));
    expected.map(|expected| read(expected).map(Box::new)).transpose()
}

fn read_config(config: &v1::PoolConfig) -> Result<PoolConfig, FieldError> {
    let time = |field: &str, value: &Option<prost_types::Duration>| {
        duration_from_wire(field, value.as_ref().ok_or_else(|| FieldError::missing(field))?)
    };
    let port = |field: &str, value: u32| {
        u16::try_from(value)
            .map_err(|_| FieldError::invalid(field, format!("must be at most {}, is {value}", u16::MAX)))
    };
    let precision = enum_from_wire("reference_precision", config.reference_precision)?;
    Ok(PoolConfig {
        reference_precision: precision.ok_or_else(|| FieldError::missing("reference_precision"))?,
        block_size: MilliTflops(config.block_milli_tflops),
        request_retention: time("request_retention", &config.request_retention)?,
        request_limit: config.request_limit,
        job_retention: time("job_retention", &config.job_retention)?,
        ended_job_limit: config.ended_job_limit,
        job_limit: config.job_limit,
        output_retention: time("output_retention", &config.output_retention)?,
        event_limit: config.event_limit,
        preemptions_per_hour: config.preemptions_per_hour,
        first_master_port: port("first_master_port", config.first_master_port)?,
        master_ports: port("master_ports", config.master_ports)?,
        packing: enum_from_wire("packing", config.packing)?.unwrap_or_default(),
        fair_share_half_life: match &config.fair_share_half_life {
            None => PoolConfig::FAIR_SHARE_HALF_LIFE,
            given => time("fair_share_half_life", given)?,
        },
        oversubscription: read_oversubscription(&config.oversubscription)?,
        compaction: config.compaction.as_ref().map_or_else(CompactionPolicy::default, |policy| CompactionPolicy {
            automatic: policy.automatic,
            threshold: Percent(policy.threshold_percent),
            moves_per_hour: policy.moves_per_hour,
        }),
        limits: config.limits.as_ref().map_or_else(PoolLimits::default, |limits| PoolLimits {
            spec_bytes: limits.spec_bytes,
            queues: limits.queues,
            nodes: limits.nodes,
            cards: limits.cards,
            events: limits.events,
        }),
        leases: match &config.leases {
            Some(leases) => leases_from_wire(leases).map_err(|error| error.under("leases"))?,
            None => LeaseTimings::default(),
        },
        hold_level: config.hold_level,
    })
}

fn check_config(config: &PoolConfig) -> Result<(), FieldError> {
    number("block_milli_tflops", config.block_size, MilliTflops(1)..=limits::BLOCK)?;
    for (field, kept) in [
        ("request_retention", config.request_retention),
        ("job_retention", config.job_retention),
        ("output_retention", config.output_retention),
    ] {
        time(field, kept, limits::TIME)?;
    }
    time_within("fair_share_half_life", config.fair_share_half_life, &(limits::HALF_LIFE..=limits::TIME))?;
    let LeaseTimings { heartbeat, stop_after, kill_after, regrant_after } = config.leases;
    for (field, timing) in [
        ("leases.heartbeat", heartbeat),
        ("leases.stop_after", stop_after),
        ("leases.kill_after", kill_after),
        ("leases.regrant_after", regrant_after),
    ] {
        time(field, timing, LeaseTimings::LONGEST)?;
    }
    let PoolLimits { spec_bytes, queues, nodes, cards, events } = config.limits;
    for (field, most) in [
        ("request_limit", config.request_limit),
        ("job_limit", config.job_limit),
        ("event_limit", config.event_limit),
        ("limits.queues", queues),
        ("limits.nodes", nodes),
        ("limits.cards", cards),
        ("limits.events", events),
    ] {
        number(field, most, 1..=limits::COUNT)?;
    }
    number("ended_job_limit", config.ended_job_limit, 0..=limits::COUNT)?;
    number("limits.spec_bytes", spec_bytes, 1..=limits::ALL_SPECS)?;
    number("preemptions_per_hour", config.preemptions_per_hour, 0..=limits::PER_HOUR)?;
    number("compaction.threshold_percent", config.compaction.threshold, Percent(0)..=Percent::WHOLE)?;
    number("compaction.moves_per_hour", config.compaction.moves_per_hour, 0..=limits::PER_HOUR)?;
    number("first_master_port", config.first_master_port, 1024..=u16::MAX)?;
    let ports = config.master_ports;
    if ports == 0 || config.first_master_port.checked_add(ports - 1).is_none() {
        return Err(FieldError::invalid("master_ports", "must be at least 1, and the last port at most 65535"));
    }
    Ok(())
}

fn read_oversubscription(kinds: &[v1::Oversubscription]) -> Result<BTreeMap<CardKind, Percent>, FieldError> {
    let mut read = BTreeMap::new();
    for (place, of) in kinds.iter().enumerate() {
        let field = |name: &str| format!("oversubscription[{place}].{name}");
        let kind = enum_from_wire(&field("kind"), of.kind)?.ok_or_else(|| FieldError::missing(field("kind")))?;
        if !(100..=limits::OVERSUBSCRIPTION).contains(&of.percent) {
            let problem = format!("must be 100 to {}, is {}", limits::OVERSUBSCRIPTION, of.percent);
            return Err(FieldError::invalid(field("percent"), problem));
        }
        if read.insert(kind, Percent(of.percent)).is_some() {
            return Err(FieldError::invalid(field("kind"), "must be named once"));
        }
    }
    // The whole is what is said of kinds that are not named.
    read.retain(|_, percent| *percent != Percent::WHOLE);
    Ok(read)
}
