//! Nodes, queues and settings as commands carry them and snapshots keep them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::field::{
    FieldError, WireEnum, duration_from_wire, duration_to_wire, enum_from_wire, required, required_enum,
};
use super::{stored, v1};
use crate::affinity::Packing;
use crate::card::CardKind;
use crate::config::{CompactionPolicy, PoolConfig, PoolLimits};
use crate::host::HostCapacity;
use crate::idle::IdlePolicy;
use crate::lease::LeaseTimings;
use crate::node::{AgentStart, Containment, NodeDescription};
use crate::order::AttainedOrder;
use crate::queue::{QueueAmount, QueueSettings};
use crate::units::{Mebibytes, MilliCpus, MilliTflops, Percent};

// What settings mean that are absent. Logs of every release rely on it, so that it never changes, whatever the defaults
// of new pools become (law L7).
const ABSENT_HALF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
const ABSENT_COMPACTION: CompactionPolicy =
    CompactionPolicy { automatic: false, threshold: Percent(50), moves_per_hour: 60 };
const ABSENT_LIMITS: PoolLimits =
    PoolLimits { spec_bytes: 512 << 20, queues: 10_000, nodes: 20_000, cards: 200_000, events: 1_000_000 };
const ABSENT_LEASES: LeaseTimings = LeaseTimings {
    heartbeat: Duration::from_secs(2),
    stop_after: Duration::from_secs(9),
    kill_after: Duration::from_secs(12),
    regrant_after: Duration::from_secs(20),
};

pub(super) fn node_from_wire(node: stored::NodeDescription) -> NodeDescription {
    NodeDescription {
        name: node.name,
        uid: node.uid,
        incarnation: node.incarnation,
        agent_version: node.agent_version,
        address: node.address,
        worker_host: node.worker_host,
        labels: node.labels,
        host: node.host.map(capacity_from_wire),
        cached: node.cached.into_iter().collect(),
        start: AgentStart { boot_id: node.boot_id, nonce: node.start_nonce },
        containment: if node.contained {
            Containment::Whole
        } else {
            Containment::Partial { missing: node.containment_missing }
        },
    }
}

pub(super) fn node_to_wire(node: &NodeDescription) -> stored::NodeDescription {
    let NodeDescription {
        name,
        uid,
        incarnation,
        agent_version,
        address,
        worker_host,
        labels,
        host,
        cached,
        start,
        containment,
    } = node;
    stored::NodeDescription {
        name: name.clone(),
        uid: uid.clone(),
        incarnation: *incarnation,
        agent_version: agent_version.clone(),
        address: address.clone(),
        worker_host: worker_host.clone(),
        labels: labels.clone(),
        host: host.map(capacity_to_wire),
        cached: cached.iter().cloned().collect(),
        boot_id: start.boot_id.clone(),
        start_nonce: start.nonce.clone(),
        contained: *containment == Containment::Whole,
        containment_missing: match containment {
            Containment::Whole => String::new(),
            Containment::Partial { missing } => missing.clone(),
        },
    }
}

#[must_use]
pub fn capacity_from_wire(host: v1::HostCapacity) -> HostCapacity {
    HostCapacity { cpu: MilliCpus(host.milli_cpus), memory: Mebibytes(host.memory_mib) }
}

#[must_use]
pub fn capacity_to_wire(host: HostCapacity) -> v1::HostCapacity {
    v1::HostCapacity { milli_cpus: host.cpu.0, memory_mib: host.memory.0 }
}

pub(super) fn queue_from_wire(queue: stored::QueueSettings) -> Result<QueueSettings, FieldError> {
    let attained = queue.attained.as_ref().map(attained_order_from_wire);
    Ok(QueueSettings {
        name: queue.name,
        parent: queue.parent,
        guaranteed: amount_from_wire(required("guaranteed", queue.guaranteed)?),
        maximum: queue.maximum.map(amount_from_wire),
        weight: queue.weight,
        packing: enum_from_wire("packing", queue.packing)?,
        windows: queue.windows,
        idle: queue.idle.as_ref().map(idle_policy_from_wire).transpose().map_err(|error| error.under("idle"))?,
        checkpoints: queue.checkpoints_mib.map(Mebibytes),
        attained: attained.transpose().map_err(|error| error.under("attained"))?,
    })
}

/// Reads the order of a queue by attained service; what is not given is as by default.
///
/// # Errors
/// When its first band is no time.
pub fn attained_order_from_wire(order: &v1::AttainedOrder) -> Result<AttainedOrder, FieldError> {
    let default = AttainedOrder::default();
    let first_band = order.first_band.as_ref().map(|time| duration_from_wire("first_band", time)).transpose()?;
    let given = |number: u32, default: u32| if number == 0 { default } else { number };
    Ok(AttainedOrder {
        first_band: first_band.unwrap_or(default.first_band),
        ratio: given(order.ratio, default.ratio),
        bands: given(order.bands, default.bands),
        guard: order.guard_percent.map_or(default.guard, Percent),
    })
}

