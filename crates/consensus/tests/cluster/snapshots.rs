//! Members that are too far behind for the log get a snapshot, also over a connection that breaks.

use tessera_consensus::{ConsensusConfig, LogIndex};
use tessera_store::memory::Place;

use crate::harness::{Cluster, config, soon};
use crate::register::command;

const BALLAST: usize = 200 << 10;
const COMMANDS: u64 = 60;

/// A cluster whose member `behind` was down while the log grew by some MiB and was compacted.
async fn compacted_without(behind: u64) -> (Cluster, u64) {
    let mut cluster = Cluster::founded(3, ConsensusConfig { keep_entries: 0, ..config() }).await;
    cluster.leave_the_lead(behind).await;
    cluster.kill(behind).await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    let mut last = LogIndex(0);
    for serial in 1..=COMMANDS {
        let applied = node.consensus.propose(command(serial, BALLAST), soon()).await;
        last = applied.expect("two of three are a quorum").index;
    }
    for node in cluster.nodes.values() {
        node.applied(last).await;
        node.consensus.take_snapshot().await;
        node.until("a compacted log", |status| status.purged.0 >= COMMANDS).await;
    }
    (cluster, leader)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_far_behind_catches_up_by_a_snapshot() {
    let (mut cluster, _) = compacted_without(3).await;
    cluster.start(3).await.expect("must start again");
    assert_eq!(cluster.converged().await, (1..=COMMANDS).collect::<Vec<_>>());
    let status = cluster.nodes[&3].until("having a snapshot", |status| status.snapshot.0 >= COMMANDS).await;
    assert!(status.purged.0 >= COMMANDS, "{status:?}");
    // And from the log again afterwards.
    cluster.propose_somewhere(COMMANDS + 1).await;
    assert_eq!(cluster.converged().await.last(), Some(&(COMMANDS + 1)));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_transfer_goes_on_where_it_broke() {
    let (mut cluster, leader) = compacted_without(3).await;
    let address = cluster.seats[&3].member.address.clone();
    let whole = COMMANDS * BALLAST as u64;
    cluster.wires.break_after(leader, &address, whole * 3 / 4);
    let before = cluster.wires.written(leader, &address);
    cluster.start(3).await.expect("must start again");
    assert_eq!(cluster.converged().await, (1..=COMMANDS).collect::<Vec<_>>());
    assert!(cluster.wires.has_broken(leader, &address), "the transfer was never broken");
    let sent = cluster.wires.written(leader, &address) - before;
    // From the beginning it would be seven quarters; what was in the window when it broke is lost, some MiB at most.
    assert!(sent < whole * 3 / 2, "{sent} bytes were sent for {whole}: it began again instead of going on");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrived_survives_a_crash_of_the_receiver() {
    let (mut cluster, leader) = compacted_without(3).await;
    let address = cluster.seats[&3].member.address.clone();
    let whole = COMMANDS * BALLAST as u64;
    let before = cluster.wires.written(leader, &address);
    cluster.wires.break_after(leader, &address, whole / 2);
    cluster.start(3).await.expect("must start again");
    let mut applied = cluster.nodes[&3].consensus.status();
    // Down at the moment the connection breaks, or a little later: both are crashes in the middle.
    let middle = applied.wait_for(|_| cluster.wires.has_broken(leader, &address));
    tokio::time::timeout(crate::harness::BOUND, middle).await.expect("must break").expect("it runs");
    cluster.kill(3).await;
    cluster.start(3).await.expect("must start again");
    assert_eq!(cluster.converged().await, (1..=COMMANDS).collect::<Vec<_>>());
    let sent = cluster.wires.written(leader, &address) - before;
    assert!(sent < whole * 2, "{sent} bytes were sent for {whole}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_snapshot_is_not_sent() {
    let (mut cluster, leader) = compacted_without(3).await;
    assert!(cluster.seats[&leader].disk.flip_bit(Place::Chunk(3), 12_345), "there is such a chunk");
    cluster.start(3).await.expect("must start again");
    let reason = tokio::time::timeout(crate::harness::BOUND, cluster.nodes[&leader].consensus.stopped()).await;
    let reason = reason.expect("a member with a damaged snapshot must stop");
    assert!(matches!(reason, tessera_consensus::StopReason::Storage(_)), "{reason:?}");
    cluster.shutdown().await;
}
