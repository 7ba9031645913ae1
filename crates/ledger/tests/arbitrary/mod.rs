//! Arbitrary commands, valid as messages and mostly nonsense as commands.
#![allow(dead_code)] // each test file uses its part

mod jobs;
mod nodes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tessera_ledger::{
    AllocationId, AttainedOrder, BlockCount, BlockIndex, CardId, CardKind, Command, CompactionPolicy, Eligibility,
    Epoch, HostRequest, IdlePolicy, IdleStep, Isolation, JobId, LeaseTimings, Level, LogTime, Mebibytes, MilliCpus,
    MilliTflops, MoveId, MovePhase, NodeId, Packing, Percent, Plan, PlanPart, PlannedWorker, PoolConfig, PoolLimits,
    Precision, QueueAmount, QueueSettings, Request, RequestId, RequestKey, Revision, Slice, WindowOf,
};

pub use jobs::spec;
pub use nodes::card;
use nodes::{node, part_key, report};

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

fn host() -> impl Strategy<Value = HostRequest> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(cpu, memory)| HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(memory) })
}

fn packing() -> impl Strategy<Value = Packing> {
    select(vec![Packing::Stack, Packing::Spread])
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

/// Orders without a zero, which is not written, and read as what is usual.
fn attained() -> impl Strategy<Value = AttainedOrder> {
    let order = |(first_band, ratio, bands, guard)| AttainedOrder { first_band, ratio, bands, guard: Percent(guard) };
    (time(), 1u32.., 1u32.., any::<u32>()).prop_map(order)
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
        (vec(text(), 0..3), option::of(idle()), option::of(any::<u64>()), option::of(attained())),
    )
        .prop_map(
            |(name, parent, (guaranteed, maximum), weight, packing, (windows, idle, checkpoints, attained))| {
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
                    attained,
                }
            },
        );
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
        Just(Command::Drill),
        prop::sample::select(&Level::ALL[..]).prop_map(|to| Command::RaiseLevel { to }),
    ]
}

pub fn request() -> impl Strategy<Value = Request> {
    let key = (any::<u128>(), any::<u64>()).prop_map(|(id, fingerprint)| RequestKey { id: RequestId(id), fingerprint });
    (option::of(key), text(), command()).prop_map(|(key, actor, command)| Request { key, actor, command })
}
