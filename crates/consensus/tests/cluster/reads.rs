//! Linearizable reads and confirmed leadership.

use std::time::Duration;

use tessera_consensus::{ReadError, Status};
use tokio::time::Instant;

use crate::harness::{Cluster, config, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_on_a_follower_sees_every_acknowledged_write() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = &cluster.nodes[&cluster.leader().await];
    let follower = &cluster.nodes[&cluster.follower().await];
    for serial in 1..=50 {
        let applied = leader.propose(serial).await.expect("must be applied");
        let barrier = follower.consensus.read_barrier(soon()).await.expect("a follower can ask the leader");
        assert!(barrier.index >= applied.index, "{barrier:?} lies before {applied:?}");
        assert!(follower.view().serials.contains(&serial), "read {serial} before it was there");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_readers_share_rounds() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = &cluster.nodes[&cluster.leader().await];
    leader.propose(1).await.expect("must be applied");
    let barriers = futures::future::join_all((0..1_000).map(|_| leader.consensus.read_barrier(soon()))).await;
    assert!(barriers.iter().all(Result::is_ok));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_confirmed_by_a_quorum_and_only_on_the_leader() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let term = cluster.nodes[&leader].consensus.confirm_leadership(soon()).await.expect("it leads");
    assert_eq!(term, cluster.nodes[&leader].status().term);
    let follower = &cluster.nodes[&cluster.follower().await];
    let refused = follower.consensus.confirm_leadership(soon()).await;
    assert!(matches!(refused, Err(ReadError::NotLeader { .. })), "{refused:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_confirms_nothing() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let node = &cluster.nodes[&leader];
    node.consensus.confirm_leadership(soon()).await.expect("it leads");
    cluster.isolate(leader);
    // Asked at once: by a lease in time the answer would be yes.
    let deadline = Instant::now() + Duration::from_millis(400);
    let confirmed = node.consensus.confirm_leadership(deadline).await;
    assert!(matches!(confirmed, Err(ReadError::Unavailable | ReadError::NotLeader { .. })), "{confirmed:?}");
    let read = node.consensus.read_barrier(Instant::now() + Duration::from_millis(400)).await;
    assert!(matches!(read, Err(ReadError::Unavailable)), "{read:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_member_lacks_was_acknowledged_within_the_age_it_tells() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    for serial in 0..100 {
        cluster.nodes[&leader].propose(serial).await.expect("a leader with a quorum takes it");
        let acknowledged = Instant::now();
        for node in cluster.nodes.values() {
            loop {
                let ((asked, view), age) = node.consensus.staleness_of(|| (Instant::now(), node.view()));
                if view.serials.contains(&serial) {
                    break;
                }
                let id = node.member.id;
                // One that has not heard the leader yet tells no age.
                let tells = age.is_none_or(|age| asked <= acknowledged + age);
                assert!(tells, "{id} lacks what is older than the {age:?} that it tells");
                tokio::task::yield_now().await;
            }
        }
    }
    cluster.nodes[&leader].propose(100).await.expect("a leader with a quorum takes it");
    let acknowledged = Instant::now();
    for node in cluster.nodes.values() {
        let since = |status: &Status| status.current_at.is_some_and(|at| at > acknowledged);
        node.until("knowing that it is current, since nothing is wrong", since).await;
        assert!(node.view().serials.contains(&100), "member {} has it, since it says so", node.member.id);
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_knows_how_stale_it_is() {
    let cluster = Cluster::founded(3, config()).await;
    let follower = cluster.follower().await;
    let node = &cluster.nodes[&follower];
    node.consensus.read_barrier(soon()).await.expect("a follower can ask the leader");
    node.until("hearing what the leader has sent", |status| status.current_at.is_some()).await;
    let fresh = node.consensus.staleness().expect("it has heard the leader");
    assert!(fresh < Duration::from_secs(5), "a follower that hears its leader is {fresh:?} behind");
    cluster.isolate(follower);
    let cut = Instant::now();
    node.until("losing its leader", |status| status.leader.is_none() || cut.elapsed() > Duration::from_millis(300))
        .await;
    assert!(node.consensus.staleness() >= Some(Duration::from_millis(200)), "it cannot know that it is current");
    cluster.shutdown().await;
}
