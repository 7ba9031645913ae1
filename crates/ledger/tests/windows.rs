//! Time windows, as the ledger is told of them: what is closed starts nothing, what runs is suspended and comes back by
//! itself, and what nobody has judged yet waits.

use tessera_ledger::{
    CardKind, Command, JobId, JobState, LogTime, MovePhase, NodeId, Observation, Outcome, PlanPart, PlannedWorker,
    QueueSettings, Reason, StopCause, UNKNOWN, WindowOf,
};

use crate::pool::{Pool, card, one_card, rejected, slice, stopped};

const NIGHTS: &str = "0 20 * * * for 10h";

fn queue(name: &str, parent: &str, windows: &[&str]) -> QueueSettings {
    let windows = windows.iter().map(|window| (*window).to_owned()).collect();
    QueueSettings { parent: parent.to_owned(), windows, ..QueueSettings::new(name) }
}

/// Sets until when something is closed, a time from now.
fn close(pool: &mut Pool, whose: &WindowOf, millis: u64) {
    let time = LogTime(pool.time + millis);
    let windows = vec![NIGHTS.to_owned()];
    assert_eq!(pool.run(Command::CloseUntil { whose: whose.clone(), windows, time }), Outcome::Done);
}

fn is_granted(pool: &mut Pool, job: JobId, blocks: u32) -> bool {
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 0, blocks)] };
    let part = PlanPart::Grant { job, workers: vec![worker], victims: Vec::new() };
    matches!(pool.plan(vec![part]), Outcome::Planned(parts) if parts[0].is_ok())
}

fn state_of(pool: &Pool, job: JobId) -> (JobState, &Reason) {
    let job = pool.state.job(job).unwrap();
    (job.state, &job.reason)
}

#[test]
fn a_job_waits_for_its_window_is_suspended_at_its_end_and_comes_back() {
    let mut pool = one_card(8);
    let job = pool.submit(|spec| spec.windows = vec![NIGHTS.to_owned()]);
    assert_eq!(pool.state.job(job).unwrap().closed_until, UNKNOWN);
    assert!(!is_granted(&mut pool, job, 1), "nobody has said yet whether it is open");
    let whose = WindowOf::Job(job);
    close(&mut pool, &whose, 5_000);
    assert!(!is_granted(&mut pool, job, 1));
    pool.time += 5_000;
    assert!(is_granted(&mut pool, job, 1), "its time has come, without another word");
    pool.report_all(job, &Observation::Running);

    close(&mut pool, &whose, 60_000);
    assert_eq!(state_of(&pool, job), (JobState::Suspending, &Reason::OutsideWindow));
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    assert_eq!(state_of(&pool, job).0, JobState::Suspended);
    assert!(!pool.state.job(job).unwrap().parked, "nobody has to resume it");
    assert!(!is_granted(&mut pool, job, 1));
    pool.time += 60_000;
    assert!(is_granted(&mut pool, job, 1));
}

#[test]
fn a_queue_closes_for_all_below_it_and_for_nobody_else() {
    let mut pool = one_card(8);
    for settings in [queue("night", "", &[NIGHTS]), queue("vision", "night", &[]), queue("day", "", &[])] {
        assert_eq!(pool.run(Command::SetQueue { queue: settings }), Outcome::Done);
    }
    let whose = WindowOf::Queue("night".to_owned());
    assert_eq!(pool.state.queue_closed_until("vision"), UNKNOWN);
    close(&mut pool, &whose, 0);
    let mut run = |queue: &str, start| {
        let job = pool.submit(|spec| spec.queue = queue.to_owned());
        pool.grant(job, vec![slice(0, 0, start, 1)]);
        pool.report_all(job, &Observation::Running);
        job
    };
    let (below, other) = (run("vision", 0), run("day", 1));
    close(&mut pool, &whose, 60_000);
    assert_eq!(state_of(&pool, below), (JobState::Suspending, &Reason::OutsideWindow));
    assert_eq!(state_of(&pool, other).0, JobState::Running);
    let late = pool.submit(|spec| spec.queue = "vision".to_owned());
    assert!(!is_granted(&mut pool, late, 1));

    // Windows that are changed have to be judged anew, and stop nothing until they are; without any it is open.
    let set = Command::SetQueue { queue: queue("night", "", &["0 1 * * * for 1h"]) };
    assert_eq!(pool.run(set), Outcome::Done);
    assert_eq!(pool.state.queue_closed_until("vision"), UNKNOWN);
    let stale = Command::CloseUntil { whose, windows: vec![NIGHTS.to_owned()], time: LogTime(0) };
    assert!(rejected(pool.run(stale)).to_string().contains("judge them again"), "it is of windows that are gone");
    assert_eq!(pool.run(Command::SetQueue { queue: queue("night", "", &[]) }), Outcome::Done);
    assert!(pool.state.queue_closed_until("vision") <= pool.state.time());
}

