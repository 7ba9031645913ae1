//! Grant, confirm, release and preempt: messages are lost and said again, leaders change, nodes are lost and come back,
//! kills take their time. Whatever happens, no block has two workers and no job runs twice.

use stateright::Property;
use tessera_ledger::{AllocationPhase, JobId, JobState, NodeState, WorkerState};

use crate::models::promises::{BLOCKS, JOBS, breaks, keeps_its_promises, never_goes_in_circles};
use crate::models::steps::Protocol;
use crate::models::world::{Flaw, Left, Setting, Submission, World};

/// A job of low priority and one of high priority, on one block.
fn preemption(left: Left) -> Setting {
    let jobs = vec![Submission { priority: 10, gang: 1 }, Submission { priority: 90, gang: 1 }];
    let seen = || {
        vec![
            Property::sometimes("an allocation waits for the one that it preempts", |_, world: &World| {
                world.ledger.allocations().any(|allocation| allocation.phase == AllocationPhase::Waiting)
            }),
            Property::sometimes("a preempted job resumes and completes", |_: &Protocol, world: &World| {
                world.ledger.job(JobId(1)).is_some_and(|job| job.state == JobState::Completed && job.attempts > 1)
            }),
        ]
    };
    Setting { flaw: None, nodes: 1, faulty: 1, jobs, left, seen }
}

/// One job, two nodes that can run it.
fn retry(left: Left) -> Setting {
    let seen = || {
        vec![
            Property::sometimes("a node is lost and its job runs elsewhere", |_, world: &World| {
                let lost = world.ledger.nodes().any(|node| node.state == NodeState::Lost);
                lost && world.ledger.jobs_from(JobId(0)).any(|job| job.state == JobState::Running)
            }),
            Property::sometimes("a leader that was deposed gives orders", |_: &Protocol, world: &World| {
                let mut sessions = world.agents.iter().filter_map(|agent| agent.session.as_ref());
                sessions.any(|session| session.deposed && session.orders.is_some())
            }),
        ]
    };
    Setting { flaw: None, nodes: 2, faulty: 1, jobs: vec![Submission { priority: 50, gang: 1 }], left, seen }
}

/// A gang of two on two nodes.
fn gang(left: Left) -> Setting {
    let seen = || {
        vec![Property::sometimes("one worker of a gang is over and the other is not", |_: &Protocol, world: &World| {
            world.ledger.allocations().any(|allocation| {
                let stopped = allocation.workers.iter().filter(|worker| worker.state == WorkerState::Stopped).count();
                stopped == 1
            })
        })]
    };
    Setting { flaw: None, nodes: 2, faulty: 2, jobs: vec![Submission { priority: 50, gang: 2 }], left, seen }
}

#[test]
fn preemption_hands_blocks_over() {
    let left = Left { breaks: 1, stuck: 1, ..Left::default() };
    keeps_its_promises("preemption", &preemption(left));
    let elections = Left { elections: 1, cancels: 1, ..Left::default() };
    let mut setting = preemption(elections);
    setting.seen = Vec::new;
    keeps_its_promises("preemption and a change of leader", &setting);
}

#[test]
fn a_lost_node_gives_its_job_away_once() {
    let left = Left { elections: 1, expiries: 1, losses: 1, ..Left::default() };
    keeps_its_promises("a lost node", &retry(left));
}

#[test]
fn a_node_that_registers_again_is_judged_anew() {
    let mut setting = retry(Left { expiries: 1, losses: 1, restarts: 1, ..Left::default() });
    setting.seen = Vec::new;
    keeps_its_promises("a node that registers again", &setting);
}

#[test]
fn a_gang_is_one() {
    keeps_its_promises("a gang", &gang(Left { breaks: 1, cancels: 1, stuck: 1, ..Left::default() }));
}

#[test]
fn what_is_granted_ends() {
    never_goes_in_circles("preemption", &preemption(Left { breaks: 1, stuck: 1, ..Left::default() }));
}

#[test]
fn each_rule_of_grants_is_needed() {
    breaks(&preemption(Left::default()), Flaw::KillBelieved, BLOCKS);
    breaks(&preemption(Left { elections: 1, breaks: 2, ..Left::default() }), Flaw::TermUnchecked, BLOCKS);
    let lost = Left { elections: 1, expiries: 1, losses: 1, restarts: 1, ..Left::default() };
    breaks(&retry(Left { elections: 0, ..lost }), Flaw::EpochUnchecked, JOBS);
    breaks(&retry(Left { breaks: 1, losses: 1, ..Left::default() }), Flaw::LossBeforeEnd, JOBS);
    breaks(&retry(Left { restarts: 0, ..lost }), Flaw::LeaseWithoutQuorum, JOBS);
    let stuck = Left { stuck: 1, expiries: 1, losses: 1, cancels: 1, ..Left::default() };
    breaks(&preemption(stuck), Flaw::ReturnUnreconciled, BLOCKS);
}
