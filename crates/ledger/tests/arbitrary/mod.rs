//! Arbitrary commands, valid as messages and mostly nonsense as commands.
#![allow(dead_code, missing_docs)] // each test file uses its part

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tessera_ledger::{
    Access, Affinity, AgentStart, AllocationId, BlockCount, BlockIndex, CardDescription, CardHealth, CardId, CardKind,
    CheckpointKey, CheckpointMode, CheckpointPolicy, Command, CompactionPolicy, Containment, Eligibility, Epoch,
    HostCapacity, HostRequest, IdlePolicy, IdleStep, Isolation, JobId, JobSpec, LeaseTimings, Level, Link, LinkKind,
    LogTime, Mebibytes, MilliCpus, MilliTflops, MoveId, MovePhase, NodeDescription, NodeId, Observation, OnDisconnect,
    Owner, Packing, PartKey, Percent, Plan, PlanPart, PlannedWorker, PoolConfig, PoolLimits, Precision, PreferredLabel,
    QueueAmount, QueueSettings, Rank, Ratings, Request, RequestId, RequestKey, RetryPolicy, Revision, SavedPart, Slice,
    Span, StopCause, VirtualCardRequest, WindowOf, WorkerExit, WorkerReport,
};

pub fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn filled() -> impl Strategy<Value = String> {
    "\\PC{1,12}"
}

fn words() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

fn time() -> impl Strategy<Value = Duration> {
    (0u64..=i64::MAX as u64, 0u32..1_000_000_000).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn isolation() -> impl Strategy<Value = Isolation> {
    select(vec![Isolation::Shared, Isolation::Soft, Isolation::Hard])
}

fn card_id() -> impl Strategy<Value = CardId> {
    (any::<u32>(), any::<u32>()).prop_map(|(node, index)| CardId { node: NodeId(node), index })
}

pub fn slice() -> impl Strategy<Value = Slice> {
    (card_id(), any::<u32>(), any::<u32>(), any::<u64>(), isolation()).prop_map(
        |(card, start, length, memory, isolation)| Slice {
            card,
            start: BlockIndex(start),
            length: BlockCount(length),
            memory: Mebibytes(memory),
            isolation,
        },
    )
}

fn worker() -> impl Strategy<Value = PlannedWorker> {
    (any::<u32>(), any::<u32>(), vec(slice(), 0..3)).prop_map(|(virtual_card, node, slices)| PlannedWorker {
        virtual_card,
        node: NodeId(node),
        slices,
    })
}

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

fn host() -> impl Strategy<Value = HostRequest> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(cpu, memory)| HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(memory) })
}

fn packing() -> impl Strategy<Value = Packing> {
    select(vec![Packing::Stack, Packing::Spread])
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

fn ratings() -> impl Strategy<Value = Ratings> {
    btree_map(select(Precision::ALL.to_vec()), any::<u64>().prop_map(MilliTflops), 0..4)
}

pub fn card() -> impl Strategy<Value = CardDescription> {
    let kinds = vec![LinkKind::Fabric, LinkKind::PcieSwitch, LinkKind::Numa, LinkKind::Node];
    let link = (any::<u32>(), select(kinds), any::<u64>()).prop_map(|(peer_index, kind, megabytes_per_second)| Link {
        peer_index,
        kind,
        megabytes_per_second,
    });
    (
        (any::<u32>(), select(CardKind::ALL.to_vec()), text(), text(), text(), any::<u64>()),
        (ratings(), ratings(), vec(link, 0..3), isolation()),
        (any::<bool>(), text(), any::<u32>(), any::<bool>()),
    )
        .prop_map(|(who, (rated, measured, links, isolation), (simulated, pci_address, max_slices, healthy))| {
            let (index, kind, vendor, model, uuid, memory) = who;
            let health = if healthy { CardHealth::Healthy } else { CardHealth::Unhealthy };
            let memory = Mebibytes(memory);
            CardDescription {
                index,
                kind,
                vendor,
                model,
                uuid,
                memory,
                rated,
                measured,
                links,
                isolation,
                simulated,
                pci_address,
                max_slices,
                health,
            }
        })
}

fn node() -> impl Strategy<Value = NodeDescription> {
    let disk = (option::of(host()), btree_set(text(), 0..3), text(), text(), option::of(text()));
    (text(), text(), any::<u64>(), text(), text(), text(), words(), disk).prop_map(
        |(name, uid, incarnation, agent_version, address, worker_host, labels, disk)| NodeDescription {
            name,
            uid,
            incarnation,
            agent_version,
            address,
            worker_host,
            labels,
            host: disk.0.map(|host| HostCapacity { cpu: host.cpu, memory: host.memory }),
            cached: disk.1,
            start: AgentStart { boot_id: disk.2, nonce: disk.3 },
            containment: disk.4.map_or(Containment::Whole, |missing| Containment::Partial { missing }),
        },
    )
}

fn part() -> impl Strategy<Value = PlanPart> {
    let job = || any::<u64>().prop_map(JobId);
    prop_oneof![
        (job(), vec(worker(), 0..3), vec(job(), 0..3)).prop_map(|(job, workers, victims)| PlanPart::Grant {
            job,
            workers,
            victims
        }),
        (job(), any::<u32>()).prop_map(|(job, node)| PlanPart::Evict { job, node: NodeId(node) }),
        card_id().prop_map(|card| PlanPart::Renumber { card }),
        (job(), vec(worker(), 0..3)).prop_map(|(job, workers)| PlanPart::Move { job, workers }),
    ]
}

fn saved() -> impl Strategy<Value = SavedPart> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    let modes = select(vec![CheckpointMode::Cooperative, CheckpointMode::Transparent]);
    (numbers, any::<[u8; 32]>(), any::<u128>(), any::<bool>(), modes).prop_map(
        |((sequence, progress, bytes), hash, ticket, shared, mode)| SavedPart {
            sequence,
            progress,
            bytes,
            hash,
            ticket,
            shared,
            mode,
        },
    )
}

