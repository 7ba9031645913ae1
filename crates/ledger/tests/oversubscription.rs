//! Oversubscription: a policy that makes cards offer more than they are rated for, and harms nobody (law L6).

use tessera_ledger::wire::{decode_snapshot, encode_snapshot};
use tessera_ledger::{
    BlockCount, BlockNumber, CardId, CardKind, Command, Isolation, JobId, MilliTflops, NodeId, Observation, Outcome,
    Percent, PlanPart, PlannedWorker, PoolConfig, Precision, Rejection, Slice, laws,
};

use crate::pool::{self, Pool, card, exited, slice};

const CARD: CardId = CardId { node: NodeId(0), index: 0 };

fn set(pool: &mut Pool, percent: u32) {
    let config = PoolConfig { oversubscription: [(CardKind::Gpu, Percent(percent))].into(), ..PoolConfig::default() };
    assert_eq!(pool.run(Command::SetConfig { config, expected: None }), Outcome::Done);
}

fn shared(start: u32, blocks: u32) -> Slice {
    Slice { isolation: Isolation::Shared, ..slice(0, 0, start, blocks) }
}

/// A job that runs on such a slice.
fn running(pool: &mut Pool, slice: Slice) -> JobId {
    let job = pool.submit(|spec| spec.virtual_card.isolation = slice.isolation);
    pool.grant(job, vec![slice]);
    pool.report_all(job, &Observation::Running);
    job
}

fn refusal(pool: &mut Pool, slice: Slice) -> Rejection {
    let job = pool.submit(|spec| spec.virtual_card.isolation = slice.isolation);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice] };
    match pool.plan(vec![PlanPart::Grant { job, workers: vec![worker], victims: vec![] }]) {
        Outcome::Planned(mut parts) => parts.remove(0).expect_err("it was accepted"),
        other => panic!("{other:?}"),
    }
}

fn offers(pool: &Pool) -> (u32, Isolation, Percent) {
    let card = pool.state.card(CARD).unwrap();
    (card.blocks.0, card.isolation(), card.oversubscription)
}

#[test]
fn a_card_offers_more_blocks_of_the_same_size_and_promises_less() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10), card(CardKind::Npu, 20)]]);
    assert_eq!(offers(&pool), (10, Isolation::Soft, Percent(100)));
    set(&mut pool, 150);
    assert_eq!(offers(&pool), (15, Isolation::Shared, Percent(150)));
    let card = pool.state.card(CARD).unwrap();
    assert_eq!(
        card.blocks_for(MilliTflops::from_tflops(3), Precision::Fp16),
        Some(BlockCount(3)),
        "a block stays a block"
    );
    assert_eq!(card.rate_of(BlockCount(15), Precision::Fp16), MilliTflops::from_tflops(15));
    let npu = pool.state.card(CardId { index: 1, ..CARD }).unwrap();
    assert_eq!((npu.blocks.0, npu.isolation()), (20, Isolation::Soft), "only the kind that was named");
    // Numbers stay unique and contiguous within the node (P2): it has grown, so that it begins anew.
    assert_eq!(pool.state.block_number(CARD, 0), Some(BlockNumber(31)));
    assert_eq!(pool.state.block_number(npu_id(), 0), Some(BlockNumber(46)));
    running(&mut pool, shared(0, 15));
    assert_eq!(refusal(&mut pool, slice(0, 0, 0, 1)).code(), "BLOCKS_NOT_FREE");
}

fn npu_id() -> CardId {
    CardId { index: 1, ..CARD }
}

#[test]
fn the_pool_admits_what_it_offers() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let mut spec = pool::spec();
    spec.virtual_card.compute = MilliTflops::from_tflops(12);
    let submit = tessera_testkit::submission(spec.clone());
    assert!(matches!(pool.run(submit.clone()), Outcome::Rejected(Rejection::ExceedsPool { .. })));
    set(&mut pool, 150);
    assert!(matches!(pool.run(submit.clone()), Outcome::Submitted(_)));
    spec.virtual_card.isolation = Isolation::Soft;
    let isolated = tessera_testkit::submission(spec);
    assert!(
        matches!(pool.run(isolated), Outcome::Rejected(Rejection::ExceedsPool { .. })),
        "no card isolates any more"
    );
    set(&mut pool, 100);
    assert!(matches!(pool.run(submit), Outcome::Rejected(Rejection::ExceedsPool { .. })));
}

#[test]
fn a_job_that_asks_for_isolation_never_lands_there() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    set(&mut pool, 200);
    let mut demanding = pool::spec();
    demanding.virtual_card.isolation = Isolation::Soft;
    assert!(demanding.virtual_card.isolation > pool.state.card(CARD).unwrap().isolation());
    // It was submitted before the policy; now no allocation gives it what it asked for.
    set(&mut pool, 100);
    let job = pool.submit(|spec| spec.virtual_card.isolation = Isolation::Soft);
    set(&mut pool, 200);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 0, 1)] };
    let outcome = pool.plan(vec![PlanPart::Grant { job, workers: vec![worker], victims: vec![] }]);
    let Outcome::Planned(parts) = outcome else { panic!("{outcome:?}") };
    assert_eq!(parts[0].as_ref().map_err(Rejection::code), Err("GRANT_MISMATCH"));
}

#[test]
fn a_card_with_an_isolated_slice_follows_the_policy_when_it_is_given_back() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let isolated = running(&mut pool, slice(0, 0, 0, 4));
    set(&mut pool, 150);
    assert_eq!(offers(&pool), (10, Isolation::Soft, Percent(100)), "what runs keeps what it was promised");
    let shared_one = running(&mut pool, shared(4, 2));
    pool.report_all(isolated, &exited(0));
    assert_eq!(offers(&pool), (15, Isolation::Shared, Percent(150)));
    assert_eq!(pool.allocation_of(shared_one).workers[0].slices, [shared(4, 2)]);
}

#[test]
fn taking_the_policy_back_takes_free_blocks_only() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    set(&mut pool, 150);
    let (low, high) = (running(&mut pool, shared(0, 5)), running(&mut pool, shared(8, 6)));
    set(&mut pool, 100);
    let counts = pool.state.block_counts();
    assert_eq!((counts.running, counts.free, counts.offline), (11, 3, 1));
    assert_eq!(offers(&pool), (10, Isolation::Shared, Percent(100)), "more is held than it is rated for");
    assert_eq!(refusal(&mut pool, slice(0, 0, 5, 1)).code(), "GRANT_MISMATCH");
    assert_eq!(pool.allocation_of(high).workers[0].slices, [shared(8, 6)]);
    let bytes: Vec<_> = encode_snapshot(&pool.state).collect();
    let restored = decode_snapshot(bytes).unwrap();
    assert_eq!(laws::check(&restored), vec![]);
    assert_eq!(restored.card(CARD), pool.state.card(CARD));
    pool.report_all(high, &exited(0));
    assert_eq!(offers(&pool), (10, Isolation::Soft, Percent(100)));
    running(&mut pool, slice(0, 0, 5, 5));
    assert_eq!(pool.allocation_of(low).workers[0].slices, [shared(0, 5)]);
}

#[test]
fn a_policy_that_could_not_be_is_refused() {
    let mut pool = Pool::with_nodes(&[]);
    for percent in [0, 99, 1001] {
        let oversubscription = [(CardKind::Npu, Percent(percent))].into();
        let config = PoolConfig { oversubscription, ..PoolConfig::default() };
        let outcome = pool.run(Command::SetConfig { config, expected: None });
        let Outcome::Rejected(Rejection::Invalid { field, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(field, "config.oversubscription[npu]");
    }
}
