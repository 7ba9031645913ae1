//! Nodes that cannot start work, that cannot promise that work ends, and that are not who they say they are.

use tessera_ledger::{
    AgentStart, CardKind, Command, Containment, Eligibility, FAULTS_UNTIL_CORDON, Job, JobId, JobState, Node,
    NodeDescription, NodeId, NodeState, Observation, Outcome, Reason, Rejection, StopCause,
};

use crate::pool::{self, Pool, card, node, numbered, slice, stopped};

fn job_of(pool: &Pool, job: JobId) -> &Job {
    pool.state.job(job).expect("kept")
}

fn node_of(pool: &Pool, node: u32) -> &Node {
    pool.state.node(NodeId(node)).expect("registered")
}

fn fault(pool: &mut Pool, job: JobId, node: u32) {
    pool.grant(job, vec![slice(node, 0, 0, 1)]);
    let Observation::Stopped(mut exit) = stopped(StopCause::NodeFault, None) else { unreachable!() };
    exit.message = "the disk is full".to_owned();
    pool.report_all(job, &Observation::Stopped(exit));
}

fn later(pool: &mut Pool) {
    pool.time += 3_600_000;
    pool.run(Command::Tick);
}

#[test]
fn what_a_node_cannot_start_is_tried_again_without_using_up_a_retry() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)], &[card(CardKind::Gpu, 10)]]);
    let job = pool.submit(|spec| spec.retry.max_retries = 0);
    fault(&mut pool, job, 0);
    let waiting = job_of(&pool, job);
    assert_eq!((waiting.state, waiting.retries), (JobState::Pending, 0));
    assert_eq!(waiting.reason, Reason::NodeFault { node: NodeId(0), message: "the disk is full".to_owned() });
    later(&mut pool);
    pool.grant(job, vec![slice(1, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    assert_eq!((job_of(&pool, job).state, job_of(&pool, job).node_faults), (JobState::Running, 0));
}

/// No worker of a job that meets nobody can say so, and excuse its node or itself.
#[test]
fn a_port_is_no_excuse_for_who_was_given_none() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let job = pool.submit(|_| {});
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &stopped(StopCause::PortTaken, None));
    assert!(matches!(job_of(&pool, job).reason, Reason::NodeFault { .. }), "{:?}", job_of(&pool, job).reason);
    assert_eq!(node_of(&pool, 0).faults, 1);
}

#[test]
fn a_node_that_fails_a_few_times_in_a_row_gets_no_new_work_until_somebody_says_that_it_is_mended() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let sick = |pool: &mut Pool, times: u32| {
        for _ in 0..times {
            let job = pool.submit(|_| {});
            fault(pool, job, 0);
        }
    };
    sick(&mut pool, FAULTS_UNTIL_CORDON - 1);
    let healthy = pool.submit(|_| {});
    pool.grant(healthy, vec![slice(0, 0, 0, 1)]);
    pool.report_all(healthy, &Observation::Running);
    pool.report_all(healthy, &pool::exited(0));
    sick(&mut pool, FAULTS_UNTIL_CORDON - 1);
    assert_eq!(
        node_of(&pool, 0).eligibility,
        Eligibility::Eligible,
        "one that was started in between begins the count anew"
    );
    sick(&mut pool, 1);
    let cordoned = node_of(&pool, 0);
    assert_eq!((cordoned.eligibility, cordoned.faults), (Eligibility::Cordoned, FAULTS_UNTIL_CORDON));
    assert!(cordoned.eligibility_reason.contains("the disk is full"), "{}", cordoned.eligibility_reason);
    let mended = Command::SetEligibility { node: NodeId(0), eligibility: Eligibility::Eligible, reason: String::new() };
    pool.run(mended);
    assert_eq!(node_of(&pool, 0).faults, 0);
}

