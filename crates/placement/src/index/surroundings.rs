//! What placement knows of nodes beside their cards: which labelled jobs run there, how busy they are, and how virtual
//! cards are to be laid over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationId, JobSpec, NodeId, Packing, Percent, Slice, State, WorkerState};

use super::schedule::Hold;

/// What surrounds a worker on each node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// Labelled jobs by node. A job without labels is nobody's concern.
    company: BTreeMap<NodeId, Vec<(AllocationId, Arc<JobSpec>)>>,
    /// The nodes of each of their grants.
    nodes: BTreeMap<AllocationId, Vec<NodeId>>,
    /// Workers of plans that the ledger has not answered.
    planned: BTreeMap<NodeId, Vec<Planned>>,
    /// How busy nodes are.
    load: BTreeMap<NodeId, Percent>,
    /// What queues say of packing, and the pool.
    packings: BTreeMap<String, Packing>,
    pool: Packing,
}

/// A worker of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// What its job is.
    pub(crate) spec: Arc<JobSpec>,
    /// From when to when it is there.
    pub(crate) hold: Hold,
    /// What it holds.
    pub(crate) slices: Vec<Slice>,
}

impl Surroundings {
    /// Reads everything that the ledger says; how busy nodes are stays as it was.
    pub(crate) fn read(&mut self, state: &State) {
        *self = Self { load: std::mem::take(&mut self.load), ..Self::default() };
        self.read_policies(state);
        for allocation in state.allocations() {
            self.enter(state, allocation);
        }
    }

    /// Reads what queues and the pool say.
    pub(crate) fn read_policies(&mut self, state: &State) {
        self.pool = state.config().packing;
        let settings = state.queues().map(|queue| &queue.settings);
        self.packings = settings.filter_map(|queue| Some((queue.name.clone(), queue.packing?))).collect();
    }

    /// Reads a grant; answers the nodes that a labelled job has left.
    pub(crate) fn update(&mut self, state: &State, id: AllocationId) -> Vec<NodeId> {
        let before = self.leave(id);
        if let Some(allocation) = state.allocation(id) {
            self.enter(state, allocation);
        }
        let now = self.nodes.get(&id).cloned().unwrap_or_default();
        before.into_iter().filter(|node| !now.contains(node)).collect()
    }

    fn enter(&mut self, state: &State, allocation: &Allocation) {
        let Some(job) = state.job(allocation.job).filter(|job| !job.spec.labels.is_empty()) else { return };
        let live = allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped);
        let mut nodes: Vec<NodeId> = live.map(|worker| worker.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for node in &nodes {
            self.company.entry(*node).or_default().push((allocation.id, Arc::clone(&job.spec)));
        }
        if !nodes.is_empty() {
            self.nodes.insert(allocation.id, nodes);
        }
    }

    fn leave(&mut self, id: AllocationId) -> Vec<NodeId> {
        let nodes = self.nodes.remove(&id).unwrap_or_default();
        for node in &nodes {
            if let Some(there) = self.company.get_mut(node) {
                there.retain(|(allocation, _)| *allocation != id);
                if there.is_empty() {
                    self.company.remove(node);
                }
            }
        }
        nodes
    }

    /// Counts a worker of the plan being made.
    pub(super) fn plan(&mut self, node: NodeId, planned: Planned) {
        self.planned.entry(node).or_default().push(planned);
    }

    /// Forgets what plans counted: the ledger has answered. Answers the nodes that this was about.
    pub(super) fn settle(&mut self) -> impl Iterator<Item = NodeId> + use<> {
        std::mem::take(&mut self.planned).into_keys()
    }

    /// What plans put on a node.
    pub(crate) fn planned(&self, node: NodeId) -> &[Planned] {
        self.planned.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Whether a job that carries all of these labels runs on a node, or will.
    pub(crate) fn has(&self, node: NodeId, labels: &BTreeMap<String, String>) -> bool {
        self.carriers(node, labels).next().is_some()
            || self.planned(node).iter().any(|planned| carries(&planned.spec, labels))
    }

    /// The grants of jobs on a node that carry all of these labels.
    pub(crate) fn carriers<'a>(
        &'a self,
        node: NodeId,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = AllocationId> + use<'a> {
        let company = self.company.get(&node).into_iter().flatten();
        company.filter(|(_, spec)| carries(spec, labels)).map(|(id, _)| *id)
    }

    /// How busy a node is; 0 when that is not known.
    pub(crate) fn load(&self, node: NodeId) -> Percent {
        self.load.get(&node).copied().unwrap_or_default()
    }

    /// Whether anything is known of how busy nodes are.
    pub(crate) fn knows_load(&self) -> bool {
        !self.load.is_empty()
    }

    /// Takes over how busy nodes are.
    pub(crate) fn set_load(&mut self, load: BTreeMap<NodeId, Percent>) {
        self.load = load;
    }

    /// Gives what is known of load to another index.
    pub(crate) fn take_load(&mut self) -> BTreeMap<NodeId, Percent> {
        std::mem::take(&mut self.load)
    }

    /// How virtual cards of a job are laid over the pool: as it says, else as its queue says, else as the pool says.
    pub(crate) fn packing(&self, own: Option<Packing>, queue: &str) -> Packing {
        own.or_else(|| self.packings.get(queue).copied()).unwrap_or(self.pool)
    }
}

/// Whether a job carries all of these labels.
pub(crate) fn carries(spec: &JobSpec, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
}
