//! The identity of a member: founded once, never mixed with another cluster, never back with an empty disk.

use tessera_consensus::{ClusterId, Majority, MemberId, MembershipError, StartError};

use crate::harness::{Cluster, config, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_founded_once() {
    let cluster = Cluster::founded(3, config()).await;
    cluster.propose_somewhere(1).await;
    cluster.converged().await;
    for node in cluster.nodes.values() {
        let founders = cluster.seats.values().map(|seat| seat.member.clone()).collect();
        let again = node.consensus.initialize(founders, soon()).await;
        assert!(matches!(again, Err(MembershipError::AlreadyInitialized)), "{again:?}");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_another_cluster_is_not_taken() {
    let mut cluster = Cluster::new(config());
    for id in 1..=3 {
        cluster.add_seat(id).await;
    }
    let other = ClusterId::new("other").expect("a legal id");
    cluster.start(1).await.expect("must start");
    cluster.start(2).await.expect("must start");
    cluster.start_as(3, other).await.expect("must start");
    let founders = cluster.seats.values().map(|seat| seat.member.clone()).collect();
    let refused = cluster.nodes[&1].consensus.initialize(founders, soon()).await;
    match refused {
        Err(MembershipError::NotAdmitted { member, why }) => {
            assert_eq!(member.id, MemberId(3));
            assert!(why.contains("cluster"), "{why}");
        }
        other => panic!("expected a refusal that names the cluster, got {other:?}"),
    }
    assert!(!cluster.nodes[&3].status().admitted);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_folder_belongs_to_one_member_of_one_cluster() {
    let mut cluster = Cluster::founded(1, config()).await;
    cluster.kill(1).await;
    let other = ClusterId::new("other").expect("a legal id");
    let refused = cluster.start_as(1, other).await;
    assert!(matches!(refused, Err(StartError::OtherIdentity { .. })), "{refused:?}");
    cluster.start(1).await.expect("its own member may start");
    cluster.leader().await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_lives_cannot_be_founded_again_by_members_that_lost_their_disks() {
    let mut cluster = Cluster::founded(3, config()).await;
    cluster.propose_somewhere(1).await;
    cluster.converged().await;
    for lost in [2, 3] {
        cluster.kill(lost).await;
        let fresh = tessera_store::MemoryDisk::new(tessera_store::memory::Flushing::AtOnce);
        cluster.seats.get_mut(&lost).expect("it has a seat").disk = fresh;
        cluster.start(lost).await.expect("it may run, but not take part");
    }
    // The survivor comes last in the list, after a member that would let itself be admitted.
    let founders = [2, 3, 1].map(|id| cluster.seats[&id].member.clone()).to_vec();
    let refused = cluster.nodes[&2].consensus.initialize(founders, soon()).await;
    assert!(matches!(&refused, Err(MembershipError::NotAdmitted { member, .. }) if member.id.0 == 1), "{refused:?}");
    cluster.kill(3).await;
    let store = cluster.seats[&3].disk.open().expect("nobody has it open");
    assert_eq!(store.identity().expect("readable"), None, "a refused founding must admit nobody");
    drop(store);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_disk_under_a_known_id_takes_no_part() {
    let mut cluster = Cluster::founded(3, config()).await;
    for serial in 1..=10 {
        cluster.propose_somewhere(serial).await;
    }
    let (leader, lost) = (cluster.leader().await, cluster.follower().await);
    let third = *cluster.nodes.keys().find(|id| **id != leader && **id != lost).expect("there are three");
    cluster.kill(lost).await;
    let fresh = tessera_store::MemoryDisk::new(tessera_store::memory::Flushing::AtOnce);
    cluster.seats.get_mut(&lost).expect("it has a seat").disk = fresh;
    cluster.start(lost).await.expect("it may run, but not take part");
    let term = cluster.nodes[&leader].status().term;
    // If the empty member voted or acknowledged, it and the leader would be a quorum.
    cluster.kill(third).await;
    let node = &cluster.nodes[&leader];
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_millis(1_500);
    let refused = node.consensus.propose(crate::register::command(99, 0), deadline).await;
    assert!(refused.is_err(), "an empty member acknowledged an entry: {refused:?}");
    let status = cluster.nodes[&lost].status();
    assert!(!status.admitted && status.last.0 == 0 && status.term.0 == 0, "{status:?}");
    assert_eq!(cluster.nodes[&leader].status().term, term);
    cluster.start(third).await.expect("must start again");
    cluster.propose_somewhere(100).await;
    // The remedy: out under the old id, in under a new one.
    let leader = cluster.leader().await;
    cluster.nodes[&leader].consensus.remove(MemberId(lost), Majority::Needed, soon()).await.expect("must be removed");
    let newcomer = cluster.add_seat(4).await;
    cluster.start(4).await.expect("must start");
    let leader = cluster.leader().await;
    cluster.nodes[&leader].consensus.add_learner(newcomer, soon()).await.expect("must be added");
    let index = cluster.nodes[&leader].status().applied;
    cluster.nodes[&4].applied(index).await;
    assert!(cluster.nodes[&4].view().serials.contains(&100));
    cluster.shutdown().await;
}
