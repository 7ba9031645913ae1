//! The leader dies or is cut off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tessera_consensus::{ConsensusConfig, Leadership, ProposeError, Role};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{BOUND, Cluster, config};
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

/// Settings under which followers open no connection to the leader but to watch over its process, and leases last for
/// as long as a machine busy with many tests may need to see that it ended.
fn watching() -> ConsensusConfig {
    ConsensusConfig { election_timeout_max: Duration::from_millis(1_500), digest_period: BOUND * 10, ..config() }
}

/// Settings under which no lease runs out within a test either, and one follower asks well before the other.
fn lasting() -> ConsensusConfig {
    let config = watching();
    let stagger = config.election_timeout_min;
    ConsensusConfig { election_timeout_max: BOUND * 10, append_timeout: BOUND * 10, stagger, ..config }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_process_ended_is_replaced_while_its_lease_lasts() {
    for members in [3, 5] {
        let mut cluster = Cluster::founded(members, lasting()).await;
        let old = cluster.leader().await;
        let term = cluster.nodes[&old].status().term;
        watched(&cluster, old).await;
        cluster.kill(old).await;
        let new = cluster.leader().await;
        cluster.propose_somewhere(2).await;
        assert_eq!(cluster.nodes[&new].status().term.0, term.0 + 1, "one election was enough");
        assert_eq!(cluster.converged().await, [1, 2]);
        cluster.shutdown().await;
    }
}

/// Waits until the followers watch over the leader's process; the first entry is written then.
async fn watched(cluster: &Cluster, leader: u64) {
    let address = &cluster.seats[&leader].member.address;
    for (id, node) in cluster.nodes.iter().filter(|(id, _)| **id != leader) {
        node.until("watching over the leader", |_| cluster.wires.written(*id, address) > 0).await;
    }
    cluster.propose_somewhere(1).await;
    heard(cluster, leader).await;
}

/// Waits until followers have heartbeats of the leader. One that never opened a line for them cannot close it.
async fn heard(cluster: &Cluster, leader: u64) {
    cluster.converged().await;
    for node in cluster.nodes.values().filter(|node| node.member.id.0 != leader) {
        let written = || cluster.wires.written(leader, &node.member.address);
        // More than may still be on the way of what was proposed.
        let enough = written() + 200;
        eventually(|| written() > enough).await;
    }
}

/// Waits for what no status tells.
async fn eventually(holds: impl Fn() -> bool) {
    let held = async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(BOUND, held).await.expect("it must happen");
}

/// Waits for as long as elections would begin in.
async fn let_elections_begin(cluster: &Cluster, member: u64) {
    let (begun, patience) = (Instant::now(), cluster.config.election_timeout_max * 2);
    cluster.nodes[&member].until("waiting out timeouts", |_| begun.elapsed() > patience).await;
}

/// Lets followers take the process of a leader that lives to have ended, at once: nobody listens at its address any
/// more, and all connections between them break. The leader dials none anew before they have all given up their leases.
async fn mistake(cluster: &Cluster, leader: u64, followers: &[u64]) {
    let address = |id: &u64| cluster.seats[id].member.address.as_str();
    cluster.nodes[&leader].closer.close().await;
    for follower in followers {
        cluster.wires.cut(leader, address(follower));
        cluster.wires.cut(*follower, address(&leader));
    }
    eventually(|| followers.iter().all(|follower| cluster.nodes[follower].leases_given_up() > 0)).await;
    for follower in followers {
        cluster.wires.allow(leader, address(follower));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_was_closed_is_no_evidence_while_the_leader_is_heard() {
    let cluster = Cluster::founded(3, watching()).await;
    let leader = cluster.leader().await;
    let term = cluster.nodes[&leader].status().term;
    watched(&cluster, leader).await;
    cluster.nodes[&leader].closer.close().await;
    let followers: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    for follower in &followers {
        cluster.wires.cut(*follower, &cluster.seats[&leader].member.address);
    }
    let_elections_begin(&cluster, followers[0]).await;
    let applied = cluster.nodes[&leader].propose(2).await.expect("it leads");
    for follower in &followers {
        let node = &cluster.nodes[follower];
        node.applied(applied.index).await;
        assert_eq!((node.status().term, node.leases_given_up()), (term, 0));
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_follower_that_takes_its_leader_for_dead_costs_nothing() {
    let cluster = Cluster::founded(3, watching()).await;
    let leader = cluster.leader().await;
    let (follower, term) = (cluster.follower().await, cluster.nodes[&leader].status().term);
    watched(&cluster, leader).await;
    mistake(&cluster, leader, &[follower]).await;
    let_elections_begin(&cluster, follower).await;
    let applied = cluster.nodes[&leader].propose(2).await.expect("it leads");
    cluster.nodes[&follower].applied(applied.index).await;
    let status = cluster.nodes[&follower].status();
    assert_eq!((status.term, status.leader.map(|leader| leader.id.0)), (term, Some(leader)));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_followers_that_take_their_leader_for_dead_cost_one_term_at_most() {
    let cluster = Cluster::founded(3, watching()).await;
    let leader = cluster.leader().await;
    let term = cluster.nodes[&leader].status().term;
    let followers: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    watched(&cluster, leader).await;
    mistake(&cluster, leader, &followers).await;
    let_elections_begin(&cluster, followers[0]).await;
    let applied = cluster.propose_somewhere(2).await;
    // Nobody reaches the one that led, unless it still leads.
    for follower in followers {
        let node = &cluster.nodes[&follower];
        node.applied(applied.index).await;
        assert_eq!(node.view().serials, [1, 2]);
        let now = node.status().term;
        assert!((term.0..=term.0 + 1).contains(&now.0), "from {term:?} to {now:?}");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_took_its_leader_for_dead_elects_nobody_else_once_it_hears_it_again() {
    let cluster = Cluster::founded(3, watching()).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let other = (1..=3).find(|id| ![leader, follower].contains(id)).expect("there are three");
    let term = cluster.nodes[&leader].status().term;
    watched(&cluster, leader).await;
    mistake(&cluster, leader, &[follower]).await;
    let_elections_begin(&cluster, follower).await;
    // The other one hears the leader no more, and asks the follower for its vote.
    cluster.wires.cut(leader, &cluster.seats[&other].member.address);
    cluster.wires.cut(other, &cluster.seats[&leader].member.address);
    let_elections_begin(&cluster, other).await;
    let applied = cluster.nodes[&leader].propose(2).await.expect("it leads, and the follower hears it");
    cluster.nodes[&follower].applied(applied.index).await;
    assert_eq!(cluster.nodes[&follower].status().term, term, "the leader must not be deposed");
    cluster.shutdown().await;
}
