//! Adding, promoting, removing and replacing members, and handing leadership over, while proposals run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tessera_consensus::{Consensus, Leadership, Majority, MemberId, MembershipError, ProposeError, Refused, Status};
use tessera_store::memory::{Flushing, MemoryDisk};
use tokio::time::Instant;

use crate::harness::{Cluster, config, leads, soon};
use crate::register::{Register, command};

/// A client that proposes at whoever leads until it is told to stop; answers what was acknowledged.
fn load(cluster: &Cluster, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Vec<u64>> {
    let handles: Vec<Consensus<Register>> = cluster.nodes.values().map(|node| node.consensus.clone()).collect();
    let stop = Arc::clone(stop);
    tokio::spawn(async move {
        let mut acknowledged = Vec::new();
        for serial in 10_000.. {
            if stop.load(Ordering::Acquire) {
                break;
            }
            let leading =
                handles.iter().find(|handle| matches!(*handle.leadership().borrow(), Leadership::Leading { .. }));
            let Some(leading) = leading else {
                tokio::task::yield_now().await;
                continue;
            };
            match leading.propose(command(serial, 10), Instant::now() + Duration::from_secs(2)).await {
                Ok(_) => acknowledged.push(serial),
                Err(ProposeError::TooLarge { .. }) => unreachable!("it is small"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
        acknowledged
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_member_is_replaced_while_proposals_run() {
    let mut cluster = Cluster::founded(3, config()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let client = load(&cluster, &stop);
    let dead = cluster.follower().await;
    cluster.kill(dead).await;
    let leader = cluster.leader().await;
    let newcomer = cluster.add_seat(4).await;
    cluster.start(4).await.expect("a new member must start");

    let lead = &cluster.nodes[&leader].consensus;
    assert_eq!(lead.next_member_id(), MemberId(4));
    lead.add_learner(newcomer, soon()).await.expect("must be added");
    let status = cluster.nodes[&4].until("being a learner", |status| status.learners.len() == 1).await;
    assert!(status.admitted);
    lead.promote(MemberId(4), Majority::Needed, soon()).await.expect("must be promoted");
    lead.remove(MemberId(dead), Majority::Needed, soon()).await.expect("must be removed");
    let status = cluster.nodes[&leader].until("three voters", |status| status.voters.len() == 3 && !status.joint).await;
    assert!(status.member(MemberId(dead)).is_none());
    assert_eq!(lead.next_member_id(), MemberId(5), "ids go on");

    stop.store(true, Ordering::Release);
    let acknowledged = client.await.expect("the client does not panic");
    let serials = cluster.converged().await;
    let lost: Vec<_> = acknowledged.iter().filter(|serial| !serials.contains(serial)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(!acknowledged.is_empty());
    // The new member counts: with it and one old one there is a quorum.
    let other = *cluster.nodes.keys().find(|id| **id != leader && **id != 4).expect("there are three");
    cluster.kill(other).await;
    cluster.propose_somewhere(1).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_id_is_never_used_again() {
    let mut cluster = Cluster::founded(3, config()).await;
    // The one with the highest id goes, so that nothing but memory keeps its id from being handed out again.
    let victim = 3;
    cluster.leave_the_lead(victim).await;
    let leader = cluster.leader().await;
    let lead = cluster.nodes[&leader].consensus.clone();
    lead.remove(MemberId(victim), Majority::Needed, soon()).await.expect("must be removed");
    cluster.kill(victim).await;
    cluster.seats.remove(&victim);
    let again = cluster.add_seat(victim).await;
    cluster.start(victim).await.expect("an empty folder may start");
    let refused = lead.add_learner(again, soon()).await;
    assert!(matches!(refused, Err(MembershipError::IdUsed { next: MemberId(4), .. })), "{refused:?}");
    let known = cluster.seats[&leader].member.clone();
    assert!(matches!(lead.add_learner(known, soon()).await, Err(MembershipError::IdUsed { .. })));
    // Not after a restart from a snapshot either: the highest id is part of it.
    cluster.nodes[&leader].consensus.take_snapshot().await;
    cluster.nodes[&leader].until("a snapshot", |status| status.snapshot.0 > 0).await;
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != victim).collect();
    for id in &others {
        cluster.kill(*id).await;
    }
    for id in &others {
        cluster.start(*id).await.expect("must start again");
    }
    let leader = cluster.leader().await;
    cluster.nodes[&leader].consensus.read_barrier(soon()).await.expect("it leads");
    assert_eq!(cluster.nodes[&leader].consensus.next_member_id(), MemberId(4));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_moves_where_it_is_sent() {
    let cluster = Cluster::founded(3, config()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let client = load(&cluster, &stop);
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let target = cluster.follower().await;
        let term = cluster.nodes[&leader].status().term;
        let moved = cluster.nodes[&leader].consensus.transfer_leadership(Some(MemberId(target)), soon()).await;
        moved.expect("must move");
        let status = cluster.nodes[&target].until("leading", leads).await;
        assert!(status.term > term);
        cluster.nodes[&leader].until("following", |status| !leads(status)).await;
    }
    stop.store(true, Ordering::Release);
    let acknowledged = client.await.expect("the client does not panic");
    let serials = cluster.converged().await;
    assert!(acknowledged.iter().all(|serial| serials.contains(serial)));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_removes_itself_hands_over() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    cluster.nodes[&leader].consensus.remove(MemberId(leader), Majority::Needed, soon()).await.expect("must be removed");
    let other = *cluster.nodes.keys().find(|id| **id != leader).expect("there are three");
    let status = cluster.nodes[&other]
        .until("another leader", |status| {
            status.voters.len() == 2 && status.leader.as_ref().is_some_and(|now| now.id.0 != leader)
        })
        .await;
    let new = status.leader.expect("waited for it").id.0;
    cluster.nodes[&new].until("a quorum", |status| status.quorum_fresh).await;
    cluster.nodes[&new].propose(1).await.expect("the others go on");
    cluster.nodes[&leader].until("being turned away", |status| status.refused.is_some()).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_changes_are_refused() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let lead = &cluster.nodes[&leader].consensus;
    let promoted = lead.promote(MemberId(follower), Majority::Needed, soon()).await;
    assert!(matches!(promoted, Err(MembershipError::WrongRole { .. })), "{promoted:?}");
    let removed = lead.remove(MemberId(99), Majority::Needed, soon()).await;
    assert!(matches!(removed, Err(MembershipError::NoSuchMember { .. })), "{removed:?}");
    let moved = lead.transfer_leadership(Some(MemberId(99)), soon()).await;
    assert!(matches!(moved, Err(MembershipError::NoSuchMember { .. })), "{moved:?}");
    let elsewhere = cluster.nodes[&follower].consensus.remove(MemberId(leader), Majority::Needed, soon()).await;
    assert!(matches!(elsewhere, Err(MembershipError::NotLeader { .. })), "{elsewhere:?}");
    let nowhere = tessera_consensus::Member { id: MemberId(9), name: String::new(), address: "127.0.0.1:1".to_owned() };
    let unreachable = lead.add_learner(nowhere, Instant::now() + Duration::from_secs(5)).await;
    assert!(matches!(unreachable, Err(MembershipError::NotAdmitted { .. })), "{unreachable:?}");
    assert_eq!(lead.members().len(), 3);
    cluster.shutdown().await;
    let alone = Cluster::founded(1, config()).await;
    let last = alone.nodes[&1].consensus.remove(MemberId(1), Majority::Needed, soon()).await;
    assert!(matches!(last, Err(MembershipError::LastVoter { .. })), "{last:?}");
    alone.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_begun_after_which_nothing_could_be_written() {
    let mut cluster = Cluster::founded(3, config()).await;
    let dead = cluster.follower().await;
    cluster.kill(dead).await;
    let leader = cluster.leader().await;
    let living = *cluster.nodes.keys().find(|id| **id != leader).expect("two live");
    cluster.propose_somewhere(0).await;
    let lead = cluster.nodes[&leader].consensus.clone();
    let refused = lead.remove(MemberId(living), Majority::Needed, soon()).await.expect_err("it is begun");
    let MembershipError::SilentMajority { silent, voters: 2 } = &refused else { panic!("{refused}") };
    assert_eq!(silent.iter().map(|member| member.id).collect::<Vec<_>>(), [MemberId(dead)]);
    let names = format!("member {dead} (m{dead}) at ");
    assert!(refused.to_string().contains(&names) && refused.to_string().contains("--without-majority"), "{refused}");
    cluster.propose_somewhere(1).await;
    // Whoever says that the dead one comes back is believed, and the change is whole when it does.
    let waived = tokio::spawn(async move { lead.remove(MemberId(living), Majority::Waived, soon()).await });
    cluster.nodes[&leader].until("a change under way", |status| status.joint).await;
    cluster.start(dead).await.expect("it starts again");
    waived.await.expect("no panic").expect("it is made");
    cluster.propose_somewhere(2).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_removed_finds_out_why_it_is_turned_away() {
    let mut cluster = Cluster::founded(3, config()).await;
    let (leader, victim) = (cluster.leader().await, cluster.follower().await);
    let lead = &cluster.nodes[&leader].consensus;
    lead.remove(MemberId(victim), Majority::Needed, soon()).await.expect("must be removed");
    let turned_away = cluster.nodes[&victim].until("being turned away", |status| status.refused.is_some()).await;
    let refused = turned_away.refused.expect("waited for it").to_string();
    assert!(refused.contains(&format!("member {victim} was removed from this cluster")), "{refused}");
    assert!(refused.contains("tessera cluster member add"), "{refused}");
    assert_eq!(cluster.nodes[&leader].status().refused, None);
    // One without a vote asks for none, and is told nevertheless.
    let newcomer = cluster.add_seat(4).await;
    cluster.start(4).await.expect("a new member must start");
    let lead = cluster.nodes[&leader].consensus.clone();
    lead.add_learner(newcomer, soon()).await.expect("must be added");
    lead.remove(MemberId(4), Majority::Needed, soon()).await.expect("must be removed");
    cluster.nodes[&4].until("being turned away", |status| status.refused.is_some()).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_members_that_changed_places_the_one_that_is_left_out_knows_whom_it_does_not_find() {
    let mut cluster = Cluster::founded(3, config()).await;
    for id in [2, 3] {
        cluster.kill(id).await;
    }
    let [second, third] = [2, 3].map(|id| cluster.seats[&id].member.address.clone());
    for (id, address) in [(2, third), (3, second)] {
        cluster.seats.get_mut(&id).expect("it has a seat").member.address = address;
        cluster.start(id).await.expect("its folder is its own");
    }
    // The first is found by both, and leads or follows one of them; the other takes no part, and looks for that one.
    let misplaced = |status: &Status| match &status.refused {
        Some(Refused::Misplaced { member, why }) => why.contains(&format!("member {member} was called, this is")),
        Some(Refused::TurnedAway { .. }) | None => false,
    };
    tokio::select! {
        _ = cluster.nodes[&2].until("knowing whom it does not find", misplaced) => {}
        _ = cluster.nodes[&3].until("knowing whom it does not find", misplaced) => {}
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_caller_goes_away_is_made_whole() {
    let mut cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    for id in 4..=8 {
        let newcomer = cluster.add_seat(id).await;
        cluster.start(id).await.expect("a new member must start");
        let node = &cluster.nodes[&leader];
        node.consensus.add_learner(newcomer, soon()).await.expect("must be added");
        // The caller goes as soon as the first half of the change is in the log.
        tokio::select! {
            promoted = node.consensus.promote(MemberId(id), Majority::Needed, soon()) => promoted.expect("must be promoted"),
            _ = node.until("half a change", |status| status.joint) => {}
        }
        node.until("the whole change", |status| status.voters.len() as u64 == id && !status.joint).await;
    }
    let members = cluster.nodes[&leader].consensus.committed_membership(soon()).await.expect("it leads");
    assert_eq!((members.voters.len(), members.joint), (8, false));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_quorum_does_not_say_who_is_a_member() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let lead = &cluster.nodes[&leader].consensus;
    assert_eq!(lead.committed_membership(soon()).await.expect("it leads").voters.len(), 3);
    let follower = cluster.follower().await;
    let elsewhere = cluster.nodes[&follower].consensus.committed_membership(soon()).await;
    assert!(matches!(elsewhere, Err(MembershipError::NotLeader { .. })), "{elsewhere:?}");
    cluster.isolate(leader);
    let alone = lead.committed_membership(Instant::now() + Duration::from_millis(500)).await;
    assert!(matches!(alone, Err(MembershipError::Unavailable | MembershipError::NotLeader { .. })), "{alone:?}");
    cluster.shutdown().await;
}

/// The process has entries of its own then, which nobody else has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_addition_that_a_lost_leader_had_begun_is_made_by_the_next_one() {
    let mut cluster = Cluster::new(config());
    let held = Arc::new(AtomicBool::new(false));
    for id in 1..=3 {
        cluster.add_seat(id).await;
        let (disk, held) = (MemoryDisk::new(Flushing::WhenTold), Arc::clone(&held));
        disk.on_pending(move |disk| {
            if !held.load(Ordering::Acquire) {
                disk.flush();
            }
        });
        cluster.seats.get_mut(&id).expect("it was added").disk = disk;
        cluster.start(id).await.expect("a new member must start");
    }
    cluster.found().await;
    let newcomer = cluster.add_seat(4).await;
    cluster.start(4).await.expect("a new member must start");
    let leader = cluster.leader().await;
    // From here on only the newcomer writes what it is sent.
    held.store(true, Ordering::Release);
    let lead = cluster.nodes[&leader].consensus.clone();
    let adding = tokio::spawn({
        let newcomer = newcomer.clone();
        async move { lead.add_learner(newcomer, soon()).await }
    });
    cluster.nodes[&4].until("entries", |status| status.last.0 > 0).await;
    for id in 1..=3 {
        cluster.kill(id).await;
    }
    drop(adding.await);
    held.store(false, Ordering::Release);
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.start(id).await.expect("must start again");
    }
    let next = &cluster.nodes[&cluster.leader().await];
    assert_eq!(next.consensus.next_member_id(), MemberId(4), "nobody knows of the newcomer");
    next.consensus.add_learner(newcomer, soon()).await.expect("must be added");
    next.until("the newcomer", |status| status.learners.len() == 1).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_a_dead_leader_left_half_made_is_ended_by_repeating_it() {
    let mut cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let newcomer = cluster.add_seat(4).await;
    cluster.start(4).await.expect("a new member must start");
    let node = &cluster.nodes[&leader];
    node.consensus.add_learner(newcomer, soon()).await.expect("must be added");
    tokio::select! {
        _ = node.consensus.promote(MemberId(4), Majority::Needed, soon()) => {}
        _ = node.until("half a change", |status| status.joint) => {}
    }
    cluster.kill(leader).await;
    let next = cluster.leader().await;
    let node = &cluster.nodes[&next];
    match node.consensus.promote(MemberId(4), Majority::Needed, soon()).await {
        // It may have been made whole before the leader died.
        Ok(()) | Err(MembershipError::WrongRole { .. }) => {}
        Err(error) => panic!("the change cannot be repeated: {error}"),
    }
    node.until("the whole change", |status| status.voters.len() == 4 && !status.joint).await;
    cluster.shutdown().await;
}
