//! What users and operators rely on, told as short stories through the public commands.

mod pool;

use std::sync::Arc;
use std::time::Duration;

use pool::{Pool, card, exited, node, numbered, slice, spec, stopped};
use tessera_ledger::{
    AllocationId, CardHealth, CardId, CardKind, Command, Eligibility, Ending, JobState, Mebibytes, MilliTflops,
    MovePhase, NodeId, NodeState, Observation, OnDisconnect, Outcome, PlanPart, PlannedWorker, PoolConfig, QueueAmount,
    QueueSettings, Reason, Rejection, Request, RequestId, RequestKey, Revision, StopCause,
};

fn one_card(blocks: u64) -> Pool {
    Pool::with_nodes(&[&[card(CardKind::Gpu, blocks)]])
}

fn tflops(amount: u64) -> MilliTflops {
    MilliTflops::from_tflops(amount)
}

fn rejected(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected(rejection) => rejection,
        Outcome::Planned(mut parts) => parts.remove(0).unwrap_err(),
        other => panic!("not refused: {other:?}"),
    }
}

/// L3: the same request id gives the same answer once; with another body it is refused.
#[test]
fn a_request_id_gives_the_same_answer_once() {
    let mut pool = one_card(8);
    let request = |fingerprint| Request {
        key: Some(RequestKey { id: RequestId(7), fingerprint }),
        actor: "ann".to_owned(),
        command: Command::SubmitJob { spec: Arc::new(spec()), traceparent: String::new() },
    };
    let first = pool.apply(&[request(1), request(1)]);
    assert_eq!(first[0], first[1]);
    assert_eq!(pool.apply(&[request(1)])[0], first[0]);
    assert_eq!(pool.state.job_count(JobState::Pending), 1);
    assert_eq!(rejected(pool.apply(&[request(2)]).remove(0)), Rejection::RequestIdReused);
}

/// P5b: a demand above the pool's total is refused at once, and the refusal names the total.
#[test]
fn a_demand_above_the_total_is_refused_at_once() {
    let mut pool = Pool::reference();
    let mut too_much = spec();
    too_much.virtual_card.compute = tflops(201);
    too_much.virtual_card.span = tessera_ledger::Span::Pool;
    let command = |spec| Command::SubmitJob { spec: Arc::new(spec), traceparent: String::new() };
    let refusal = rejected(pool.run(command(too_much.clone())));
    assert_eq!(refusal, Rejection::ExceedsPool { demand: tflops(201), total: tflops(200) });
    assert!(refusal.to_string().contains("200 TFLOPS"));
    too_much.virtual_card.compute = tflops(26);
    too_much.virtual_card.span = tessera_ledger::Span::Card;
    assert_eq!(
        rejected(pool.run(command(too_much.clone()))),
        Rejection::ExceedsCard { demand: tflops(26), largest: tflops(25) }
    );
    // Together the cards have as much memory, and no single one does.
    let most = pool.state.cards().map(|(_, card)| card.description.memory.0).max().expect("there are cards");
    too_much.virtual_card.compute = tflops(1);
    too_much.virtual_card.memory = Mebibytes(most + 1);
    assert_eq!(
        rejected(pool.run(command(too_much.clone()))),
        Rejection::ExceedsCardMemory { demand_mib: most + 1, largest_mib: most }
    );
    too_much.virtual_card.span = tessera_ledger::Span::Node;
    assert!(matches!(pool.run(command(too_much)), Outcome::Submitted(_)));
}

/// P5b: so is a gang of which all cards together hold too few, although they have enough compute and memory in all.
#[test]
fn a_gang_that_empty_cards_do_not_hold_is_refused_at_once() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]]);
    let mut gang = |workers, least, compute, whole_cards| {
        let mut spec = spec();
        (spec.gang, spec.gang_min) = (workers, least);
        (spec.virtual_card.compute, spec.virtual_card.whole_cards) = (tflops(compute), whole_cards);
        pool.run(Command::SubmitJob { spec: Arc::new(spec), traceparent: String::new() })
    };
    let refused = |outcome| rejected(outcome);
    assert_eq!(refused(gang(4, None, 6, false)), Rejection::ExceedsGang { gang: 4, most: 3 });
    assert_eq!(refused(gang(4, None, 1, true)), Rejection::ExceedsGang { gang: 4, most: 3 });
    for fits in [gang(4, Some(3), 6, false), gang(3, None, 6, false), gang(6, None, 5, false)] {
        assert!(matches!(fits, Outcome::Submitted(_)), "{fits:?}");
    }
}

