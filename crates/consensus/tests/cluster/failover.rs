//! The leader dies or is cut off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tessera_consensus::{Leadership, ProposeError, Role};
use tokio::time::Instant;

use crate::harness::{Cluster, config};
use crate::register::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_is_applied_twice_over_leader_deaths() {
    let mut cluster = Cluster::founded(3, config()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let serial = Arc::new(AtomicU64::new(0));
    let mut acknowledged = BTreeSet::new();
    for _ in 0..4 {
        let leader = cluster.leader().await;
        stop.store(false, Ordering::Release);
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let consensus = cluster.nodes[&leader].consensus.clone();
                let (stop, serial) = (Arc::clone(&stop), Arc::clone(&serial));
                tokio::spawn(async move {
                    let mut acknowledged = Vec::new();
                    while !stop.load(Ordering::Acquire) {
                        let next = serial.fetch_add(1, Ordering::Relaxed);
                        let deadline = Instant::now() + Duration::from_millis(500);
                        match consensus.propose(command(next, 0), deadline).await {
                            Ok(_) => acknowledged.push(next),
                            Err(ProposeError::NotLeader { .. } | ProposeError::Stopped(_)) => break,
                            Err(_) => {}
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        // Some load before the blow.
        let target = cluster.nodes[&leader].status().applied.0 + 50;
        cluster.nodes[&leader].until("some load", |status| status.applied.0 >= target).await;
        cluster.kill(leader).await;
        stop.store(true, Ordering::Release);
        for client in clients {
            acknowledged.extend(client.await.expect("clients do not panic"));
        }
        cluster.start(leader).await.expect("must start again");
        cluster.leader().await;
    }
    let applied = cluster.converged().await;
    let unique: BTreeSet<u64> = applied.iter().copied().collect();
    assert_eq!(unique.len(), applied.len(), "a command was applied twice");
    let lost: Vec<_> = acknowledged.difference(&unique).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(acknowledged.len() > 200, "only {} commands were acknowledged", acknowledged.len());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_is_ready_with_everything_acknowledged() {
    let mut cluster = Cluster::founded(3, config()).await;
    for serial in 1..=20 {
        cluster.propose_somewhere(serial).await;
    }
    let old = cluster.leader().await;
    cluster.kill(old).await;
    let new = cluster.leader().await;
    assert_ne!(old, new);
    let leadership = cluster.nodes[&new].consensus.leadership().borrow().clone();
    assert!(matches!(leadership, Leadership::Leading { ready: true, .. }));
    assert_eq!(cluster.nodes[&new].view().serials, (1..=20).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_cut_off_comes_back_without_a_new_term() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let term = cluster.nodes[&leader].status().term;
    cluster.isolate(follower);
    // Long enough for several elections, if it held any.
    let cut = Instant::now();
    let patience = cluster.config.election_timeout_max * 4;
    cluster.nodes[&follower].until("waiting out its timeouts", |_| cut.elapsed() > patience).await;
    assert_eq!(cluster.nodes[&follower].status().term, term, "pre-vote must not burn terms");
    let applied = cluster.nodes[&leader].propose(1).await.expect("two of three are a quorum");
    cluster.wires.heal();
    cluster.nodes[&follower].applied(applied.index).await;
    assert_eq!(cluster.leader().await, leader, "the leader must not be disturbed");
    assert_eq!(cluster.nodes[&leader].status().term, term, "the term must not have climbed");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_cut_off_steps_down_and_drops_what_was_not_committed() {
    let cluster = Cluster::founded(3, config()).await;
    let old = cluster.leader().await;
    cluster.propose_somewhere(1).await;
    cluster.isolate(old);
    let consensus = cluster.nodes[&old].consensus.clone();
    let orphan =
        tokio::spawn(async move { consensus.propose(command(666, 0), Instant::now() + Duration::from_secs(20)).await });
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != old).collect();
    let new = {
        let elected = others.iter().map(|id| {
            Box::pin(cluster.nodes[id].until("leading or following another", |status| {
                status.leader.as_ref().is_some_and(|leader| leader.id.0 != old)
            }))
        });
        let (status, ..) = futures::future::select_all(elected).await;
        status.leader.expect("waited for it").id.0
    };
    cluster.nodes[&new].until("leading", |status| status.role == Role::Leader && status.quorum_fresh).await;
    cluster.nodes[&new].propose(2).await.expect("the majority goes on");
    cluster.wires.heal();
    cluster.nodes[&old].until("stepping down", |status| status.role == Role::Follower).await;
    let orphan = orphan.await.expect("it does not panic");
    assert!(orphan.is_err(), "an entry without a quorum was acknowledged: {orphan:?}");
    let serials = cluster.converged().await;
    assert!(serials.contains(&1) && serials.contains(&2) && !serials.contains(&666), "{serials:?}");
    cluster.shutdown().await;
}
