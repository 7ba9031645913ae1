//! The workers that should run on a node, read from the ledger alone, so that every leader orders the same.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};

use planted::Bug;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tessera_api::agent::{checkpoint_source, part_name, placed_slices, stop_policy, worker_ref};
use tessera_api::v1::{self, WorkerDesire};
use tessera_ledger::wire::{WireEnum, duration_to_wire, spec_to_wire};
use tessera_ledger::{
    Allocation, AllocationPhase, Job, JobState, NodeId, OnDisconnect, Owner, PartKey, REVISIONS_AHEAD, Rank, State,
    Worker, WorkerState,
};
use xxhash_rust::xxh3::Xxh3;

use super::concern::Concern;

/// The desired action of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Desire {
    /// Run, with the slices of this fingerprint: when blocks are renumbered, the order is sent again.
    Run(u64),
    /// Stop and report.
    Stop,
    /// It is settled: its output is kept, the rest forgotten.
    Forget,
}

/// The desire for each worker of a node that the ledger knows and `concern` covers. `present`: the workers that the
/// agent reports as there. A worker is not forgotten as long as it may be there: it is ordered to stop.
pub(crate) fn desired(
    state: &State,
    node: NodeId,
    concern: &Concern,
    present: &BTreeSet<Owner>,
) -> BTreeMap<Owner, Desire> {
    let allocations: Vec<&std::sync::Arc<Allocation>> = match concern {
        Concern::Everything => state.allocations_on(node).collect(),
        Concern::Allocations(ids) => ids.iter().filter_map(|id| state.allocation(*id)).collect(),
    };
    let mut desires = BTreeMap::new();
    for allocation in allocations {
        for worker in allocation.workers.iter().filter(|worker| worker.node == node) {
            let owner = allocation.owner(worker.rank);
            if let Some(desire) = desire(state, allocation, worker, present.contains(&owner)) {
                desires.insert(owner, desire);
            }
        }
    }
    desires
}

fn desire(state: &State, allocation: &Allocation, worker: &Worker, present: bool) -> Option<Desire> {
    match (allocation.phase, worker.state) {
        // Nothing was ordered yet.
        (AllocationPhase::Waiting | AllocationPhase::Reserved, _) => None,
        (_, WorkerState::Stopped) => Some(if present { Desire::Stop } else { Desire::Forget }),
        (_, WorkerState::Draining) | (AllocationPhase::Ending, _) => Some(Desire::Stop),
        // The pool began anew from a state in which it ran, and nobody has it. Started again under its old allocation,
        // it could meet what took its place; its agent notes that it is not to be, and the job is tried again.
        (AllocationPhase::Active, WorkerState::Lost) if !present && is_of_before(state, allocation) => {
            Some(Desire::Stop)
        }
        // `Lost` here is work that went on without a lease, as its job allows: it is still wanted.
        (AllocationPhase::Active, WorkerState::Held | WorkerState::Running | WorkerState::Lost) => {
            Some(Desire::Run(fingerprint(state, allocation, worker)))
        }
    }
}

/// True if an allocation is of the time before the pool began anew.
fn is_of_before(state: &State, allocation: &Allocation) -> bool {
    state.revision().0.saturating_sub(allocation.epoch.0) >= REVISIONS_AHEAD
}

/// A hash over all that the worker is told of the slices of its virtual card: what is told differently is told anew.
fn fingerprint(state: &State, allocation: &Allocation, worker: &Worker) -> u64 {
    let mut hasher = Xxh3::new();
    for placed in placed_slices(state, allocation, worker) {
        placed.encode_to_vec().hash(&mut hasher);
    }
    hasher.finish()
}

/// True if the ledger grants this worker on this node.
pub(crate) fn is_granted(state: &State, node: NodeId, owner: Owner) -> bool {
    worker_on(state, node, owner).is_some_and(|(_, worker)| worker.state != WorkerState::Stopped)
}

