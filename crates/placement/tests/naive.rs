//! The incremental index against a naive scan: whatever has happened to a pool, once nothing more is granted no waiting
//! job fits any card that a scan of the whole ledger finds. (What is granted is checked elsewhere, by the independent
//! check of every plan.)

mod world;

use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::*;
use tessera_placement::{Limits, Pool};
use world::World;
use world::history::{Step, nodes, step};

/// Nobody is kept waiting on purpose: cards kept for somebody else are free and yet not granted.
fn limits() -> Limits {
    Limits { reservations: 0, reserve_after: Duration::from_secs(1_000_000), ..Limits::default() }
}

/// Jobs of one virtual card on one card, in a queue without limits: whether such a job fits can be read off every
/// card alone.
fn simple(step: Step) -> Step {
    match step {
        Step::Submit(mut request) => {
            (request.gang, request.gang_min, request.span, request.queue) = (1, None, Span::Card, 0);
            // What only prefers keeps nobody waiting.
            (request.company.avoid, request.company.together) = (None, None);
            Step::Submit(request)
        }
        Step::Queue(..) => Step::Decide,
        other => other,
    }
}

/// A card that could take the job now as it is, without renumbering or moving anything.
fn scan(state: &State, spec: &JobSpec) -> Option<CardId> {
    let takes = |node: &Node| {
        let labelled = spec.node_labels.iter().all(|(key, value)| node.description.labels.get(key) == Some(value));
        let has = |host| spec.host.fits_in(state.host_use(node.id).left_of(host));
        labelled && node.grantable() && node.description.host.is_none_or(has)
    };
    let nodes = state.nodes().filter(|node| takes(node));
    nodes.flat_map(|node| state.cards_of(node.id)).find(|(_, card)| has_room(state, card, spec)).map(|(id, _)| id)
}

fn has_room(state: &State, card: &Card, spec: &JobSpec) -> bool {
    let request = &spec.virtual_card;
    let precision = request.precision.unwrap_or(state.config().reference_precision);
    let Some(need) = card.blocks_for(request.compute, precision) else { return false };
    let accepted = card.description.health == CardHealth::Healthy
        && (request.kinds.is_empty() || request.kinds.contains(&card.description.kind))
        && need <= card.blocks;
    let slices = match card.description.max_slices {
        0 => usize::MAX,
        most => most.saturating_sub(card.slices) as usize,
    };
    let free = card.extents.as_slice().iter().filter(|extent| extent.state == BlockState::Free);
    let mut runs: Vec<u32> = free.map(|extent| extent.length.0).collect();
    runs.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
    let reach: u32 = runs.into_iter().take(slices).sum();
    let is_empty = card.slices == 0 && reach == card.blocks.0 && card.memory_free() == card.description.memory;
    accepted
        && reach >= need.0
        && card.memory_free() >= request.memory_on_one_card()
        && (is_empty || !request.whole_cards)
}

/// Grants until nothing more is granted; plans take a few rounds, because one plan changes a card only once.
fn exhaust(world: &mut World, pool: &mut Pool) {
    for _ in 0..100 {
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        let decision = pool.decide(&world.state, LogTime(world.time), &limits());
        if decision.plan.parts.is_empty() {
            return;
        }
        world.commit(&decision);
    }
    panic!("something is still granted after a hundred plans");
}

proptest! {
    #[test]
    fn what_waits_fits_nowhere(nodes in nodes(), steps in prop::collection::vec(step().prop_map(simple), 1..150)) {
        let mut world = World::random(&nodes);
        let mut pool = Pool::new(&world.state);
        world.state.take_touched();
        for step in &steps {
            world.step(step);
            if !matches!(step, Step::Decide) {
                continue;
            }
            exhaust(&mut world, &mut pool);
            let now = LogTime(world.time);
            for job in world.state.jobs_from(JobId(0)).filter(|job| job.is_waiting() && job.not_before <= now) {
                let found = scan(&world.state, &job.spec);
                prop_assert_eq!(found, None, "job {} waits and fits: {:?}", job.id, job.spec);
            }
        }
    }
}
