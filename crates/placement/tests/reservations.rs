//! Reservations for the first job that does not fit: enough of everything that it needs, where it is free soonest, so
//! that no stream of small jobs delays it for ever. Each case is a stream that never ends.

use std::time::Duration;

use tessera_explain::WaitCode;
use tessera_ledger::*;
use tessera_placement::Limits;

use CardKind::{Cpu, Gpu, Npu};

use crate::world;
use crate::world::stream::{ENDLESS, PATIENCE, ROUND, Stream};
use crate::world::{World, card, cards, exit, job, spanning};

/// Rounds within which the first job must start where all others run for a few rounds.
const BOUND: u64 = 40;

fn only(kind: CardKind, spec: JobSpec) -> JobSpec {
    JobSpec { virtual_card: VirtualCardRequest { kinds: [kind].into(), ..spec.virtual_card.clone() }, ..spec }
}

fn whole(spec: JobSpec) -> JobSpec {
    JobSpec { virtual_card: VirtualCardRequest { whole_cards: true, ..spec.virtual_card.clone() }, ..spec }
}

fn host(cpu: u64, spec: JobSpec) -> JobSpec {
    JobSpec { host: HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(0) }, ..spec }
}

fn limited(rounds: u64, spec: JobSpec) -> JobSpec {
    JobSpec { time_limit: Some(Duration::from_secs(rounds * ROUND)), ..spec }
}

fn labelled(spec: JobSpec) -> JobSpec {
    JobSpec { labels: [("app".to_owned(), "noisy".to_owned())].into(), ..spec }
}

fn avoiding(mut spec: JobSpec) -> JobSpec {
    spec.affinity.avoid = [("app".to_owned(), "noisy".to_owned())].into();
    spec
}

/// Jobs of a few blocks, so many every round, that end one by one.
fn busy(count: u64, tflops: u64) -> impl FnMut(&mut Stream, u64) {
    move |stream, round| {
        for each in 0..count {
            stream.submit(job(tflops, 1), 2 + (round + each) % 4);
        }
    }
}

/// Lets the stream flow before the large job comes, and says whether that starts in time.
fn starts(world: World, large: JobSpec, mut arrive: impl FnMut(&mut Stream, u64)) -> bool {
    let mut stream = Stream::new(world);
    for round in 0..4 {
        arrive(&mut stream, round);
        stream.round();
    }
    let large = stream.submit(large, 1);
    stream.starts_within(large, BOUND, arrive)
}

/// A node with a card of its own for small jobs, and a host of four processors.
fn hosted() -> World {
    let mut world = World::default();
    let capacity = HostCapacity { cpu: MilliCpus(4000), memory: Mebibytes(1000) };
    world.hosted_node("a", cards(&[(Gpu, 10, 100), (Cpu, 20, 100)]), &[], Some(capacity));
    world
}

#[test]
fn small_jobs_on_other_cards_of_a_host_do_not_use_it_up_for_ever() {
    let arrive = |stream: &mut Stream, _: u64| {
        for _ in 0..2 {
            stream.submit(only(Cpu, host(1000, job(1, 1))), 3);
        }
    };
    assert!(starts(hosted(), only(Gpu, host(4000, job(10, 100))), arrive));
    assert!(starts(hosted(), only(Gpu, host(2500, job(10, 100))), arrive));
}

#[test]
fn what_a_host_has_beyond_what_is_kept_may_be_used() {
    let mut stream = Stream::new(hosted());
    stream.submit(only(Gpu, host(1000, job(10, 100))), ENDLESS);
    stream.round();
    let large = stream.submit(only(Gpu, host(2000, job(10, 100))), 1);
    assert!(!stream.starts_within(large, 10, |_, _| {}), "the card is held for ever");
    let [small, other] = [1000, 1000].map(|cpu| stream.submit(only(Cpu, host(cpu, job(1, 1))), ENDLESS));
    stream.round();
    assert!(!stream.waits(small), "of four processors one is held and two are kept");
    assert!(stream.waits(other));
    let job = stream.world.state.job(other).unwrap().clone();
    let why = tessera_explain::explain(&mut stream.pool, &stream.world.state, &job, stream.world.state.time());
    assert_eq!(why.code, WaitCode::ReservedForEarlier);
    let text = format!("it would fit, but room on the host \"a\" is kept for job {large}, which has waited longer");
    assert_eq!(why.sentence, text);
    let without_host = stream.submit(only(Cpu, world::job(1, 1)), 1);
    stream.round();
    assert!(!stream.waits(without_host));
    stream.world.apply(Command::CancelJob { job: large });
    stream.round();
    assert!(!stream.waits(other), "nothing is kept any more");
}

