//! The laws as checks: everything that the ledger keeps incrementally is computed again from scratch and compared.
//!
//! Run after each entry in debug builds of small pools, every [`DEBUG_INTERVAL`] entries of large ones, in simulation,
//! and by `tessera pool verify` on a live pool.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::{AllocationPhase, WorkerState};
use crate::extent::BlockState;
use crate::ids::{CardId, Owner};
use crate::job::JobState;
use crate::state::State;
use crate::units::{Mebibytes, Percent};
use crate::wire::hash_of_spec;

/// Entries between two full checks of a large pool in debug builds.
pub const DEBUG_INTERVAL: u64 = 256;

/// Returns whether a full check after each entry costs little.
#[cfg(debug_assertions)]
pub(crate) fn is_small(state: &State) -> bool {
    const SMALL: usize = 64;
    state.cards.len() < SMALL && state.jobs.len() < SMALL
}

/// A law that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The law, such as `L1`.
    pub law: &'static str,
    /// The problem, in a sentence.
    pub problem: String,
}

/// Checks every law that can be seen in one state. An empty answer means that all hold.
#[must_use]
pub fn check(state: &State) -> Vec<Violation> {
    let mut broken = Broken::default();
    conservation(state, &mut broken);
    ownership(state, &mut broken);
    jobs(state, &mut broken);
    whole_cards(state, &mut broken);
    offers(state, &mut broken);
    leases(state, &mut broken);
    numbers(state, &mut broken);
    derived(state, &mut broken);
    digest(state, &mut broken);
    broken.0
}

#[derive(Default)]
struct Broken(Vec<Violation>);

impl Broken {
    fn expect(&mut self, holds: bool, law: &'static str, problem: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { law, problem: problem() });
        }
    }
}

/// L1: the blocks of each card are covered once, and every state but free and offline has an owner that exists.
fn conservation(state: &State, broken: &mut Broken) {
    for (id, card) in state.cards() {
        let mut next = 0;
        for extent in card.extents.as_slice() {
            broken.expect(extent.start.0 == next && extent.length.0 > 0, "L1", || {
                format!("{id}: extent at block {} leaves a gap or overlaps", extent.start.0)
            });
            next = extent.end();
            let Some(owner) = extent.state.owner() else { continue };
            let known = state
                .allocation(owner.allocation)
                .and_then(|allocation| allocation.worker(owner.rank).map(|worker| (allocation, worker)));
            broken.expect(
                known.is_some_and(|(allocation, worker)| {
                    allocation.epoch == owner.epoch && worker.state != WorkerState::Stopped
                }),
                "L1",
                || format!("{id}: blocks from {} belong to {owner:?}, who holds nothing", extent.start.0),
            );
        }
        broken.expect(next >= card.blocks.0, "L1", || format!("{id}: fewer extents than blocks"));
    }
}

/// L8: the digest that is kept up to date is that of the state.
fn digest(state: &State, broken: &mut Broken) {
    broken.expect(state.digest() == state.digest_from_scratch(), "L8", || {
        "the digest that is kept is not that of the state".to_owned()
    });
    for (_, job) in state.jobs.into_iter() {
        broken.expect(job.spec_hash == hash_of_spec(&job.spec), "L8", || {
            format!("job {}: the hash that is kept is not that of what was submitted", job.id)
        });
    }
}

/// Sums over the slices of a card.
#[derive(Default)]
struct CardSums {
    used: Mebibytes,
    promised: Mebibytes,
    slices: u32,
    blocks: BTreeMap<Owner, u32>,
}

