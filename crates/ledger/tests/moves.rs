//! Moves, told as short stories: what becomes of a job when something goes wrong on the way from card to card.

use std::time::Duration;

use tessera_ledger::{
    Allocation, AllocationId, CardKind, Command, JobId, JobSpec, JobState, MilliTflops, MoveId, MovePhase, NodeId,
    Observation, OnDisconnect, Outcome, PlanPart, PlannedWorker, QueueAmount, QueueSettings, Reason, Rejection,
    Request, RequestId, RequestKey, StopCause, WorkerReport,
};

use crate::pool::{Pool, card, exited, slice, stopped};

/// A job that runs on node 0 and has a place reserved on node 1; a third node is free.
struct Stage {
    pool: Pool,
    job: JobId,
    id: MoveId,
    target: AllocationId,
}

impl Stage {
    fn new(change: impl FnOnce(&mut JobSpec)) -> Self {
        let cards = [card(CardKind::Gpu, 4)];
        let mut pool = Pool::with_nodes(&[&cards[..]; 3]);
        let job = pool.submit(|spec| {
            spec.virtual_card.compute = MilliTflops::from_tflops(4);
            change(spec);
        });
        pool.grant(job, vec![slice(0, 0, 0, 4)]);
        pool.report_all(job, &Observation::Running);
        pool.accept(PlanPart::Move { job, workers: to(1) });
        let movement = pool.state.moves().next().expect("it moves").clone();
        Self { pool, job, id: movement.id, target: movement.target }
    }

    fn advance(&mut self, from: MovePhase, proceed: bool) -> Outcome {
        self.pool.run(Command::AdvanceMove { id: self.id, from, proceed })
    }

    /// Takes the move to a step.
    fn at(mut self, phase: MovePhase) -> Self {
        if phase > MovePhase::Reserved {
            assert_eq!(self.advance(MovePhase::Reserved, true), Outcome::Done);
        }
        if phase > MovePhase::Suspending {
            self.pool.report_all(self.job, &stopped(StopCause::Ordered, Some(0)));
        }
        if phase > MovePhase::Transferring {
            assert_eq!(self.advance(MovePhase::Transferring, true), Outcome::Done);
        }
        assert_eq!(self.phase(), Some(phase));
        self
    }

    fn phase(&self) -> Option<MovePhase> {
        self.pool.state.move_in_progress(self.id).map(|movement| movement.phase)
    }

    fn lose(&mut self, node: u32) {
        let node = NodeId(node);
        let epoch = self.pool.state.node(node).expect("it is registered").epoch;
        assert_eq!(self.pool.run(Command::NodeLost { node, epoch }), Outcome::Done);
    }

    fn standing(&self) -> (JobState, &'static str) {
        let job = self.pool.state.job(self.job).expect("it is in the ledger");
        (job.state, job.reason.code())
    }

    fn free(&self) -> u64 {
        self.pool.state.block_counts().free
    }

    fn report(&mut self, allocation: &Allocation, observation: Observation) {
        let worker = &allocation.workers[0];
        let report = WorkerReport { worker: allocation.owner(worker.rank), observation };
        self.pool.run(Command::ReportWorkers { node: worker.node, reports: vec![report] });
    }
}

fn to(node: u32) -> Vec<PlannedWorker> {
    vec![PlannedWorker { virtual_card: 0, node: NodeId(node), slices: vec![slice(node, 0, 0, 4)] }]
}

/// Before the source is touched the loss of the target costs nothing; afterwards the job is suspended and resumes by
/// itself; once it was started there it is an attempt like any other.
#[test]
fn a_lost_target_leaves_a_job_that_can_go_on() {
    let mut early = Stage::new(|_| {}).at(MovePhase::Reserved);
    early.lose(1);
    assert_eq!(early.standing(), (JobState::Running, "MOVE_FAILED"));
    assert_eq!((early.phase(), early.pool.state.job(early.job).unwrap().attempts), (None, 1));

    let mut stopping = Stage::new(|_| {}).at(MovePhase::Suspending);
    stopping.lose(1);
    assert_eq!(stopping.standing(), (JobState::Suspending, "MOVE_FAILED"));
    stopping.pool.report_all(stopping.job, &stopped(StopCause::Ordered, Some(0)));
    assert_eq!(stopping.standing(), (JobState::Suspended, "MOVE_FAILED"));

    let mut between = Stage::new(|_| {}).at(MovePhase::Transferring);
    between.lose(1);
    assert_eq!(between.standing(), (JobState::Suspended, "MOVE_FAILED"));

    for stage in [&mut stopping, &mut between] {
        let waits = stage.pool.state.waiting().any(|job| job.id == stage.job);
        assert!(waits, "it resumes by itself");
        stage.pool.accept(PlanPart::Grant { job: stage.job, workers: to(2), victims: vec![] });
        assert_eq!(stage.pool.state.job(stage.job).unwrap().retries, 0);
    }

    let mut late = Stage::new(|_| {}).at(MovePhase::Resuming);
    late.lose(1);
    assert_eq!(late.standing(), (JobState::Pending, "NODE_LOST"));
    assert_eq!(late.pool.state.job(late.job).unwrap().retries, 0);
}

