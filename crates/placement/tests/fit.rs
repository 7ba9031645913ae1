//! Fitting jobs into a pool: one test for each rule by which virtual cards and gangs are placed, through the public
//! commands of the ledger.

use tessera_ledger::*;

use CardKind::{Cpu, Gpu, Npu};

use crate::world::{World, cards, job, reference_pool, spanning};

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
    let mut too_large = spanning(Span::Node, job(40, 100));
    too_large.virtual_card.kinds.insert(Gpu);
    let too_large = world.submit(too_large);
    let mut over_nodes = spanning(Span::Pool, job(40, 100));
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
fn kinds_mix_only_where_allowed_and_only_when_needed() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 9, 90), (Gpu, 9, 90), (Npu, 20, 200)]));
    let mut spec = spanning(Span::Node, job(20, 0));
    spec.virtual_card.mixed = true;
    let one_kind = world.submit(spec.clone());
    world.place();
    assert_eq!(world.slices(one_kind).iter().map(|slice| slice.card.index).collect::<Vec<_>>(), [2]);
    let unmixed = world.submit(spanning(Span::Node, job(19, 0)));
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
    let id = world.submit(spanning(Span::Node, job(30, 30)));
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
fn a_virtual_card_that_spreads_has_the_memory_asked_for_on_each_card() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 20), (Gpu, 10, 60)]));
    let with_slices = |tflops, memory, slice_memory, span| {
        let mut spec = spanning(span, job(tflops, memory));
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

/// On one node two cards of different models are needed for a virtual card, on the other one is enough.
#[test]
fn a_gang_of_whole_cards_finds_those_that_only_several_models_give() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 6, 200)]));
    world.node("b", cards(&[(Gpu, 4, 50), (Gpu, 4, 100)]));
    let mut gang = JobSpec { gang: 2, ..spanning(Span::Node, job(4, 120)) };
    gang.virtual_card.whole_cards = true;
    let gang = world.submit(gang);
    world.place();
    assert_eq!(world.slices(gang).len(), 3);
}

/// No kind alone is enough, and whole cards of both are.
#[test]
fn a_virtual_card_of_whole_cards_mixes_kinds() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 8, 400), (Cpu, 8, 100)]));
    let mut mixed = spanning(Span::Node, job(9, 0));
    mixed.virtual_card.whole_cards = true;
    mixed.virtual_card.mixed = true;
    let mixed = world.submit(mixed);
    world.place();
    assert_eq!(world.slices(mixed).len(), 2);
}

/// A card with a lost slice in its middle cannot be renumbered, so that a share of it may take several of its few
/// slices. Once the lost one is found again nothing more is free of it, but more fits.
#[test]
fn what_waits_for_a_card_to_be_renumbered_is_tried_when_it_can_be() {
    let mut world = World::default();
    let mut list = cards(&[(Npu, 20, 1000)]);
    list[0].max_slices = 3;
    world.node("a", list);
    let first = world.submit(job(16, 0));
    let middle = world.submit(job(2, 0));
    world.place();
    [first, middle].into_iter().for_each(|id| world.start(id));
    world.finish(first);
    let allocation = world.state.job(middle).unwrap().allocation.unwrap();
    world.report(allocation, Rank(0), Observation::Unconfirmed { message: String::new() });
    let gang = world.submit(JobSpec { gang: 2, ..spanning(Span::Node, job(3, 300)) });
    let mut pool = tessera_placement::Pool::new(&world.state);
    let mut decide = |world: &mut World| {
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        let decision = pool.decide(&world.state, LogTime(world.time), &tessera_placement::Limits::default());
        world.commit(&decision);
        world.job_state(gang)
    };
    assert_eq!(decide(&mut world), JobState::Pending);
    world.report(allocation, Rank(0), Observation::Running);
    assert_eq!(decide(&mut world), JobState::Starting);
}