#[test]
fn a_job_that_is_being_moved_when_its_window_ends_is_suspended_where_it_computes() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 8), card(CardKind::Gpu, 8)]]);
    let job = pool.submit(|spec| spec.windows = vec![NIGHTS.to_owned()]);
    let whose = WindowOf::Job(job);
    close(&mut pool, &whose, 0);
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    let target = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 1, 0, 1)] };
    pool.accept(PlanPart::Move { job, workers: vec![target] });
    assert_eq!(state_of(&pool, job).0, JobState::Moving);
    close(&mut pool, &whose, 60_000);
    assert_eq!(state_of(&pool, job), (JobState::Suspending, &Reason::OutsideWindow));
    assert_eq!(pool.state.moves().count(), 0);
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    assert_eq!(state_of(&pool, job).0, JobState::Suspended);
}

/// The source of a move has stopped, and the target is not started yet: the job is suspended with nothing in hand.
#[test]
fn a_job_whose_move_is_half_done_when_its_window_ends_is_not_lost() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 8), card(CardKind::Gpu, 8)]]);
    let job = pool.submit(|spec| spec.windows = vec![NIGHTS.to_owned()]);
    let whose = WindowOf::Job(job);
    close(&mut pool, &whose, 0);
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    let target = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 1, 0, 1)] };
    pool.accept(PlanPart::Move { job, workers: vec![target] });
    let id = pool.state.job(job).unwrap().moving.unwrap();
    assert_eq!(pool.run(Command::AdvanceMove { id, from: MovePhase::Reserved, proceed: true }), Outcome::Done);
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    assert_eq!(pool.state.moves().next().map(|movement| movement.phase), Some(MovePhase::Transferring));
    close(&mut pool, &whose, 60_000);
    assert_eq!(state_of(&pool, job), (JobState::Suspended, &Reason::OutsideWindow));
    pool.time += 60_000;
    assert!(is_granted(&mut pool, job, 1));
}

/// Time counts as waiting when a job waits for others, and not when it waits for a window to open.
#[test]
fn waiting_for_a_window_earns_nothing() {
    let mut pool = one_card(8);
    let night = 14 * 3_600_000;
    let nightly = pool.submit(|spec| spec.windows = vec![NIGHTS.to_owned()]);
    close(&mut pool, &WindowOf::Job(nightly), night);
    pool.time += night - 10_000;
    let late = pool.submit(|_| {});
    let order: Vec<JobId> = pool.state.waiting().map(|job| job.id).collect();
    assert_eq!(order, [late, nightly]);
    pool.time += 10_000;
    assert!(is_granted(&mut pool, nightly, 1));
    let job = pool.state.job(nightly).unwrap();
    assert_eq!(job.effective_priority(), job.spec.priority);
}

#[test]
fn what_is_over_has_no_windows_any_more() {
    let mut pool = one_card(8);
    let job = pool.submit(|spec| spec.windows = vec![NIGHTS.to_owned()]);
    assert_eq!(pool.state.windowed_jobs().count(), 1);
    assert_eq!(pool.run(Command::CancelJob { job }), Outcome::Done);
    assert_eq!(pool.state.windowed_jobs().count(), 0);
    let late = Command::CloseUntil { whose: WindowOf::Job(job), windows: vec![NIGHTS.to_owned()], time: LogTime(0) };
    assert!(matches!(pool.run(late), Outcome::Rejected(_)));
}
