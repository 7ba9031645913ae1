//! The worked examples P8, P9 and P10, and one test for each rule of placement, through the public commands of the ledger.

mod world;

use std::time::Duration;

use tessera_ledger::*;
use tessera_placement::{Limits, Pool};
use world::{World, cards, job, reference_pool};

use CardKind::{Cpu, Gpu, Npu};

fn spanning(tflops: u64, memory: u64, span: Span) -> JobSpec {
    let mut spec = job(tflops, memory);
    spec.virtual_card.span = span;
    spec
}

fn with_priority(spec: JobSpec, priority: u32) -> JobSpec {
    JobSpec { priority, ..spec }
}

#[test]
fn p8_the_reference_pool_has_200_blocks_that_one_job_can_hold() {
    let mut world = reference_pool();
    assert_eq!(world.state.block_counts().free, 200);
    let mut spec = spanning(200, 0, Span::Pool);
    spec.virtual_card.mixed = true;
    let id = world.submit(spec);
    world.place();
    assert_eq!(world.state.block_counts().held, 200);
    let slices = world.slices(id);
    assert_eq!(slices.len(), 16);
    assert_eq!(slices.iter().map(|slice| slice.card.node).max(), Some(NodeId(3)));
}

#[test]
fn p9_fifty_tflops_on_node_0_take_blocks_1_to_50() {
    let mut world = reference_pool();
    let mut spec = spanning(50, 500, Span::Node);
    spec.virtual_card.mixed = true;
    spec.node_labels.insert("number".to_owned(), "0".to_owned());
    let id = world.submit(spec);
    world.place();
    assert_eq!(world.numbers(id), vec![(1, 9), (10, 18), (19, 38), (39, 50)]);
    let memory: u64 = world.slices(id).iter().map(|slice| slice.memory.0).sum();
    assert!((500..504).contains(&memory), "{memory} MiB were granted for 500");
}

#[test]
fn p10_renumbering_makes_room_for_the_fourth_application() {
    let mut world = World::default();
    world.node("only", cards(&[(Gpu, 10, 100)]));
    let apps: Vec<JobId> = [3, 3, 2]
        .into_iter()
        .map(|tflops| {
            let id = world.submit(job(tflops, 10));
            world.place();
            world.start(id);
            id
        })
        .collect();
    assert_eq!(apps.iter().map(|app| world.numbers(*app)).collect::<Vec<_>>(), [[(1, 3)], [(4, 6)], [(7, 8)]]);
    world.finish(apps[0]);
    let fourth = world.submit(job(4, 10));
    let parts = world.place();
    assert!(matches!(parts[0], PlanPart::Renumber { .. }), "{parts:?}");
    assert_eq!(world.numbers(apps[1]), [(1, 3)]);
    assert_eq!(world.numbers(apps[2]), [(4, 5)]);
    assert_eq!(world.numbers(fourth), [(6, 9)]);
    let card = world.state.cards().next().expect("the pool has one card").1.clone();
    let last = card.extents.as_slice().last().copied().expect("the card has blocks");
    assert_eq!((last.start, last.length, last.state), (BlockIndex(9), BlockCount(1), BlockState::Free));
}

#[test]
fn a_card_is_not_renumbered_when_a_hole_is_large_enough() {
    let mut world = World::default();
    world.node("only", cards(&[(Gpu, 10, 100)]));
    let apps: Vec<JobId> = [3, 3, 2].into_iter().map(|tflops| world.submit(job(tflops, 10))).collect();
    world.place();
    world.start(apps[0]);
    world.finish(apps[0]);
    let small = world.submit(job(2, 10));
    let parts = world.place();
    assert!(matches!(parts[..], [PlanPart::Grant { .. }]), "{parts:?}");
    assert_eq!(world.numbers(small), [(9, 10)]);
}

#[test]
fn a_gang_on_one_card_that_is_renumbered_between_its_members_keeps_its_blocks_apart() {
    let mut world = World::default();
    world.node("only", cards(&[(Gpu, 12, 100)]));
    let apps: Vec<JobId> = [3, 3, 3, 3].into_iter().map(|tflops| world.submit(job(tflops, 10))).collect();
    world.place();
    for app in [apps[0], apps[2]] {
        world.start(app);
        world.finish(app);
    }
    let mut spec = job(2, 10);
    spec.gang = 3;
    let gang = world.submit(spec);
    let parts = world.place();
    assert!(matches!(parts[0], PlanPart::Renumber { .. }), "{parts:?}");
    assert_eq!(world.numbers(gang), [(7, 8), (9, 10), (11, 12)]);
}

#[test]
fn best_fit_leaves_the_large_card_for_the_large_job() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 20, 100), (Gpu, 10, 100)]));
    let small = world.submit(job(8, 10));
    let large = world.submit(job(20, 10));
    world.place();
    assert_eq!(world.slices(small)[0].card.index, 1);
    assert_eq!(world.slices(large)[0].card.index, 0);
}

#[test]
fn memory_decides_as_much_as_compute() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 400)]));
    let id = world.submit(job(2, 200));
    world.place();
    assert_eq!(world.slices(id)[0].card.index, 1);
}

#[test]
fn processors_of_hosts_are_the_last_resort() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 40, 100), (Cpu, 2, 100)]));
    let (first, second) = (world.submit(job(2, 10)), world.submit(job(39, 10)));
    let third = world.submit(job(2, 10));
    world.place();
    assert_eq!(world.slices(first)[0].card.index, 0);
    assert_eq!(world.job_state(second), JobState::Pending);
    assert_eq!(world.slices(third)[0].card.index, 0);
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let mut world = World::default();
    for name in ["a", "b", "c", "d"] {
        world.node(name, cards(&[(Gpu, 10, 100)]));
    }
    let mut spec = job(6, 10);
    spec.gang = 5;
    assert_eq!(world.try_submit(spec.clone()), None, "four cards hold four of them at most");
    world.submit(job(5, 10));
    world.place();
    spec.gang = 4;
    let (gang, single) = (world.submit(spec.clone()), world.submit(job(10, 10)));
    world.place();
    assert_eq!(world.job_state(gang), JobState::Pending);
    assert_eq!(world.job_state(single), JobState::Starting, "a job that does not fit does not block those behind it");
    spec.gang = 2;
    let pair = world.submit(spec);
    world.place();
    assert_eq!(world.slices(pair).len(), 2);
}

