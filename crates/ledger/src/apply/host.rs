//! Host resources of workers: counted as allocations are made and given back, and checked before they are made.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::{Allocation, AllocationPhase, PlannedWorker, WorkerState};
use crate::event::Touched;
use crate::host::{HostRequest, HostUse};
use crate::ids::{AllocationId, NodeId, Rank};
use crate::job::Job;
use crate::rejection::Rejection;
use crate::state::{PersistentMap, State};

impl State {
    pub(super) fn asked_of_host(&self, allocation: &Allocation, rank: Rank) -> HostRequest {
        let Some(job) = self.jobs.get(&allocation.job) else { return HostRequest::ZERO };
        let mut asked = allocation.asked_of_hosts(&job.spec);
        asked.find(|(worker, _)| worker.rank == rank).map_or(HostRequest::ZERO, |(_, asked)| asked)
    }

    /// The host resources that workers of an allocation hold, or were promised: one item per worker, with its node.
    /// Workers that are over, or ask for nothing, are left out.
    fn held_of_hosts<'a>(&self, allocation: &'a Allocation) -> impl Iterator<Item = (NodeId, HostRequest)> + use<'a> {
        self.jobs.get(&allocation.job).map(|job| allocation.held_of_hosts(&job.spec)).into_iter().flatten()
    }

    /// Changes a part of what is held of a host by what a worker asks of it.
    fn change_host(
        &mut self,
        node: NodeId,
        request: HostRequest,
        part: impl FnOnce(&mut HostUse) -> &mut HostRequest,
        change: fn(HostRequest, HostRequest) -> HostRequest,
    ) {
        if request.is_zero() {
            return;
        }
        let mut host = self.host_use(node);
        let sum = part(&mut host);
        *sum = change(*sum, request);
        if host.is_zero() {
            self.host_use.remove_cow(&node);
        } else {
            self.host_use.insert_cow(node, host);
        }
        self.touched.push(Touched::Node(node));
    }

    /// Holds what a worker asks of its host, or promises it.
    pub(super) fn hold_host(&mut self, node: NodeId, request: HostRequest, promised: bool) {
        self.change_host(node, request, |host| held(host, promised), HostRequest::plus);
    }

    /// Takes back what a worker held of its host, or was promised.
    pub(super) fn release_host(&mut self, node: NodeId, request: HostRequest, promised: bool) {
        self.change_host(node, request, |host| held(host, promised), HostRequest::minus);
    }

    /// Counts what a worker that is lost, or is not any more, holds of its host among what is lost.
    pub(super) fn note_loss_of_host(&mut self, node: NodeId, request: HostRequest, lost: bool) {
        let change = if lost { HostRequest::plus } else { HostRequest::minus };
        self.change_host(node, request, |host| &mut host.lost, change);
    }

    /// Turns what the workers of an allocation were promised into what they hold: it comes into force.
    pub(super) fn keep_host_promises(&mut self, allocation: &Allocation) {
        for (node, request) in self.held_of_hosts(allocation) {
            self.release_host(node, request, true);
            self.hold_host(node, request, false);
        }
    }

    /// Returns whether the hosts of a waiting allocation have the resources that it was promised.
    pub(super) fn hosts_have_room(&self, allocation: &Allocation) -> bool {
        by_host(self.held_of_hosts(allocation)).into_iter().all(|(node, asked)| {
            let Some(capacity) = self.nodes.get(&node).and_then(|node| node.description.host) else { return true };
            let in_force = HostUse { promised: HostRequest::ZERO, ..self.host_use(node) };
            asked.fits_in(in_force.left_of(capacity))
        })
    }

    /// Returns whether a host can meet all its promises once the allocations that were told to stop are gone.
    pub(super) fn host_keeps_promises(&self, node: NodeId) -> bool {
        let Some(capacity) = self.nodes.get(&node).and_then(|node| node.description.host) else { return true };
        let staying = self
            .allocations_on(node)
            .filter(|allocation| !matches!(allocation.phase, AllocationPhase::Ending | AllocationPhase::Waiting));
        let staying: BTreeSet<AllocationId> = staying.map(|allocation| allocation.id).collect();
        let kept = HostUse { used: self.held_of_host(node, &staying), ..HostUse::default() };
        self.host_use(node).promised.fits_in(kept.left_of(capacity))
    }

    /// Checks that hosts have what the workers ask for, counting what victims give back.
    pub(super) fn validate_hosts(
        &self,
        job: &Job,
        workers: &[PlannedWorker],
        given_back: &BTreeSet<AllocationId>,
    ) -> Result<(), Rejection> {
        for (node, asked) in by_host(job.spec.asked_of_hosts(workers)) {
            let Some(capacity) = self.nodes.get(&node).and_then(|node| node.description.host) else { continue };
            let held = self.host_use(node);
            let back = self.held_of_host(node, given_back);
            let left = HostUse { used: held.used.minus(back), ..held }.left_of(capacity);
            if !asked.fits_in(left) {
                return Err(Rejection::HostNotFree { node, job: job.id, asked, left });
            }
        }
        Ok(())
    }

    fn held_of_host(&self, node: NodeId, allocations: &BTreeSet<AllocationId>) -> HostRequest {
        let allocations = allocations.iter().filter_map(|id| self.allocations.get(id));
        let held = allocations.flat_map(|allocation| self.held_of_hosts(allocation));
        held.filter(|(of, _)| *of == node).fold(HostRequest::ZERO, |sum, (_, held)| sum.plus(held))
    }

    /// Returns whether a waiting allocation could be blocked by what others hold of this node's host.
    pub(super) fn waits_for_host(&self, allocation: &Allocation, node: NodeId) -> bool {
        self.held_of_hosts(allocation).any(|(of, _)| of == node)
    }

    /// Computes the use of every host from the workers.
    pub(super) fn count_host_use(&self) -> PersistentMap<NodeId, HostUse> {
        let mut counted: BTreeMap<NodeId, HostUse> = BTreeMap::new();
        for allocation in self.allocations() {
            let promised = allocation.phase == AllocationPhase::Waiting;
            let spec = self.jobs.get(&allocation.job).map(|job| &job.spec);
            for (worker, request) in spec.into_iter().flat_map(|spec| allocation.holders_of_hosts(spec)) {
                let host = counted.entry(worker.node).or_default();
                let sum = held(host, promised);
                *sum = sum.plus(request);
                if worker.state == WorkerState::Lost {
                    host.lost = host.lost.plus(request);
                }
            }
        }
        counted.into_iter().collect()
    }
}

/// The part of what is held of a host that workers hold, or were promised.
fn held(host: &mut HostUse, promised: bool) -> &mut HostRequest {
    if promised { &mut host.promised } else { &mut host.used }
}

/// Sums the requests of each host.
fn by_host(asked: impl Iterator<Item = (NodeId, HostRequest)>) -> BTreeMap<NodeId, HostRequest> {
    let mut sums: BTreeMap<NodeId, HostRequest> = BTreeMap::new();
    for (node, request) in asked {
        let sum = sums.entry(node).or_default();
        *sum = sum.plus(request);
    }
    sums
}