#[must_use]
pub fn attained_order_to_wire(order: &AttainedOrder) -> v1::AttainedOrder {
    let AttainedOrder { first_band, ratio, bands, guard } = order;
    let (first_band, guard_percent) = (Some(duration_to_wire(*first_band)), Some(guard.0));
    v1::AttainedOrder { first_band, ratio: *ratio, bands: *bands, guard_percent }
}

/// Reads the idle ladder of a queue.
///
/// # Errors
/// When a time of it is none.
pub fn idle_policy_from_wire(policy: &v1::IdlePolicy) -> Result<IdlePolicy, FieldError> {
    let after = |field: &str, time: &Option<prost_types::Duration>| {
        time.as_ref().map(|time| duration_from_wire(field, time)).transpose()
    };
    Ok(IdlePolicy {
        below: Percent(policy.below_percent),
        notify_after: after("notify_after", &policy.notify_after)?,
        preemptible_after: after("preemptible_after", &policy.preemptible_after)?,
        suspend_after: after("suspend_after", &policy.suspend_after)?,
        release_after: after("release_after", &policy.release_after)?,
    })
}

#[must_use]
pub fn idle_policy_to_wire(policy: &IdlePolicy) -> v1::IdlePolicy {
    let IdlePolicy { below, notify_after, preemptible_after, suspend_after, release_after } = policy;
    v1::IdlePolicy {
        below_percent: below.0,
        notify_after: notify_after.map(duration_to_wire),
        preemptible_after: preemptible_after.map(duration_to_wire),
        suspend_after: suspend_after.map(duration_to_wire),
        release_after: release_after.map(duration_to_wire),
    }
}

pub(super) fn queue_to_wire(queue: &QueueSettings) -> stored::QueueSettings {
    let QueueSettings { name, parent, guaranteed, maximum, weight, packing, windows, idle, checkpoints, attained } =
        queue;
    stored::QueueSettings {
        name: name.clone(),
        parent: parent.clone(),
        guaranteed: Some(amount_to_wire(*guaranteed)),
        maximum: maximum.map(amount_to_wire),
        weight: *weight,
        packing: packing.map_or(0, WireEnum::to_wire),
        windows: windows.clone(),
        idle: idle.as_ref().map(idle_policy_to_wire),
        checkpoints_mib: checkpoints.map(|most| most.0),
        attained: attained.as_ref().map(attained_order_to_wire),
    }
}

fn amount_from_wire(amount: stored::QueueAmount) -> QueueAmount {
    QueueAmount { compute: MilliTflops(amount.milli_tflops), memory: Mebibytes(amount.memory_mib) }
}

fn amount_to_wire(amount: QueueAmount) -> stored::QueueAmount {
    stored::QueueAmount { milli_tflops: amount.compute.0, memory_mib: amount.memory.0 }
}

pub(super) fn config_from_wire(config: &stored::PoolConfig) -> Result<PoolConfig, FieldError> {
    let time = |field: &str, value: &Option<prost_types::Duration>| {
        value.as_ref().map_or_else(|| Err(FieldError::missing(field)), |value| duration_from_wire(field, value))
    };
    Ok(PoolConfig {
        reference_precision: required_enum("reference_precision", config.reference_precision)?,
        block_size: MilliTflops(config.block_milli_tflops),
        request_retention: time("request_retention", &config.request_retention)?,
        request_limit: config.request_limit,
        job_retention: time("job_retention", &config.job_retention)?,
        ended_job_limit: config.ended_job_limit,
        job_limit: config.job_limit,
        output_retention: time("output_retention", &config.output_retention)?,
        event_limit: config.event_limit,
        preemptions_per_hour: config.preemptions_per_hour,
        first_master_port: port_from_wire("first_master_port", config.first_master_port)?,
        master_ports: port_from_wire("master_ports", config.master_ports)?,
        packing: enum_from_wire("packing", config.packing)?.unwrap_or(Packing::Stack),
        fair_share_half_life: match &config.fair_share_half_life {
            Some(half_life) => duration_from_wire("fair_share_half_life", half_life)?,
            None => ABSENT_HALF_LIFE,
        },
        oversubscription: oversubscription_from_wire(&config.oversubscription)?,
        compaction: config.compaction.as_ref().map_or(ABSENT_COMPACTION, |policy| CompactionPolicy {
            automatic: policy.automatic,
            threshold: Percent(policy.threshold_percent),
            moves_per_hour: policy.moves_per_hour,
        }),
        limits: config.limits.as_ref().map_or(ABSENT_LIMITS, limits_from_wire),
        leases: match &config.leases {
            Some(leases) => leases_from_wire(leases).map_err(|error| error.under("leases"))?,
            None => ABSENT_LEASES,
        },
        hold_level: config.hold_level,
    })
}