#[test]
fn a_job_that_no_node_can_start_does_not_empty_the_pool() {
    let gpu = card(CardKind::Gpu, 10);
    let mut pool = Pool::with_nodes(&[std::slice::from_ref(&gpu); 4]);
    let poison = pool.submit(|spec| spec.retry.max_retries = 0);
    let mut tries = 0;
    while job_of(&pool, poison).state == JobState::Pending {
        later(&mut pool);
        let open =
            (0..4).find(|node| node_of(&pool, *node).eligibility == Eligibility::Eligible).expect("nodes are left");
        fault(&mut pool, poison, open);
        tries += 1;
    }
    assert_eq!((job_of(&pool, poison).state, tries), (JobState::Failed, 2 * FAULTS_UNTIL_CORDON + 1));
    let left = (0..4).filter(|node| node_of(&pool, *node).eligibility == Eligibility::Eligible).count();
    assert_eq!(left, 2);
}

/// Whatever is tried first is tried on the node that is free, which is often the sick one again.
#[test]
fn two_sick_nodes_are_not_the_fault_of_a_job() {
    let gpu = card(CardKind::Gpu, 10);
    let mut pool = Pool::with_nodes(&[std::slice::from_ref(&gpu); 3]);
    let job = pool.submit(|spec| spec.retry.max_retries = 0);
    for sick in 0..2 {
        for _ in 0..FAULTS_UNTIL_CORDON {
            later(&mut pool);
            fault(&mut pool, job, sick);
        }
        assert_eq!(node_of(&pool, sick).eligibility, Eligibility::Cordoned);
    }
    assert_eq!((job_of(&pool, job).state, job_of(&pool, job).retries), (JobState::Pending, 0));
    later(&mut pool);
    pool.grant(job, vec![slice(2, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    assert_eq!(job_of(&pool, job).state, JobState::Running);
}

fn described(name: &str, change: impl FnOnce(&mut NodeDescription)) -> Command {
    let mut node = node(name);
    change(&mut node);
    Command::RegisterNode { node, cards: numbered(&[card(CardKind::Gpu, 10)]) }
}

#[test]
fn the_silence_of_a_node_that_cannot_end_what_work_forked_is_not_taken_for_a_stop() {
    let mut pool = Pool::with_nodes(&[]);
    let partial = Containment::Partial { missing: "no PID namespace".to_owned() };
    pool.run(described("n0", |node| node.containment = partial));
    let job = pool.submit(|_| {});
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    let epoch = node_of(&pool, 0).epoch;
    pool.run(Command::NodeLost { node: NodeId(0), epoch });
    assert_eq!(node_of(&pool, 0).state, NodeState::Lost);
    assert_eq!(
        (job_of(&pool, job).state, job_of(&pool, job).attempts),
        (JobState::Running, 1),
        "it may compute there still"
    );
    assert_eq!(job_of(&pool, job).reason, Reason::NodeDisconnected { node: NodeId(0) });
    assert_eq!(pool.state.block_counts().lost, 1);
    // Its agent is back, has searched, and found nothing.
    pool.run(described("n0", |node| {
        node.incarnation = 2;
        node.containment = Containment::Partial { missing: "no PID namespace".to_owned() };
    }));
    pool.report_all(job, &stopped(StopCause::LeaseExpired, None));
    assert_eq!((job_of(&pool, job).state, job_of(&pool, job).retries), (JobState::Pending, 0));
    assert_eq!(pool.state.block_counts().lost, 0);
}

#[test]
fn two_agents_with_one_identity_are_told_apart() {
    let mut pool = Pool::with_nodes(&[]);
    let start = |nonce: &str, incarnation| {
        let nonce = nonce.to_owned();
        described("n0", move |node| {
            node.incarnation = incarnation;
            node.start = AgentStart { boot_id: "boot".to_owned(), nonce };
        })
    };
    assert!(matches!(pool.run(start("a", 1)), Outcome::Registered { .. }));
    assert!(matches!(pool.run(start("a", 1)), Outcome::Registered { .. }), "the same agent says hello again");
    let copy = pool.run(start("b", 1));
    assert_eq!(copy, Outcome::Rejected(Rejection::NodeCloned { node: NodeId(0) }));
    assert!(matches!(pool.run(start("c", 2)), Outcome::Registered { .. }), "a later start of the agent");
}
