//! The worked examples P8, P9 and P10, and what renumbering does, through the public commands of the ledger.

use tessera_ledger::*;

use CardKind::Gpu;

use crate::world::{World, cards, job, reference_pool, spanning};

#[test]
fn p8_the_reference_pool_has_200_blocks_that_one_job_can_hold() {
    let mut world = reference_pool();
    assert_eq!(world.state.block_counts().free, 200);
    let mut spec = spanning(Span::Pool, job(200, 0));
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
    let mut spec = spanning(Span::Node, job(50, 500));
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
fn a_gang_on_one_card_that_is_renumbered_between_its_virtual_cards_keeps_its_blocks_apart() {
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
