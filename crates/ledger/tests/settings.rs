//! Settings that the ledger goes by, each set in several ways to see what it does. Those that need a stage of their own
//! are tested beside their subject (tests/settings.txt at the root names the test of each).

use std::time::Duration;

use tessera_ledger::{
    Command, JobId, JobState, Mebibytes, NodeId, Outcome, PlanPart, PlannedWorker, PoolConfig, QueueAmount,
    QueueSettings, Rejection, Request, RequestId, RequestKey,
};
use tessera_testkit::submission;

use crate::pool::{Pool, exited, one_card, rejected, slice, spec, tflops};

fn pool_with(change: impl FnOnce(&mut PoolConfig)) -> Pool {
    let mut pool = one_card(8);
    let mut config = PoolConfig::default();
    change(&mut config);
    assert_eq!(pool.run(Command::SetConfig { config, expected: None }), Outcome::Done);
    pool
}

fn end(pool: &mut Pool) -> JobId {
    let job = pool.submit(|_| {});
    assert_eq!(pool.run(Command::CancelJob { job }), Outcome::Done);
    job
}

fn pass(pool: &mut Pool, time: Duration) {
    pool.time += u64::try_from(time.as_millis()).expect("short");
    pool.run(Command::Tick);
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_ended_job_is_forgotten_after_the_time_that_is_set() {
    for kept in [Duration::from_secs(60), Duration::from_secs(72 * 3600)] {
        let mut pool = pool_with(|config| config.job_retention = kept);
        let job = end(&mut pool);
        pass(&mut pool, kept - SECOND);
        assert!(pool.state.job(job).is_some(), "{kept:?}");
        pass(&mut pool, SECOND);
        assert!(pool.state.job(job).is_none(), "{kept:?}");
    }
}

#[test]
fn of_more_ended_jobs_than_are_kept_the_oldest_go() {
    for limit in [1, 3] {
        let mut pool = pool_with(|config| config.ended_job_limit = limit);
        let running = pool.submit(|_| {});
        let ended: Vec<JobId> = (0..5).map(|_| end(&mut pool)).collect();
        pool.run(Command::Tick);
        let kept: Vec<JobId> = ended.iter().copied().filter(|job| pool.state.job(*job).is_some()).collect();
        assert_eq!(kept, ended[5 - usize::try_from(limit).expect("small")..]);
        assert!(pool.state.job(running).is_some(), "it is not over");
    }
}

#[test]
fn a_job_beyond_the_limit_is_refused_until_another_one_is_over() {
    for limit in [1, 3] {
        let mut pool = pool_with(|config| config.job_limit = limit);
        let jobs: Vec<JobId> = (0..limit).map(|_| pool.submit(|_| {})).collect();
        assert_eq!(rejected(pool.run(submission(spec()))), Rejection::TooManyJobs { limit });
        pool.run(Command::CancelJob { job: jobs[0] });
        assert!(matches!(pool.run(submission(spec())), Outcome::Submitted(_)), "those that ended do not count");
    }
}

#[test]
fn an_answer_is_forgotten_after_the_time_that_is_set() {
    for kept in [Duration::from_secs(120), Duration::from_secs(7_200)] {
        let mut pool = pool_with(|config| config.request_retention = kept);
        let key = RequestKey { id: RequestId(7), fingerprint: 1 };
        let request = Request { key: Some(key), actor: "ann".to_owned(), command: submission(spec()) };
        assert!(matches!(pool.apply(&[request])[..], [Outcome::Submitted(_)]));
        pass(&mut pool, kept - SECOND);
        assert_eq!(pool.state.requests_remembered(), 1, "{kept:?}");
        pass(&mut pool, SECOND);
        assert_eq!(pool.state.requests_remembered(), 0, "{kept:?}");
    }
}

#[test]
fn a_queue_never_gets_more_memory_than_its_maximum() {
    for (memory, most) in [(1_024, 1), (3_072, 3)] {
        let mut pool = one_card(8);
        let maximum = Some(QueueAmount { compute: tflops(100), memory: Mebibytes(memory) });
        let queue = QueueSettings { maximum, ..QueueSettings::new("lab") };
        assert_eq!(pool.run(Command::SetQueue { queue }), Outcome::Done);
        let mut grant = |place: u32| {
            let job = pool.submit(|spec| spec.queue = "lab".to_owned());
            let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, place, 1)] };
            pool.plan(vec![PlanPart::Grant { job, workers: vec![worker], victims: vec![] }])
        };
        for place in 0..most {
            assert!(matches!(grant(place), Outcome::Planned(parts) if parts[0].is_ok()), "{place} of {most}");
        }
        assert_eq!(rejected(grant(most)), Rejection::QueueLimit { queue: "lab".to_owned() });
    }
}

#[test]
fn a_job_is_tried_again_as_often_as_it_says() {
    for max_retries in [0, 2] {
        let mut pool = one_card(8);
        let job = pool.submit(|spec| spec.retry.max_retries = max_retries);
        for _ in 0..=max_retries {
            assert!(pool.state.job(job).unwrap().is_waiting());
            pass(&mut pool, Duration::from_secs(600));
            pool.grant(job, vec![slice(0, 0, 0, 1)]);
            pool.report_all(job, &exited(3));
        }
        let ended = pool.state.job(job).unwrap();
        assert_eq!((ended.state, ended.attempts), (JobState::Failed, max_retries + 1));
    }
}