/// L1, L2: the blocks of a worker's slices are in the state of the worker, and nobody else's.
fn ownership(state: &State, broken: &mut Broken) {
    let mut sums: BTreeMap<CardId, CardSums> = BTreeMap::new();
    for allocation in state.allocations() {
        for worker in allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped) {
            let owner = allocation.owner(worker.rank);
            for slice in &worker.slices {
                let sum = sums.entry(slice.card).or_default();
                let waiting = allocation.phase == AllocationPhase::Waiting;
                let memory = if waiting { &mut sum.promised } else { &mut sum.used };
                *memory = memory.saturating_add(slice.memory);
                sum.slices += 1;
                *sum.blocks.entry(owner).or_default() += slice.length.0;
                let matches = |block: BlockState| match (worker.state, block) {
                    (WorkerState::Held, BlockState::Draining { next, .. }) => waiting && next == Some(owner),
                    (WorkerState::Held, BlockState::Held(holder))
                    | (WorkerState::Running, BlockState::Running(holder))
                    | (WorkerState::Draining, BlockState::Draining { owner: holder, .. })
                    | (WorkerState::Lost, BlockState::Lost(holder)) => holder == owner,
                    _ => false,
                };
                let right =
                    state.card(slice.card).is_some_and(|card| card.extents.all(slice.start, slice.length, matches));
                broken.expect(right, "L2", || {
                    format!("{}: blocks from {} are not {:?} of {owner:?}", slice.card, slice.start.0, worker.state)
                });
            }
        }
    }
    for (id, card) in state.cards() {
        let sum = sums.remove(&id).unwrap_or_default();
        broken.expect(
            (card.memory_used, card.memory_promised, card.slices) == (sum.used, sum.promised, sum.slices),
            "L1",
            || format!("{id}: memory or number of slices differs from its slices"),
        );
        for extent in card.extents.as_slice() {
            let Some(owner) = extent.state.owner() else { continue };
            broken.expect(sum.blocks.contains_key(&owner), "L1", || format!("{id}: {owner:?} has no slice there"));
        }
    }
    broken.expect(sums.is_empty(), "L1", || "slices on cards that do not exist".to_owned());
}

/// L4, L5: jobs, allocations and moves agree with each other.
fn jobs(state: &State, broken: &mut Broken) {
    for job in state.jobs_from(Default::default()) {
        let allocation = job.allocation.and_then(|id| state.allocation(id));
        let id = job.id;
        broken.expect(job.allocation.is_none() || allocation.is_some_and(|held| held.job == id), "L1", || {
            format!("job {id} names an allocation that is not its own")
        });
        let holds = match job.state {
            JobState::Starting | JobState::Running | JobState::Suspending => allocation.is_some(),
            JobState::Pending | JobState::Suspended => allocation.is_none() && job.moving.is_none(),
            JobState::Completing => allocation.is_some() && job.ending.is_some(),
            JobState::Moving => job.moving.is_some_and(|id| state.move_in_progress(id).is_some()),
            JobState::Completed | JobState::Failed | JobState::Cancelled | JobState::Timeout => {
                allocation.is_none() && job.moving.is_none()
            }
        };
        broken.expect(job.checkpoints.iter().is_sorted_by_key(|checkpoint| checkpoint.key), "L5", || {
            format!("the checkpoints of job {id} are not in their order")
        });
        let known = job.checkpoints.iter().all(|checkpoint| checkpoint.key.attempt <= job.attempts);
        broken.expect(known && (job.checkpoints.is_empty() || !job.state.is_terminal()), "L5", || {
            format!("job {id} is {:?} and has checkpoints that it cannot have", job.state)
        });
        broken.expect(holds, "L5", || format!("job {id} is {:?} with allocation {:?}", job.state, job.allocation));
    }
    let (mut granted, mut meetings) = (BTreeSet::new(), BTreeSet::new());
    for allocation in state.allocations() {
        let job = state.job(allocation.job);
        let named = job.is_some_and(|job| {
            job.allocation == Some(allocation.id)
                || job
                    .moving
                    .and_then(|id| state.move_in_progress(id))
                    .is_some_and(|movement| movement.target == allocation.id)
        });
        broken.expect(named, "L1", || format!("{} belongs to no job", allocation.id));
        broken.expect(!allocation.is_over(), "L1", || format!("{} holds nothing and is still there", allocation.id));
        broken.expect(granted.insert((allocation.epoch, allocation.id)), "L2", || "equal epochs".to_owned());
        let alone = allocation.meetings().all(|meeting| meetings.insert(meeting));
        broken.expect(alone, "P6", || format!("{} meets where somebody else does", allocation.id));
        let virtual_cards: BTreeSet<u32> = allocation.workers.iter().map(|worker| worker.virtual_card).collect();
        let size = u32::try_from(virtual_cards.len()).unwrap_or(u32::MAX);
        broken.expect(job.is_none_or(|job| job.spec.gang_sizes().contains(&size)), "L4", || {
            format!("{} is not a whole gang", allocation.id)
        });
    }
}

