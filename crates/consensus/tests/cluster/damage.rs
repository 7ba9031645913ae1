//! Conditions that must stop a member: a state that differs, an entry it cannot read, a record that is damaged.

use std::sync::atomic::Ordering;

use prometheus_client::registry::Registry;
use tessera_consensus::{ConsensusConfig, ProposeError, StartError, StopReason};
use tessera_store::StoreError;
use tessera_store::memory::Place;
use tokio::time::timeout;

use crate::harness::{BOUND, Cluster, config, soon};
use crate::register::{PANIC, UNREADABLE};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_state_a_majority_contradicts_stops_serving() {
    let cluster = Cluster::founded(3, config()).await;
    let liar = cluster.follower().await;
    let mut registry = Registry::default();
    cluster.nodes[&liar].consensus.register_metrics(&mut registry);
    cluster.nodes[&liar].faults.lies.store(true, Ordering::Release);
    let stopped = cluster.nodes[&liar].consensus.stopped();
    let proposing = async {
        for serial in 1.. {
            cluster.propose_somewhere(serial).await;
        }
    };
    let reason = tokio::select! {
        reason = timeout(BOUND, stopped) => reason.expect("it must stop"),
        () = proposing => unreachable!("it proposes for ever"),
    };
    match reason {
        StopReason::Diverged { at, against } => {
            assert_eq!(at.0 % cluster.config.digest_interval, 0);
            assert_eq!(against.len(), 2);
        }
        other => panic!("expected that it noticed, got {other:?}"),
    }
    assert!(cluster.nodes[&liar].consensus.hash_mismatches() > 0);
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).expect("writing to a string");
    assert!(page.contains("tessera_state_hash_mismatch_total "), "{page}");
    assert!(!page.contains("tessera_state_hash_mismatch_total 0"), "{page}");
    let refused = cluster.nodes[&liar].propose(1).await;
    assert!(matches!(refused, Err(ProposeError::Stopped(StopReason::Diverged { .. }))), "{refused:?}");
    // The others go on.
    let serials = cluster.nodes.len() as u64;
    cluster.propose_somewhere(1_000_000 + serials).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_cannot_be_read_stops_the_member_and_is_not_skipped() {
    let mut cluster = Cluster::founded(1, config()).await;
    cluster.propose_somewhere(1).await;
    let node = &cluster.nodes[&1];
    let answer = node.consensus.propose(UNREADABLE, soon()).await;
    assert!(matches!(answer, Err(ProposeError::OutcomeUnknown | ProposeError::Stopped(_))), "{answer:?}");
    let reason = timeout(BOUND, node.consensus.stopped()).await.expect("it must stop");
    assert!(matches!(&reason, StopReason::Unreadable(why) if why.what.contains("command")), "{reason:?}");
    cluster.kill(1).await;
    // It is committed, so it is there again.
    match cluster.start(1).await {
        Err(StartError::Unreadable(_)) => {}
        Ok(()) => {
            let reason = timeout(BOUND, cluster.nodes[&1].consensus.stopped()).await.expect("it must stop again");
            assert!(matches!(reason, StopReason::Unreadable(_)), "{reason:?}");
        }
        Err(other) => panic!("expected it to be unreadable, got {other:?}"),
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_panics_stops_the_member() {
    let cluster = Cluster::founded(1, config()).await;
    let node = &cluster.nodes[&1];
    let answer = node.propose(PANIC).await;
    assert!(matches!(answer, Err(ProposeError::OutcomeUnknown | ProposeError::Stopped(_))), "{answer:?}");
    let reason = timeout(BOUND, node.consensus.stopped()).await.expect("it must stop");
    assert!(matches!(&reason, StopReason::Core { what } if what.contains("panic")), "{reason:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_stops_the_member_with_its_place() {
    let mut cluster = Cluster::founded(1, config()).await;
    let mut index = 0;
    for serial in 1..=5 {
        index = cluster.propose_somewhere(serial).await.index.0 - 2;
    }
    cluster.kill(1).await;
    assert!(cluster.seats[&1].disk.flip_bit(Place::Entry(index), 77), "there is such an entry");
    let refused = cluster.start(1).await;
    match refused {
        Err(StartError::Storage(error @ StoreError::Damaged { .. })) => {
            assert!(error.to_string().contains(&index.to_string()), "{error}");
        }
        other => panic!("expected the damage to be named, got {other:?}"),
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_the_member_and_the_others_go_on() {
    let mut cluster = Cluster::founded(3, ConsensusConfig { keep_entries: 10, ..config() }).await;
    let full = cluster.leader().await;
    let disk = cluster.seats[&full].disk.clone();
    disk.set_capacity(Some(disk.used_bytes() + 10_000));
    let node = &cluster.nodes[&full];
    let mut acknowledged = Vec::new();
    for serial in 1..2_000 {
        match node.propose(serial).await {
            Ok(_) => acknowledged.push(serial),
            Err(_) => break,
        }
    }
    let reason = timeout(BOUND, node.consensus.stopped()).await.expect("it must stop");
    assert!(matches!(&reason, StopReason::Storage(error) if error.is_full()), "{reason:?}");
    cluster.kill(full).await;
    cluster.propose_somewhere(5_000).await;
    let serials = cluster.converged().await;
    assert!(acknowledged.iter().all(|serial| serials.contains(serial)), "acknowledged and lost");
    cluster.shutdown().await;
}
