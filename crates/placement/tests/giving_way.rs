//! Waiting and giving way: queues at their maximum, preemption, patience, nodes that are drained and backoffs, through
//! the public commands of the ledger.

use std::time::Duration;

use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use CardKind::Gpu;

use crate::world::{self, World, cards, job};

fn with_priority(spec: JobSpec, priority: u32) -> JobSpec {
    JobSpec { priority, ..spec }
}

#[test]
fn the_maximum_of_a_queue_above_counts_everything_in_one_pass() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 100, 1000)]));
    world.queue("top", "", Some((10, 1000)));
    world.queue("left", "top", None);
    world.queue("right", "top", Some((6, 1000)));
    let ids: Vec<JobId> = ["left", "right", "left", "right"]
        .into_iter()
        .map(|queue| world.submit(JobSpec { queue: queue.to_owned(), ..job(4, 10) }))
        .collect();
    world.place();
    let states: Vec<JobState> = ids.iter().map(|id| world.job_state(*id)).collect();
    assert_eq!(states, [JobState::Starting, JobState::Starting, JobState::Pending, JobState::Pending]);
    world.start(ids[0]);
    world.finish(ids[0]);
    world.place();
    assert_eq!(world.job_state(ids[2]), JobState::Starting);
    assert_eq!(world.job_state(ids[3]), JobState::Pending);
}

#[test]
fn preemption_takes_the_fewest_tflops_of_lower_priority_and_waits_for_their_end() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.node("b", cards(&[(Gpu, 10, 100)]));
    let large = world.submit(with_priority(job(10, 10), 10));
    let small = world.submit(with_priority(job(6, 10), 10));
    let kept = world.submit(with_priority(job(4, 10), 60));
    world.place();
    for id in [large, small, kept] {
        world.start(id);
    }
    let urgent = world.submit(with_priority(job(5, 10), 60));
    let parts = world.place();
    let [PlanPart::Grant { victims, .. }] = &parts[..] else { panic!("one grant was expected: {parts:?}") };
    assert_eq!(victims, &[small]);
    assert_eq!(world.job_state(small), JobState::Suspending);
    assert!(world.place().is_empty(), "what a victim still holds is granted to nobody else");
    world.stop(small);
    assert_eq!(world.job_state(small), JobState::Suspended);
    world.start(urgent);
    assert_eq!(world.job_state(urgent), JobState::Running);
    world.finish(urgent);
    world.place();
    assert_eq!(world.job_state(small), JobState::Starting, "it resumes by itself");
}

#[test]
fn nothing_is_preempted_when_that_would_not_help() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    let mut pinned = with_priority(job(4, 10), 10);
    pinned.preemptible = false;
    let (pinned, other) = (world.submit(pinned), world.submit(with_priority(job(4, 10), 10)));
    world.place();
    world.start(pinned);
    world.start(other);
    world.submit(with_priority(job(8, 10), 90));
    world.submit(with_priority(job(4, 10), 10));
    assert!(world.place().is_empty());
}

#[test]
fn a_gang_preempts_whole_gangs_and_spares_whom_it_does_not_need() {
    let mut world = World::default();
    for name in ["a", "b", "c", "d"] {
        world.node(name, cards(&[(Gpu, 10, 100)]));
    }
    let mut pair = with_priority(job(10, 10), 10);
    pair.gang = 2;
    let (first, second) = (world.submit(pair.clone()), world.submit(pair.clone()));
    world.place();
    let urgent = world.submit(with_priority(pair, 90));
    let parts = world.place();
    let [PlanPart::Grant { job, victims, .. }] = &parts[..] else { panic!("one grant was expected: {parts:?}") };
    assert_eq!((*job, victims.len()), (urgent, 1));
    assert!(victims[0] == first || victims[0] == second);
}

#[test]
fn preemptions_per_hour_are_bounded_and_the_next_try_is_announced() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    let victim = world.submit(with_priority(job(10, 10), 10));
    for _ in 0..4 {
        world.place();
        world.start(victim);
        let urgent = world.submit(with_priority(job(10, 10), 90));
        world.place();
        world.stop(victim);
        world.start(urgent);
        world.finish(urgent);
    }
    world.place();
    world.start(victim);
    world.submit(with_priority(job(10, 10), 90));
    let mut pool = Pool::new(&world.state);
    // Without reservations nothing else is announced.
    let limits = Limits { reservations: 0, ..Limits::default() };
    let decision = pool.decide(&world.state, LogTime(world.time), &limits);
    assert!(decision.plan.parts.is_empty());
    let next = decision.next_wakeup.expect("the protection ends at a known time");
    assert!(pool.decide(&world.state, LogTime(next.0 - 1), &limits).plan.parts.is_empty());
    world.pass(next.since(LogTime(world.time)));
    assert_eq!(world.place().len(), 1);
}

