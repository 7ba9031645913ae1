//! Checks that no host is given away twice: a plain count per node, carried from part to part.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{AllocationId, HostRequest, Job, JobId, NodeId, PlannedWorker, WorkerState};

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
    if job.spec.host.is_zero() {
        return;
    }
    let given: BTreeSet<AllocationId> = victims.iter().filter_map(|id| state.job(*id)?.allocation).collect();
    let mut asked: BTreeMap<NodeId, HostRequest> = BTreeMap::new();
    for worker in workers {
        let sum = asked.entry(worker.node).or_default();
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
            for worker in allocation.workers.iter() {
                if worker.node == node && worker.state != WorkerState::Stopped {
                    held = held.plus(holder.spec.host);
                }
            }
        }
        let left = capacity.whole().minus(held);
        if !asked.fits_in(left) {
            problems.push(Problem::HostFull { job: job.id, node, asked, left });
        }
    }
}
