//! The steps of a move: reserve, suspend, transfer, resume, release. Nodes are lost, leaders change, people cancel,
//! workers end by themselves in the middle of it. The job never runs in two places, no block is left over, and it
//! always ends.

use stateright::Property;
use tessera_ledger::{JobId, JobState, MovePhase, Reason};

use crate::models::promises::{ENDS, JOBS, breaks, keeps_its_promises, never_goes_in_circles};
use crate::models::steps::Protocol;
use crate::models::world::{Flaw, Left, Setting, Submission, World};

fn moving(left: Left) -> Setting {
    let seen = || {
        vec![
            Property::sometimes("a move waits for its source to stop", |_: &Protocol, world: &World| {
                world.moves().values().any(|phase| *phase == MovePhase::Suspending)
            }),
            Property::sometimes("a move starts its target", |_, world: &World| {
                world.moves().values().any(|phase| *phase == MovePhase::Resuming)
            }),
            Property::sometimes("a job runs where it was moved to", |_, world: &World| {
                world.ledger.job(JobId(1)).is_some_and(|job| {
                    let left = job.history.iter().rev().nth(1).and_then(|attempt| attempt.reason.as_ref());
                    job.state == JobState::Running && left == Some(&Reason::Moving)
                })
            }),
        ]
    };
    let left = Left { moves: 1, ..left };
    Setting { flaw: None, nodes: 2, faulty: 2, jobs: vec![Submission { priority: 50, gang: 1 }], left, seen }
}

#[test]
fn a_move_never_runs_a_job_twice() {
    keeps_its_promises("a move and a cancel", &moving(Left { cancels: 1, breaks: 1, ..Left::default() }));
    keeps_its_promises("a move and a change of leader", &moving(Left { elections: 1, ..Left::default() }));
}

#[test]
fn a_move_survives_the_loss_of_a_node() {
    keeps_its_promises("a move and a lost node", &moving(Left { expiries: 1, losses: 1, ..Left::default() }));
}

#[test]
fn a_move_always_ends() {
    never_goes_in_circles("a move", &moving(Left { elections: 1, cancels: 1, ..Left::default() }));
}

#[test]
fn each_rule_of_moves_is_needed() {
    breaks(&moving(Left::default()), Flaw::TargetBeforeSource, JOBS);
    breaks(&moving(Left { elections: 1, ..Left::default() }), Flaw::MovesLeftBehind, ENDS);
}
