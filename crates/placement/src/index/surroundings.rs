//! What placement knows of nodes beside their cards: which labelled jobs run there, how busy they are, and how virtual cards are to be
//! laid over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationId, JobSpec, NodeId, Packing, Percent, PlannedWorker, State, WorkerState};

/// What surrounds a worker on each node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// Labelled jobs by node. A job without labels is nobody's concern.
    company: BTreeMap<NodeId, Vec<(AllocationId, Arc<JobSpec>)>>,
    /// The nodes of each of their grants.
    nodes: BTreeMap<AllocationId, Vec<NodeId>>,
    /// Labelled jobs of plans that the ledger has not answered.
    planned: BTreeMap<NodeId, Vec<Arc<JobSpec>>>,
    /// How busy nodes are.
    load: BTreeMap<NodeId, Percent>,
    /// What queues say of packing, and the pool.
    packings: BTreeMap<String, Packing>,
    pool: Packing,
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

    /// Counts a grant of the plan being made.
    pub(crate) fn plan(&mut self, spec: &Arc<JobSpec>, workers: &[PlannedWorker]) {
        if !spec.labels.is_empty() {
            for worker in workers {
                self.planned.entry(worker.node).or_default().push(Arc::clone(spec));
            }
        }
    }

    /// Forgets what plans counted: the ledger has answered.
    pub(crate) fn settle(&mut self) {
        self.planned.clear();
    }

    /// Whether a job that carries all of these labels runs on a node, or will.
    pub(crate) fn has(&self, node: NodeId, labels: &BTreeMap<String, String>) -> bool {
        let carries = |spec: &Arc<JobSpec>| labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value));
        self.company.get(&node).into_iter().flatten().any(|(_, spec)| carries(spec))
            || self.planned.get(&node).into_iter().flatten().any(carries)
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
