//! The worker of a gang that decides how it ends.

use tessera_ledger::{
    Attempt, CardKind, Command, JobId, JobState, LogTime, NodeId, Observation, PlanPart, PlannedWorker, Rank, Reason,
    StopCause, WorkerExit,
};

use crate::pool::{Pool, card, exited, slice, stopped};

/// A gang of three, each on a node of its own, that runs.
fn running() -> (Pool, JobId) {
    let gpu = card(CardKind::Gpu, 10);
    let mut pool = Pool::with_nodes(&[std::slice::from_ref(&gpu); 3]);
    let job = pool.submit(|spec| {
        spec.gang = 3;
        spec.retry.max_retries = 0;
    });
    let on = |node| PlannedWorker { virtual_card: node, node: NodeId(node), slices: vec![slice(node, 0, 0, 1)] };
    pool.accept(PlanPart::Grant { job, workers: (0..3).map(on).collect(), victims: vec![] });
    pool.report_all(job, &Observation::Running);
    (pool, job)
}

/// The report of a worker that was told to stop.
fn obeyed(code: i32) -> Observation {
    stopped(StopCause::Ordered, Some(code))
}

/// The attempt that is over, and the state that its job has now.
fn over(pool: &Pool, job: JobId) -> (Attempt, JobState) {
    let job = pool.state.job(job).expect("it is in the ledger");
    (job.history[0].clone(), job.state)
}

fn end_of(pool: &Pool, job: JobId) -> (Option<Rank>, Option<i32>, JobState) {
    let (attempt, state) = over(pool, job);
    (attempt.decisive, attempt.exit_code, state)
}

#[test]
fn the_worker_that_failed_decides_and_not_those_that_were_stopped_for_it() {
    let (mut pool, job) = running();
    pool.report(job, 2, exited(3));
    pool.report(job, 0, obeyed(143));
    pool.report(job, 1, obeyed(1));
    assert_eq!(end_of(&pool, job), (Some(Rank(2)), Some(3), JobState::Failed));
}

#[test]
fn of_two_that_fail_by_themselves_the_first_decides() {
    let (mut pool, job) = running();
    pool.report(job, 1, exited(5));
    pool.report(job, 0, exited(7));
    pool.report(job, 2, obeyed(143));
    assert_eq!(end_of(&pool, job), (Some(Rank(1)), Some(5), JobState::Failed));
}

#[test]
fn of_two_on_several_nodes_the_first_in_time_decides_whoever_reports_first() {
    let at = |code, ended| match exited(code) {
        Observation::Stopped(exit) => Observation::Stopped(WorkerExit { ended_at: LogTime(ended), ..exit }),
        other => other,
    };
    let ended = |reports: [(u32, Observation); 2]| {
        let (mut pool, job) = running();
        reports.iter().for_each(|(rank, report)| pool.report(job, *rank, report.clone()));
        pool.report(job, 2, obeyed(143));
        end_of(&pool, job)
    };
    let first = (Some(Rank(1)), Some(5), JobState::Failed);
    assert_eq!(ended([(1, at(5, 1_000)), (0, at(7, 1_001))]), first);
    assert_eq!(ended([(0, at(7, 1_001)), (1, at(5, 1_000))]), first, "its report was longer on its way");
    assert_eq!(ended([(1, at(5, 1_001)), (0, at(7, 0))]), first, "nobody knows when the other ended");
    let lower = (Some(Rank(0)), Some(7), JobState::Failed);
    assert_eq!(ended([(1, at(5, 1_000)), (0, at(7, 1_000))]), lower, "at once: the lower rank");
    assert_eq!(ended([(0, at(7, 1_000)), (1, at(5, 1_000))]), lower, "at once: the lower rank");
    let well = ended([(0, at(7, 1_001)), (1, at(0, 1_000))]);
    assert_eq!(well, (Some(Rank(0)), Some(7), JobState::Failed), "who ends well decides nothing");
}

#[test]
fn the_loss_of_a_node_decides_also_when_it_is_known_only_after_what_it_caused() {
    let (mut pool, job) = running();
    pool.report(job, 0, exited(7));
    let epoch = pool.state.node(NodeId(1)).expect("it is known").epoch;
    pool.run(Command::NodeLost { node: NodeId(1), epoch });
    pool.report(job, 2, obeyed(143));
    assert_eq!(end_of(&pool, job), (Some(Rank(1)), None, JobState::Pending));
    assert_eq!(over(&pool, job).0.reason, Some(Reason::NodeLost { node: NodeId(1) }));
}

#[test]
fn a_worker_that_could_not_be_started_decides_and_has_no_code() {
    let (mut pool, job) = running();
    pool.report(job, 2, stopped(StopCause::StartFailed, None));
    pool.report(job, 0, obeyed(143));
    pool.report(job, 1, obeyed(143));
    assert_eq!(end_of(&pool, job), (Some(Rank(2)), None, JobState::Failed));
}

#[test]
fn a_worker_that_ends_well_decides_nothing() {
    let (mut pool, job) = running();
    pool.report(job, 0, exited(0));
    pool.report(job, 2, exited(4));
    pool.report(job, 1, obeyed(143));
    assert_eq!(end_of(&pool, job), (Some(Rank(2)), Some(4), JobState::Failed));

    let (mut pool, job) = running();
    pool.report_all(job, &exited(0));
    assert_eq!(end_of(&pool, job), (None, Some(0), JobState::Completed));
}

#[test]
fn nobody_decides_who_was_told_to_end() {
    let (mut pool, job) = running();
    pool.run(Command::CancelJob { job });
    for rank in 0..3 {
        pool.report(job, rank, obeyed(143));
    }
    assert_eq!(end_of(&pool, job), (None, Some(143), JobState::Cancelled));
}
