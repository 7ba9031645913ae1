//! Behaviour of running jobs that users and operators rely on, told as short stories through the public commands.

use std::time::Duration;

use tessera_ledger::{
    AllocationId, CardKind, Command, Ending, JobState, Mebibytes, MovePhase, NodeId, Observation, Outcome, PlanPart,
    PlannedWorker, QueueAmount, QueueSettings, Reason, Rejection, StopCause,
};

use crate::pool::{Pool, card, exited, one_card, rejected, slice, stopped, tflops};

/// An allocation gives each card's slices together the memory that the job asks for on each card.
#[test]
fn an_allocation_with_too_little_memory_on_a_card_is_refused() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]]);
    let job = pool.submit(|spec| {
        spec.virtual_card.compute = tflops(12);
        spec.virtual_card.span = tessera_ledger::Span::Node;
        (spec.virtual_card.memory, spec.virtual_card.slice_memory) = (Mebibytes(100), Mebibytes(60));
    });
    let with = |least: u64| {
        let memory = |mut slice: tessera_ledger::Slice, memory| {
            slice.memory = Mebibytes(memory);
            slice
        };
        let slices = vec![
            memory(slice(0, 0, 0, 10), 60),
            memory(slice(0, 1, 0, 1), least / 2),
            memory(slice(0, 1, 1, 1), least - least / 2),
        ];
        let workers = vec![PlannedWorker { virtual_card: 0, node: NodeId(0), slices }];
        vec![PlanPart::Grant { job, workers, victims: Vec::new() }]
    };
    let refused = rejected(pool.plan(with(59)));
    assert!(matches!(refused, Rejection::GrantMismatch { .. }), "{refused}");
    assert!(matches!(pool.plan(with(60)), Outcome::Planned(parts) if parts[0].is_ok()));
}

/// A failed attempt is retried after its backoff, and the job fails when no retry is left.
#[test]
fn a_failure_is_retried_after_its_backoff() {
    let mut pool = one_card(8);
    let job = pool.submit(|spec| spec.retry.backoff = Duration::from_secs(5));
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &exited(3));
    assert_eq!(pool.state.job(job).unwrap().state, JobState::Pending);
    assert_eq!(pool.state.job(job).unwrap().reason, Reason::Backoff);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 0, 1)] };
    let early = pool.plan(vec![PlanPart::Grant { job, workers: vec![worker], victims: vec![] }]);
    assert_eq!(rejected(early).code(), "ILLEGAL_TRANSITION");
    pool.time += 5_000;
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    pool.report_all(job, &exited(4));
    let ended = pool.state.job(job).unwrap();
    assert_eq!((ended.state, ended.attempts, &ended.reason), (JobState::Failed, 2, &Reason::NonZeroExit { code: 4 }));
    assert_eq!(ended.history[0].exit_code, Some(3));
}

/// A gang stands and falls together: when one worker fails, the others are told to stop before the job goes on.
#[test]
fn a_gang_falls_together() {
    let mut pool = one_card(8);
    let job = pool.submit(|spec| spec.gang = 2);
    let worker =
        |virtual_card: u32| PlannedWorker { virtual_card, node: NodeId(0), slices: vec![slice(0, 0, virtual_card, 1)] };
    pool.accept(PlanPart::Grant { job, workers: vec![worker(0), worker(1)], victims: vec![] });
    pool.report_all(job, &Observation::Running);
    let allocation = pool.allocation_of(job);
    let report = |rank: u32, observation| tessera_ledger::WorkerReport {
        worker: allocation.owner(tessera_ledger::Rank(rank)),
        observation,
    };
    pool.run(Command::ReportWorkers { node: NodeId(0), reports: vec![report(1, exited(9))] });
    let state = pool.state.job(job).unwrap();
    assert_eq!((state.state, state.ending), (JobState::Completing, Some(Ending::Retry)));
    assert_eq!(pool.state.block_counts().draining, 1);
    pool.run(Command::ReportWorkers { node: NodeId(0), reports: vec![report(0, stopped(StopCause::Ordered, None))] });
    assert_eq!(pool.state.job(job).unwrap().state, JobState::Pending);
    assert_eq!(pool.state.block_counts().free, 8);
}

/// P5d, L2, L4, L5: the victim is told to stop, the beneficiary starts only when it has, and the victim waits
/// to resume.
#[test]
fn preemption_hands_blocks_over_only_when_the_victim_has_stopped() {
    let mut pool = one_card(8);
    let low = pool.submit(|spec| {
        spec.priority = 10;
        spec.virtual_card.compute = tflops(6);
    });
    pool.grant(low, vec![slice(0, 0, 0, 6)]);
    pool.report_all(low, &Observation::Running);
    let high = pool.submit(|spec| {
        spec.priority = 90;
        spec.virtual_card.compute = tflops(8);
    });
    pool.grant_over(high, vec![slice(0, 0, 0, 8)], vec![low]);
    assert_eq!(pool.state.job(low).unwrap().state, JobState::Suspending);
    assert_eq!(pool.state.job(high).unwrap().reason, Reason::WaitingForPreempted);
    let counts = pool.state.block_counts();
    assert_eq!((counts.draining, counts.held), (6, 2));
    pool.report_all(low, &stopped(StopCause::Ordered, None));
    assert_eq!(pool.state.block_counts().held, 8);
    assert_eq!(pool.state.job(high).unwrap().reason, Reason::Granted);
    let suspended = pool.state.job(low).unwrap();
    assert_eq!((suspended.state, suspended.is_waiting()), (JobState::Suspended, true));
    assert_eq!(suspended.reason, Reason::Preempted { beneficiary: high });
    pool.report_all(high, &Observation::Running);
    pool.report_all(high, &exited(0));
    pool.grant(low, vec![slice(0, 0, 0, 6)]);
    assert_eq!(pool.state.job(low).unwrap().state, JobState::Starting);
}

