//! Idle reclaim, as the ledger is told of it: each step follows when it is due and not before, for the attempt that was
//! measured and no other, and what was taken back is had again when the job is busy.

use std::time::Duration;

use tessera_ledger::{
    Command, IdlePolicy, IdleStep, JobId, JobSpec, JobState, KEEP_LABEL, LogTime, Observation, Outcome, PlanPart,
    PlannedWorker, QueueSettings, Reason, StopCause,
};

use crate::pool::{Pool, one_card, rejected, slice, stopped};
use crate::samples;

const MINUTE: u64 = 60_000;

fn set_idle(pool: &mut Pool, name: &str, parent: &str, idle: Option<IdlePolicy>) -> Outcome {
    let queue = QueueSettings { parent: parent.to_owned(), idle, ..QueueSettings::new(name) };
    pool.run(Command::SetQueue { queue })
}

/// A pool with a job that runs on four blocks, in a queue with the ladder of the samples: notified after 10 minutes,
/// preemptible after 20, suspended after an hour, released after ten.
fn with_a_job(change: impl FnOnce(&mut JobSpec)) -> (Pool, JobId) {
    let mut pool = one_card(8);
    assert_eq!(set_idle(&mut pool, "default", "", Some(samples::idle())), Outcome::Done);
    let job = pool.submit(change);
    pool.grant(job, vec![slice(0, 0, 0, 4)]);
    pool.report_all(job, &Observation::Running);
    (pool, job)
}

fn note(pool: &mut Pool, job: JobId, since: u64, step: Option<IdleStep>) -> Outcome {
    let attempt = pool.state.job(job).unwrap().attempts;
    pool.run(Command::NoteIdle { job, attempt, since: LogTime(since), step })
}

fn stands(pool: &Pool, job: JobId) -> (JobState, &Reason, Option<IdleStep>) {
    let job = pool.state.job(job).unwrap();
    (job.state, &job.reason, job.idle_step())
}

fn preempts(pool: &mut Pool, victim: JobId) -> bool {
    let other = pool.submit(|spec| spec.priority = 90);
    let worker = PlannedWorker { virtual_card: 0, node: tessera_ledger::NodeId(0), slices: vec![slice(0, 0, 0, 4)] };
    let part = PlanPart::Grant { job: other, workers: vec![worker], victims: vec![victim] };
    matches!(pool.plan(vec![part]), Outcome::Planned(parts) if parts[0].is_ok())
}

#[test]
fn each_step_is_taken_when_it_is_due_and_comes_to_an_end_by_itself() {
    let (mut pool, job) = with_a_job(|_| {});
    let since = pool.time;
    pool.time += 9 * MINUTE;
    assert!(rejected(note(&mut pool, job, since, Some(IdleStep::Noticed))).to_string().contains("idle"));
    pool.time += MINUTE;
    assert_eq!(note(&mut pool, job, since, Some(IdleStep::Noticed)), Outcome::Done);
    assert_eq!(stands(&pool, job), (JobState::Running, &Reason::IdleNoticed, Some(IdleStep::Noticed)));
    rejected(note(&mut pool, job, since, Some(IdleStep::Noticed)));
    pool.time += 50 * MINUTE;
    // A leader that has seen less of it counts from there: it is not due for that one.
    rejected(note(&mut pool, job, since + MINUTE, Some(IdleStep::Suspended)));
    assert_eq!(note(&mut pool, job, since, Some(IdleStep::Suspended)), Outcome::Done);
    assert_eq!(stands(&pool, job).0, JobState::Suspending);
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    assert_eq!(stands(&pool, job), (JobState::Suspended, &Reason::IdleSuspended, Some(IdleStep::Suspended)));
    assert_eq!(pool.state.waiting().count(), 0, "it comes back when it is told to, and not before");
    pool.run(Command::HoldJob { job });
    pool.run(Command::ReleaseJob { job });
    assert_eq!(stands(&pool, job).1, &Reason::IdleSuspended);

    rejected(note(&mut pool, job, since, Some(IdleStep::Released)));
    pool.time = since + 600 * MINUTE;
    assert_eq!(note(&mut pool, job, since, Some(IdleStep::Released)), Outcome::Done);
    assert_eq!(stands(&pool, job), (JobState::Cancelled, &Reason::IdleReleased, Some(IdleStep::Released)));
    assert_eq!(pool.state.idle_jobs().count(), 0);
}

