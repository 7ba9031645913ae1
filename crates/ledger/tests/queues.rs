//! The tree of queues and what queues have held, through changes of settings.

mod pool;

use std::time::Duration;

use pool::{Pool, card, exited, slice};
use tessera_ledger::wire::{decode_snapshot, encode_snapshot};
use tessera_ledger::{CardKind, Command, JobId, Observation, Outcome, PoolConfig, QueueAmount, QueueSettings};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn settings(name: &str, parent: &str) -> QueueSettings {
    let (name, parent) = (name.to_owned(), parent.to_owned());
    QueueSettings { name, parent, guaranteed: QueueAmount::default(), maximum: None, weight: 1, packing: None }
}

fn set_queue(pool: &mut Pool, name: &str, parent: &str) -> Outcome {
    pool.run(Command::SetQueue { queue: settings(name, parent) })
}

fn set_half_life(pool: &mut Pool, half_life: Duration) {
    let config = PoolConfig { fair_share_half_life: half_life, ..pool.state.config().clone() };
    assert_eq!(pool.run(Command::SetConfig { config }), Outcome::Done);
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
        let mut pool = Pool { state: pool.state.clone(), time: pool.time };
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
    let copy = Pool { state: decode_snapshot(encode_snapshot(&pool.state)).unwrap(), time: pool.time };
    for mut pool in [pool, copy] {
        assert!((7_900..=8_100).contains(&mean(&pool, "old")), "{}", mean(&pool, "old"));
        pass(&mut pool, DAY);
        assert!((7_900..=8_100).contains(&mean(&pool, "old")), "{}", mean(&pool, "old"));
    }
}
