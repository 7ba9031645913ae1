//! Tests of a pool that begins anew from an old state: what it knows, and what it does.

use tessera_ledger::laws::check;
use tessera_ledger::wire::{decode_snapshot, encode_snapshot};
use tessera_ledger::{
    Command, Eligibility, JobState, NUMBERS_AHEAD, NodeId, NodeState, Observation, REVISIONS_AHEAD, Reason, StopCause,
};

use crate::pool::{Pool, one_card, slice, stopped};

/// A pool with a job that runs, one that starts and one that waits.
fn busy() -> (Pool, [tessera_ledger::JobId; 3]) {
    let mut pool = one_card(8);
    let jobs = [pool.submit(|_| {}), pool.submit(|_| {}), pool.submit(|_| {})];
    pool.grant(jobs[0], vec![slice(0, 0, 0, 2)]);
    pool.grant(jobs[1], vec![slice(0, 0, 2, 3)]);
    pool.report_all(jobs[0], &Observation::Running);
    (pool, jobs)
}

#[test]
fn nothing_is_believed_of_work_until_its_agent_has_spoken() {
    let (mut pool, [runs, starts, waits]) = busy();
    let before = pool.state.clone();
    pool.state.begin_anew();
    assert_eq!(check(&pool.state), []);
    let node = pool.state.node(NodeId(0)).expect("it is known").clone();
    assert_eq!((node.state, node.eligibility), (NodeState::Lost, Eligibility::Cordoned));
    assert_eq!(pool.state.block_counts().lost, 5, "what was granted stays with its owners");
    assert_eq!(pool.state.job(runs).unwrap().state, JobState::Running);
    assert_eq!(pool.state.job(runs).unwrap().reason, Reason::NodeDisconnected { node: NodeId(0) });
    assert_eq!(pool.state.job(starts).unwrap().state, JobState::Starting);
    assert_eq!(pool.state.job(waits).unwrap().state, JobState::Pending);
    for job in [runs, starts] {
        assert_eq!(pool.allocation_of(job).epoch, before.allocation(pool.allocation_of(job).id).unwrap().epoch);
    }
    // The agent says what it runs: one goes on, of the other nothing is there.
    pool.report_all(runs, &Observation::Running);
    pool.report_all(starts, &stopped(StopCause::Ordered, None));
    pool.run(Command::NodeReturned { node: NodeId(0), incarnation: 1 });
    assert_eq!(pool.state.job(runs).unwrap().reason, Reason::Started);
    assert_eq!(pool.state.job(starts).unwrap().state, JobState::Pending);
    assert_eq!((pool.state.block_counts().running, pool.state.block_counts().free), (2, 6));
    assert!(!pool.state.node(NodeId(0)).unwrap().grantable(), "the operator says when new work may come");
}

#[test]
fn nothing_that_was_handed_out_is_handed_out_again() {
    let (mut pool, [.., last]) = busy();
    let revision = pool.state.revision();
    pool.state.begin_anew();
    assert!(pool.state.revision().0 >= revision.0 + REVISIONS_AHEAD);
    assert_eq!(pool.state.compacted(), pool.state.revision(), "watches of the old pool list anew");
    assert_eq!(pool.state.events_held(), 0);
    let next = pool.submit(|_| {});
    assert!(next.0 > last.0 + NUMBERS_AHEAD, "{next} after {last}");
    pool.report_all(last_running(&pool), &Observation::Running);
}

/// The job that runs.
fn last_running(pool: &Pool) -> tessera_ledger::JobId {
    let job = pool.state.jobs_from(Default::default()).find(|job| job.state == JobState::Running);
    job.expect("one runs").id
}

#[test]
fn a_state_that_began_anew_is_a_snapshot_like_any_other() {
    let (mut pool, _) = busy();
    pool.state.begin_anew();
    let read = decode_snapshot(encode_snapshot(&pool.state)).expect("it is whole");
    assert_eq!(read.digest(), pool.state.digest());
    assert_eq!(check(&read), []);
    // And once more, from there.
    pool.state.begin_anew();
    assert_eq!(check(&pool.state), []);
}

#[test]
fn what_an_operator_decided_of_a_node_stays() {
    let (mut pool, _) = busy();
    let drain = Command::SetEligibility {
        node: NodeId(0),
        eligibility: Eligibility::Draining,
        reason: "a fan is broken".to_owned(),
    };
    pool.run(drain);
    pool.state.begin_anew();
    let node = pool.state.node(NodeId(0)).expect("it is known").clone();
    assert_eq!((node.eligibility, node.eligibility_reason.as_str()), (Eligibility::Draining, "a fan is broken"));
    assert_eq!(check(&pool.state), []);
}