#[test]
fn a_job_that_is_resumed_or_kept_back_by_a_person_is_not_released() {
    for resume in [true, false] {
        let (mut pool, job) = with_a_job(|_| {});
        let since = pool.time;
        pool.time += 60 * MINUTE;
        note(&mut pool, job, since, Some(IdleStep::Suspended));
        pool.report_all(job, &stopped(StopCause::Ordered, None));
        pool.run(if resume { Command::ResumeJob { job } } else { Command::SuspendJob { job } });
        pool.time = since + 600 * MINUTE;
        rejected(note(&mut pool, job, since, Some(IdleStep::Released)));
        assert_eq!(stands(&pool, job).2, None);
        assert_eq!(pool.state.waiting().count(), usize::from(resume));
        if resume {
            pool.grant(job, vec![slice(0, 0, 0, 4)]);
            pool.report_all(job, &Observation::Running);
            let late = Command::NoteIdle { job, attempt: 1, since: LogTime(since), step: Some(IdleStep::Noticed) };
            rejected(pool.run(late));
            rejected(note(&mut pool, job, since, Some(IdleStep::Noticed)));
        }
    }
}

/// The firm amount of a queue is what recalls and guarantees are counted by; the laws compare it with the allocations.
#[test]
fn one_that_protected_itself_gives_way_until_it_is_busy_again() {
    let (mut pool, job) = with_a_job(|spec| {
        spec.preemptible = false;
        spec.min_runtime = Duration::from_secs(100_000);
    });
    let firm = |pool: &Pool| pool.state.queue("default").unwrap().firm.compute.0;
    let (since, held) = (pool.time, firm(&pool));
    assert!(held > 0);
    pool.time += 20 * MINUTE;
    assert!(!preempts(&mut pool, job));
    assert_eq!(note(&mut pool, job, since, Some(IdleStep::Preemptible)), Outcome::Done);
    assert_eq!((stands(&pool, job).1, firm(&pool)), (&Reason::IdlePreemptible, 0));
    assert_eq!(note(&mut pool, job, 0, None), Outcome::Done);
    assert_eq!((stands(&pool, job), firm(&pool)), ((JobState::Running, &Reason::Started, None), held));
    assert!(!preempts(&mut pool, job));
    rejected(note(&mut pool, job, 0, None));

    assert_eq!(note(&mut pool, job, since, Some(IdleStep::Preemptible)), Outcome::Done);
    assert!(preempts(&mut pool, job));
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    pool.grant(job, vec![slice(0, 0, 4, 4)]);
    assert_eq!((stands(&pool, job).2, firm(&pool)), (None, held), "its new attempt is not idle yet");
}

#[test]
fn a_ladder_counts_for_the_queues_below_and_for_no_job_that_is_to_be_left_alone() {
    let mut pool = one_card(8);
    set_idle(&mut pool, "team", "", Some(samples::idle()));
    set_idle(&mut pool, "vision", "team", None);
    let (key, value) = KEEP_LABEL;
    let kept = pool.submit(|spec| {
        spec.queue = "vision".to_owned();
        spec.labels.insert(key.to_owned(), value.to_owned());
    });
    let other = pool.submit(|spec| spec.queue = "vision".to_owned());
    let outside = pool.submit(|_| {});
    for (place, job) in [kept, other, outside].into_iter().enumerate() {
        pool.grant(job, vec![slice(0, 0, u32::try_from(place).unwrap() * 2, 2)]);
        pool.report_all(job, &Observation::Running);
    }
    let since = pool.time;
    pool.time += 60 * MINUTE;
    for job in [kept, outside] {
        rejected(note(&mut pool, job, since, Some(IdleStep::Suspended)));
    }
    assert_eq!(note(&mut pool, other, since, Some(IdleStep::Noticed)), Outcome::Done);
    // A ladder without the step, and none at all: what was noticed can still be taken back.
    set_idle(&mut pool, "team", "", None);
    rejected(note(&mut pool, other, since, Some(IdleStep::Suspended)));
    assert_eq!(note(&mut pool, other, 0, None), Outcome::Done);
}

#[test]
fn a_ladder_that_nobody_could_have_meant_is_refused() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let none =
        IdlePolicy { below: samples::idle().below, notify_after: None, preemptible_after: None, ..samples::idle() };
    let none = IdlePolicy { suspend_after: None, release_after: None, ..none };
    let per = tessera_ledger::Percent;
    for (policy, field) in [
        (IdlePolicy { below: per(0), ..samples::idle() }, "below_percent"),
        (IdlePolicy { below: per(51), ..samples::idle() }, "below_percent"),
        (none, "notify_after"),
        (IdlePolicy { notify_after: seconds(0), ..none }, "notify_after"),
        (IdlePolicy { suspend_after: seconds(1), ..samples::idle() }, "suspend_after"),
        (IdlePolicy { release_after: seconds(9), ..none }, "suspend_after"),
    ] {
        let refused = rejected(set_idle(&mut one_card(1), "team", "", Some(policy))).to_string();
        assert!(refused.contains(&format!("queue.idle.{field}")), "{refused}");
    }
}
