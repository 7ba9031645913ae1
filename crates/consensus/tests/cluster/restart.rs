//! Members come back: after a crash that lost what was not flushed, and after compaction.

use std::sync::atomic::Ordering;

use tessera_consensus::ConsensusConfig;

use crate::harness::{Cluster, config, stoppable};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_crashed_follower_had_not_flushed_comes_back_from_the_others() {
    let mut cluster = Cluster::new(config());
    let mut gates = Vec::new();
    for id in 1..=3 {
        cluster.add_seat(id).await;
        let (disk, flushes) = stoppable();
        cluster.seats.get_mut(&id).expect("just added").disk = disk;
        gates.push(flushes);
        cluster.start(id).await.expect("a new member must start");
    }
    cluster.found().await;
    cluster.propose_somewhere(1).await;
    let follower = cluster.follower().await;
    gates[follower as usize - 1].store(false, Ordering::Release);
    for serial in 2..=30 {
        cluster.propose_somewhere(serial).await;
    }
    assert!(cluster.seats[&follower].disk.pending() > 0, "the follower's disk must be behind");
    cluster.kill(follower).await;
    gates[follower as usize - 1].store(true, Ordering::Release);
    cluster.start(follower).await.expect("must start again");
    assert_eq!(cluster.converged().await, (1..=30).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_never_flushes_acknowledges_nothing() {
    let mut cluster = Cluster::new(config());
    cluster.add_seat(1).await;
    let (disk, flushes) = stoppable();
    cluster.seats.get_mut(&1).expect("just added").disk = disk.clone();
    cluster.start(1).await.expect("a new member must start");
    cluster.found().await;
    let before = cluster.propose_somewhere(0).await.index;
    let node = &cluster.nodes[&1];
    node.until("the first being applied", |status| status.applied == before).await;
    flushes.store(false, Ordering::Release);
    let consensus = node.consensus.clone();
    let proposed =
        tokio::spawn(async move { consensus.propose(crate::register::command(1, 0), crate::harness::soon()).await });
    node.until("the entry being appended", |status| status.last > before).await;
    assert!(!proposed.is_finished() && node.status().applied == before, "acknowledged before it was durable");
    flushes.store(true, Ordering::Release);
    disk.flush();
    proposed.await.expect("it does not panic").expect("must be applied once it is durable");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_come_back_with_everything_acknowledged() {
    let mut cluster = Cluster::founded(3, config()).await;
    for serial in 1..=40 {
        cluster.propose_somewhere(serial).await;
    }
    for id in 1..=3 {
        cluster.kill(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await.expect("must start again");
    }
    assert_eq!(cluster.converged().await, (1..=40).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_member_comes_back_from_its_snapshot() {
    let small = ConsensusConfig { snapshot_entries: 50, keep_entries: 5, ..config() };
    let mut cluster = Cluster::founded(1, small).await;
    for serial in 1..=120 {
        cluster.propose_somewhere(serial).await;
    }
    let before = cluster.nodes[&1].until("a compacted log", |status| status.purged.0 > 10).await;
    let view = cluster.nodes[&1].view();
    cluster.kill(1).await;
    cluster.start(1).await.expect("must start again");
    cluster.leader().await;
    let after = cluster.nodes[&1].view();
    assert_eq!(after.serials, view.serials);
    assert_eq!(after.times, view.times, "the times of entries are part of the state");
    assert!(after.observed >= view.observed);
    let status = cluster.nodes[&1].status();
    assert!(status.snapshot >= before.snapshot, "{status:?}");
    cluster.propose_somewhere(121).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_compacted_by_bytes_too() {
    let small = ConsensusConfig { snapshot_bytes: 1 << 20, keep_entries: 1_000, keep_bytes: 256 << 10, ..config() };
    let cluster = Cluster::founded(1, small).await;
    let node = &cluster.nodes[&1];
    for serial in 1..=40 {
        let command = crate::register::command(serial, 100 << 10);
        node.consensus.propose(command, crate::harness::soon()).await.expect("must be applied");
    }
    let status = node.until("a log compacted by bytes", |status| status.purged.0 > 0).await;
    assert!(status.snapshot.0 >= 8, "{status:?}");
    cluster.shutdown().await;
}
