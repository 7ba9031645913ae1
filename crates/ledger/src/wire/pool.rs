//! Nodes, queues and settings as commands carry them and snapshots keep them.

use super::field::{FieldError, WireEnum, duration_from_wire, duration_to_wire, required, required_enum};
use super::stored;
use crate::config::PoolConfig;
use crate::node::NodeDescription;
use crate::queue::{QueueAmount, QueueSettings};
use crate::units::{Mebibytes, MilliTflops};

pub(super) fn node_from_wire(node: stored::NodeDescription) -> NodeDescription {
    NodeDescription {
        name: node.name,
        uid: node.uid,
        incarnation: node.incarnation,
        agent_version: node.agent_version,
        address: node.address,
        worker_host: node.worker_host,
        labels: node.labels,
    }
}

pub(super) fn node_to_wire(node: &NodeDescription) -> stored::NodeDescription {
    stored::NodeDescription {
        name: node.name.clone(),
        uid: node.uid.clone(),
        incarnation: node.incarnation,
        agent_version: node.agent_version.clone(),
        address: node.address.clone(),
        worker_host: node.worker_host.clone(),
        labels: node.labels.clone(),
    }
}

pub(super) fn queue_from_wire(queue: stored::QueueSettings) -> Result<QueueSettings, FieldError> {
    Ok(QueueSettings {
        name: queue.name,
        parent: queue.parent,
        guaranteed: amount_from_wire(required("guaranteed", queue.guaranteed)?),
        maximum: queue.maximum.map(amount_from_wire),
        weight: queue.weight,
    })
}

pub(super) fn queue_to_wire(queue: &QueueSettings) -> stored::QueueSettings {
    stored::QueueSettings {
        name: queue.name.clone(),
        parent: queue.parent.clone(),
        guaranteed: Some(amount_to_wire(queue.guaranteed)),
        maximum: queue.maximum.map(amount_to_wire),
        weight: queue.weight,
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
    })
}

pub(super) fn config_to_wire(config: &PoolConfig) -> stored::PoolConfig {
    stored::PoolConfig {
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
    }
}

/// Reads a number of a port, or a number of ports.
pub(super) fn port_from_wire(field: &str, port: u32) -> Result<u16, FieldError> {
    u16::try_from(port).map_err(|_| FieldError::invalid(field, "must be at most 65535"))
}