/// The worker of that very allocation, if it belongs on this node.
pub(crate) fn worker_on(state: &State, node: NodeId, owner: Owner) -> Option<(&Allocation, &Worker)> {
    let allocation = state.allocation(owner.allocation)?;
    let worker = allocation.worker(owner.rank)?;
    (allocation.epoch == owner.epoch && worker.node == node).then_some((allocation, worker))
}

/// The order to a worker. What the ledger no longer knows is named by its number alone.
pub(crate) fn order(state: &State, node: NodeId, owner: Owner, desire: Desire) -> v1::WorkerOrder {
    let mut order = v1::WorkerOrder { worker: Some(worker_ref(owner)), ..v1::WorkerOrder::default() };
    let known = worker_on(state, node, owner);
    let job = known.and_then(|(allocation, _)| state.job(allocation.job));
    order.desire = match desire {
        Desire::Run(_) => WorkerDesire::Run,
        Desire::Stop => WorkerDesire::Stop,
        Desire::Forget => WorkerDesire::Forget,
    }
    .into();
    tracing::debug!(
        %node, job = job.map(|job| job.id.0), allocation = owner.allocation.0, epoch = owner.epoch.0, rank = owner.rank.0,
        ?desire, traceparent = job.map(|job| job.traceparent.as_str()), "a worker is ordered"
    );
    let (Some((allocation, worker)), Some(job)) = (known, job) else {
        if desire == Desire::Stop {
            // Nobody grants it: it is killed at once.
            order.stop = Some(v1::StopPolicy { signal: "SIGKILL".to_owned(), grace: None, save: false });
        }
        return order;
    };
    order.job_id = job.id.0;
    order.attempt = allocation.attempt;
    order.stop = Some(how_to_stop(state, job, allocation, worker.rank));
    if matches!(desire, Desire::Run(_)) {
        describe(&mut order, state, allocation, worker);
        describe_program(&mut order, state, job, allocation, worker);
        order.spec = Some(spec_to_wire(&job.spec));
        order.traceparent.clone_from(&job.traceparent);
        order.submitter.clone_from(&job.submitter);
        order.from = source(state, job, allocation, worker.rank);
        order.keep_on_disconnect = job.spec.on_disconnect == OnDisconnect::Keep;
    }
    order
}

/// A job that is to go on later is asked to write its checkpoint in its own way; one that is over is told to end.
/// Workers that only serve its program end as that does: they have longer, because its node may hear of it later than
/// theirs.
fn how_to_stop(state: &State, job: &Job, allocation: &Allocation, rank: Rank) -> v1::StopPolicy {
    let mut policy = stop_policy(&job.spec);
    if allocation.program(&job.spec.virtual_card, rank).is_none() {
        let longer = job.spec.checkpoint.grace.saturating_add(state.config().leases.regrant_after);
        policy.grace = Some(duration_to_wire(longer));
    }
    match job.state {
        JobState::Suspending | JobState::Moving => v1::StopPolicy { save: true, ..policy },
        _ => v1::StopPolicy { signal: "SIGTERM".to_owned(), ..policy },
    }
}

/// The present sources of the checkpoints from which the `Held` workers of a node resume. Those in their orders may be
/// out of date.
pub(super) fn sources(state: &State, node: NodeId) -> impl Iterator<Item = v1::CheckpointSource> {
    let going_on = state.allocations_on(node).filter(|allocation| allocation.from.is_some());
    let held = move |worker: &&Worker| worker.node == node && worker.state == WorkerState::Held;
    let workers = going_on.flat_map(move |allocation| {
        allocation.workers.iter().filter(held).map(move |worker| (allocation, worker.rank))
    });
    workers.filter_map(|(allocation, rank)| source(state, state.job(allocation.job)?, allocation, rank))
}

