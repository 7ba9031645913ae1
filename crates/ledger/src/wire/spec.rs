//! Jobs as they are submitted. What is absent gets the default that [`JobSpec::new`] gives it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::field::{
    FieldError, WireEnum, duration_from_wire, duration_to_wire, each, enum_from_wire, required, required_enum,
};
use super::v1;
use crate::affinity::{Affinity, PreferredLabel};
use crate::host::HostRequest;
use crate::spec::{CheckpointMode, CheckpointPolicy, JobSpec, RetryPolicy};
use crate::units::{Mebibytes, MilliCpus, MilliTflops};
use crate::virtual_card::{Access, VirtualCardRequest};

/// A job as it was submitted, with the defaults of `types.proto` filled in, and what follows from others. Limits are
/// not checked here.
///
/// # Errors
/// [`FieldError`] when the virtual card is missing, an enumeration has no value that this release knows, or a duration
/// is negative.
pub fn spec_from_wire(spec: v1::JobSpec) -> Result<JobSpec, FieldError> {
    let virtual_card = required("virtual_card", spec.virtual_card)?;
    let virtual_card = request_from_wire(virtual_card).map_err(|error| error.under("virtual_card"))?;
    let default = JobSpec::new(spec.command, virtual_card);
    let spec = JobSpec {
        name: spec.name,
        queue: if spec.queue.is_empty() { default.queue } else { spec.queue },
        command: default.command,
        environment: spec.environment,
        working_directory: spec.working_directory,
        script: spec.script,
        gang: spec.gang.max(default.gang),
        virtual_card: default.virtual_card,
        priority: spec.priority.unwrap_or(default.priority),
        preemptible: spec.preemptible.unwrap_or(default.preemptible),
        checkpoint: checkpoint_from_wire(spec.checkpoint).map_err(|error| error.under("checkpoint"))?,
        on_disconnect: enum_from_wire("on_disconnect", spec.on_disconnect)?.unwrap_or(default.on_disconnect),
        time_limit: optional_duration("time_limit", spec.time_limit)?,
        retry: retry_from_wire(spec.retry).map_err(|error| error.under("retry"))?,
        labels: spec.labels,
        node_labels: spec.node_labels,
        output_retention: optional_duration("output_retention", spec.output_retention)?,
        held: spec.held,
        host: spec.host.map_or(default.host, host_from_wire),
        gang_min: spec.gang_min,
        grow_after: optional_duration("grow_after", spec.grow_after)?,
        min_runtime: optional_duration("min_runtime", spec.min_runtime)?.unwrap_or(default.min_runtime),
        affinity: spec.affinity.map_or(default.affinity, affinity_from_wire),
        packing: enum_from_wire("packing", spec.packing)?,
        windows: spec.windows,
    };
    Ok(spec.with_needs_of_its_access())
}

/// The job as a message, every default spelled out.
#[must_use]
pub fn spec_to_wire(spec: &JobSpec) -> v1::JobSpec {
    let JobSpec {
        name,
        queue,
        command,
        environment,
        working_directory,
        script,
        gang,
        virtual_card,
        priority,
        preemptible,
        checkpoint,
        on_disconnect,
        time_limit,
        retry,
        labels,
        node_labels,
        output_retention,
        held,
        host,
        gang_min,
        grow_after,
        min_runtime,
        affinity,
        packing,
        windows,
    } = spec;
    v1::JobSpec {
        name: name.clone(),
        queue: queue.clone(),
        command: command.clone(),
        environment: environment.clone(),
        working_directory: working_directory.clone(),
        script: script.clone(),
        gang: *gang,
        virtual_card: Some(request_to_wire(virtual_card)),
        priority: Some(*priority),
        preemptible: Some(*preemptible),
        checkpoint: Some(v1::CheckpointPolicy {
            mode: checkpoint.mode.to_wire(),
            signal: checkpoint.signal.clone(),
            grace: Some(duration_to_wire(checkpoint.grace)),
            every: checkpoint.every.map(duration_to_wire),
            keep: checkpoint.keep.unwrap_or(0),
            // Not written where it means what its absence means.
            fallback: match checkpoint.fallback {
                CheckpointMode::Requeue => 0,
                fallback => fallback.to_wire(),
            },
        }),
        on_disconnect: on_disconnect.to_wire(),
        time_limit: time_limit.map(duration_to_wire),
        retry: Some(v1::RetryPolicy {
            max_retries: retry.max_retries,
            backoff: Some(duration_to_wire(retry.backoff)),
            max_backoff: Some(duration_to_wire(retry.max_backoff)),
        }),
        labels: labels.clone(),
        node_labels: node_labels.clone(),
        output_retention: output_retention.map(duration_to_wire),
        held: *held,
        host: (!host.is_zero()).then(|| host_to_wire(*host)),
        gang_min: *gang_min,
        grow_after: grow_after.map(duration_to_wire),
        min_runtime: (!min_runtime.is_zero()).then(|| duration_to_wire(*min_runtime)),
        affinity: (!affinity.is_empty()).then(|| affinity_to_wire(&*affinity)),
        packing: packing.map_or(0, WireEnum::to_wire),
        windows: windows.clone(),
    }
}

