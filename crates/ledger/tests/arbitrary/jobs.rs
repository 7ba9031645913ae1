//! Arbitrary jobs.

use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tessera_ledger::{
    Access, Affinity, CardKind, CheckpointMode, CheckpointPolicy, JobSpec, Mebibytes, MilliTflops, OnDisconnect,
    Precision, PreferredLabel, RetryPolicy, Span, VirtualCardRequest,
};

use super::{filled, host, isolation, packing, text, time, words};

fn virtual_card() -> impl Strategy<Value = VirtualCardRequest> {
    (
        ((any::<u64>(), any::<u64>()), any::<u64>(), option::of(select(Precision::ALL.to_vec()))),
        select(vec![Span::Card, Span::Node, Span::Pool]),
        btree_set(select(CardKind::ALL.to_vec()), 0..4),
        any::<bool>(),
        isolation(),
        (btree_set(text(), 0..3), btree_set(text(), 0..3), any::<bool>()),
        (select(vec![Access::Worker, Access::Device, Access::Remote]), any::<bool>()),
    )
        .prop_map(
            |(
                ((memory, slice_memory), compute, precision),
                span,
                kinds,
                mixed,
                isolation,
                (vendors, models, whole_cards),
                (access, elastic),
            )| {
                VirtualCardRequest {
                    compute: MilliTflops(compute),
                    memory: Mebibytes(memory),
                    precision,
                    span,
                    kinds,
                    mixed,
                    isolation,
                    vendors,
                    models,
                    whole_cards,
                    slice_memory: Mebibytes(slice_memory),
                    access,
                    elastic,
                }
            },
        )
}

fn affinity() -> impl Strategy<Value = Affinity> {
    let label = (text(), text(), any::<u32>()).prop_map(|(key, value, weight)| PreferredLabel { key, value, weight });
    (vec(label, 0..3), text(), text(), words(), btree_set(text(), 0..3))
        .prop_map(|(preferred, together, spread, avoid, data)| Affinity { preferred, together, spread, avoid, data })
}

/// A job with everything that storage must keep, within what defaults do not replace.
pub fn spec() -> impl Strategy<Value = JobSpec> {
    let modes = vec![CheckpointMode::Cooperative, CheckpointMode::Transparent, CheckpointMode::Requeue];
    let checkpoint = (select(modes), filled(), time(), prop::option::of(time()), prop::option::of(1..=16_u32))
        .prop_map(|(mode, signal, grace, every, keep)| {
            let every = every.filter(|every: &Duration| !every.is_zero());
            let fallback = if keep.is_some() { CheckpointMode::Cooperative } else { CheckpointMode::Requeue };
            CheckpointPolicy { mode, signal, grace, every, keep, fallback }
        });
    let retry = (any::<u32>(), time(), time()).prop_map(|(max_retries, backoff, max_backoff)| RetryPolicy {
        max_retries,
        backoff,
        max_backoff,
    });
    (
        (text(), filled(), vec(text(), 0..3), words(), text(), text()),
        (1u32.., virtual_card(), any::<u32>(), any::<bool>(), checkpoint),
        (select(vec![OnDisconnect::Stop, OnDisconnect::Keep]), option::of(time()), retry, words(), words()),
        (option::of(time()), any::<bool>()),
        (
            host(),
            option::of(any::<u32>()),
            (time(), option::of(time())),
            affinity(),
            option::of(packing()),
            vec(text(), 0..3),
        ),
    )
        .prop_map(|(texts, card, after, (output_retention, held), rest)| {
            let (host, gang_min, (min_runtime, grow_after), affinity, packing, windows) = rest;
            let (name, queue, command, environment, working_directory, script) = texts;
            let (gang, virtual_card, priority, preemptible, checkpoint) = card;
            let (on_disconnect, time_limit, retry, labels, node_labels) = after;
            JobSpec {
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
            }
            .with_needs_of_its_access()
        })
}
