//! Checks that no host is given away twice: a plain count per node, carried from part to part.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{
    Access, Allocation, AllocationId, HostRequest, Job, JobId, JobSpec, NodeId, PlannedWorker, Span, WorkerState,
};

use crate::Problem;
use crate::world::World;

/// Takes what the workers ask of their hosts, on top of what is held there less what victims give back.
pub(crate) fn take(
    world: &mut World<'_>,
    job: &Job,
    workers: &[PlannedWorker],
    victims: &[JobId],
    problems: &mut Vec<Problem>,
) {
    let state = world.state;
    let given: BTreeSet<AllocationId> = victims.iter().filter_map(|id| state.job(*id)?.allocation).collect();
    let mut asked: BTreeMap<NodeId, HostRequest> = BTreeMap::new();
    for node in asked_by(&job.spec, workers) {
        let sum = asked.entry(node).or_default();
        *sum = sum.plus(job.spec.host);
    }
    for (node, asked) in asked {
        let planned = world.hosts.entry(node).or_default();
        let before = *planned;
        *planned = planned.plus(asked);
        let Some(capacity) = state.node(node).and_then(|node| node.description.host) else { continue };
        let mut held = before;
        for allocation in state.allocations_on(node).filter(|allocation| !given.contains(&allocation.id)) {
            let Some(holder) = state.job(allocation.job) else { continue };
            for _ in held_by(&holder.spec, allocation).filter(|other| *other == node) {
                held = held.plus(holder.spec.host);
            }
        }
        let left = capacity.whole().minus(held);
        if !asked.fits_in(left) {
            problems.push(Problem::HostFull { job: job.id, node, asked, left });
        }
    }
}

/// Returns whether the first worker of each virtual card has the program, and the others only serve it.
pub(crate) fn has_servers(spec: &JobSpec) -> bool {
    spec.virtual_card.access == Access::Device && spec.virtual_card.span == Span::Pool
}

/// Returns whether a worker asks for something of its host, by the virtual cards that it and the one before it back.
fn asks(spec: &JobSpec, before: Option<u32>, own: u32) -> bool {
    !(spec.host.is_zero() || has_servers(spec) && before == Some(own))
}

/// The nodes on whose hosts workers hold something that are not over, each as often as one does.
pub(crate) fn held_by(spec: &JobSpec, allocation: &Allocation) -> impl Iterator<Item = NodeId> {
    let mut before = None;
    let holding = allocation.workers.iter().filter(move |worker| {
        let asks = asks(spec, before, worker.virtual_card);
        before = Some(worker.virtual_card);
        asks && worker.state != WorkerState::Stopped
    });
    holding.map(|worker| worker.node)
}

/// The nodes on whose hosts planned workers would hold something, each as often as one would.
pub(crate) fn asked_by(spec: &JobSpec, workers: &[PlannedWorker]) -> Vec<NodeId> {
    let asks = |place: &usize| {
        let before = place.checked_sub(1).map(|before| workers[before].virtual_card);
        asks(spec, before, workers[*place].virtual_card)
    };
    (0..workers.len()).filter(asks).map(|place| workers[place].node).collect()
}