#[test]
fn jobs_to_be_avoided_do_not_come_for_ever() {
    let one = |list: &[(CardKind, u64, u64)]| {
        let mut world = World::default();
        world.node("a", cards(list));
        world
    };
    let arrive = |stream: &mut Stream, _: u64| {
        stream.submit(labelled(job(1, 1)), 3);
    };
    assert!(starts(one(&[(Gpu, 10, 100)]), avoiding(job(5, 10)), arrive));
    // On another card of the node than the one that it needs.
    let arrive = |stream: &mut Stream, _: u64| {
        stream.submit(labelled(only(Npu, job(1, 1))), 3);
    };
    assert!(starts(one(&[(Gpu, 10, 100), (Npu, 10, 100)]), avoiding(only(Gpu, job(5, 10))), arrive));
}

#[test]
fn whole_cards_are_kept_for_each_virtual_card_of_a_gang() {
    let mut world = World::default();
    for name in ["a", "b"] {
        world.node(name, cards(&[(Gpu, 10, 100), (Gpu, 10, 100), (Gpu, 10, 100)]));
    }
    // Three cards give 30, but hold only one virtual card that takes two of them.
    let large = whole(spanning(Span::Node, JobSpec { gang: 2, ..job(15, 10) }));
    assert!(starts(world, large, busy(9, 4)));
}

#[test]
fn whole_cards_are_kept_for_what_spreads_over_nodes() {
    let mut world = World::default();
    for name in ["a", "b", "c", "d"] {
        world.node(name, cards(&[(Gpu, 10, 100)]));
    }
    // 24 of 30 by compute, but two virtual cards of two cards each.
    let large = whole(spanning(Span::Pool, JobSpec { gang: 2, ..job(12, 10) }));
    assert!(starts(world, large, busy(9, 4)));
}

#[test]
fn cards_with_too_little_memory_for_a_slice_are_not_counted() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 1000), (Gpu, 12, 10)]));
    world.node("b", cards(&[(Gpu, 10, 500), (Gpu, 10, 500)]));
    let mut large = spanning(Span::Node, job(20, 0));
    large.virtual_card.slice_memory = Mebibytes(100);
    assert!(starts(world, large, busy(6, 3)));
}

#[test]
fn cards_that_take_few_slices_are_not_counted_for_more() {
    let mut world = World::default();
    let mut list = cards(&[(Gpu, 10, 1000), (Gpu, 10, 1000)]);
    list.iter_mut().for_each(|card| card.max_slices = 1);
    world.node("a", list);
    world.node("b", cards(&[(Gpu, 10, 500), (Gpu, 10, 500)]));
    // By compute node a holds four virtual cards; one slice on each of its cards holds two.
    let large = spanning(Span::Node, JobSpec { gang: 4, ..job(5, 1) });
    assert!(starts(world, large, busy(6, 3)));
}

#[test]
fn a_card_with_lost_blocks_is_not_kept_for_whoever_takes_it_whole() {
    let mut world = World::default();
    world.labelled_node("a", cards(&[(Gpu, 14, 100), (Gpu, 14, 100)]), &[("name", "a")]);
    world.node("b", cards(&[(Gpu, 12, 100), (Gpu, 12, 100)]));
    let mut stream = Stream::new(world);
    let lost =
        stream.submit(JobSpec { node_labels: [("name".to_owned(), "a".to_owned())].into(), ..job(1, 1) }, ENDLESS);
    stream.round();
    let allocation = stream.world.state.job(lost).unwrap().allocation.unwrap();
    stream.world.report(allocation, Rank(0), Observation::Unconfirmed { message: String::new() });
    for round in 0..4 {
        busy(6, 3)(&mut stream, round);
        stream.round();
    }
    let large = stream.submit(whole(spanning(Span::Node, job(20, 10))), 1);
    assert!(stream.starts_within(large, BOUND, busy(9, 4)));
}

/// One card is nearly free, but by a job without a time limit; the other is full, and will be free at a known time.
#[test]
fn cards_are_kept_that_are_free_soonest_by_time_limits() {
    for span in [Span::Card, Span::Node, Span::Pool] {
        let mut world = World::default();
        world.node("a", cards(&[(Gpu, 10, 100)]));
        world.node("b", cards(&[(Gpu, 10, 100)]));
        let mut stream = Stream::new(world);
        stream.submit(job(2, 1), ENDLESS);
        stream.submit(limited(10, job(5, 1)), 10);
        stream.submit(limited(14, job(5, 1)), 14);
        stream.round();
        let large = stream.submit(spanning(span, job(10, 10)), 1);
        assert!(stream.starts_within(large, 20, busy(2, 1)), "{span:?}");
    }
}