/// L2: nobody else has blocks of a card that a job in force takes whole.
fn whole_cards(state: &State, broken: &mut Broken) {
    for (id, card) in state.cards() {
        let owners: BTreeSet<_> = card.extents.as_slice().iter().filter_map(|extent| extent.state.owner()).collect();
        let allocations: BTreeSet<_> = owners.iter().map(|owner| owner.allocation).collect();
        // What waits does not compute: it may have got its blocks while others still stop.
        let in_force = allocations.iter().filter_map(|allocation| state.allocation(*allocation));
        let in_force: Vec<_> = in_force.filter(|allocation| allocation.phase != AllocationPhase::Waiting).collect();
        let whole = |job| state.job(job).is_some_and(|job| job.spec.virtual_card.whole_cards);
        let alone = in_force.len() < 2 || !in_force.iter().any(|allocation| whole(allocation.job));
        broken.expect(alone, "L2", || format!("{id} is taken whole and has other holders: {allocations:?}"));
    }
}

/// L6: cards offer what the policy says as soon as they can, and promise no isolation that they cannot keep.
fn offers(state: &State, broken: &mut Broken) {
    for (id, card) in state.cards() {
        let percent = state.oversubscription_of(id, card.description.kind);
        broken.expect(card.oversubscription == percent, "L6", || {
            format!("{id} is oversubscribed to {} and should be to {percent}", card.oversubscription)
        });
        let shared_only = percent > Percent::WHOLE || card.is_overfull();
        broken.expect(card.shared_only == shared_only, "L6", || format!("{id} promises the wrong isolation"));
        broken.expect(percent == Percent::WHOLE || !state.has_isolated_slice(id), "L6", || {
            format!("{id} is oversubscribed although a slice on it was promised isolation")
        });
    }
}

/// P2: block numbers are unique in the pool and contiguous within a node.
fn numbers(state: &State, broken: &mut Broken) {
    let mut ranges = Vec::new();
    for node in state.nodes() {
        let mut offset = 0;
        for (id, card) in state.cards_of(node.id) {
            broken.expect(card.offset == offset, "P2", || format!("{id}: its numbers are not next to its neighbour's"));
            offset += card.extents.length().0;
        }
        if offset > 0 {
            ranges.push((node.base.0, node.base.0 + u64::from(offset)));
        }
    }
    ranges.sort_unstable();
    let apart = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    broken.expect(apart, "P2", || "two nodes share block numbers".to_owned());
}

/// L2: nobody waits for less than the leases that are granted now.
fn leases(state: &State, broken: &mut Broken) {
    let (ceiling, timings) = (state.lease_ceiling(), state.config().leases);
    broken.expect(ceiling.regrant_after >= timings.regrant_after, "L2", || {
        format!("blocks are kept for {:?}, and leases are granted under {timings:?}", ceiling.regrant_after)
    });
    broken.expect(ceiling.changed_at <= state.revision(), "L2", || {
        format!("the timings of leases were changed at revision {}, which is yet to come", ceiling.changed_at)
    });
}

/// Checks that every incremental value equals the one computed from scratch.
fn derived(state: &State, broken: &mut Broken) {
    let mut fresh = state.clone();
    fresh.rebuild_derived();
    let zeroless = |counts: &BTreeMap<JobState, u64>| -> Vec<(JobState, u64)> {
        counts.iter().filter(|(_, count)| **count > 0).map(|(state, count)| (*state, *count)).collect()
    };
    let same = [
        ("block counts", fresh.counts == state.counts),
        ("capacity", fresh.capacity == state.capacity),
        ("waiting jobs", fresh.waiting == state.waiting),
        ("jobs that are not guarded", fresh.unguarded == state.unguarded),
        ("jobs with checkpoints", fresh.checkpointed == state.checkpointed),
        ("bytes of checkpoints", fresh.checkpoint_bytes == state.checkpoint_bytes),
        ("jobs with windows", fresh.windowed == state.windowed),
        ("idle jobs", fresh.idlers == state.idlers),
        ("ended jobs", fresh.ended == state.ended),
        ("job counts", zeroless(&fresh.job_counts) == zeroless(&state.job_counts)),
        ("queues", *fresh.queues == *state.queues),
        ("ports", fresh.ports == state.ports),
        ("held of hosts", fresh.host_use == state.host_use),
        ("workers of nodes", fresh.node_workers == state.node_workers),
        ("request times", fresh.request_times == state.request_times),
        ("number of requests", fresh.requests_held == state.requests_held),
        ("bytes of jobs", fresh.spec_bytes == state.spec_bytes && fresh.ended_spec_bytes == state.ended_spec_bytes),
        ("number of events", fresh.events_held == state.events_held),
        ("node names", fresh.node_names == state.node_names),
    ];
    for (what, holds) in same {
        broken.expect(holds, "L1", || format!("{what} differ from what the state says"));
    }
}
