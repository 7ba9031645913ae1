//! Queues that go by attained service: bands that follow from what a job had, whose blocks a lower band takes, and the
//! oldest jobs, which go first.

use std::time::Duration;

use tessera_ledger::{
    AttainedOrder, CheckpointMode, Command, JobId, JobSpec, LogTime, Observation, Outcome, Percent, PlanPart,
    PlannedWorker, QueueSettings, StopCause,
};

use crate::pool::{Pool, one_card, slice, stopped, tflops};

const MINUTE: u64 = 60_000;

fn set_order(pool: &mut Pool, attained: Option<AttainedOrder>) {
    let queue = QueueSettings { attained, ..QueueSettings::new("default") };
    assert_eq!(pool.run(Command::SetQueue { queue }), Outcome::Done);
}

/// Bands that end at 10, 20 and 40 minutes of a card.
fn order(guard: u32) -> AttainedOrder {
    AttainedOrder { ratio: 2, bands: 4, guard: Percent(guard), ..AttainedOrder::default() }
}

/// A card of eight blocks whose queue goes by attained service.
fn pool(guard: u32) -> Pool {
    let mut pool = one_card(8);
    set_order(&mut pool, Some(order(guard)));
    pool
}

fn asking(pool: &mut Pool, blocks: u64, change: impl FnOnce(&mut JobSpec)) -> JobId {
    pool.submit(|spec| {
        spec.virtual_card.compute = tflops(blocks);
        spec.checkpoint.mode = CheckpointMode::Cooperative;
        change(spec);
    })
}

fn running(pool: &mut Pool, start: u32, blocks: u32, change: impl FnOnce(&mut JobSpec)) -> JobId {
    let job = asking(pool, u64::from(blocks), change);
    pool.grant(job, vec![slice(0, 0, start, blocks)]);
    pool.report_all(job, &Observation::Running);
    job
}

/// The answer when a job is granted the first two blocks of the card in the place of another.
fn takes(pool: &mut Pool, job: JobId, victim: JobId) -> Result<(), String> {
    let worker = PlannedWorker { virtual_card: 0, node: tessera_ledger::NodeId(0), slices: vec![slice(0, 0, 0, 2)] };
    match pool.plan(vec![PlanPart::Grant { job, workers: vec![worker], victims: vec![victim] }]) {
        Outcome::Planned(parts) => parts[0].clone().map(|_| ()).map_err(|refusal| refusal.to_string()),
        outcome => panic!("{outcome:?}"),
    }
}

fn band(pool: &Pool, job: JobId) -> u32 {
    let job = pool.state.job(job).expect("the job is known");
    order(0).band_of(job.attained(LogTime(pool.time)))
}

fn guarded(pool: &Pool) -> Vec<u64> {
    pool.state.jobs_from(JobId(0)).filter(|job| job.guarded).map(|job| job.id.0).collect()
}

#[test]
fn bands_end_where_the_order_says() {
    let order = order(0);
    let minutes = |minutes: u64| order.band_of(Duration::from_secs(60 * minutes));
    assert_eq!([0, 9, 10, 19, 20, 39, 40, 1_000_000].map(minutes), [0, 0, 1, 1, 2, 2, 3, 3]);
    let largest = AttainedOrder { first_band: Duration::from_secs(86_400), ratio: 100, bands: 16, guard: Percent(100) };
    assert_eq!((largest.check("order"), largest.band_of(Duration::MAX)), (Ok(()), 15));
    let mut pool = one_card(8);
    set_order(&mut pool, Some(largest));
    let job = running(&mut pool, 0, 8, |_| {});
    let job = pool.state.job(job).expect("it is known");
    let far = LogTime(u64::MAX - 1);
    assert_eq!(job.next_band_at(largest, far), None, "no time that can come");
}

#[test]
fn what_a_job_had_is_its_time_times_its_share_of_the_card() {
    let mut pool = pool(0);
    let job = running(&mut pool, 0, 4, |_| {});
    pool.time += 19 * MINUTE;
    assert_eq!(band(&pool, job), 0, "half a card for 19 minutes");
    pool.time += 2 * MINUTE;
    assert_eq!(band(&pool, job), 1);
    pool.run(Command::SuspendJob { job });
    pool.report_all(job, &stopped(StopCause::Ordered, None));
    let before = pool.state.job(job).expect("it is known").attained;
    pool.time += 100 * MINUTE;
    assert_eq!((band(&pool, job), before.as_secs() / 60), (1, 10), "who waits has no more than before");
    pool.run(Command::ResumeJob { job });
    pool.grant(job, vec![slice(0, 0, 0, 4)]);
    pool.report_all(job, &Observation::Running);
    pool.time += 20 * MINUTE;
    assert_eq!(band(&pool, job), 2, "both attempts count");
}