/// The worker's part of the checkpoint that its attempt goes on from. One that has left the ledger since is named all
/// the same: the worker must not begin from the beginning, and its agent says that it cannot be had.
fn source(state: &State, job: &Job, allocation: &Allocation, rank: Rank) -> Option<v1::CheckpointSource> {
    let from = allocation.from?;
    // What only serves slices begins with an empty folder.
    let rank = allocation.program(&job.spec.virtual_card, rank)?;
    let Some(checkpoint) = job.checkpoints.get(from) else {
        let gone = PartKey { job: job.id, checkpoint: from, epoch: allocation.epoch, rank };
        let (name, mode) = (Some(part_name(&gone)), job.spec.checkpoint.mode.to_wire());
        return Some(v1::CheckpointSource { name, mode, ..v1::CheckpointSource::default() });
    };
    // And so does a program beyond those that saved.
    let part = checkpoint.part(rank)?;
    Some(checkpoint_source(state, &checkpoint.part_key(job.id, rank), part))
}

/// Says where a worker stands among the others and what it computes on.
fn describe(order: &mut v1::WorkerOrder, state: &State, allocation: &Allocation, worker: &Worker) {
    let here = || allocation.workers.iter().filter(|other| other.node == worker.node);
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    order.member = worker.virtual_card;
    order.world_size = count(allocation.workers.len());
    order.local_rank = count(here().take_while(|other| other.rank < worker.rank).count());
    order.local_world_size = count(here().count());
    order.master_address = master_address(state, allocation);
    order.master_port = u32::from(allocation.master_port);
    order.slices = placed_slices(state, allocation, worker);
    if planted::is(Bug::BlocksOfNeighbour) {
        let slices = order.slices.iter_mut().filter_map(|placed| placed.slice.as_mut());
        slices.for_each(|slice| slice.start = slice.start.saturating_sub(1));
    }
}

/// Says where the program of a worker's virtual card stands among the others, when some workers only serve slices, and
/// where the slice servers of that card find one another, and a program that is with none of them the first of them.
fn describe_program(order: &mut v1::WorkerOrder, state: &State, job: &Job, allocation: &Allocation, worker: &Worker) {
    let card = &job.spec.virtual_card;
    if !card.serves_across_nodes() {
        return;
    }
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let here = || allocation.programs(card).filter(|other| other.node == worker.node);
    order.standing = Some(v1::ProgramStanding {
        rank: count(allocation.programs(card).take_while(|other| other.virtual_card < worker.virtual_card).count()),
        world_size: count(allocation.programs(card).count()),
        local_rank: count(here().take_while(|other| other.rank < worker.rank).count()),
        local_world_size: count(here().count()),
    });
    order.only_serves = allocation.program(card, worker.rank).is_none();
    let mut of_card = allocation.workers.iter().filter(|other| other.virtual_card == worker.virtual_card);
    if let Some(first) = of_card.clone().find(|other| other.card_port > 0) {
        order.card_address = worker_host(state, first.node);
        order.card_port = u32::from(first.card_port);
    }
    if let Some(first) = of_card.find(|other| other.program_port > 0) {
        order.server_address = worker_host(state, first.node);
        order.server_port = u32::from(first.program_port);
    }
    order.device_token = device_token(job, allocation, worker.virtual_card).unwrap_or_default();
}

/// The token by which the slice servers of a virtual card recognize one another: a different one for each card and
/// allocation, and the same whoever leads. `None` when the job has no servers across nodes.
fn device_token(job: &Job, allocation: &Allocation, virtual_card: u32) -> Option<String> {
    let secret = job.secret.filter(|_| job.spec.virtual_card.serves_across_nodes())?;
    let mut digest = Sha256::new_with_prefix(secret.to_be_bytes());
    digest.update(allocation.epoch.0.to_be_bytes());
    digest.update(allocation.id.0.to_be_bytes());
    digest.update(virtual_card.to_be_bytes());
    Some(format!("{:x}", digest.finalize()))
}

/// The host at which the other workers reach rank 0.
fn master_address(state: &State, allocation: &Allocation) -> String {
    allocation.worker(Rank(0)).map(|worker| worker_host(state, worker.node)).unwrap_or_default()
}

fn worker_host(state: &State, node: NodeId) -> String {
    state.node(node).map(|node| node.description.worker_host.clone()).unwrap_or_default()
}

#[cfg(test)]
#[path = "orders_tests.rs"]
mod tests;
