//! Work and blocks when nodes and cards come, change and go.

use std::time::Duration;

use tessera_ledger::{
    CardHealth, CardId, CardKind, Command, Eligibility, Event, JobState, LogTime, NodeId, NodeState, Observation,
    OnDisconnect, Outcome, PlanPart, Reason, Rejection, StopCause,
};

use crate::pool::{Pool, card, exited, node, numbered, one_card, rejected, slice, stopped, tflops};

/// A stop that cannot be confirmed quarantines the blocks, and only an operator's word frees them (L2).
#[test]
fn an_unconfirmed_stop_quarantines_the_blocks() {
    let mut pool = one_card(8);
    let job = pool.submit(|spec| spec.virtual_card.compute = tflops(3));
    pool.grant(job, vec![slice(0, 0, 0, 3)]);
    pool.report_all(job, &Observation::Running);
    pool.run(Command::CancelJob { job });
    pool.report_all(job, &Observation::Unconfirmed { message: "in uninterruptible sleep".to_owned() });
    assert_eq!(pool.state.block_counts().lost, 3);
    assert_eq!(pool.state.job(job).unwrap().state, JobState::Completing);
    pool.run(Command::ConfirmStopped { node: NodeId(0) });
    assert_eq!(pool.state.block_counts().free, 8);
    assert_eq!(pool.state.job(job).unwrap().state, JobState::Cancelled);
}

/// The loss of its node says nothing new of a worker that could not be ended: its blocks stay quarantined, its job is
/// not started anywhere else (L2), and nobody is told again.
#[test]
fn what_could_not_be_ended_is_not_taken_for_ended_when_its_node_is_lost() {
    for on_disconnect in [OnDisconnect::Stop, OnDisconnect::Keep] {
        let mut pool = one_card(8);
        let job = pool.submit(|spec| {
            spec.virtual_card.compute = tflops(3);
            spec.on_disconnect = on_disconnect;
        });
        pool.grant(job, vec![slice(0, 0, 0, 3)]);
        pool.report_all(job, &Observation::Running);
        pool.run(Command::SuspendJob { job });
        pool.report_all(job, &Observation::Unconfirmed { message: "in uninterruptible sleep".to_owned() });
        let epoch = pool.state.node(NodeId(0)).unwrap().epoch;
        pool.run(Command::NodeLost { node: NodeId(0), epoch });
        assert_eq!(pool.state.block_counts().lost, 3, "{on_disconnect:?}");
        assert_eq!(pool.state.job(job).unwrap().state, JobState::Suspending, "{on_disconnect:?}");
        let told = pool.state.events_of(pool.state.revision()).map(|entry| entry.events.clone()).unwrap();
        assert!(matches!(*told, [Event::Node { .. }]), "{on_disconnect:?}: {told:?}");
        pool.run(Command::ConfirmStopped { node: NodeId(0) });
        assert_eq!(pool.state.job(job).unwrap().state, JobState::Suspended, "{on_disconnect:?}");
    }
}

/// A lost node: work that may not go on is tried elsewhere; work that may keeps its blocks until the node is back.
#[test]
fn a_lost_node_keeps_only_what_may_go_on_without_it() {
    let mut pool = one_card(8);
    let stop = pool.submit(|_| {});
    let keep = pool.submit(|spec| spec.on_disconnect = OnDisconnect::Keep);
    pool.grant(stop, vec![slice(0, 0, 0, 1)]);
    pool.grant(keep, vec![slice(0, 0, 1, 1)]);
    pool.report_all(stop, &Observation::Running);
    pool.report_all(keep, &Observation::Running);
    let epoch = pool.state.node(NodeId(0)).unwrap().epoch;
    pool.run(Command::NodeLost { node: NodeId(0), epoch });
    assert_eq!(pool.state.job(stop).unwrap().state, JobState::Pending);
    assert_eq!(pool.state.job(stop).unwrap().reason, Reason::NodeLost { node: NodeId(0) });
    assert_eq!((pool.state.job(keep).unwrap().state, pool.state.block_counts().lost), (JobState::Running, 1));
    // Judged by an old epoch, the node is not lost again after it returned.
    pool.run(Command::NodeReturned { node: NodeId(0), incarnation: 1 });
    assert_eq!(rejected(pool.run(Command::NodeLost { node: NodeId(0), epoch })).code(), "NODE_CHANGED");
    pool.report_all(keep, &Observation::Running);
    assert_eq!(pool.state.block_counts().running, 1);
    assert_eq!(pool.state.job(keep).unwrap().reason, Reason::Started);
}

/// A name belongs to the first machine that used it, until that machine is forgotten.
#[test]
fn a_node_name_is_taken_until_its_node_is_forgotten() {
    let mut pool = one_card(8);
    let other = || {
        let mut description = node("n0");
        description.uid = "somebody else".to_owned();
        Command::RegisterNode { node: description, cards: numbered(&[card(CardKind::Gpu, 8)]) }
    };
    assert_eq!(rejected(pool.run(other())).code(), "NODE_NAME_TAKEN");
    let mut older = node("n0");
    older.incarnation = 0;
    let stale = pool.run(Command::RegisterNode { node: older, cards: vec![] });
    assert_eq!(rejected(stale).code(), "NODE_CHANGED");
    pool.run(Command::ForgetNode { node: NodeId(0) });
    assert_eq!(pool.state.node(NodeId(0)).unwrap().state, NodeState::Forgotten);
    let Outcome::Registered { node, .. } = pool.run(other()) else { panic!("refused") };
    assert_eq!(pool.state.node(node).unwrap().base.0, 9, "numbers are never used twice");
}

