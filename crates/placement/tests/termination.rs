//! Preemption comes to an end: whatever queues, guarantees and jobs there are, a pool that is left alone comes to rest,
//! and nobody who gave way makes way for themselves again and again. And no plan takes a queue above its maximum.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_ledger::*;

use crate::world::history::{RandomCard, nodes};
use crate::world::{World, cards, cases, job};

/// The queues and those above them, the ones above first.
const QUEUES: [(&str, &str); 9] = [
    ("default", ""),
    ("top", ""),
    ("other", ""),
    ("left", "top"),
    ("right", "top"),
    ("inner", "left"),
    ("outer", "left"),
    ("one", "other"),
    ("two", "other"),
];

/// A queue: guaranteed TFLOPS, how much more it may have, weight.
type RandomQueue = (u64, Option<u64>, u32);

/// A job: TFLOPS, MiB, gang, priority, preemptible, queue, span.
type RandomJob = (u64, u64, u32, u32, bool, usize, Span);

fn random_queue() -> impl Strategy<Value = RandomQueue> {
    (prop::sample::select(vec![0u64, 5, 10, 25]), prop::option::weighted(0.3, 0u64..30), 1u32..5)
}

/// Queues that are guaranteed something anywhere in the tree, or only at its top, where all below claim it.
fn random_queues() -> impl Strategy<Value = Vec<RandomQueue>> {
    (prop::collection::vec(random_queue(), QUEUES.len()), any::<bool>()).prop_map(|(mut queues, only_top)| {
        for ((_, parent), (guaranteed, ..)) in QUEUES.iter().zip(&mut queues) {
            *guaranteed = if only_top && !parent.is_empty() { 0 } else { *guaranteed };
        }
        queues
    })
}

/// The queue at the top of a branch.
fn top_of(queue: usize) -> usize {
    let (_, parent) = QUEUES[queue];
    QUEUES.iter().position(|(name, _)| *name == parent).map_or(queue, top_of)
}

fn random_job() -> impl Strategy<Value = RandomJob> {
    let span = prop::sample::select(vec![Span::Card, Span::Card, Span::Node, Span::Pool]);
    let gang = prop::sample::select(vec![1u32, 1, 1, 2, 4]);
    (1u64..15, 0u64..200, gang, 0u32..=100, prop::bool::weighted(0.7), 0..QUEUES.len(), span)
}

fn world(nodes: &[Vec<RandomCard>], queues: &[RandomQueue]) -> World {
    let mut world = World::random(nodes);
    // The budget of preemptions would hide a loop: it is as good as none here.
    let config = PoolConfig { preemptions_per_hour: 10_000, ..PoolConfig::default() };
    assert_eq!(world.apply(Command::SetConfig { config, expected: None }), Outcome::Done);
    for ((name, parent), (guaranteed, more, weight)) in QUEUES.iter().zip(queues) {
        let maximum = more.map(|more| (guaranteed + more, 1_000_000));
        world.queue_of(name, parent, (*guaranteed, 100_000), maximum, *weight);
    }
    world
}

fn submit(world: &mut World, random: &RandomJob) {
    let (tflops, memory, gang, priority, preemptible, queue, span) = *random;
    let queue = QUEUES[queue].0.to_owned();
    let mut spec = JobSpec { gang, priority, preemptible, queue, ..job(tflops, memory) };
    spec.virtual_card.span = span;
    world.try_submit(spec);
}

fn maxima_hold(world: &World) -> bool {
    world.state.queues().all(|queue| queue.settings.maximum.is_none_or(|maximum| queue.standing().within(maximum)))
}