/// L4: never an equal priority, never what is not preemptible, and only so often in an hour.
#[test]
fn preemption_is_refused_where_the_law_says_so() {
    let mut pool = one_card(4);
    let victim = pool.submit(|spec| spec.virtual_card.compute = tflops(4));
    pool.grant(victim, vec![slice(0, 0, 0, 4)]);
    let attempt = |pool: &mut Pool, priority| {
        let job = pool.submit(|spec| spec.priority = priority);
        let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 0, 1)] };
        let outcome = pool.plan(vec![PlanPart::Grant { job, workers: vec![worker], victims: vec![victim] }]);
        (job, outcome)
    };
    assert_eq!(rejected(attempt(&mut pool, 50).1).code(), "NOT_PREEMPTIBLE");
    for round in 0..4 {
        let (job, outcome) = attempt(&mut pool, 60);
        assert!(matches!(&outcome, Outcome::Planned(parts) if parts[0].is_ok()), "round {round}: {outcome:?}");
        pool.report_all(victim, &stopped(StopCause::Ordered, None));
        pool.report_all(job, &exited(0));
        pool.grant(victim, vec![slice(0, 0, 0, 4)]);
    }
    assert!(rejected(attempt(&mut pool, 60).1).to_string().contains("too often"));
    pool.time += 3_600_000;
    assert!(matches!(attempt(&mut pool, 60).1, Outcome::Planned(parts) if parts[0].is_ok()));
}

/// People's wishes: hold, release, suspend, resume, cancel.
#[test]
fn people_hold_suspend_and_resume() {
    let mut pool = one_card(8);
    let job = pool.submit(|spec| spec.held = true);
    assert!(!pool.state.job(job).unwrap().is_waiting());
    pool.run(Command::ReleaseJob { job });
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    assert_eq!(rejected(pool.run(Command::HoldJob { job })).code(), "ILLEGAL_TRANSITION");
    pool.report_all(job, &Observation::Running);
    pool.run(Command::SuspendJob { job });
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    assert!(!pool.state.job(job).unwrap().is_waiting(), "a person suspended it: it does not resume by itself");
    pool.run(Command::ResumeJob { job });
    assert!(pool.state.job(job).unwrap().is_waiting());
    pool.run(Command::CancelJob { job });
    assert_eq!(pool.state.job(job).unwrap().state, JobState::Cancelled);
    assert_eq!(rejected(pool.run(Command::CancelJob { job })).code(), "ILLEGAL_TRANSITION");
}

/// A job that its agent does not stop at its time limit ends as one that its agent stops there.
#[test]
fn a_job_whose_agent_ignores_its_limit_ends_as_timed_out() {
    let running = || {
        let mut pool = one_card(8);
        let job = pool.submit(|spec| spec.retry.max_retries = 3);
        pool.grant(job, vec![slice(0, 0, 0, 2)]);
        let allocation = pool.allocation_of(job).id;
        assert_eq!(
            rejected(pool.run(Command::ExpireJob { job, allocation })).code(),
            "ILLEGAL_TRANSITION",
            "nothing of it runs yet"
        );
        pool.report_all(job, &Observation::Running);
        (pool, job, allocation)
    };
    let (mut by_agent, job, _) = running();
    by_agent.report_all(job, &stopped(StopCause::TimeLimit, None));
    let (mut by_leader, job, allocation) = running();
    let other = AllocationId(allocation.0 + 1);
    let stale = by_leader.run(Command::ExpireJob { job, allocation: other });
    assert_eq!(rejected(stale).code(), "ILLEGAL_TRANSITION", "another attempt has its own time");
    assert_eq!(by_leader.run(Command::ExpireJob { job, allocation }), Outcome::Done);
    assert_eq!(
        by_leader.state.job(job).unwrap().state,
        JobState::Completing,
        "its blocks come back when it has stopped"
    );
    assert_eq!(by_leader.state.block_counts().draining, 2);
    by_leader.report_all(job, &stopped(StopCause::Ordered, None));
    for pool in [by_agent, by_leader] {
        let ended = pool.state.job(job).unwrap();
        assert_eq!((ended.state, &ended.reason), (JobState::Timeout, &Reason::TimeLimit));
        assert_eq!(ended.history.last().and_then(|attempt| attempt.reason.clone()), Some(Reason::TimeLimit));
        assert_eq!(pool.state.block_counts().free, 8);
    }
}