fn request_from_wire(request: v1::VirtualCardRequest) -> Result<VirtualCardRequest, FieldError> {
    let mut kinds = BTreeSet::new();
    for (index, kind) in request.kinds.iter().enumerate() {
        kinds.insert(required_enum(&format!("kinds[{index}]"), *kind)?);
    }
    Ok(VirtualCardRequest {
        compute: MilliTflops(request.milli_tflops),
        memory: Mebibytes(request.memory_mib),
        precision: enum_from_wire("precision", request.precision)?,
        span: enum_from_wire("span", request.span)?.unwrap_or_default(),
        kinds,
        mixed: request.mixed,
        isolation: enum_from_wire("isolation", request.isolation)?.unwrap_or_default(),
        vendors: request.vendors.into_iter().collect(),
        models: request.models.into_iter().collect(),
        whole_cards: request.whole_cards,
        slice_memory: Mebibytes(request.slice_memory_mib),
        access: enum_from_wire("access", request.access)?.unwrap_or_default(),
        elastic: request.elastic,
    })
}

fn request_to_wire(request: &VirtualCardRequest) -> v1::VirtualCardRequest {
    let VirtualCardRequest {
        compute,
        memory,
        precision,
        span,
        kinds,
        mixed,
        isolation,
        vendors,
        models,
        whole_cards,
        slice_memory,
        access,
        elastic,
    } = request;
    v1::VirtualCardRequest {
        milli_tflops: compute.0,
        memory_mib: memory.0,
        precision: precision.map_or(0, WireEnum::to_wire),
        span: span.to_wire(),
        kinds: kinds.iter().map(|kind| kind.to_wire()).collect(),
        mixed: *mixed,
        isolation: isolation.to_wire(),
        vendors: vendors.iter().cloned().collect(),
        models: models.iter().cloned().collect(),
        whole_cards: *whole_cards,
        slice_memory_mib: slice_memory.0,
        // Only where it says something, so that what was written before there was another reads the same.
        access: if *access == Access::Worker { 0 } else { access.to_wire() },
        elastic: *elastic,
    }
}

/// Reads the host resources that a worker needs or holds.
#[must_use]
pub fn host_from_wire(host: v1::HostRequest) -> HostRequest {
    HostRequest { cpu: MilliCpus(host.milli_cpus), memory: Mebibytes(host.memory_mib) }
}

#[must_use]
pub fn host_to_wire(host: HostRequest) -> v1::HostRequest {
    v1::HostRequest { milli_cpus: host.cpu.0, memory_mib: host.memory.0 }
}

fn affinity_from_wire(affinity: v1::Affinity) -> Affinity {
    let preferred = affinity.preferred.into_iter().map(|label| PreferredLabel {
        key: label.key,
        value: label.value,
        weight: label.weight,
    });
    Affinity {
        preferred: preferred.collect(),
        together: affinity.together,
        spread: affinity.spread,
        avoid: affinity.avoid,
        data: affinity.data.into_iter().collect(),
    }
}

fn affinity_to_wire(affinity: &Affinity) -> v1::Affinity {
    let preferred = affinity.preferred.iter().map(|label| v1::PreferredLabel {
        key: label.key.clone(),
        value: label.value.clone(),
        weight: label.weight,
    });
    v1::Affinity {
        preferred: preferred.collect(),
        together: affinity.together.clone(),
        spread: affinity.spread.clone(),
        avoid: affinity.avoid.clone(),
        data: affinity.data.iter().cloned().collect(),
    }
}

fn checkpoint_from_wire(policy: Option<v1::CheckpointPolicy>) -> Result<CheckpointPolicy, FieldError> {
    let default = CheckpointPolicy::default();
    let Some(policy) = policy else { return Ok(default) };
    Ok(CheckpointPolicy {
        mode: enum_from_wire("mode", policy.mode)?.unwrap_or_default(),
        signal: if policy.signal.is_empty() { default.signal } else { policy.signal },
        grace: optional_duration("grace", policy.grace)?.unwrap_or(default.grace),
        every: optional_duration("every", policy.every)?.filter(|every| !every.is_zero()),
        keep: (policy.keep > 0).then_some(policy.keep),
        fallback: enum_from_wire("fallback", policy.fallback)?.unwrap_or_default(),
    })
}

fn retry_from_wire(policy: Option<v1::RetryPolicy>) -> Result<RetryPolicy, FieldError> {
    let default = RetryPolicy::default();
    let Some(policy) = policy else { return Ok(default) };
    Ok(RetryPolicy {
        max_retries: policy.max_retries,
        backoff: optional_duration("backoff", policy.backoff)?.unwrap_or(default.backoff),
        max_backoff: optional_duration("max_backoff", policy.max_backoff)?.unwrap_or(default.max_backoff),
    })
}

fn optional_duration(field: &str, duration: Option<prost_types::Duration>) -> Result<Option<Duration>, FieldError> {
    duration.map(|duration| duration_from_wire(field, &duration)).transpose()
}

pub(super) fn slices_from_wire(slices: Vec<v1::Slice>) -> Result<Vec<crate::allocation::Slice>, FieldError> {
    each("slices", slices, super::card::slice_from_wire)
}
