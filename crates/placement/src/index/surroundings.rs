//! Placement's view of nodes beside their cards: which labelled jobs run there, how busy they are, and how virtual
//! cards are to be laid over them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{AllocationId, HostRequest, JobSpec, NodeId, Packing, Percent, Slice, State, WorkerState};

use super::schedule::Hold;

/// The surroundings of a worker on each node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// Labelled jobs by node. A job without labels is nobody's concern.
    company: BTreeMap<(NodeId, AllocationId), Arc<JobSpec>>,
    /// The nodes of each of their allocations.
    nodes: BTreeMap<AllocationId, BTreeSet<NodeId>>,
    /// Workers of plans that the ledger has not answered.
    pub(super) planned: BTreeMap<NodeId, Vec<Planned>>,
    /// Load by node.
    pub(crate) load: BTreeMap<NodeId, Percent>,
    /// Packing of each queue that sets one, by name; the field after it is that of the pool.
    packings: BTreeMap<String, Packing>,
    pool: Packing,
}

/// A worker of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) hold: Hold,
    /// Resources that it asks of its host.
    pub(super) host: HostRequest,
    pub(crate) slices: Vec<Slice>,
}

impl Surroundings {
    /// Reads what queues and the pool say.
    pub(crate) fn read_policies(&mut self, state: &State) {
        self.pool = state.config().packing;
        let settings = state.queues().map(|queue| &queue.settings);
        self.packings = settings.filter_map(|queue| Some((queue.name.clone(), queue.packing?))).collect();
    }

    /// Reads an allocation; answers the nodes that a labelled job has left.
    pub(crate) fn update(&mut self, state: &State, id: AllocationId) -> Vec<NodeId> {
        let before = self.nodes.remove(&id).unwrap_or_default();
        before.iter().for_each(|node| drop(self.company.remove(&(*node, id))));
        let allocation = state.allocation(id);
        let job = allocation.and_then(|allocation| state.job(allocation.job)).filter(|job| !job.spec.labels.is_empty());
        let workers = allocation.filter(|_| job.is_some()).into_iter().flat_map(|allocation| allocation.workers.iter());
        let live = workers.filter(|worker| worker.state != WorkerState::Stopped);
        let now: BTreeSet<NodeId> = live.map(|worker| worker.node).collect();
        let left = before.difference(&now).copied().collect();
        if let Some(job) = job.filter(|_| !now.is_empty()) {
            self.company.extend(now.iter().map(|node| ((*node, id), Arc::clone(&job.spec))));
            self.nodes.insert(id, now);
        }
        left
    }

    pub(crate) fn planned(&self, node: NodeId) -> &[Planned] {
        self.planned.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a job that carries all of these labels runs on a node, or will.
    pub(crate) fn has(&self, node: NodeId, labels: &BTreeMap<String, String>) -> bool {
        self.carriers(node, labels).next().is_some()
            || self.planned(node).iter().any(|planned| carries(&planned.spec, labels))
    }

    /// The allocations of jobs on a node that carry all of these labels.
    pub(crate) fn carriers<'a>(
        &'a self,
        node: NodeId,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = AllocationId> + use<'a> {
        let company = self.company.range((node, AllocationId(0))..=(node, AllocationId(u64::MAX)));
        company.filter(|(_, spec)| carries(spec, labels)).map(|((_, id), _)| *id)
    }

    /// The load of a node; 0 when that is not known.
    pub(crate) fn load(&self, node: NodeId) -> Percent {
        self.load.get(&node).copied().unwrap_or_default()
    }

    /// The packing of a job's virtual cards over the pool: as it says, else as its queue says, else as the pool says.
    pub(crate) fn packing(&self, own: Option<Packing>, queue: &str) -> Packing {
        own.or_else(|| self.packings.get(queue).copied()).unwrap_or(self.pool)
    }
}

/// Returns whether a job carries all of these labels.
pub(crate) fn carries(spec: &JobSpec, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
}