#[test]
fn a_lower_band_takes_the_blocks_of_a_higher_one_that_goes_on_later() {
    let mut pool = pool(0);
    let long = running(&mut pool, 0, 8, |_| {});
    pool.time += 4 * MINUTE;
    let short = asking(&mut pool, 2, |_| {});
    assert!(takes(&mut pool, short, long).is_err_and(|why| why.contains("nor its band higher")), "the same band");
    pool.time += 7 * MINUTE;
    assert_eq!(band(&pool, long), 1);
    assert_eq!(takes(&mut pool, short, long), Ok(()));
    pool.report_all(long, &stopped(StopCause::Ordered, None));
    pool.report_all(short, &Observation::Running);
    assert!(takes(&mut pool, long, short).is_err(), "never back, as long as its band is the lower one");
}

#[test]
fn a_job_gives_way_for_its_band_once_an_hour_and_not_before_it_ran_five_minutes() {
    let mut pool = pool(0);
    let long = running(&mut pool, 0, 8, |_| {});
    pool.time += 30 * MINUTE;
    let first = asking(&mut pool, 2, |_| {});
    assert_eq!(takes(&mut pool, first, long), Ok(()));
    pool.report_all(long, &stopped(StopCause::Ordered, None));
    pool.report_all(first, &Observation::Running);
    pool.report_all(first, &crate::pool::exited(0));
    let again = |pool: &mut Pool| {
        pool.grant(long, vec![slice(0, 0, 0, 8)]);
        pool.report_all(long, &Observation::Running);
    };
    again(&mut pool);
    let second = asking(&mut pool, 2, |_| {});
    for minutes in [4, 2, 53] {
        pool.time += minutes * MINUTE;
        let too_soon = "preempted too often within the last hour";
        assert!(takes(&mut pool, second, long).is_err_and(|why| why.contains(too_soon)), "within the hour");
    }
    pool.time += MINUTE;
    assert_eq!(takes(&mut pool, second, long), Ok(()));
}

#[test]
fn work_that_would_be_lost_yields_to_priorities_alone() {
    let mut pool = pool(0);
    let long = running(&mut pool, 0, 8, |spec| spec.checkpoint.mode = CheckpointMode::Requeue);
    pool.time += 100 * MINUTE;
    let short = asking(&mut pool, 2, |_| {});
    assert!(takes(&mut pool, short, long).is_err_and(|why| why.contains("would lose its work")));
    let urgent = asking(&mut pool, 2, |spec| spec.priority = 90);
    assert_eq!(takes(&mut pool, urgent, long), Ok(()));

    let mut pool = self::pool(0);
    let firm = running(&mut pool, 0, 8, |spec| spec.preemptible = false);
    pool.time += 100 * MINUTE;
    let urgent = asking(&mut pool, 2, |spec| spec.priority = 90);
    assert!(takes(&mut pool, urgent, firm).is_err_and(|why| why.contains("not preemptible")));
}

#[test]
fn the_oldest_jobs_are_guarded_as_far_as_the_share_goes() {
    let mut pool = pool(0);
    set_order(&mut pool, Some(AttainedOrder { guard: Percent(50), ..order(0) }));
    let jobs: Vec<JobId> = (0..5).map(|_| asking(&mut pool, 2, |_| {})).collect();
    assert_eq!(guarded(&pool), [1, 2], "four of eight blocks");
    pool.run(Command::CancelJob { job: jobs[0] });
    assert_eq!(guarded(&pool), [2, 3], "the next one comes to it");
    pool.run(Command::HoldJob { job: jobs[1] });
    assert_eq!(guarded(&pool), [3, 4], "whom a person holds keeps nobody else from it");
    pool.run(Command::ReleaseJob { job: jobs[1] });
    assert_eq!(guarded(&pool), [3, 4], "and who was guarded stays so");
    let before: Vec<u64> = pool.state.waiting().map(|job| job.id.0).collect();
    assert_eq!(before, [3, 4, 2, 5], "they go first");
    set_order(&mut pool, Some(order(0)));
    assert_eq!(guarded(&pool), [0; 0]);
    set_order(&mut pool, Some(order(20)));
    assert_eq!(guarded(&pool), [2], "the oldest, however much it asks for");
    set_order(&mut pool, None);
    assert_eq!(guarded(&pool), [0; 0]);
}

#[test]
fn a_guarded_job_takes_blocks_and_nobody_takes_its_own() {
    let mut pool = pool(20);
    let long = running(&mut pool, 0, 8, |_| {});
    let next = asking(&mut pool, 2, |_| {});
    assert_eq!(guarded(&pool), [long.0], "with all blocks it has more than the share, and is the only one");
    pool.time += 100 * MINUTE;
    assert!(takes(&mut pool, next, long).is_err(), "whatever it has had");
    pool.run(Command::SuspendJob { job: long });
    pool.report_all(long, &stopped(StopCause::Ordered, None));
    assert_eq!(guarded(&pool), [next.0]);
    let had_much = running(&mut pool, 0, 2, |_| {});
    pool.time += 6 * MINUTE;
    assert_eq!(takes(&mut pool, next, had_much), Ok(()), "of the same band, and not guarded");
}