fn part_key() -> impl Strategy<Value = PartKey> {
    (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
        |(job, attempt, sequence, epoch, rank)| PartKey {
            job: JobId(job),
            checkpoint: CheckpointKey { attempt, sequence },
            epoch: Epoch(epoch),
            rank: Rank(rank),
        },
    )
}

fn report() -> impl Strategy<Value = WorkerReport> {
    let causes = vec![
        StopCause::Exited,
        StopCause::StartFailed,
        StopCause::NodeFault,
        StopCause::Ordered,
        StopCause::LeaseExpired,
        StopCause::TimeLimit,
        StopCause::NotGranted,
        StopCause::OutOfMemory,
        StopCause::HostLost,
        StopCause::NotRestored,
        StopCause::Vanished,
    ];
    let exit = (select(causes), option::of(any::<i32>()), option::of(any::<i32>()), any::<bool>(), text()).prop_map(
        |(cause, code, signal, checkpointed, message)| WorkerExit {
            cause,
            code,
            signal,
            checkpointed,
            not_saved: message.clone(),
            message,
        },
    );
    let observation = prop_oneof![
        Just(Observation::Running),
        exit.prop_map(Observation::Stopped),
        text().prop_map(|message| Observation::Unconfirmed { message }),
        (any::<bool>(), text()).prop_map(|(lost, message)| Observation::Unusable { lost, message }),
        saved().prop_map(Observation::Saved),
    ];
    (any::<u64>(), any::<u64>(), any::<u32>(), observation).prop_map(|(allocation, epoch, rank, observation)| {
        let worker = Owner { allocation: AllocationId(allocation), epoch: Epoch(epoch), rank: Rank(rank) };
        WorkerReport { worker, observation }
    })
}

fn amount() -> impl Strategy<Value = QueueAmount> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(compute, memory)| QueueAmount { compute: MilliTflops(compute), memory: Mebibytes(memory) })
}

fn config() -> impl Strategy<Value = PoolConfig> {
    (
        (select(Precision::ALL.to_vec()), any::<u64>(), time(), any::<u64>(), time(), any::<u64>()),
        (any::<u64>(), time(), any::<u64>(), any::<u32>(), any::<u16>(), any::<u16>()),
        (packing(), time(), btree_map(select(CardKind::ALL.to_vec()), any::<u32>().prop_map(Percent), 0..3)),
        (any::<bool>(), any::<u32>(), any::<u32>()),
        leases(),
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()),
    )
        .prop_map(|(first, second, (packing, fair_share_half_life, oversubscription), compaction, leases, limits)| {
            let (spec_bytes, queues, nodes, cards, events, hold_level) = limits;
            let (job_limit, output_retention, event_limit, preemptions_per_hour, first_master_port, ports) = second;
            let (automatic, threshold, moves_per_hour) = compaction;
            let (reference_precision, block_size, request_retention, request_limit, job_retention, ended_job_limit) =
                first;
            PoolConfig {
                reference_precision,
                block_size: MilliTflops(block_size),
                request_retention,
                request_limit,
                job_retention,
                ended_job_limit,
                job_limit,
                output_retention,
                event_limit,
                preemptions_per_hour,
                first_master_port,
                master_ports: ports,
                packing,
                fair_share_half_life,
                oversubscription,
                compaction: CompactionPolicy { automatic, threshold: Percent(threshold), moves_per_hour },
                leases,
                limits: PoolLimits { spec_bytes, queues, nodes, cards, events },
                hold_level,
            }
        })
}

fn leases() -> impl Strategy<Value = LeaseTimings> {
    let any = (time(), time(), time(), time()).prop_map(|(heartbeat, stop_after, kill_after, regrant_after)| {
        LeaseTimings { heartbeat, stop_after, kill_after, regrant_after }
    });
    prop_oneof![Just(LeaseTimings::default()), any]
}

fn idle() -> impl Strategy<Value = IdlePolicy> {
    let after = || option::of(time());
    (any::<u32>(), after(), after(), after(), after()).prop_map(
        |(below, notify_after, preemptible_after, suspend_after, release_after)| IdlePolicy {
            below: Percent(below),
            notify_after,
            preemptible_after,
            suspend_after,
            release_after,
        },
    )
}