#[test]
fn a_gang_stays_on_one_node_that_has_room_for_it() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.node("b", cards(&[(Gpu, 12, 100), (Gpu, 12, 100), (Gpu, 12, 100)]));
    let mut spec = job(10, 10);
    spec.gang = 3;
    let gang = world.submit(spec);
    world.place();
    assert!(world.slices(gang).iter().all(|slice| slice.card.node == NodeId(1)));
}

#[test]
fn a_virtual_card_spreads_only_as_far_as_it_may() {
    let mut world = reference_pool();
    let on_card = world.submit(job(25, 100));
    let mut too_large = spanning(40, 100, Span::Node);
    too_large.virtual_card.kinds.insert(Gpu);
    let too_large = world.submit(too_large);
    let mut over_nodes = spanning(40, 100, Span::Pool);
    over_nodes.virtual_card.kinds.insert(Gpu);
    let over_nodes = world.submit(over_nodes);
    world.place();
    assert_eq!(world.slices(on_card).len(), 1);
    assert_eq!(world.job_state(too_large), JobState::Pending);
    let nodes: Vec<NodeId> = world.slices(over_nodes).iter().map(|slice| slice.card.node).collect();
    assert_eq!(nodes.first(), Some(&NodeId(0)), "the last node is as small as will do");
    assert_eq!(nodes.last(), Some(&NodeId(3)));
    assert!(!nodes.contains(&NodeId(1)), "two nodes are enough: {nodes:?}");
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
    let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
    assert!(decision.plan.parts.is_empty());
    let next = decision.next_wakeup.expect("the protection ends at a known time");
    assert!(pool.decide(&world.state, LogTime(next.0 - 1), &Limits::default()).plan.parts.is_empty());
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
fn kinds_mix_only_where_allowed_and_only_when_needed() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 9, 90), (Gpu, 9, 90), (Npu, 20, 200)]));
    let mut spec = spanning(20, 0, Span::Node);
    spec.virtual_card.mixed = true;
    let one_kind = world.submit(spec.clone());
    world.place();
    assert_eq!(world.slices(one_kind).iter().map(|slice| slice.card.index).collect::<Vec<_>>(), [2]);
    let unmixed = world.submit(spanning(19, 0, Span::Node));
    assert!(world.place().is_empty());
    assert_eq!(world.job_state(unmixed), JobState::Pending);
}

/// Eight cards; the odd ones are linked by a fabric, the others only by the node.
fn linked_node() -> World {
    let mut list = cards(&[(Gpu, 10, 100); 8]);
    for card in list.iter_mut().filter(|card| card.index % 2 == 1) {
        let fabric = |peer_index| Link { peer_index, kind: LinkKind::Fabric, megabytes_per_second: 0 };
        card.links = [1, 3, 5, 7].into_iter().filter(|peer| *peer != card.index).map(fabric).collect();
    }
    let mut world = World::default();
    world.node("a", list);
    world
}

#[test]
fn a_virtual_card_takes_cards_that_are_close_to_one_another() {
    let mut world = linked_node();
    let id = world.submit(spanning(30, 30, Span::Node));
    world.place();
    assert_eq!(world.slices(id).iter().map(|slice| slice.card.index).collect::<Vec<_>>(), [1, 3, 5]);
}

#[test]
fn a_gang_takes_cards_that_are_close_to_one_another() {
    let mut world = linked_node();
    let taken = world.submit(job(10, 10));
    world.place();
    assert_eq!(world.slices(taken)[0].card.index, 0);
    let first = world.submit(job(10, 10));
    let mut spec = job(10, 10);
    spec.gang = 3;
    spec.priority = 60;
    let gang = world.submit(spec);
    world.place();
    let cards: Vec<u32> = world.slices(gang).iter().map(|slice| slice.card.index).collect();
    assert_eq!((cards, world.slices(first)[0].card.index), (vec![1, 3, 5], 2));
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

#[test]
fn a_virtual_card_that_spreads_has_the_memory_asked_for_on_each_card() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 20), (Gpu, 10, 60)]));
    let with_slices = |tflops, memory, slice_memory, span| {
        let mut spec = spanning(tflops, memory, span);
        spec.virtual_card.slice_memory = Mebibytes(slice_memory);
        spec
    };
    // One card has too little; in proportion to compute the second one would get less than 40 MiB.
    let id = world.submit(with_slices(14, 50, 40, Span::Node));
    world.place();
    let memory: Vec<(u32, u64)> = world.slices(id).iter().map(|slice| (slice.card.index, slice.memory.0)).collect();
    assert_eq!(memory, [(0, 40), (2, 40)]);
    // On one card the larger of both counts.
    let single = world.submit(with_slices(1, 10, 15, Span::Card));
    world.place();
    assert_eq!(world.slices(single)[0].memory.0, 15);
    assert_eq!(world.try_submit(with_slices(14, 50, 101, Span::Node)), None, "no card has so much");
    let waits = world.submit(with_slices(15, 50, 30, Span::Node));
    world.place();
    assert_eq!(
        world.job_state(waits),
        JobState::Pending,
        "two cards have compute enough, and only one has 30 MiB left"
    );
}
