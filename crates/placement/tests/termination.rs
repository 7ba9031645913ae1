//! Preemption comes to an end: whatever queues, guarantees and jobs there are, a pool that is left alone comes to rest, and nobody who
//! gave way makes way for themselves again and again. And no plan takes a queue above its maximum.

mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_ledger::*;
use world::history::{RandomCard, nodes};
use world::{World, job};

const QUEUES: [&str; 5] = ["default", "top", "left", "right", "other"];

/// A queue: guaranteed TFLOPS, how much more it may have, weight.
type RandomQueue = (u64, Option<u64>, u32);

/// A job: TFLOPS, MiB, gang, priority, preemptible, queue, span.
type RandomJob = (u64, u64, u32, u32, bool, usize, Span);

fn random_queue() -> impl Strategy<Value = RandomQueue> {
    (prop::sample::select(vec![0u64, 5, 10, 25]), prop::option::weighted(0.3, 0u64..30), 1u32..5)
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
    for (name, (guaranteed, more, weight)) in QUEUES.iter().zip(queues) {
        let parent = if matches!(*name, "left" | "right") { "top" } else { "" };
        let maximum = more.map(|more| (guaranteed + more, 1_000_000));
        world.queue_of(name, parent, (*guaranteed, 100_000), maximum, *weight);
    }
    world
}

fn submit(world: &mut World, random: &RandomJob) {
    let (tflops, memory, gang, priority, preemptible, queue, span) = *random;
    let queue = QUEUES[queue].to_owned();
    let mut spec = JobSpec { gang, priority, preemptible, queue, ..job(tflops, memory) };
    spec.virtual_card.span = span;
    world.try_submit(spec);
}

fn maxima_hold(world: &World) -> bool {
    world.state.queues().all(|queue| queue.settings.maximum.is_none_or(|maximum| queue.standing().within(maximum)))
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(128)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn a_pool_that_is_left_alone_comes_to_rest(
        nodes in nodes(),
        queues in prop::collection::vec(random_queue(), QUEUES.len()),
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
    fn a_job_within_its_guarantee_never_waits_for_a_loan(
        queues in prop::collection::vec(prop::sample::select(vec![0u64, 5, 10]), QUEUES.len()),
        borrowers in prop::collection::vec((0..QUEUES.len(), any::<bool>()), 20..60),
        owner in 0..QUEUES.len(),
    ) {
        // Cards of one block: nothing is ever in the way but what others hold.
        let nodes = vec![vec![(CardKind::Gpu, 1, 100, 0, false); 8]; 5];
        let settings: Vec<RandomQueue> = queues.iter().map(|guaranteed| (*guaranteed, None, 1)).collect();
        let mut world = world(&nodes, &settings);
        // Only top queues: a guarantee below another one is a claim on its sisters.
        let top: Vec<usize> = (0..QUEUES.len()).filter(|queue| !matches!(QUEUES[*queue], "left" | "right")).collect();
        let of = |queue: usize| QUEUES[top[queue % top.len()]].to_owned();
        for (queue, preemptible) in borrowers {
            world.try_submit(JobSpec { queue: of(queue), preemptible, priority: 100, ..job(1, 1) });
        }
        world.settle(200);
        let (owner, guaranteed) = (of(owner), queues[top[owner % top.len()]]);
        for _ in 0..guaranteed {
            world.try_submit(JobSpec { queue: owner.clone(), priority: 0, ..job(1, 1) });
        }
        world.settle(200);
        let all: u64 = top.iter().map(|queue| queues[*queue]).sum();
        prop_assert!(all <= 40, "the pool holds what it guarantees");
        prop_assert!(world.standing(&owner).0 >= guaranteed, "{owner} holds {:?} of {guaranteed}", world.standing(&owner));
    }
}
