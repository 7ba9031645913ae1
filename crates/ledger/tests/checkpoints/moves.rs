//! Checkpoints of jobs that are moved: what is copied ahead to where a job goes, and what its target goes on from.

use std::time::Duration;

use tessera_ledger::{
    CheckpointMode, Command, JobId, JobState, MoveId, MovePhase, NodeId, Observation, PlanPart, PlannedWorker,
    SavedPart, StopCause,
};

use super::{LAST, from, nodes, part, running, suspend};
use crate::pool::{Pool, saved, slice, stopped};

/// Moves a job of one worker to a node.
fn move_to(pool: &mut Pool, job: JobId, node: u32) -> MoveId {
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(node), slices: vec![slice(node, 0, 0, 1)] };
    pool.accept(PlanPart::Move { job, workers: vec![worker] });
    pool.state.job(job).unwrap().moving.unwrap()
}

/// A job that saves while it runs, on a block of the card of the first node.
fn saving(pool: &mut Pool, block: u32) -> JobId {
    let job = pool.submit(|spec| {
        spec.checkpoint.mode = CheckpointMode::Cooperative;
        spec.checkpoint.every = Some(Duration::from_secs(60));
    });
    pool.grant(job, vec![slice(0, 0, block, 1)]);
    pool.report_all(job, &Observation::Running);
    job
}

/// The copies that a move waits for: which sequence, and the node that is to keep it.
fn ahead(pool: &Pool, id: MoveId) -> Vec<(u64, NodeId)> {
    let movement = pool.state.move_in_progress(id).unwrap();
    let copies: Vec<_> =
        pool.state.copies_ahead(movement).map(|(key, _, onto)| (key.checkpoint.sequence, onto)).collect();
    let to_make: Vec<_> = pool.state.copies_to_make().map(|(key, _, onto)| (key.checkpoint.sequence, onto)).collect();
    assert!(copies.iter().all(|copy| to_make.contains(copy)), "agents are told of them: {to_make:?}");
    copies
}

#[test]
fn what_a_job_saved_so_far_is_copied_to_where_it_is_moved_before_it_stops() {
    for target in 1..3 {
        let mut pool = nodes(3);
        let job = saving(&mut pool, 0);
        pool.report_all(job, &saved(1, 10));
        let key = part(&pool, job, 1, 1);
        let id = move_to(&mut pool, job, target);
        assert_eq!(ahead(&pool, id), [(1, NodeId(target))]);
        pool.run(Command::NoteKept { node: NodeId(target), kept: vec![key], gone: vec![] });
        assert_eq!(ahead(&pool, id), []);
        pool.report_all(job, &saved(2, 20));
        assert_eq!(ahead(&pool, id), [], "it saves while it waits, and is not followed");
        pool.run(Command::NoteKept { node: NodeId(target), kept: vec![], gone: vec![key] });
        assert_eq!(ahead(&pool, id), [(2, NodeId(target))], "that disk was changed");
        pool.run(Command::AdvanceMove { id, from: MovePhase::Reserved, proceed: true });
        assert_eq!(ahead(&pool, id), [], "its program is stopping: only what it saves now counts");
    }
}

#[test]
fn a_move_waits_for_what_was_the_newest_when_it_began() {
    let mut pool = nodes(3);
    let job = saving(&mut pool, 0);
    let keys = [1, 2].map(|sequence| {
        pool.report_all(job, &saved(sequence, sequence * 10));
        part(&pool, job, 1, sequence)
    });
    pool.run(Command::NoteKept { node: NodeId(1), kept: vec![keys[0]], gone: vec![] });
    let id = move_to(&mut pool, job, 1);
    assert_eq!(ahead(&pool, id), [(2, NodeId(1))], "the one before is not enough");
    pool.report_all(job, &saved(3, 30));
    assert_eq!(ahead(&pool, id), [(2, NodeId(1))], "what is under way is brought to its end");
    pool.run(Command::NoteKept { node: NodeId(1), kept: vec![keys[1]], gone: vec![] });
    assert_eq!(ahead(&pool, id), [], "what was the newest will do");
}

#[test]
fn a_move_waits_for_no_copies_of_what_is_old_or_everywhere() {
    let mut pool = nodes(3);
    let job = saving(&mut pool, 0);
    let id = move_to(&mut pool, job, 1);
    assert_eq!(ahead(&pool, id), [], "nothing was saved");
    let old = pool.submit(|_| {});
    pool.grant(old, vec![slice(0, 0, 3, 1)]);
    pool.report_all(old, &Observation::Running);
    suspend(&mut pool, old, Some(5));
    pool.grant(old, vec![slice(0, 0, 3, 1)]);
    pool.report_all(old, &Observation::Running);
    let id = move_to(&mut pool, old, 2);
    assert_eq!(ahead(&pool, id), [], "it saves only when it stops");
    let shared = saving(&mut pool, 5);
    let Observation::Saved(told) = saved(1, 1) else { panic!("it is one") };
    pool.report_all(shared, &Observation::Saved(SavedPart { shared: true, ..told }));
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(2), slices: vec![slice(2, 0, 5, 1)] };
    pool.accept(PlanPart::Move { job: shared, workers: vec![worker] });
    let id = pool.state.job(shared).unwrap().moving.unwrap();
    assert_eq!(ahead(&pool, id), [], "every node can read it");
}

#[test]
fn the_target_of_a_move_goes_on_from_what_the_source_saved() {
    let mut pool = nodes(2);
    let job = running(&mut pool, 0);
    let id = move_to(&mut pool, job, 1);
    pool.run(Command::AdvanceMove { id, from: MovePhase::Reserved, proceed: true });
    pool.report_all(job, &saved(LAST, 77));
    pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
    pool.run(Command::AdvanceMove { id, from: MovePhase::Transferring, proceed: true });
    assert_eq!(from(&pool, job), Some((1, LAST)));
    pool.report_all(job, &Observation::Running);
    assert_eq!(pool.state.job(job).unwrap().state, JobState::Running);
}