/// Whoever suspends a job need not know that it is being moved: it keeps neither place, and comes back when it is told
/// to.
#[test]
fn a_job_is_suspended_at_each_step_of_a_move() {
    for phase in [MovePhase::Reserved, MovePhase::Suspending, MovePhase::Transferring, MovePhase::Resuming] {
        let mut stage = Stage::new(|_| {}).at(phase);
        assert_eq!(stage.pool.run(Command::SuspendJob { job: stage.job }), Outcome::Done);
        if phase != MovePhase::Transferring {
            assert_eq!(stage.standing(), (JobState::Suspending, "SUSPENDED_BY_USER"));
            stage.pool.report_all(stage.job, &stopped(StopCause::Ordered, Some(0)));
        }
        assert_eq!(stage.standing(), (JobState::Suspended, "SUSPENDED_BY_USER"));
        assert_eq!((stage.phase(), stage.free()), (None, 12), "{phase:?}");
        assert!(!stage.pool.state.waiting().any(|job| job.id == stage.job), "nobody resumes it");
        assert_eq!(stage.pool.run(Command::ResumeJob { job: stage.job }), Outcome::Done);
        stage.pool.accept(PlanPart::Grant { job: stage.job, workers: to(2), victims: vec![] });
    }
}

/// A source that is lost while it stops has stopped; one that is lost before takes the move with it.
#[test]
fn a_lost_source_is_tried_again_or_goes_on_at_its_target() {
    let mut before = Stage::new(|_| {}).at(MovePhase::Reserved);
    before.lose(0);
    assert_eq!(before.standing(), (JobState::Pending, "NODE_LOST"));
    assert_eq!((before.phase(), before.free()), (None, 12));

    let mut stopping = Stage::new(|_| {}).at(MovePhase::Suspending);
    stopping.lose(0);
    assert_eq!(stopping.phase(), Some(MovePhase::Transferring));
}

/// A source that ends by itself while it is told to stop is over, well or at its time limit, and frees both places.
#[test]
fn a_source_that_ends_meanwhile_needs_no_target() {
    for phase in [MovePhase::Reserved, MovePhase::Suspending] {
        let mut stage = Stage::new(|_| {}).at(phase);
        stage.pool.report_all(stage.job, &exited(0));
        assert_eq!(stage.standing(), (JobState::Completed, "EXITED"));
        assert_eq!((stage.phase(), stage.free()), (None, 12));
    }
    let mut limited = Stage::new(|spec| spec.time_limit = Some(Duration::from_secs(5))).at(MovePhase::Suspending);
    limited.pool.report_all(limited.job, &stopped(StopCause::TimeLimit, None));
    assert_eq!(limited.standing(), (JobState::Timeout, "TIME_LIMIT"));
    assert_eq!((limited.phase(), limited.free()), (None, 12));

    let mut failed = Stage::new(|_| {}).at(MovePhase::Reserved);
    failed.pool.report_all(failed.job, &exited(7));
    assert_eq!(failed.standing(), (JobState::Pending, "BACKOFF"), "it was not told to stop: that is a failure");
    assert_eq!((failed.phase(), failed.free()), (None, 12));
}

/// A stop that cannot be confirmed keeps the source's blocks (L2) and gives the target's back.
#[test]
fn a_source_that_cannot_be_stopped_does_not_keep_the_target() {
    let mut stage = Stage::new(|spec| spec.on_disconnect = OnDisconnect::Keep).at(MovePhase::Suspending);
    stage.pool.report_all(stage.job, &Observation::Unconfirmed { message: "still there".to_owned() });
    assert_eq!(stage.phase(), Some(MovePhase::Suspending));
    assert_eq!(stage.advance(MovePhase::Suspending, false), Outcome::Done);
    assert_eq!(stage.standing(), (JobState::Suspending, "MOVE_FAILED"));
    assert_eq!(stage.free(), 8);
    stage.pool.report_all(stage.job, &stopped(StopCause::Ordered, None));
    assert_eq!(stage.standing(), (JobState::Suspended, "MOVE_FAILED"));
    assert_eq!(stage.free(), 12);
}