#[test]
fn a_job_that_waits_long_is_not_starved_by_small_ones() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.node("b", cards(&[(Gpu, 4, 100)]));
    let mut running: Vec<JobId> = (0..2).map(|_| world.submit(job(5, 10))).collect();
    world.place();
    let large = world.submit(job(10, 10));
    running.iter().for_each(|id| world.start(*id));
    world.finish(running.remove(0));
    let filler = world.submit(job(5, 10));
    world.place();
    assert_eq!(world.job_state(filler), JobState::Starting, "at first gaps are filled");
    world.start(filler);
    world.pass(Duration::from_secs(31));
    world.finish(running.remove(0));
    let (late, elsewhere) = (world.submit(job(5, 10)), world.submit(job(4, 10)));
    world.place();
    assert_eq!(world.job_state(late), JobState::Pending, "the card is kept for the job that waits longest");
    assert_eq!(world.job_state(elsewhere), JobState::Starting, "other cards are not");
    world.finish(filler);
    world.place();
    assert_eq!(world.job_state(large), JobState::Starting);
}

#[test]
fn jobs_leave_a_node_that_is_drained_and_go_elsewhere() {
    let mut world = World::default();
    let first = world.node("a", cards(&[(Gpu, 10, 100)]));
    let id = world.submit(job(4, 10));
    world.place();
    world.start(id);
    world.node("b", cards(&[(Gpu, 10, 100)]));
    let reason = String::new();
    world.apply(Command::SetEligibility { node: first, eligibility: Eligibility::Draining, reason });
    assert_eq!(world.place(), vec![PlanPart::Evict { job: id, node: first }]);
    assert!(world.place().is_empty());
    world.stop(id);
    world.place();
    assert_eq!(world.slices(id)[0].card.node, NodeId(1));
}

#[test]
fn a_backoff_is_announced_and_kept() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    let mut spec = job(4, 10);
    spec.retry.max_retries = 1;
    spec.retry.backoff = Duration::from_secs(7);
    let id = world.submit(spec);
    world.place();
    world.start(id);
    let allocation = world.state.job(id).and_then(|job| job.allocation).expect("it was granted");
    world.report(allocation, Rank(0), Observation::Stopped(world::exit(StopCause::Exited, Some(1))));
    let mut pool = Pool::new(&world.state);
    let now = LogTime(world.time);
    let decision = pool.decide(&world.state, now, &Limits::default());
    assert_eq!((decision.plan.parts.len(), decision.next_wakeup), (0, Some(LogTime(now.0 + 7000))));
    assert_eq!(pool.decide(&world.state, LogTime(now.0 + 7000), &Limits::default()).plan.parts.len(), 1);
}

#[test]
fn in_a_full_queue_a_higher_priority_preempts_a_lower_one_of_the_same_queue() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 100, 1000)]));
    world.queue("small", "", Some((10, 1000)));
    let in_queue = |spec: JobSpec| JobSpec { queue: "small".to_owned(), ..spec };
    let victim = world.submit(in_queue(with_priority(job(8, 10), 10)));
    let outside = world.submit(with_priority(job(8, 10), 5));
    world.place();
    world.start(victim);
    world.start(outside);
    let urgent = world.submit(in_queue(with_priority(job(6, 10), 80)));
    let parts = world.place();
    let [PlanPart::Grant { job, victims, .. }] = &parts[..] else { panic!("one grant was expected: {parts:?}") };
    assert_eq!((*job, &victims[..]), (urgent, &[victim][..]), "only a job of the queue makes room in it");
}

#[test]
fn a_gang_preempts_in_its_full_queue_although_other_nodes_have_room() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100); 2]));
    world.queue("small", "", Some((20, 1000)));
    let pair = |priority| JobSpec { queue: "small".to_owned(), gang: 2, ..with_priority(job(10, 10), priority) };
    let low = world.submit(pair(10));
    world.settle(3);
    world.node("b", cards(&[(Gpu, 10, 100); 4]));
    let urgent = world.submit(pair(90));
    assert_eq!(world.settle(3), [low]);
    assert_eq!((world.job_state(urgent), world.job_state(low)), (JobState::Running, JobState::Suspended));
}