/// Small jobs that are over in time may use what is kept, and delay the first job by nothing beyond what was told.
#[test]
fn the_first_job_starts_when_it_was_told_whatever_fills_the_gaps() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    let mut stream = Stream::new(world);
    stream.submit(limited(20, job(9, 1)), 20);
    stream.submit(limited(30, job(9, 1)), 30);
    stream.round();
    let large = stream.submit(job(10, 10), 1);
    let mut filled = 0;
    let arrive = |stream: &mut Stream, _: u64| {
        let id = stream.submit(limited(3, job(1, 1)), 3);
        filled += u32::from(stream.world.job_state(id) != JobState::Pending);
    };
    assert!(stream.starts_within(large, 22, arrive));
    let done = stream.world.state.jobs_from(JobId(0)).filter(|job| job.state == JobState::Completed).count();
    assert!(done > 4, "gaps are filled: {done}");
}

/// Blocks that an allocation waits for look as if they came back when those stop who were told to; they do not.
#[test]
fn blocks_that_are_promised_to_another_allocation_are_not_kept() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 11, 100)]));
    world.node("b", cards(&[(Gpu, 11, 100)]));
    let mut stream = Stream::new(world);
    let victim = stream.submit(JobSpec { priority: 10, ..job(10, 1) }, ENDLESS);
    stream.round();
    stream.submit(limited(12, job(10, 9)), 12);
    stream.round();
    let urgent = stream.world.submit(JobSpec { priority: 90, ..job(10, 1) });
    stream.decide();
    let told = stream.world.state.job(victim).unwrap().state;
    assert_eq!((told, stream.world.job_state(urgent)), (JobState::Suspending, JobState::Starting));
    let large = stream.submit(job(11, 10), 1);
    assert!(!stream.starts_within(large, 5, |_, _| {}));
    let small = stream.submit(job(1, 1), ENDLESS);
    assert!(stream.starts_within(large, 12, |_, _| {}));
    assert_eq!(stream.world.slices(small)[0].card.node, NodeId(0), "beside what is promised");
}

/// Each virtual card needs the whole of a node, and the nodes have cards of different kinds.
#[test]
fn virtual_cards_of_a_gang_may_be_of_different_kinds() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    world.node("b", cards(&[(Npu, 10, 100), (Npu, 10, 100)]));
    let gang = spanning(Span::Node, JobSpec { gang: 2, ..job(20, 10) });
    assert!(starts(world, gang, busy(6, 3)));
}

/// A large job whose turn is first keeps a card that is free from one that has waited longer. When that one has waited
/// very long, it starts, though nothing but time has happened: whoever decides must be woken for it.
#[test]
fn who_has_waited_very_long_is_woken_for() {
    let mut world = World::default();
    ["a", "b"].into_iter().for_each(|queue| world.queue(queue, "", None));
    world.node("n", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    let of = |queue: &str, spec| JobSpec { queue: queue.to_owned(), ..spec };
    let mut stream = Stream::new(world);
    stream.submit(of("b", job(5, 1)), ENDLESS);
    stream.submit(of("b", job(10, 1)), 4);
    stream.round();
    let patient = stream.submit(of("b", job(10, 1)), 1);
    stream.round();
    stream.submit(of("a", JobSpec { gang: 2, ..job(10, 1) }), 1);
    (0..5).for_each(|_| stream.round());
    assert!(stream.waits(patient), "the free card is kept for the gang");
    let (mut world, mut pool) = (stream.world, stream.pool);
    let reserve_after = Duration::from_secs(ROUND * PATIENCE);
    let limits = Limits { reserve_after, stuck_after: reserve_after * 8, ..Limits::default() };
    for _ in 0..4 {
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        let decision = pool.decide(&world.state, LogTime(world.time), &limits);
        world.commit(&decision);
        if world.job_state(patient) != JobState::Pending {
            return;
        }
        world.time = decision.next_wakeup.expect("it is known when it has waited very long").0;
    }
    panic!("it still waits");
}

#[test]
fn whether_the_pool_could_hold_a_job_is_told_exactly() {
    let mut world = World::default();
    for number in 0..300 {
        let mut list = vec![card(0, Gpu, 10, 100)];
        list[0].max_slices = 1;
        world.node(&format!("node-{number}"), list);
    }
    let filler = world.submit(JobSpec { gang: 300, ..job(1, 1) });
    world.place();
    world.start(filler);
    let mut pool = tessera_placement::Pool::new(&world.state);
    let mut code = |world: &mut World, spec: JobSpec| {
        let id = world.submit(spec);
        let job = world.state.job(id).unwrap().clone();
        let code = tessera_explain::explain(&mut pool, &world.state, &job, world.state.time()).code;
        world.apply(Command::CancelJob { job: id });
        code
    };
    assert_ne!(code(&mut world, JobSpec { gang: 300, ..job(10, 100) }), WaitCode::ExceedsPool);
    assert_eq!(code(&mut world, JobSpec { gang: 301, ..job(4, 10) }), WaitCode::ExceedsPool);
    let spread = |gang| spanning(Span::Node, JobSpec { gang, ..job(4, 10) });
    assert_ne!(code(&mut world, spread(300)), WaitCode::ExceedsPool);
    assert_eq!(code(&mut world, spread(301)), WaitCode::ExceedsPool);
    let allocation = world.state.job(filler).unwrap().allocation.unwrap();
    world.report(allocation, Rank(7), Observation::Stopped(exit(StopCause::Exited, Some(0))));
    world.report(allocation, Rank(8), Observation::Unconfirmed { message: String::new() });
    pool = tessera_placement::Pool::new(&world.state);
    let mut code = |world: &mut World, spec: JobSpec| {
        let id = world.submit(spec);
        let job = world.state.job(id).unwrap().clone();
        tessera_explain::explain(&mut pool, &world.state, &job, world.state.time()).code
    };
    assert_ne!(code(&mut world, JobSpec { gang: 299, ..job(4, 10) }), WaitCode::ExceedsPool);
    assert_eq!(code(&mut world, JobSpec { gang: 300, ..job(4, 10) }), WaitCode::ExceedsPool, "a slice is lost there");
}

/// The first takes in this round what was free, and the second must not count on it.
#[test]
fn what_a_plan_has_just_granted_is_not_kept_for_the_next_one() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 8, 100)]));
    world.node("b", cards(&[(Gpu, 8, 100)]));
    let mut stream = Stream::new(world);
    stream.submit(job(8, 1), 6);
    stream.submit(limited(20, job(4, 1)), 20);
    stream.round();
    let first = stream.submit(job(8, 2), ENDLESS);
    let second = stream.submit(job(8, 3), 1);
    (0..5).for_each(|_| stream.round());
    assert!(stream.waits(first));
    let small = stream.submit(job(4, 1), ENDLESS);
    stream.round();
    assert!(!stream.waits(first));
    assert!(stream.waits(small), "the rest of the other card is kept");
    assert!(stream.starts_within(second, 20, |_, _| {}));
}

