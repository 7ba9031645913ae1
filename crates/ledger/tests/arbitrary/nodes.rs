//! Arbitrary nodes and cards, and what nodes report of their workers and checkpoints.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tessera_ledger::{
    AgentStart, AllocationId, CardDescription, CardHealth, CardKind, CheckpointKey, CheckpointMode, Containment, Epoch,
    HostCapacity, JobId, Link, LinkKind, LogTime, Mebibytes, MilliTflops, NodeDescription, Observation, Owner, PartKey,
    Precision, Rank, Ratings, SavedPart, StopCause, WorkerExit, WorkerReport,
};

use super::{host, isolation, text, words};

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

pub(super) fn node() -> impl Strategy<Value = NodeDescription> {
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

pub(super) fn part_key() -> impl Strategy<Value = PartKey> {
    (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
        |(job, attempt, sequence, epoch, rank)| PartKey {
            job: JobId(job),
            checkpoint: CheckpointKey { attempt, sequence },
            epoch: Epoch(epoch),
            rank: Rank(rank),
        },
    )
}

pub(super) fn report() -> impl Strategy<Value = WorkerReport> {
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
        StopCause::PortTaken,
        StopCause::Vanished,
    ];
    let ended = (any::<bool>(), any::<u64>());
    let exit = (select(causes), option::of(any::<i32>()), option::of(any::<i32>()), ended, text()).prop_map(
        |(cause, code, signal, (checkpointed, ended_at), message)| WorkerExit {
            cause,
            code,
            signal,
            checkpointed,
            not_saved: message.clone(),
            message,
            ended_at: LogTime(ended_at),
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