/// A queue's maximum, and that of the queues above it, holds for every allocation.
#[test]
fn a_queue_never_gets_more_than_its_maximum() {
    let mut pool = one_card(8);
    let amount = |blocks| QueueAmount { compute: tflops(blocks), memory: tessera_ledger::Mebibytes(1 << 20) };
    let queue = |name: &str, parent: &str, maximum| Command::SetQueue {
        queue: QueueSettings { parent: parent.to_owned(), maximum, ..QueueSettings::new(name) },
    };
    pool.run(queue("lab", "", Some(amount(2))));
    pool.run(queue("lab/vision", "lab", None));
    assert_eq!(rejected(pool.run(queue("lab", "lab/vision", None))).code(), "INVALID_FIELD");
    let jobs: Vec<_> = (0..3).map(|_| pool.submit(|spec| spec.queue = "lab/vision".to_owned())).collect();
    pool.grant(jobs[0], vec![slice(0, 0, 0, 1)]);
    pool.grant(jobs[1], vec![slice(0, 0, 1, 1)]);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 2, 1)] };
    let third = pool.plan(vec![PlanPart::Grant { job: jobs[2], workers: vec![worker], victims: vec![] }]);
    assert_eq!(rejected(third), Rejection::QueueLimit { queue: "lab".to_owned() });
    assert_eq!(rejected(pool.run(Command::RemoveQueue { name: "lab/vision".to_owned() })).code(), "QUEUE_BUSY");
}

/// A move: reserve, suspend, transfer, resume, release; each step is refused when it comes twice.
#[test]
fn a_move_goes_step_by_step() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 4)], &[card(CardKind::Gpu, 4)]]);
    let job = pool.submit(|spec| spec.virtual_card.compute = tflops(4));
    pool.grant(job, vec![slice(0, 0, 0, 4)]);
    pool.report_all(job, &Observation::Running);
    let source = pool.allocation_of(job);
    let target = PlannedWorker { virtual_card: 0, node: NodeId(1), slices: vec![slice(1, 0, 0, 4)] };
    pool.accept(PlanPart::Move { job, workers: vec![target] });
    let id = pool.state.moves().next().unwrap().id;
    let advance = |from| Command::AdvanceMove { id, from, proceed: true };
    assert_eq!(pool.run(advance(MovePhase::Reserved)), Outcome::Done);
    assert_eq!(rejected(pool.run(advance(MovePhase::Reserved))).code(), "MOVE_STALE");
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    assert_eq!(pool.state.move_in_progress(id).unwrap().phase, MovePhase::Transferring);
    assert_eq!(pool.run(advance(MovePhase::Transferring)), Outcome::Done);
    assert_ne!(pool.allocation_of(job).id, source.id);
    pool.report_all(job, &Observation::Running);
    let moved = pool.state.job(job).unwrap();
    assert_eq!((moved.state, moved.moving, moved.attempts, moved.retries), (JobState::Running, None, 2, 0));
    assert_eq!(moved.history[0].reason, Some(Reason::Moving));
    assert_eq!((&moved.history[0].nodes[..], &moved.history[1].nodes[..]), (&[NodeId(0)][..], &[NodeId(1)][..]));
    assert_eq!(pool.state.block_counts().free, 4);
}

/// L2, L4: an allocation that preempts for memory alone waits for the memory, and starts when it is there.
#[test]
fn an_allocation_that_waits_for_memory_starts_when_the_memory_is_free() {
    let mut pool = one_card(10);
    let hold = |pool: &mut Pool, start, blocks, gib: u64, priority| {
        let job = pool.submit(|spec| {
            spec.priority = priority;
            spec.virtual_card.compute = tflops(u64::from(blocks));
            spec.virtual_card.memory = tessera_ledger::Mebibytes(gib * 1024);
        });
        let mut part = slice(0, 0, start, blocks);
        part.memory = tessera_ledger::Mebibytes(gib * 1024);
        (job, part)
    };
    // 64 GiB in all: two small jobs hold 30 GiB each, on blocks that the third one does not ask for.
    let (first, part) = hold(&mut pool, 6, 2, 30, 10);
    pool.grant(first, vec![part]);
    let (second, part) = hold(&mut pool, 8, 2, 30, 10);
    pool.grant(second, vec![part]);
    pool.report_all(first, &Observation::Running);
    pool.report_all(second, &Observation::Running);
    let (high, part) = hold(&mut pool, 0, 4, 50, 90);
    pool.grant_over(high, vec![part], vec![first, second]);
    pool.report_all(first, &stopped(StopCause::Ordered, None));
    assert_eq!(pool.state.job(high).unwrap().reason, Reason::WaitingForPreempted, "30 of 64 GiB are still held");
    pool.report_all(second, &stopped(StopCause::Ordered, None));
    assert_eq!(pool.state.job(high).unwrap().reason, Reason::Granted);
    pool.report_all(high, &Observation::Running);
    assert_eq!(pool.state.job(high).unwrap().state, JobState::Running);
}
