//! The tree of queues and what queues have held, through changes of settings.

use std::time::Duration;

use tessera_ledger::wire::{decode_snapshot, encode_snapshot};
use tessera_ledger::{CardKind, Command, JobId, Observation, Outcome, PoolConfig, QueueSettings, Rejection};

use crate::pool::{Pool, card, exited, slice};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn settings(name: &str, parent: &str) -> QueueSettings {
    QueueSettings { parent: parent.to_owned(), ..QueueSettings::new(name) }
}

fn set_queue(pool: &mut Pool, name: &str, parent: &str) -> Outcome {
    pool.run(Command::SetQueue { queue: settings(name, parent) })
}

fn set_half_life(pool: &mut Pool, half_life: Duration) {
    let config = PoolConfig { fair_share_half_life: half_life, ..pool.state.config().clone() };
    assert_eq!(pool.run(Command::SetConfig { config, expected: None }), Outcome::Done);
}

fn pass(pool: &mut Pool, time: Duration) {
    pool.time += u64::try_from(time.as_millis()).unwrap();
    pool.run(Command::Tick);
}

/// Thousandths of a TFLOPS that a queue has held on average.
fn mean(pool: &Pool, queue: &str) -> u64 {
    pool.state.queue(queue).unwrap().mean_use(pool.state.time(), pool.state.config()).compute.0
}

/// A queue whose job has held 8 TFLOPS for a year.
fn after_a_year() -> (Pool, JobId) {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 20)]]);
    assert_eq!(set_queue(&mut pool, "old", ""), Outcome::Done);
    let job = pool.submit(|spec| spec.queue = "old".to_owned());
    pool.grant(job, vec![slice(0, 0, 0, 8)]);
    pool.report_all(job, &Observation::Running);
    pass(&mut pool, 365 * DAY);
    (pool, job)
}

#[test]
fn what_was_held_counts_the_same_just_before_and_after_another_half_life_is_set() {
    let (mut pool, job) = after_a_year();
    pool.report_all(job, &exited(0));
    pass(&mut pool, 7 * DAY);
    let before = mean(&pool, "old");
    assert!((3_900..=4_100).contains(&before), "half of 8 TFLOPS after a half-life: {before}");
    for half_life in [DAY, 70 * DAY, Duration::from_secs(60)] {
        let mut pool = Pool { state: pool.state.clone(), time: pool.time, log: vec![] };
        set_half_life(&mut pool, half_life);
        let after = mean(&pool, "old");
        assert!(before.abs_diff(after) <= 20, "{before} became {after} with a half-life of {half_life:?}");
    }
    set_half_life(&mut pool, DAY);
    pass(&mut pool, DAY);
    let halved = mean(&pool, "old");
    assert!((1_900..=2_100).contains(&halved), "and from then on it halves in a day: {halved}");
}

#[test]
fn what_is_held_still_is_counted_under_the_half_life_of_its_time() {
    let (mut pool, _) = after_a_year();
    set_half_life(&mut pool, DAY / 24);
    let copy = Pool { state: decode_snapshot(encode_snapshot(&pool.state)).unwrap(), time: pool.time, log: vec![] };
    for mut pool in [pool, copy] {
        assert!((7_900..=8_100).contains(&mean(&pool, "old")), "{}", mean(&pool, "old"));
        pass(&mut pool, DAY);
        assert!((7_900..=8_100).contains(&mean(&pool, "old")), "{}", mean(&pool, "old"));
    }
}

fn is_refused(outcome: &Outcome, part: &str) -> bool {
    matches!(outcome, Outcome::Rejected(Rejection::Invalid { field, problem }) if field == "queue.parent" && problem.contains(part))
}

/// A line of queues below one another, `NAME1` at the top.
fn line(pool: &mut Pool, name: &str, length: usize) {
    for place in 1..=length {
        let parent = if place == 1 { String::new() } else { format!("{name}{}", place - 1) };
        assert_eq!(set_queue(pool, &format!("{name}{place}"), &parent), Outcome::Done);
    }
}

#[test]
fn a_queue_that_moves_takes_those_below_it_along_and_no_line_gets_too_long() {
    let mut pool = Pool::with_nodes(&[]);
    line(&mut pool, "a", 10);
    line(&mut pool, "b", 6);
    // A second and shorter branch does not hide the longest.
    assert_eq!(set_queue(&mut pool, "b-leaf", "b1"), Outcome::Done);
    assert!(is_refused(&set_queue(&mut pool, "b1", "a10"), "more than 15"), "10 above and 6 with what is below it");
    assert_eq!(pool.state.queue("b1").unwrap().settings.parent, "");
    assert_eq!(set_queue(&mut pool, "b1", "a9"), Outcome::Done, "9 and 6");
    assert!(is_refused(&set_queue(&mut pool, "deeper", "b6"), "more than 15"));
    assert_eq!(set_queue(&mut pool, "b2", "a9"), Outcome::Done, "less deep than before");
    assert_eq!(set_queue(&mut pool, "deeper", "b6"), Outcome::Done);
}

#[test]
fn no_queue_can_be_below_itself() {
    let mut pool = Pool::with_nodes(&[]);
    line(&mut pool, "a", 15);
    for below in [1, 2, 15] {
        let outcome = set_queue(&mut pool, "a1", &format!("a{below}"));
        assert!(is_refused(&outcome, "circle"), "below a{below}: {outcome:?}");
    }
}

#[test]
fn settings_that_were_changed_meanwhile_are_not_overwritten() {
    let mut pool = Pool::with_nodes(&[]);
    let read = pool.state.config().clone();
    let first = PoolConfig { job_limit: 7, ..read.clone() };
    let second = PoolConfig { preemptions_per_hour: 1, ..read.clone() };
    let set = |pool: &mut Pool, config: &PoolConfig, expected: Option<&PoolConfig>| {
        pool.run(Command::SetConfig { config: config.clone(), expected: expected.cloned().map(Box::new) })
    };
    assert_eq!(set(&mut pool, &first, Some(&read)), Outcome::Done);
    assert_eq!(set(&mut pool, &second, Some(&read)), Outcome::Rejected(Rejection::ConfigChanged));
    assert_eq!(pool.state.config(), &first);
    let both = PoolConfig { preemptions_per_hour: 1, ..first.clone() };
    assert_eq!(set(&mut pool, &both, Some(&first)), Outcome::Done);
    assert_eq!(set(&mut pool, &second, None), Outcome::Done, "whoever expects nothing replaces whatever is there");
    assert_eq!(pool.state.config(), &second);
}
