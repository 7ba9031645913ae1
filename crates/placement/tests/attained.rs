//! Queues that go by attained service: who has had little of cards takes the place of who has had much, and all of them
//! come to their turn.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::*;

use crate::world::{World, cards, cases, job};

const MINUTE: Duration = Duration::from_secs(60);

/// Nodes of two cards of ten blocks each, with a queue by attained service.
fn world(nodes: usize, guard: u32) -> World {
    let mut world = World::default();
    for node in 0..nodes {
        world.node(&format!("n{node}"), cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
    }
    let attained = Some(AttainedOrder { guard: Percent(guard), ..AttainedOrder::default() });
    let queue = QueueSettings { attained, ..QueueSettings::new("default") };
    assert_eq!(world.apply(Command::SetQueue { queue }), Outcome::Done);
    world
}

/// A job that goes on where it stopped.
fn going_on(tflops: u64) -> JobSpec {
    let checkpoint = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
    JobSpec { checkpoint, ..job(tflops, 10) }
}

#[test]
fn who_has_had_little_takes_the_place_of_who_has_had_most() {
    let mut world = world(1, 0);
    let first = world.submit(going_on(10));
    world.settle(4);
    world.pass(30 * MINUTE);
    let second = world.submit(going_on(10));
    world.settle(4);
    world.pass(12 * MINUTE);
    // 42 minutes against 12: both bands are higher than that of who comes now.
    let third = world.submit(going_on(10));
    assert_eq!(world.settle(8), [first]);
    assert_eq!(world.job_state(third), JobState::Running);
    world.finish(second);
    world.settle(4);
    assert_eq!(world.job_state(first), JobState::Running, "and it goes on when there is room");
}

#[test]
fn who_asks_why_is_told_the_band() {
    let mut world = world(1, 100);
    let spec = || JobSpec { preemptible: false, ..going_on(10) };
    let all = [spec(), spec(), spec(), going_on(10)].map(|spec| world.submit(spec));
    world.settle(4);
    world.pass(12 * MINUTE);
    let why = |world: &World, id: JobId| {
        let mut pool = tessera_placement::Pool::new(&world.state);
        let job = world.state.job(id).expect("it is known");
        let told = tessera_explain::explain(&mut pool, &world.state, job, world.state.time());
        (told.sentence, told.numbers)
    };
    world.finish(all[0]);
    let (sentence, _) = why(&world, all[2]);
    assert!(sentence.ends_with("it is one of the oldest of its queue, which go first"), "{sentence}");
    let (sentence, numbers) = why(&world, all[3]);
    assert!(sentence.ends_with("by what it has had of cards it is in band 0, of 0 to 7"), "{sentence}");
    assert!(numbers.contains(&("attained_card_seconds", 0)), "{numbers:?}");
}

#[test]
fn somebody_who_waits_is_let_in_when_a_band_changes_and_nothing_else_happens() {
    let mut world = world(1, 0);
    let long = [world.submit(going_on(10)), world.submit(going_on(10))];
    world.settle(4);
    world.pass(6 * MINUTE);
    let short = world.submit(going_on(10));
    assert_eq!(world.settle(4), [], "all have had less than ten minutes");
    let mut pool = tessera_placement::Pool::new(&world.state);
    let now = world.state.time();
    let wakeup = pool.decide(&world.state, now, &tessera_placement::Limits::default()).next_wakeup;
    let at = wakeup.expect("it asks to be woken");
    assert!(at.since(now) <= 4 * MINUTE, "no later than the first band ends");
    world.pass(4 * MINUTE);
    let gave_way = world.settle(8);
    assert_eq!((gave_way.len(), long.contains(&gave_way[0])), (1, true));
    assert_eq!(world.job_state(short), JobState::Running);
}

#[test]
fn nobody_is_passed_by_for_ever_where_there_is_a_guard() {
    let mut world = world(1, 20);
    let long = world.submit(going_on(10));
    let wide = world.submit(JobSpec { gang: 2, ..going_on(10) });
    // A stream of jobs of five minutes each, of which two are always there: the cards are never free together.
    let mut short: Vec<JobId> = Vec::new();
    for round in 0..40 {
        short.retain(|id| world.state.job(*id).is_some_and(|job| !job.state.is_terminal()));
        while short.len() < 2 {
            short.push(world.submit(going_on(10)));
        }
        world.settle(40);
        if round == 10 {
            world.finish(long);
        }
        if world.job_state(wide) == JobState::Running {
            return;
        }
        world.pass(5 * MINUTE);
        let over = short.iter().filter(|id| world.job_state(**id) == JobState::Running).copied().next();
        over.into_iter().for_each(|id| world.finish(id));
    }
    panic!("the wide job was passed by all the time");
}

/// Jobs that come, by TFLOPS and gang; the minutes that pass then; and which of those that run ends.
fn wave() -> impl Strategy<Value = (Vec<(u64, u32)>, u32, usize)> {
    (prop::collection::vec((1u64..=10, 1u32..4), 0..5), 1u32..40, any::<usize>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// Whatever comes when: at each time the pool comes to rest, and nobody gives way for a band twice within an hour.
    #[test]
    fn bands_suspend_a_job_once_an_hour_at_most(
        guard in prop::sample::select(vec![0u32, 20, 60]),
        waves in prop::collection::vec(wave(), 1..12),
    ) {
        let mut world = world(2, guard);
        let mut gave_way: BTreeMap<JobId, Vec<LogTime>> = BTreeMap::new();
        for (jobs, minutes, ends) in waves {
            for (tflops, gang) in jobs {
                world.try_submit(JobSpec { gang, ..going_on(tflops) });
            }
            for id in world.settle(64) {
                gave_way.entry(id).or_default().push(world.state.time());
            }
            world.pass(MINUTE * minutes);
            let running = |job: &&std::sync::Arc<Job>| job.state == JobState::Running;
            let running: Vec<JobId> = world.state.jobs_from(JobId(0)).filter(running).map(|job| job.id).collect();
            if let Some(id) = running.get(ends % running.len().max(1)) {
                world.finish(*id);
            }
        }
        for times in gave_way.values() {
            prop_assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= 60 * MINUTE), "{gave_way:?}");
        }
    }
}