/// All cards of a node are enough for the job, but they are of kinds that may not back one virtual card together.
#[test]
fn nothing_is_kept_for_whoever_would_need_cards_of_several_kinds_at_once() {
    for span in [Span::Node, Span::Pool] {
        let mut world = World::default();
        world.node("a", cards(&[(Gpu, 8, 100), (Cpu, 4, 100)]));
        let mut stream = Stream::new(world);
        let endless = stream.submit(only(Gpu, job(4, 1)), ENDLESS);
        stream.round();
        assert!(!stream.waits(endless));
        let mut large = spanning(span, job(10, 1));
        large.virtual_card.mixed = false;
        let large = stream.world.try_submit(large);
        (0..2 * world::stream::PATIENCE).for_each(|_| stream.round());
        let small = stream.submit(only(Gpu, job(4, 1)), 1);
        stream.round();
        assert!(!stream.waits(small), "nothing is kept for what never starts: {large:?}");
    }
}

/// Three workers fit on the cards of a host that has processors for one beside a job that never ends.
#[test]
fn workers_are_not_counted_on_where_the_host_has_no_room_for_them() {
    let mut world = World::default();
    let capacity = HostCapacity { cpu: MilliCpus(8000), memory: Mebibytes(1000) };
    for name in ["a", "b"] {
        let list = cards(&[(Gpu, 10, 100), (Gpu, 10, 100), (Gpu, 10, 100), (Gpu, 10, 100)]);
        world.hosted_node(name, list, &[("name", name)], Some(capacity));
    }
    let at = |name: &str, spec| JobSpec { node_labels: [("name".to_owned(), name.to_owned())].into(), ..spec };
    let mut stream = Stream::new(world);
    let endless = stream.submit(at("a", host(6000, job(1, 1))), ENDLESS);
    let busy = |rounds| stream.submit(at("b", limited(rounds, host(2000, job(5, 1)))), rounds);
    let busy = [8, 9, 10, 11].map(busy);
    stream.round();
    assert!(!stream.waits(endless) && !busy.iter().any(|job| stream.waits(*job)));
    let gang = stream.submit(spanning(Span::Pool, JobSpec { gang: 3, ..host(2000, job(10, 1)) }), 1);
    (0..=world::stream::PATIENCE).for_each(|_| stream.round());
    assert!(stream.starts_within(gang, BOUND, |stream, _| {
        stream.submit(host(2000, job(1, 1)), 4);
    }));
}
