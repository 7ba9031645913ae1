//! The patent's worked examples P8, P9 and P10, through the public commands.

use tessera_ledger::{
    BlockCount, BlockNumber, CardId, CardKind, JobState, NodeId, Observation, Outcome, PlanPart, PlannedWorker, Span,
};

use crate::pool::{self, Pool, card, slice};

/// P8: blocks are numbered in registration order, contiguous within a node, one region per kind of card.
#[test]
fn p8_the_reference_pool_has_two_hundred_blocks_in_order() {
    let pool = Pool::reference();
    let numbers: Vec<(u64, u64)> = pool
        .state
        .nodes()
        .map(|node| {
            let blocks: u64 = pool.state.cards_of(node.id).map(|(_, card)| u64::from(card.blocks.0)).sum();
            (node.base.0, node.base.0 + blocks - 1)
        })
        .collect();
    assert_eq!(numbers, [(1, 63), (64, 119), (120, 145), (146, 200)]);
    assert_eq!(pool.state.block_counts().free, 200);
    let first_npu = pool.state.cards_of(NodeId(0)).find(|(_, card)| card.description.kind == CardKind::Npu).unwrap().0;
    assert_eq!(pool.state.block_number(first_npu, 0), Some(BlockNumber(19)));
}

/// P9: 50 TFLOPS on node 0 are blocks 1-18 (GPU), 19-38 (NPU) and 39-50 (FPGA).
#[test]
fn p9_one_virtual_card_over_the_kinds_of_a_node() {
    let mut pool = Pool::reference();
    let job = pool.submit(|spec| {
        spec.virtual_card.compute = tessera_ledger::MilliTflops::from_tflops(50);
        spec.virtual_card.span = Span::Node;
        spec.virtual_card.mixed = true;
    });
    let slices = vec![slice(0, 0, 0, 9), slice(0, 1, 0, 9), slice(0, 2, 0, 20), slice(0, 3, 0, 12)];
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices };
    pool.accept(PlanPart::Grant { job, workers: vec![worker], victims: vec![] });
    let allocation = pool.allocation_of(job);
    let numbers: Vec<(u64, u64)> = allocation.workers[0]
        .slices
        .iter()
        .map(|slice| {
            let first = pool.state.block_number(slice.card, slice.start.0).unwrap().0;
            (first, first + u64::from(slice.length.0) - 1)
        })
        .collect();
    assert_eq!(numbers, [(1, 9), (10, 18), (19, 38), (39, 50)]);
}

/// P10: app1 ends, app4 asks for 4; after renumbering app2 has [1-3], app3 [4-5], app4 [6-9] and [10] is free.
#[test]
fn p10_release_then_migration_makes_room_without_touching_the_work() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let mut start = 0;
    let apps: Vec<_> = [3, 3, 2]
        .into_iter()
        .map(|blocks| {
            let job = pool.submit(|spec| {
                spec.virtual_card.compute = tessera_ledger::MilliTflops::from_tflops(u64::from(blocks));
            });
            pool.grant(job, vec![slice(0, 0, start, blocks)]);
            pool.report_all(job, &Observation::Running);
            start += blocks;
            job
        })
        .collect();
    pool.report_all(apps[0], &pool::exited(0));
    assert_eq!(pool.state.job(apps[0]).unwrap().state, JobState::Completed);
    let app4 = pool.submit(|spec| spec.virtual_card.compute = tessera_ledger::MilliTflops::from_tflops(4));
    let gpu = CardId { node: NodeId(0), index: 0 };
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 5, 4)] };
    let part = PlanPart::Grant { job: app4, workers: vec![worker], victims: vec![] };
    let outcome = pool.plan(vec![part.clone()]);
    assert!(matches!(&outcome, Outcome::Planned(parts) if parts[0].is_err()), "no four neighbours before: {outcome:?}");
    pool.accept(PlanPart::Renumber { card: gpu });
    pool.accept(part);
    let place = |job| {
        let slice = pool.allocation_of(job).workers[0].slices[0];
        let first = pool.state.block_number(slice.card, slice.start.0).unwrap().0;
        (first, first + u64::from(slice.length.0) - 1)
    };
    assert_eq!(place(apps[1]), (1, 3));
    assert_eq!(place(apps[2]), (4, 5));
    assert_eq!(place(app4), (6, 9));
    let free = pool.state.card(gpu).unwrap().extents.as_slice().last().copied().unwrap();
    assert_eq!((free.start.0, free.length), (9, BlockCount(1)));
    assert_eq!(pool.state.job(apps[1]).unwrap().state, JobState::Running);
}
