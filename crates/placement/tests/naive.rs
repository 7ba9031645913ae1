//! The incremental index against a naive scan: whatever has happened to a pool, once nothing more is granted no waiting
//! job fits where a scan of the whole ledger finds room for it: a gang on as many cards as it needs, a virtual card
//! that spreads on the cards of one node. (What is granted is checked elsewhere, by the independent check of every
//! plan.)

use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use crate::world::World;
use crate::world::history::{Step, nodes, step};

/// Nobody is kept waiting on purpose: cards kept for somebody else are free and yet not granted.
fn limits() -> Limits {
    Limits { reservations: 0, reserve_after: Duration::from_secs(1_000_000), ..Limits::default() }
}

/// Jobs in a queue without limits of which it can be read off every node alone how many virtual cards fit there: gangs
/// whose virtual cards each need one card, and single ones that spread.
fn simple(step: Step) -> Step {
    match step {
        Step::Submit(mut request) => {
            if request.span != Span::Card {
                (request.gang, request.gang_min) = (1, None);
            }
            request.queue = 0;
            // What only prefers keeps nobody waiting.
            (request.company.avoid, request.company.together) = (None, None);
            Step::Submit(request)
        }
        Step::Queue(..) => Step::Decide,
        other => other,
    }
}

/// Returns the first node on which a virtual card of a job would fit, if as many as the job needs would fit now,
/// without renumbering or moving anything.
fn scan(state: &State, spec: &JobSpec) -> Option<NodeId> {
    let rooms = |node: &Node| {
        let labelled = spec.node_labels.iter().all(|(key, value)| node.description.labels.get(key) == Some(value));
        let on_cards = match spec.virtual_card.span {
            Span::Card => state.cards_of(node.id).map(|(_, card)| rooms_on_card(state, card, spec)).sum(),
            Span::Node | Span::Pool => u64::from(has_room_together(state, node.id, spec)),
        };
        let workers = node.description.host.map_or(u64::MAX, |host| {
            let left = state.host_use(node.id).left_of(host);
            let by = |left: u64, each: u64| left.checked_div(each).unwrap_or(u64::MAX);
            by(left.cpu.0, spec.host.cpu.0).min(by(left.memory.0, spec.host.memory.0))
        });
        if labelled && node.grantable() { on_cards.min(workers) } else { 0 }
    };
    let nodes: Vec<(NodeId, u64)> = state.nodes().map(|node| (node.id, rooms(node))).collect();
    let all: u64 = nodes.iter().map(|(_, rooms)| rooms).sum();
    let first = nodes.into_iter().find(|(_, rooms)| *rooms > 0).map(|(node, _)| node);
    first.filter(|_| all >= u64::from(*spec.gang_sizes().start()))
}

/// Returns the number of blocks that a job needs of a card; `None` if it does not take such cards.
fn blocks_needed(state: &State, card: &Card, spec: &JobSpec) -> Option<u64> {
    let request = &spec.virtual_card;
    let precision = request.precision.unwrap_or(state.config().reference_precision);
    let accepted = card.description.health == CardHealth::Healthy
        && (request.kinds.is_empty() || request.kinds.contains(&card.description.kind));
    card.blocks_for(request.compute, precision).filter(|_| accepted).map(|need| u64::from(need.0))
}

/// The free runs of a card, the longest first, and how many more slices it takes.
fn free_runs(card: &Card) -> (Vec<u64>, u64) {
    let slices = match card.description.max_slices {
        0 => u64::MAX,
        most => u64::from(most.saturating_sub(card.slices)),
    };
    let free = card.extents.as_slice().iter().filter(|extent| extent.state == BlockState::Free);
    let mut runs: Vec<u64> = free.map(|extent| u64::from(extent.length.0)).collect();
    runs.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
    (runs, slices)
}

/// Returns the number of virtual cards that fit on a card as it is: one in as many slices as there may be, or each in
/// one slice.
fn rooms_on_card(state: &State, card: &Card, spec: &JobSpec) -> u64 {
    let request = &spec.virtual_card;
    let Some(need) = blocks_needed(state, card, spec) else { return 0 };
    let (runs, slices) = free_runs(card);
    let reach: u64 = runs.iter().take(usize::try_from(slices).unwrap_or(usize::MAX)).sum();
    let is_empty =
        card.slices == 0 && reach == u64::from(card.blocks.0) && card.memory_free() == card.description.memory;
    let memory = request.memory_on_one_card();
    if need > u64::from(card.blocks.0) || reach < need || card.memory_free() < memory {
        return 0;
    }
    if request.whole_cards {
        return u64::from(is_empty);
    }
    let by_memory = card.memory_free().0.checked_div(memory.0).unwrap_or(u64::MAX);
    runs.iter().map(|run| run / need).sum::<u64>().min(by_memory).min(slices).max(1)
}

/// Returns whether cards of one kind on a node have enough for one virtual card together, or of all kinds if they may
/// mix. Cards that are taken whole, that limit slices or of which each must give some memory are left out.
fn has_room_together(state: &State, node: NodeId, spec: &JobSpec) -> bool {
    let request = &spec.virtual_card;
    let precision = request.precision.unwrap_or(state.config().reference_precision);
    if request.whole_cards || request.slice_memory > Mebibytes::ZERO {
        return false;
    }
    let mut sums: std::collections::BTreeMap<Option<CardKind>, (u64, u64)> = Default::default();
    for (_, card) in state.cards_of(node) {
        let (runs, slices) = free_runs(card);
        if blocks_needed(state, card, spec).is_none() || slices < u64::MAX || runs.is_empty() {
            continue;
        }
        let compute = |run: &u64| card.rate_of(BlockCount(u32::try_from(*run).unwrap()), precision).0;
        let sum = sums.entry((!request.mixed).then_some(card.description.kind)).or_default();
        *sum = (sum.0 + runs.iter().map(compute).sum::<u64>(), sum.1 + card.memory_free().0);
    }
    sums.values().any(|(compute, memory)| *compute >= request.compute.0 && *memory >= request.memory.0)
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