/// One card that takes two slices, one of them held for good. Each queue has a small job within its guarantee and a
/// large, more urgent one beyond it: the slice is worth far more room to the large ones than the small ones hold.
#[test]
fn a_slice_does_not_go_round_between_what_is_guaranteed_and_what_is_lent() {
    let mut world = World::default();
    let mut card = cards(&[(CardKind::Gpu, 20, 400)]);
    card[0].max_slices = 2;
    world.node("a", card);
    let config = PoolConfig { preemptions_per_hour: 10_000, ..PoolConfig::default() };
    assert_eq!(world.apply(Command::SetConfig { config, expected: None }), Outcome::Done);
    for (queue, guaranteed) in [("left", 5), ("right", 10)] {
        world.queue_of(queue, "", (guaranteed, 1000), None, 1);
    }
    let of = |queue: &str, tflops, priority| JobSpec { queue: queue.to_owned(), priority, ..job(tflops, 10) };
    world.submit(JobSpec { preemptible: false, ..of("right", 1, 0) });
    world.settle(4);
    let large = ["left", "right"].map(|queue| (queue, 15, 1));
    let small = [("left", 3, 0), ("right", 1, 0)];
    for (queue, tflops, priority) in large.into_iter().chain(small) {
        world.submit(of(queue, tflops, priority));
    }
    let gave_way = world.settle(16);
    assert!(gave_way.len() <= 4, "no job gives way twice: {gave_way:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(128)))]

    #[test]
    fn a_pool_that_is_left_alone_comes_to_rest(
        nodes in nodes(),
        queues in random_queues(),
        waves in prop::collection::vec(prop::collection::vec(random_job(), 1..12), 1..5),
    ) {
        let mut world = world(&nodes, &queues);
        let mut jobs = 0;
        for wave in &waves {
            jobs += wave.len();
            wave.iter().for_each(|random| submit(&mut world, random));
            // In each round something is granted; nothing is granted twice but what gave way in between.
            let gave_way = world.settle(4 * jobs + 4);
            let mut often: BTreeMap<JobId, usize> = BTreeMap::new();
            gave_way.into_iter().for_each(|id| *often.entry(id).or_default() += 1);
            prop_assert!(often.values().all(|times| *times <= jobs), "{often:?} of {jobs} jobs");
            prop_assert!(maxima_hold(&world));
        }
    }

    #[test]
    fn a_job_within_the_guarantee_of_its_branch_never_waits_for_a_loan(
        guaranteed in prop::collection::vec(prop::sample::select(vec![0u64, 5, 10]), QUEUES.len()),
        borrowers in prop::collection::vec((0..QUEUES.len(), any::<bool>()), 20..60),
        owners in prop::collection::vec(0..QUEUES.len(), 10..30),
        owner in 0..QUEUES.len(),
    ) {
        // Cards of one block: nothing is ever in the way but what others hold.
        let nodes = vec![vec![(CardKind::Gpu, 1, 100, 0, false); 8]; 5];
        // Guarantees of the top only. One further down is a claim on its sisters, and a shield against everybody.
        let is_top = |queue: usize| QUEUES[queue].1.is_empty();
        let settings: Vec<RandomQueue> =
            (0..QUEUES.len()).map(|queue| (if is_top(queue) { guaranteed[queue] } else { 0 }, None, 1)).collect();
        let mut world = world(&nodes, &settings);
        let is_leaf = |queue: &usize| QUEUES.iter().all(|(_, parent)| *parent != QUEUES[*queue].0);
        let leaves: Vec<usize> = (0..QUEUES.len()).filter(is_leaf).collect();
        for (queue, preemptible) in borrowers {
            let queue = QUEUES[leaves[queue % leaves.len()]].0.to_owned();
            world.try_submit(JobSpec { queue, preemptible, priority: 100, ..job(1, 1) });
        }
        world.settle(200);
        let owner = top_of(owner);
        let of_owner: Vec<usize> = leaves.iter().copied().filter(|leaf| top_of(*leaf) == owner).collect();
        for queue in owners {
            let queue = QUEUES[of_owner[queue % of_owner.len()]].0.to_owned();
            world.try_submit(JobSpec { queue, priority: 0, ..job(1, 1) });
        }
        world.settle(200);
        let all: u64 = settings.iter().map(|(guaranteed, ..)| guaranteed).sum();
        prop_assert!(all <= 40, "the pool holds what it guarantees");
        let (owner, guaranteed) = (QUEUES[owner].0, settings[owner].0);
        prop_assert!(world.standing(owner).0 >= guaranteed, "{owner} holds {:?} of {guaranteed}", world.standing(owner));
    }
}