fn command() -> impl Strategy<Value = Command> {
    let node_id = || any::<u32>().prop_map(NodeId);
    let job = || any::<u64>().prop_map(JobId);
    let eligibilities = vec![Eligibility::Eligible, Eligibility::Cordoned, Eligibility::Draining];
    let phases = vec![MovePhase::Reserved, MovePhase::Suspending, MovePhase::Transferring, MovePhase::Resuming];
    let amounts = (amount(), option::of(amount()));
    let queue = (
        text(),
        text(),
        amounts,
        any::<u32>(),
        option::of(packing()),
        (vec(text(), 0..3), option::of(idle()), option::of(any::<u64>())),
    )
        .prop_map(|(name, parent, (guaranteed, maximum), weight, packing, (windows, idle, checkpoints))| {
            QueueSettings {
                name,
                parent,
                guaranteed,
                maximum,
                weight,
                packing,
                windows,
                idle,
                checkpoints: checkpoints.map(Mebibytes),
            }
        });
    prop_oneof![
        (node(), vec(card(), 0..3)).prop_map(|(node, cards)| Command::RegisterNode { node, cards }),
        (node_id(), vec(card(), 0..3)).prop_map(|(node, cards)| Command::UpdateCards { node, cards }),
        (node_id(), select(eligibilities), text()).prop_map(|(node, eligibility, reason)| Command::SetEligibility {
            node,
            eligibility,
            reason
        }),
        (node_id(), text(), any::<u64>()).prop_map(|(node, reason, millis)| Command::DrainNode {
            node,
            reason,
            within: Duration::from_millis(millis)
        }),
        (node_id(), any::<u64>()).prop_map(|(node, epoch)| Command::NodeLost { node, epoch: Epoch(epoch) }),
        (node_id(), any::<u64>()).prop_map(|(node, incarnation)| Command::NodeReturned { node, incarnation }),
        node_id().prop_map(|node| Command::ForgetNode { node }),
        node_id().prop_map(|node| Command::ConfirmStopped { node }),
        (node_id(), btree_set(text(), 0..3)).prop_map(|(node, cached)| Command::UpdateCached { node, cached }),
        (spec(), text(), proptest::option::of(any::<u128>()))
            .prop_map(|(spec, traceparent, secret)| Command::SubmitJob { spec: Arc::new(spec), traceparent, secret }),
        job().prop_map(|job| Command::CancelJob { job }),
        (job(), any::<u64>()).prop_map(|(job, id)| Command::ExpireJob { job, allocation: AllocationId(id) }),
        (prop_oneof![job().prop_map(WindowOf::Job), text().prop_map(WindowOf::Queue)], vec(text(), 0..3), any::<u64>())
            .prop_map(|(whose, windows, time)| Command::CloseUntil { whose, windows, time: LogTime(time) }),
        (job(), any::<u64>()).prop_map(|(job, id)| Command::GrowJob { job, allocation: AllocationId(id) }),
        (job(), any::<u32>(), any::<u64>(), option::of(select(IdleStep::ALL.to_vec())))
            .prop_map(|(job, attempt, since, step)| Command::NoteIdle { job, attempt, since: LogTime(since), step }),
        job().prop_map(|job| Command::HoldJob { job }),
        job().prop_map(|job| Command::ReleaseJob { job }),
        job().prop_map(|job| Command::SuspendJob { job }),
        job().prop_map(|job| Command::ResumeJob { job }),
        queue.prop_map(|queue| Command::SetQueue { queue }),
        text().prop_map(|name| Command::RemoveQueue { name }),
        (config(), option::of(config()))
            .prop_map(|(config, expected)| Command::SetConfig { config, expected: expected.map(Box::new) }),
        (any::<u64>(), vec(part(), 0..4))
            .prop_map(|(revision, parts)| Command::CommitPlan { plan: Plan { revision: Revision(revision), parts } }),
        (node_id(), vec(report(), 0..4)).prop_map(|(node, reports)| Command::ReportWorkers { node, reports }),
        (any::<u64>(), select(phases), any::<bool>()).prop_map(|(id, from, proceed)| Command::AdvanceMove {
            id: MoveId(id),
            from,
            proceed
        }),
        (node_id(), vec(part_key(), 0..3), vec(part_key(), 0..3)).prop_map(|(node, kept, gone)| Command::NoteKept {
            node,
            kept,
            gone
        }),
        any::<u64>().prop_map(|changed_at| Command::SettleLeases { changed_at: Revision(changed_at) }),
        Just(Command::Tick),
        prop::sample::select(&Level::ALL[..]).prop_map(|to| Command::RaiseLevel { to }),
    ]
}

pub fn request() -> impl Strategy<Value = Request> {
    let key = (any::<u128>(), any::<u64>()).prop_map(|(id, fingerprint)| RequestKey { id: RequestId(id), fingerprint });
    (option::of(key), text(), command()).prop_map(|(key, actor, command)| Request { key, actor, command })
}
