//! Checks a grant: the gang is whole, each virtual card is what was asked for, and everything it takes is free or given
//! back for it.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::capacity::CardClass;
use tessera_ledger::{
    AllocationId, CardHealth, CardId, Job, JobId, JobState, Mebibytes, MilliTflops, PlannedWorker, QueueAmount, Slice,
    Span, WorkerState,
};

use crate::world::{Block, Held, World};
use crate::{Holder, Problem, affinity, host, victims, whole};

pub(crate) fn check(
    world: &mut World<'_>,
    id: JobId,
    workers: &[PlannedWorker],
    victims: &[JobId],
) -> Result<(), Vec<Problem>> {
    let state = world.state;
    let Some(job) = state.job(id).filter(|job| job.is_waiting()) else { return Err(vec![Problem::JobNotReady(id)]) };
    if !world.granted.insert(id) {
        return Err(vec![Problem::JobNotReady(id)]);
    }
    let mut problems = Vec::new();
    check_gang(world, job, workers, &mut problems);
    affinity::check(world, job, workers, &mut problems);
    victims::check(world, job, workers, victims, &mut problems);
    whole::check(world, job, workers, victims, &mut problems);
    take(world, job, workers, victims, &mut problems);
    host::take(world, job, workers, victims, &mut problems);
    check_queues(world, job, workers, victims, &mut problems);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// A move takes its target as a grant does; the source is given back only when it has stopped.
pub(crate) fn check_move(world: &mut World<'_>, id: JobId, workers: &[PlannedWorker]) -> Result<(), Vec<Problem>> {
    let state = world.state;
    let running = state.job(id).filter(|job| job.state == JobState::Running);
    let Some(job) = running.filter(|_| !world.leaving.contains(&id)) else {
        return Err(vec![Problem::JobNotReady(id)]);
    };
    let mut problems = Vec::new();
    let source = job.allocation.and_then(|id| state.allocation(id));
    // Those that only serve a program may be more or fewer elsewhere.
    let kept =
        |cards: Vec<u32>| if host::has_servers(&job.spec) { BTreeSet::from_iter(cards).len() } else { cards.len() };
    let was = source.map(|source| kept(source.workers.iter().map(|worker| worker.virtual_card).collect()));
    if was != Some(kept(workers.iter().map(|worker| worker.virtual_card).collect())) {
        problems.push(Problem::GangBroken(id));
    }
    check_gang(world, job, workers, &mut problems);
    affinity::check(world, job, workers, &mut problems);
    whole::check(world, job, workers, &[], &mut problems);
    take(world, job, workers, &[], &mut problems);
    host::take(world, job, workers, &[], &mut problems);
    check_queues(world, job, workers, &[], &mut problems);
    world.leaving.insert(id);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn check_gang(world: &World<'_>, job: &Job, workers: &[PlannedWorker], problems: &mut Vec<Problem>) {
    let in_order = workers.windows(2).all(|pair| pair[0].virtual_card <= pair[1].virtual_card);
    let virtual_cards: BTreeSet<u32> = workers.iter().map(|worker| worker.virtual_card).collect();
    let count = u32::try_from(virtual_cards.len()).unwrap_or(u32::MAX);
    let whole_gang = virtual_cards.iter().copied().eq(0..count) && job.spec.gang_sizes().contains(&count);
    if !in_order || !whole_gang {
        problems.push(Problem::GangBroken(job.id));
    }
    for virtual_card in virtual_cards {
        let of_card: Vec<&PlannedWorker> =
            workers.iter().filter(|worker| worker.virtual_card == virtual_card).collect();
        check_virtual_card(world, job, virtual_card, &of_card, problems);
    }
}

fn check_virtual_card(
    world: &World<'_>,
    job: &Job,
    virtual_card: u32,
    workers: &[&PlannedWorker],
    problems: &mut Vec<Problem>,
) {
    let state = world.state;
    let request = &job.spec.virtual_card;
    let precision = request.precision.unwrap_or(state.config().reference_precision);
    let (mut compute, mut memory) = (MilliTflops::ZERO, Mebibytes::ZERO);
    let (mut nodes, mut cards, mut kinds) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    for (place, worker) in workers.iter().enumerate() {
        // A program may be beside its card, in front of those who serve it.
        let is_beside = place == 0 && workers.len() > 1 && host::has_servers(&job.spec);
        let node = state.node(worker.node);
        let labelled = node.is_some_and(|node| node.description.carries(&job.spec.node_labels));
        if !labelled || !node.is_some_and(|node| node.grantable()) {
            problems.push(Problem::NodeNotAccepted { job: job.id, node: worker.node });
        }
        if !nodes.insert(worker.node) || worker.slices.is_empty() && !is_beside {
            problems.push(Problem::GangBroken(job.id));
        }
        for slice in &worker.slices {
            let card = state.card(slice.card).filter(|card| {
                slice.card.node == worker.node
                    && card.description.health == CardHealth::Healthy
                    && card.description.rate(precision).is_some()
                    && CardClass::of(card).is_accepted_by(&job.spec)
                    && slice.isolation >= request.isolation
                    && slice.isolation <= card.isolation()
            });
            let Some(card) = card else {
                problems.push(Problem::CardNotAccepted { job: job.id, card: slice.card });
                continue;
            };
            compute = compute.saturating_add(card.rate_of(slice.length, precision));
            memory = memory.saturating_add(slice.memory);
            let on_card: &mut Mebibytes = cards.entry(slice.card).or_default();
            *on_card = on_card.saturating_add(slice.memory);
            kinds.insert(card.description.kind);
        }
    }
    let too_far = request.span == Span::Card && cards.len() > 1 || request.span < Span::Pool && nodes.len() > 1;
    if too_far || kinds.len() > 1 && !request.mixed {
        problems.push(Problem::SpreadTooFar { job: job.id, virtual_card });
    }
    let thin = cards.values().any(|memory| *memory < request.slice_memory);
    if compute < request.compute || memory < request.memory || thin {
        problems.push(Problem::TooLittle { job: job.id, virtual_card });
    }
}

/// Takes blocks, memory and places for slices, card by card.
fn take(world: &mut World<'_>, job: &Job, workers: &[PlannedWorker], victims: &[JobId], problems: &mut Vec<Problem>) {
    let state = world.state;
    let given: BTreeSet<AllocationId> = victims.iter().filter_map(|id| state.job(*id)?.allocation).collect();
    let returned = returned_by(world, &given);
    let mut by_card: BTreeMap<CardId, Vec<Slice>> = BTreeMap::new();
    for slice in workers.iter().flat_map(|worker| &worker.slices) {
        by_card.entry(slice.card).or_default().push(*slice);
    }
    for (id, slices) in by_card {
        let (memory_back, slices_back) = returned.get(&id).copied().unwrap_or_default();
        let Some(card) = world.card(id) else {
            problems.push(Problem::CardNotAccepted { job: job.id, card: id });
            continue;
        };
        let asked: u64 = slices.iter().map(|slice| slice.memory.0).fold(0, u64::saturating_add);
        let count = u32::try_from(slices.len()).unwrap_or(u32::MAX);
        let in_force = card.slices.saturating_sub(slices_back).saturating_add(count);
        if asked > card.memory_free.saturating_add(memory_back) || card.max_slices > 0 && in_force > card.max_slices {
            problems.push(Problem::CardFull(id));
        }
        card.memory_free = card.memory_free.saturating_sub(asked);
        card.slices = card.slices.saturating_add(count);
        for slice in slices {
            take_slice(card, job.id, &slice, &given, problems);
        }
    }
}

fn take_slice(
    card: &mut crate::world::ModelCard,
    job: JobId,
    slice: &Slice,
    given: &BTreeSet<AllocationId>,
    problems: &mut Vec<Problem>,
) {
    let end = slice.start.0.saturating_add(slice.length.0);
    let taken = Problem::BlocksTaken { card: slice.card, start: slice.start.0, end };
    let Some(blocks) = card.blocks_of(slice) else { return problems.push(taken) };
    let mut inherited = false;
    let mut all_free = true;
    for block in blocks {
        match *block {
            Block::Free => *block = Block::Movable(Holder::Planned(job)),
            Block::Movable(Holder::Granted(holder)) if given.contains(&holder) => {
                *block = Block::Fixed;
                inherited = true;
            }
            Block::Movable(_) | Block::Offline | Block::Fixed => all_free = false,
        }
    }
    if inherited || !given.is_empty() {
        card.pin();
    }
    if !all_free {
        problems.push(taken);
    }
}

/// Memory and places for slices that victims give back, by card.
fn returned_by(world: &World<'_>, given: &BTreeSet<AllocationId>) -> BTreeMap<CardId, (u64, u32)> {
    let mut returned: BTreeMap<CardId, (u64, u32)> = BTreeMap::new();
    let allocations = given.iter().filter_map(|id| world.state.allocation(*id));
    let workers = allocations.flat_map(|allocation| allocation.workers.iter());
    for slice in workers.filter(|worker| worker.state != WorkerState::Stopped).flat_map(|worker| &worker.slices) {
        let card = returned.entry(slice.card).or_default();
        card.0 = card.0.saturating_add(slice.memory.0);
        card.1 += 1;
    }
    returned
}

pub(crate) fn amount(world: &World<'_>, slices: impl Iterator<Item = Slice>) -> QueueAmount {
    let block_size = world.state.config().block_size;
    slices.fold(QueueAmount::default(), |sum, slice| {
        sum.plus(QueueAmount { compute: block_size.saturating_mul(slice.length.0), memory: slice.memory })
    })
}

fn check_queues(
    world: &mut World<'_>,
    job: &Job,
    workers: &[PlannedWorker],
    victims: &[JobId],
    problems: &mut Vec<Problem>,
) {
    let state = world.state;
    let asked = amount(world, workers.iter().flat_map(|worker| worker.slices.iter().copied()));
    for name in world.queue_line(&job.spec.queue) {
        let held = world.queues.get(&name).copied().unwrap_or_default();
        let mut counted = held.used;
        for victim in victims.iter().filter_map(|id| state.job(*id)) {
            if world.queue_line(&victim.spec.queue).contains(&name) {
                counted = counted.minus(held_by(world, victim));
            }
        }
        let maximum = state.queue(&name).and_then(|queue| queue.settings.maximum);
        if maximum.is_some_and(|maximum| !counted.plus(asked).within(maximum)) {
            problems.push(Problem::QueueExceeded(name.clone()));
        }
        let firm = if job.spec.preemptible { QueueAmount::default() } else { asked };
        let held =
            Held { used: held.used.plus(asked), standing: held.standing.plus(asked), firm: held.firm.plus(firm) };
        world.queues.insert(name, held);
    }
}

/// The amount that a job counts for in its queue.
pub(crate) fn held_by(world: &World<'_>, job: &Job) -> QueueAmount {
    let allocation = job.allocation.and_then(|id| world.state.allocation(id));
    let workers = allocation.into_iter().flat_map(|allocation| allocation.workers.iter());
    let live = workers.filter(|worker| worker.state != WorkerState::Stopped);
    amount(world, live.flat_map(|worker| worker.slices.iter().copied()))
}