/// That the new place cannot start the program is not the job's fault: no retry is used up, it did run where it was.
#[test]
fn a_target_that_cannot_start_costs_no_retry() {
    let mut stage = Stage::new(|spec| spec.retry.max_retries = 0).at(MovePhase::Resuming);
    stage.pool.report_all(stage.job, &stopped(StopCause::StartFailed, None));
    assert_eq!(stage.standing(), (JobState::Pending, "START_FAILED"));
    assert_eq!(stage.free(), 12);
}

/// L2: what the target says before it was told to start changes nothing, nor does what the source says after it
/// has stopped.
#[test]
fn only_the_place_in_force_is_heard() {
    let mut stage = Stage::new(|_| {}).at(MovePhase::Suspending);
    let (source, target) =
        (stage.pool.allocation_of(stage.job), stage.pool.state.allocation(stage.target).unwrap().clone());
    stage.report(&target, Observation::Running);
    assert_eq!((stage.phase(), stage.standing().0), (Some(MovePhase::Suspending), JobState::Moving));
    let mut stage = stage.at_resuming();
    stage.report(&source, exited(1));
    assert_eq!((stage.phase(), stage.standing().0), (Some(MovePhase::Resuming), JobState::Moving));
    let target = stage.pool.state.allocation(stage.target).unwrap().clone();
    stage.report(&target, Observation::Running);
    assert_eq!(stage.standing(), (JobState::Running, "STARTED"));
    assert_eq!((stage.phase(), stage.free()), (None, 8));
}

impl Stage {
    fn at_resuming(mut self) -> Self {
        self.pool.report_all(self.job, &stopped(StopCause::Ordered, Some(0)));
        assert_eq!(self.advance(MovePhase::Transferring, true), Outcome::Done);
        self
    }
}

/// A cancelled job leaves both places, whatever the step.
#[test]
fn a_cancelled_move_leaves_both_places() {
    for phase in [MovePhase::Reserved, MovePhase::Suspending, MovePhase::Transferring, MovePhase::Resuming] {
        let mut stage = Stage::new(|_| {}).at(phase);
        stage.pool.run(Command::CancelJob { job: stage.job });
        if stage.pool.state.job(stage.job).unwrap().allocation.is_some() {
            stage.pool.report_all(stage.job, &stopped(StopCause::Ordered, None));
        }
        assert_eq!(stage.standing(), (JobState::Cancelled, "CANCELLED"), "{phase:?}");
        assert_eq!((stage.phase(), stage.free()), (None, 12), "{phase:?}");
    }
}

/// While it moves a job holds both places: a queue that has no room for that keeps its job where it is.
#[test]
fn a_move_does_not_take_a_queue_above_its_maximum() {
    let mut stage = Stage::new(|_| {});
    stage.advance(MovePhase::Reserved, false);
    let amount =
        |tflops| QueueAmount { compute: MilliTflops::from_tflops(tflops), memory: tessera_ledger::Mebibytes(1 << 20) };
    let queue = |maximum| Command::SetQueue {
        queue: QueueSettings { maximum: Some(maximum), ..QueueSettings::new("default") },
    };
    stage.pool.run(queue(amount(7)));
    let part = PlanPart::Move { job: stage.job, workers: to(1) };
    match stage.pool.plan(vec![part.clone()]) {
        Outcome::Planned(parts) => {
            assert_eq!(parts, [Err(Rejection::QueueLimit { queue: "default".to_owned() })]);
        }
        other => panic!("{other:?}"),
    }
    stage.pool.run(queue(amount(8)));
    stage.pool.accept(part);
}

/// L3: a move that was refused may be asked for again under the same request id; one that was begun is begun once.
#[test]
fn a_refused_move_is_not_remembered() {
    let mut stage = Stage::new(|_| {}).at(MovePhase::Suspending);
    let plan = |stage: &Stage| tessera_ledger::Plan {
        revision: stage.pool.state.revision(),
        parts: vec![PlanPart::Move { job: stage.job, workers: to(2) }],
    };
    let request = |plan| Request {
        key: Some(RequestKey { id: RequestId(5), fingerprint: 1 }),
        actor: "ada".to_owned(),
        command: Command::CommitPlan { plan },
    };
    let first = stage.pool.apply(&[request(plan(&stage))]);
    assert!(matches!(&first[0], Outcome::Planned(parts) if parts[0].is_err()), "it moves already: {first:?}");
    assert!(stage.pool.state.answered(RequestId(5)).is_none());
    let mut stage = stage.at_resuming();
    stage.pool.report_all(stage.job, &Observation::Running);
    let second = stage.pool.apply(&[request(plan(&stage))]);
    assert!(matches!(&second[0], Outcome::Planned(parts) if parts[0].is_ok()), "{second:?}");
    assert_eq!(stage.pool.apply(&[request(plan(&stage))]), [Outcome::Done]);
    assert_eq!(stage.pool.state.job(stage.job).unwrap().reason, Reason::Moving);
}