/// L6: health, drains and ratings change what is on offer, never what is granted.
#[test]
fn what_is_on_offer_changes_under_live_allocations_without_touching_them() {
    let mut pool = one_card(8);
    let job = pool.submit(|spec| spec.virtual_card.compute = tflops(5));
    pool.grant(job, vec![slice(0, 0, 0, 5)]);
    pool.report_all(job, &Observation::Running);
    let id = CardId { node: NodeId(0), index: 0 };
    let mut smaller = pool.state.card(id).unwrap().description.clone();
    smaller.measured = [(tessera_ledger::Precision::Fp16, tflops(3))].into();
    pool.run(Command::UpdateCards { node: id.node, cards: vec![smaller.clone()] });
    let counts = pool.state.block_counts();
    assert_eq!((counts.running, counts.offline, counts.free), (5, 3, 0));
    smaller.measured.clear();
    smaller.health = CardHealth::Unhealthy;
    pool.run(Command::UpdateCards { node: id.node, cards: vec![smaller.clone()] });
    assert_eq!(pool.state.block_counts().offline, 3);
    smaller.health = CardHealth::Healthy;
    pool.run(Command::UpdateCards { node: id.node, cards: vec![smaller] });
    assert_eq!(pool.state.block_counts().free, 3);
    let drain = |eligibility| Command::SetEligibility { node: id.node, eligibility, reason: "upgrade".to_owned() };
    pool.run(drain(Eligibility::Draining));
    pool.accept(PlanPart::Evict { job, node: id.node });
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    assert_eq!((pool.state.block_counts().offline, pool.state.job(job).unwrap().state), (8, JobState::Suspended));
    pool.run(drain(Eligibility::Eligible));
    assert_eq!(pool.state.block_counts().free, 8);
}

/// Until then its jobs may be moved away, and none has to leave; nothing new comes.
#[test]
fn a_node_that_is_to_be_empty_by_some_time_is_left_then() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 8)], &[card(CardKind::Gpu, 8)]]);
    let job = pool.submit(|_| {});
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    let within = Duration::from_secs(600);
    pool.run(Command::DrainNode { node: NodeId(0), reason: "fan".to_owned(), within });
    let node = pool.state.node(NodeId(0)).unwrap();
    assert!(!node.grantable() && node.drain_by == Some(LogTime(pool.time + 600_000)));
    let evict = PlanPart::Evict { job, node: NodeId(0) };
    let early = rejected(pool.plan(vec![evict.clone()]));
    assert!(matches!(early, Rejection::GrantMismatch { .. }), "it need not leave yet: {early}");
    pool.time += 600_000;
    pool.accept(evict);
    assert_eq!(pool.state.job(job).unwrap().state, JobState::Suspending);
    let (eligibility, reason) = (Eligibility::Eligible, String::new());
    pool.run(Command::SetEligibility { node: NodeId(0), eligibility, reason });
    assert_eq!(pool.state.node(NodeId(0)).unwrap().drain_by, None);
}

/// L2: a card that gets another place on its node while a worker still holds it is not offered a second time.
#[test]
fn a_card_that_moved_on_its_node_is_not_free_while_it_is_held() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 4), card(CardKind::Gpu, 4)]]);
    let job = pool.submit(|spec| spec.virtual_card.compute = tflops(4));
    pool.grant(job, vec![slice(0, 1, 0, 4)]);
    pool.report_all(job, &Observation::Running);
    let mut left = numbered(&[card(CardKind::Gpu, 4), card(CardKind::Gpu, 4)]).remove(1);
    left.index = 0;
    let mut description = node("n0");
    description.incarnation = 2;
    pool.run(Command::RegisterNode { node: description.clone(), cards: vec![left.clone()] });
    assert_eq!(pool.state.block_counts().free, 0, "the only card that is left is the one that is held");
    pool.report_all(job, &exited(0));
    pool.run(Command::RegisterNode { node: description, cards: vec![left] });
    assert_eq!(pool.state.block_counts().free, 4);
}

/// L2: a machine that was declared dead and comes back gets no allocation before it has shown that it runs nothing.
#[test]
fn a_forgotten_machine_that_is_back_must_reconcile_first() {
    let mut pool = one_card(4);
    pool.run(Command::ForgetNode { node: NodeId(0) });
    let again = Command::RegisterNode { node: node("n0"), cards: numbered(&[card(CardKind::Gpu, 4)]) };
    let Outcome::Registered { node: id, .. } = pool.run(again) else { panic!("refused") };
    assert_eq!(pool.state.node(id).unwrap().state, NodeState::Lost);
    pool.run(Command::NodeReturned { node: id, incarnation: 1 });
    assert_eq!(pool.state.node(id).unwrap().state, NodeState::Ready);
}
