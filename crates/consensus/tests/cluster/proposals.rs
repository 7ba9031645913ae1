//! Proposing: order, sharing of entries, and what each error promises.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tessera_consensus::{ConsensusConfig, LogTime, ProposeError};
use tokio::time::Instant;

use crate::harness::{Cluster, config, soon, stoppable};
use crate::register::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_applied_on_every_member() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let applied = cluster.nodes[&leader].propose(7).await.expect("must be applied");
    assert_eq!(applied.outcome, 1);
    for node in cluster.nodes.values() {
        node.applied(applied.index).await;
        assert_eq!(node.view().serials, [7]);
        assert!(node.view().times[&7] > LogTime(0), "the leader's clock is in the entry");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_commands_share_entries_and_none_is_lost_or_doubled() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = &cluster.nodes[&cluster.leader().await];
    let proposals = (0..2_000).map(|serial| leader.propose(serial));
    let applied = futures::future::join_all(proposals).await;
    let applied: Vec<_> = applied.into_iter().map(|applied| applied.expect("must be applied")).collect();
    let places: BTreeSet<u64> = applied.iter().map(|applied| applied.outcome).collect();
    assert_eq!(places, (1..=2_000).collect(), "each command has its own place");
    let entries: BTreeSet<_> = applied.iter().map(|applied| applied.index).collect();
    assert!(entries.len() < 500, "2000 concurrent commands took {} entries", entries.len());
    assert_eq!(cluster.converged().await.len(), 2_000);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_callers_commands_keep_their_order() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = &cluster.nodes[&cluster.leader().await];
    // Polled in order, so handed in in order.
    futures::future::join_all((0..500).map(|serial| leader.propose(serial))).await;
    assert_eq!(cluster.converged().await, (0..500).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_names_the_leader() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let follower = &cluster.nodes[&cluster.follower().await];
    follower.until("following the leader", |status| status.leader.is_some()).await;
    match follower.propose(1).await {
        Err(ProposeError::NotLeader { leader: Some(named) }) => {
            assert_eq!(named, cluster.nodes[&leader].member);
        }
        other => panic!("expected the leader's name, got {other:?}"),
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_too_large_is_refused() {
    let cluster = Cluster::founded(1, config()).await;
    let limit = cluster.config.max_batch_bytes;
    let refused = cluster.nodes[&1].consensus.propose(Bytes::from(vec![0; limit + 1]), soon()).await;
    assert!(matches!(refused, Err(ProposeError::TooLarge { limit: said, .. }) if said == limit));
    cluster.nodes[&1].consensus.propose(command(1, limit - 8), soon()).await.expect("exactly the limit fits");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_mailbox_refuses_and_what_was_refused_is_never_applied() {
    let small = ConsensusConfig { mailbox: 8, max_batch_commands: 4, max_in_flight: 1, ..config() };
    let mut cluster = Cluster::new(small);
    cluster.add_seat(1).await;
    let (disk, flushes) = stoppable();
    cluster.seats.get_mut(&1).expect("just added").disk = disk.clone();
    cluster.start(1).await.expect("a new member must start");
    cluster.found().await;
    // Nothing becomes durable, so nothing is committed: one entry is on its way, the rest waits.
    flushes.store(false, Ordering::Release);
    let node = &cluster.nodes[&1];
    let stuck = Instant::now() + Duration::from_secs(1);
    let proposals = (0..200).map(|serial| node.consensus.propose(command(serial, 0), stuck));
    let answers = futures::future::join_all(proposals).await;
    let count =
        |wanted: fn(&ProposeError) -> bool| answers.iter().filter(|answer| answer.as_ref().is_err_and(wanted)).count();
    let overloaded = count(|error| matches!(error, ProposeError::Overloaded));
    let unknown = count(|error| matches!(error, ProposeError::OutcomeUnknown));
    assert!(overloaded > 100, "{overloaded} were refused: {answers:?}");
    assert!((1..=4).contains(&unknown), "{unknown} were in the only entry on its way: {answers:?}");
    assert!(answers.iter().all(Result::is_err), "nothing can be applied before it is durable");
    flushes.store(true, Ordering::Release);
    disk.flush();
    cluster.propose_somewhere(1_000).await;
    let applied = cluster.converged().await;
    for (serial, answer) in (0u64..).zip(&answers) {
        let was_taken = matches!(answer, Err(ProposeError::OutcomeUnknown));
        assert_eq!(applied.contains(&serial), was_taken, "serial {serial}: {answer:?}");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mailbox_full_of_bytes_refuses_until_they_are_gone() {
    let limit = 1 << 20;
    let mut cluster = Cluster::new(ConsensusConfig { mailbox_bytes: limit, max_in_flight: 1, ..config() });
    cluster.add_seat(1).await;
    let (disk, flushes) = stoppable();
    cluster.seats.get_mut(&1).expect("just added").disk = disk.clone();
    cluster.start(1).await.expect("a new member must start");
    cluster.found().await;
    flushes.store(false, Ordering::Release);
    let node = &cluster.nodes[&1];
    let stuck = Instant::now() + Duration::from_secs(1);
    let proposals = (0..40).map(|serial| node.consensus.propose(command(serial, limit / 10), stuck));
    let answers = futures::future::join_all(proposals).await;
    let overloaded = answers.iter().filter(|answer| matches!(answer, Err(ProposeError::Overloaded))).count();
    assert!((20..40).contains(&overloaded), "one batch is on its way and one waits, {overloaded} were refused");
    flushes.store(true, Ordering::Release);
    disk.flush();
    cluster.propose_somewhere(1_000).await;
    // Whether taken, withdrawn or refused, all have given their bytes back: one command may fill the mailbox.
    node.consensus.propose(command(1_001, limit - 8), soon()).await.expect("there is room again");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_withdraws_what_was_not_taken() {
    let mut cluster = Cluster::new(ConsensusConfig { max_in_flight: 1, ..config() });
    cluster.add_seat(1).await;
    let (disk, flushes) = stoppable();
    cluster.seats.get_mut(&1).expect("just added").disk = disk.clone();
    cluster.start(1).await.expect("a new member must start");
    cluster.found().await;
    let before = cluster.propose_somewhere(0).await.index;
    let node = &cluster.nodes[&1];
    node.until("the first being there", |status| status.last == before).await;
    flushes.store(false, Ordering::Release);
    let (consensus, far) = (node.consensus.clone(), soon());
    let first = tokio::spawn(async move { consensus.propose(command(1, 0), far).await });
    node.until("the next entry being on its way", |status| status.last > before).await;
    for serial in 2..10 {
        let mut abandoned = Box::pin(node.consensus.propose(command(serial, 0), far));
        assert!(futures::poll!(abandoned.as_mut()).is_pending());
    }
    flushes.store(true, Ordering::Release);
    disk.flush();
    first.await.expect("it does not panic").expect("must be applied");
    cluster.propose_somewhere(100).await;
    assert_eq!(cluster.converged().await, [0, 1, 100]);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_callers_learn_it_by_their_deadline_and_it_recovers() {
    let mut cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    for id in &others {
        cluster.kill(*id).await;
    }
    let node = &cluster.nodes[&leader];
    // The first may have been appended before the leader noticed; then nobody knows what becomes of it.
    let asked = Instant::now();
    let first = node.consensus.propose(command(1, 0), asked + Duration::from_millis(800)).await;
    assert!(matches!(first, Err(ProposeError::OutcomeUnknown | ProposeError::Unavailable)), "{first:?}");
    node.until("noticing that nobody answers", |status| !status.quorum_fresh).await;
    let asked = Instant::now();
    let second = node.consensus.propose(command(2, 0), asked + Duration::from_millis(300)).await;
    assert!(matches!(second, Err(ProposeError::Unavailable)), "{second:?}");
    assert!(asked.elapsed() < Duration::from_secs(5), "answered long after the deadline");
    cluster.start(others[0]).await.expect("must start again");
    cluster.propose_somewhere(3).await;
    let serials = cluster.converged().await;
    assert!(serials.contains(&3) && !serials.contains(&2), "{serials:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commands_of_one_caller_share_entries_keep_their_order_and_have_an_answer_each() {
    let cluster = Cluster::founded(3, ConsensusConfig { max_batch_commands: 100, ..config() }).await;
    let leader = &cluster.nodes[&cluster.leader().await].consensus;
    let mut commands: Vec<Bytes> = (0..250).map(|serial| command(serial, 0)).collect();
    let limit = cluster.config.max_batch_bytes;
    commands.insert(50, Bytes::from(vec![0; limit + 1]));
    let mut answers = leader.propose_all(commands, soon()).await;
    assert!(matches!(answers.remove(50), Err(ProposeError::TooLarge { .. })), "it is refused, and nothing else");
    let applied: Vec<_> = answers.into_iter().map(|answer| answer.expect("must be applied")).collect();
    assert_eq!(applied.iter().map(|applied| applied.outcome).collect::<Vec<_>>(), (1..=250).collect::<Vec<_>>());
    let entries: BTreeSet<_> = applied.iter().map(|applied| applied.index).collect();
    assert!(entries.len() <= 4, "{entries:?}");
    assert_eq!(cluster.converged().await, (0..250).collect::<Vec<_>>());
    assert!(leader.propose_all(Vec::new(), soon()).await.is_empty());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commands_are_all_refused_by_a_follower() {
    let cluster = Cluster::founded(3, config()).await;
    let follower = &cluster.nodes[&cluster.follower().await];
    follower.until("following the leader", |status| status.leader.is_some()).await;
    let answers = follower.consensus.propose_all((0..10).map(|serial| command(serial, 0)).collect(), soon()).await;
    assert_eq!(answers.len(), 10);
    assert!(answers.iter().all(|answer| matches!(answer, Err(ProposeError::NotLeader { leader: Some(_) }))));
    assert!(cluster.converged().await.is_empty());
    cluster.shutdown().await;
}