#[test]
fn a_gang_over_nodes_preempts_in_its_full_queue_and_spoils_nothing_for_others() {
    for labelled in [false, true] {
        let mut world = World::default();
        world.queue("small", "", Some((20, 1000)));
        let pair = |queue: &str, priority| {
            let mut spec = JobSpec { queue: queue.to_owned(), gang: 2, ..with_priority(job(10, 10), priority) };
            spec.node_labels.extend(labelled.then(|| ("zone".to_owned(), "x".to_owned())));
            spec
        };
        for name in ["a", "b", "c", "d"] {
            world.labelled_node(name, cards(&[(Gpu, 10, 100)]), &[("zone", "x")]);
        }
        let first = world.submit(pair("default", 50));
        world.settle(3);
        let low = world.submit(pair("small", 10));
        world.settle(3);
        world.finish(first);
        let mut pool = Pool::new(&world.state);
        world.state.take_touched();
        let urgent = world.submit(pair("small", 90));
        let mut decide = |world: &mut World| {
            let touched = world.state.take_touched();
            pool.refresh(&world.state, &touched);
            let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
            world.commit(&decision)
        };
        let parts = decide(&mut world);
        let [PlanPart::Grant { job, victims, .. }] = &parts[..] else { panic!("one grant was expected: {parts:?}") };
        assert_eq!((*job, &victims[..]), (urgent, &[low][..]));
        let other = world.submit(pair("default", 50));
        decide(&mut world);
        assert_eq!(world.job_state(other), JobState::Starting, "the first two nodes are free");
    }
}

/// A job that gave way waits: what it asks for in the place of another would take its queue beyond the memory that it
/// is guaranteed.
fn gave_way_before(world: &mut World) -> (JobId, JobId, JobId) {
    let of = |tflops, memory, priority| JobSpec { queue: "top".to_owned(), priority, ..job(tflops, memory) };
    world.queue_of("top", "", (10, 100), None, 1);
    world.node("a", cards(&[(Gpu, 10, 0), (Gpu, 4, 110), (Gpu, 1, 60)]));
    world.submit(of(10, 0, 95));
    let other = world.submit(of(1, 60, 95));
    let waiting = world.submit(of(2, 100, 50));
    world.settle(4);
    let urgent = world.submit(of(4, 10, 90));
    assert_eq!(world.settle(4), [waiting]);
    world.apply(Command::HoldJob { job: waiting });
    world.finish(urgent);
    let victim = world.submit(of(4, 10, 10));
    world.settle(4);
    world.apply(Command::ReleaseJob { job: waiting });
    (waiting, victim, other)
}

/// Decides on an index that was kept current; the job must start in the place of the other one then.
fn starts_in_the_place_of(world: &mut World, pool: &mut Pool, job: JobId, victim: JobId) {
    let touched = world.state.take_touched();
    pool.refresh(&world.state, &touched);
    let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
    let parts = world.commit(&decision);
    let [PlanPart::Grant { job: granted, victims, .. }] = &parts[..] else { panic!("a grant was expected: {parts:?}") };
    assert_eq!((*granted, &victims[..]), (job, &[victim][..]));
}

/// An index on which nothing was decided in favour of that job.
fn waits(world: &mut World) -> Pool {
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
    assert_eq!(decision.plan.parts, vec![], "{:?} would be on loan beyond 100 MiB", world.standing("top"));
    pool
}

#[test]
fn who_gave_way_takes_no_more_than_others_give_until_a_guarantee_has_room() {
    let mut world = World::default();
    let (waiting, victim, other) = gave_way_before(&mut world);
    let mut pool = waits(&mut world);
    world.finish(other);
    starts_in_the_place_of(&mut world, &mut pool, waiting, victim);
}

#[test]
fn who_gave_way_takes_what_there_is_once_nobody_is_guaranteed_anything() {
    let mut world = World::default();
    let (waiting, victim, _) = gave_way_before(&mut world);
    let mut pool = waits(&mut world);
    world.queue_of("top", "", (0, 0), None, 1);
    starts_in_the_place_of(&mut world, &mut pool, waiting, victim);
}

/// Its queue is full, and whoever may give way there is in another rack than the one that is free.
#[test]
fn a_gang_that_stays_together_preempts_where_it_can_be_together_with_what_is_given() {
    let mut world = World::default();
    world.queue("small", "", Some((20, 1000)));
    for (name, rack) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
        world.labelled_node(name, cards(&[(Gpu, 10, 100)]), &[("rack", rack), ("name", name)]);
    }
    let mut low = JobSpec { queue: "small".to_owned(), ..with_priority(job(10, 10), 10) };
    low.node_labels.insert("name".to_owned(), "b1".to_owned());
    let low = world.submit(low);
    world.settle(3);
    let mut pair = JobSpec { queue: "small".to_owned(), gang: 2, ..with_priority(job(10, 10), 90) };
    pair.virtual_card.span = Span::Node;
    pair.affinity.together = "rack".to_owned();
    let pair = world.submit(pair);
    assert_eq!(world.settle(3), [low]);
    assert_eq!((world.job_state(pair), world.job_state(low)), (JobState::Running, JobState::Suspended));
}
