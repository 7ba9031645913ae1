//! Time windows of queues and jobs: nothing is placed outside of them, what waits is told so, and it starts when they
//! open without anything else happening.

use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use crate::world::{World, cards, job};

const NIGHTS: &str = "0 20 * * * for 10h";

fn world() -> World {
    let mut world = World::of_this_release();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100)]));
    let queue =
        QueueSettings { windows: vec![NIGHTS.to_owned()], ..world.state.queue("default").unwrap().settings.clone() };
    assert_eq!(
        world.apply(Command::SetQueue { queue: QueueSettings { name: "night".to_owned(), ..queue } }),
        Outcome::Done
    );
    world
}

fn of(queue: &str, tflops: u64) -> JobSpec {
    JobSpec { queue: queue.to_owned(), ..job(tflops, 0) }
}

fn close(world: &mut World, whose: WindowOf, seconds: u64) -> LogTime {
    let time = LogTime(world.time + seconds * 1_000);
    let windows = vec![NIGHTS.to_owned()];
    assert_eq!(world.apply(Command::CloseUntil { whose, windows, time }), Outcome::Done);
    time
}

#[test]
fn a_closed_queue_gets_nothing_until_it_opens_and_then_without_another_event() {
    let mut world = world();
    let waiting = world.submit(of("night", 4));
    let opens = close(&mut world, WindowOf::Queue("night".to_owned()), 60);
    let other = world.submit(of("default", 4));
    let mut pool = Pool::new(&world.state);
    let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
    assert_eq!(decision.next_wakeup, Some(opens));
    world.commit(&decision);
    assert_eq!(world.state.job(other).unwrap().state, JobState::Starting);
    let told =
        tessera_explain::explain(&mut pool, &world.state, world.state.job(waiting).unwrap(), LogTime(world.time));
    assert_eq!(told.code.name(), "OUTSIDE_WINDOW");
    assert!(told.sentence.contains("60 s"), "{}", told.sentence);
    pool.refresh(&world.state, &world.state.clone().take_touched());
    let code = tessera_explain::waits_for(&pool, &world.state, world.state.job(waiting).unwrap(), LogTime(world.time));
    assert_eq!(code.name(), "OUTSIDE_WINDOW");

    world.time = opens.0;
    let decision = pool.decide(&world.state, opens, &Limits::default());
    world.commit(&decision);
    assert_eq!(world.state.job(waiting).unwrap().state, JobState::Starting);
}

#[test]
fn a_job_outside_of_its_own_window_lets_others_pass() {
    let mut world = world();
    let nightly = world.submit(JobSpec { windows: vec![NIGHTS.to_owned()], priority: 90, ..job(8, 0) });
    let (now, limits) = (LogTime(world.time), Limits::default());
    let mut pool = Pool::new(&world.state);
    assert_eq!(pool.decide(&world.state, now, &limits).next_wakeup, None, "nobody knows yet when it opens");
    let opens = close(&mut world, WindowOf::Job(nightly), 60);
    let small = world.submit(job(8, 0));
    world.place();
    world.start(small);
    assert_eq!(world.state.job(nightly).unwrap().state, JobState::Pending, "and none is kept back for it");
    world.time = opens.0;
    let gave_way = world.settle(4);
    assert_eq!(gave_way, [small], "it is of a higher priority");
    assert_eq!(world.state.job(nightly).unwrap().state, JobState::Running);
}