/// A grant gives each card's slices together the memory that the job asks for on each card.
#[test]
fn a_grant_with_too_little_memory_on_a_card_is_refused() {
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
        let workers = vec![PlannedWorker { member: 0, node: NodeId(0), slices }];
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
    let worker = PlannedWorker { member: 0, node: NodeId(0), slices: vec![slice(0, 0, 0, 1)] };
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
    let worker = |member: u32| PlannedWorker { member, node: NodeId(0), slices: vec![slice(0, 0, member, 1)] };
    pool.accept(PlanPart::Grant { job, workers: vec![worker(0), worker(1)], victims: vec![] });
    pool.report_all(job, &Observation::Running);
    let grant = pool.allocation_of(job);
    let report = |rank: u32, observation| tessera_ledger::WorkerReport {
        worker: grant.owner(tessera_ledger::Rank(rank)),
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
        let worker = PlannedWorker { member: 0, node: NodeId(0), slices: vec![slice(0, 0, 0, 1)] };
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
fn what_is_on_offer_changes_under_live_grants_without_touching_them() {
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

/// A queue's maximum, and that of the queues above it, holds for every grant.
#[test]
fn a_queue_never_gets_more_than_its_maximum() {
    let mut pool = one_card(8);
    let amount = |blocks| QueueAmount { compute: tflops(blocks), memory: tessera_ledger::Mebibytes(1 << 20) };
    let queue = |name: &str, parent: &str, maximum| Command::SetQueue {
        queue: QueueSettings {
            name: name.to_owned(),
            parent: parent.to_owned(),
            guaranteed: QueueAmount::default(),
            maximum,
            weight: 1,
            packing: None,
        },
    };
    pool.run(queue("lab", "", Some(amount(2))));
    pool.run(queue("lab/vision", "lab", None));
    assert_eq!(rejected(pool.run(queue("lab", "lab/vision", None))).code(), "INVALID_FIELD");
    let jobs: Vec<_> = (0..3).map(|_| pool.submit(|spec| spec.queue = "lab/vision".to_owned())).collect();
    pool.grant(jobs[0], vec![slice(0, 0, 0, 1)]);
    pool.grant(jobs[1], vec![slice(0, 0, 1, 1)]);
    let worker = PlannedWorker { member: 0, node: NodeId(0), slices: vec![slice(0, 0, 2, 1)] };
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
    let target = PlannedWorker { member: 0, node: NodeId(1), slices: vec![slice(1, 0, 0, 4)] };
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

/// Ended jobs and answered requests are forgotten after a bounded time, and watches learn how far back they can go.
#[test]
fn the_ledger_forgets_in_bounded_time() {
    let mut pool = one_card(8);
    pool.run(Command::SetConfig { config: PoolConfig { event_limit: 3, ..PoolConfig::default() }, expected: None });
    let job = pool.submit(|_| {});
    pool.run(Command::CancelJob { job });
    pool.time += 25 * 3_600_000;
    pool.run(Command::Tick);
    assert!(pool.state.job(job).is_none());
    assert_eq!(pool.state.job_count(JobState::Cancelled), 0);
    for _ in 0..5 {
        pool.submit(|_| {});
    }
    assert!(pool.state.events_after(Revision(1)).is_none(), "too far back");
    let revisions: Vec<u64> =
        pool.state.events_after(pool.state.compacted()).unwrap().map(|entry| entry.revision.0).collect();
    let newest = pool.state.revision().0;
    assert_eq!(revisions, [newest - 2, newest - 1, newest]);
}

/// L2, L4: a grant that preempts for memory alone waits for the memory, and starts when it is there.
#[test]
fn a_grant_that_waits_for_memory_starts_when_the_memory_is_free() {
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

/// L2: a machine that was declared dead and comes back gets no grant before it has shown that it runs nothing.
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

/// L3: what is forgotten leaves a floor under which an id that is not remembered is known to be old.
#[test]
fn a_forgotten_request_leaves_a_floor() {
    // A UUID of version 7 that was made at that millisecond.
    let made_at = |ms: u64| RequestId((u128::from(ms) << 80) | (7 << 76) | (2 << 62) | 9);
    let mut pool = one_card(8);
    let config = PoolConfig { request_limit: 2, ..pool.state.config().clone() };
    pool.run(Command::SetConfig { config, expected: None });
    let mut submit = |id| {
        let request = Request {
            key: Some(RequestKey { id, fingerprint: 1 }),
            actor: "ann".to_owned(),
            command: Command::SubmitJob { spec: Arc::new(spec()), traceparent: String::new() },
        };
        pool.apply(&[request]);
        (pool.state.request_floor().0, pool.state.requests_remembered())
    };
    assert_eq!(submit(made_at(5_000)), (0, 1));
    assert_eq!(submit(made_at(3_000)), (0, 2), "a client whose clock is behind");
    assert_eq!(submit(RequestId(77)), (5_000, 2), "the first is forgotten");
    assert_eq!(submit(made_at(9_000)), (5_000, 2), "the floor never sinks");
    assert_eq!(submit(made_at(9_001)), (5_000, 2), "an id that does not say when it was made moves no floor");
    assert_eq!(submit(made_at(9_002)), (9_000, 2));
    let read =
        tessera_ledger::wire::decode_snapshot(tessera_ledger::wire::encode_snapshot(&pool.state)).expect("whole");
    assert_eq!(read.request_floor().0, 9_000, "a snapshot keeps it");
}