/// The timings of leases.
///
/// # Errors
/// [`FieldError`] when one of them is missing or negative.
pub fn leases_from_wire(leases: &v1::LeaseTimings) -> Result<LeaseTimings, FieldError> {
    let time = |field: &str, value: &Option<prost_types::Duration>| {
        value.as_ref().map_or_else(|| Err(FieldError::missing(field)), |value| duration_from_wire(field, value))
    };
    Ok(LeaseTimings {
        heartbeat: time("heartbeat", &leases.heartbeat)?,
        stop_after: time("stop_after", &leases.stop_after)?,
        kill_after: time("kill_after", &leases.kill_after)?,
        regrant_after: time("regrant_after", &leases.regrant_after)?,
    })
}

#[must_use]
pub fn leases_to_wire(leases: &LeaseTimings) -> v1::LeaseTimings {
    let LeaseTimings { heartbeat, stop_after, kill_after, regrant_after } = leases;
    v1::LeaseTimings {
        heartbeat: Some(duration_to_wire(*heartbeat)),
        stop_after: Some(duration_to_wire(*stop_after)),
        kill_after: Some(duration_to_wire(*kill_after)),
        regrant_after: Some(duration_to_wire(*regrant_after)),
    }
}

const fn limits_from_wire(limits: &stored::PoolLimits) -> PoolLimits {
    PoolLimits {
        spec_bytes: limits.spec_bytes,
        queues: limits.queues,
        nodes: limits.nodes,
        cards: limits.cards,
        events: limits.events,
    }
}

const fn limits_to_wire(limits: &PoolLimits) -> stored::PoolLimits {
    let PoolLimits { spec_bytes, queues, nodes, cards, events } = *limits;
    stored::PoolLimits { spec_bytes, queues, nodes, cards, events }
}

pub(super) fn config_to_wire(config: &PoolConfig) -> stored::PoolConfig {
    let PoolConfig {
        reference_precision,
        block_size,
        request_retention,
        request_limit,
        job_retention,
        ended_job_limit,
        job_limit,
        output_retention,
        event_limit,
        preemptions_per_hour,
        first_master_port,
        master_ports,
        packing,
        fair_share_half_life,
        oversubscription: _,
        compaction,
        leases,
        limits,
        hold_level,
    } = config;
    stored::PoolConfig {
        reference_precision: reference_precision.to_wire(),
        block_milli_tflops: block_size.0,
        request_retention: Some(duration_to_wire(*request_retention)),
        request_limit: *request_limit,
        job_retention: Some(duration_to_wire(*job_retention)),
        ended_job_limit: *ended_job_limit,
        job_limit: *job_limit,
        output_retention: Some(duration_to_wire(*output_retention)),
        event_limit: *event_limit,
        preemptions_per_hour: *preemptions_per_hour,
        first_master_port: u32::from(*first_master_port),
        master_ports: u32::from(*master_ports),
        packing: if *packing == Packing::Stack { 0 } else { packing.to_wire() },
        fair_share_half_life: (*fair_share_half_life != ABSENT_HALF_LIFE)
            .then(|| duration_to_wire(*fair_share_half_life)),
        oversubscription: config
            .oversubscription
            .iter()
            .map(|(kind, percent)| stored::Oversubscription { kind: kind.to_wire(), percent: percent.0 })
            .collect(),
        compaction: (*compaction != ABSENT_COMPACTION).then_some(stored::CompactionPolicy {
            automatic: compaction.automatic,
            threshold_percent: compaction.threshold.0,
            moves_per_hour: compaction.moves_per_hour,
        }),
        limits: (*limits != ABSENT_LIMITS).then(|| limits_to_wire(limits)),
        leases: (*leases != ABSENT_LEASES).then(|| leases_to_wire(leases)),
        hold_level: *hold_level,
    }
}

fn oversubscription_from_wire(kinds: &[stored::Oversubscription]) -> Result<BTreeMap<CardKind, Percent>, FieldError> {
    let mut read = BTreeMap::new();
    for (place, of) in kinds.iter().enumerate() {
        let field = format!("oversubscription[{place}].kind");
        if read.insert(required_enum(&field, of.kind)?, Percent(of.percent)).is_some() {
            return Err(FieldError::invalid(field, "must name each kind once"));
        }
    }
    Ok(read)
}

/// Reads a number of a port, or a number of ports.
pub(super) fn port_from_wire(field: &str, port: u32) -> Result<u16, FieldError> {
    u16::try_from(port).map_err(|_| FieldError::invalid(field, "must be at most 65535"))
}
