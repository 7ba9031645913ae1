//! Potential victims: the allocations in force, by queue and effective priority.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationId, AllocationPhase, Job, JobState, Slice, State, Worker, WorkerState};

/// The standing of an allocation, which decides who may preempt it (law L4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) queue: Arc<str>,
    pub(crate) priority: u32,
    /// True if jobs of its queue may preempt it.
    pub(crate) preemptible: bool,
    /// True if nothing that it asked for protects it, because it is idle.
    pub(crate) idle: bool,
}

/// Every allocation, and which of them could be preempted or recalled at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    /// The standing of each; `None`: it cannot give way now, but may be able to later.
    known: BTreeMap<AllocationId, Option<Standing>>,
    by_queue: BTreeMap<Arc<str>, BTreeSet<(u32, Reverse<AllocationId>)>>,
}

impl Victims {
    /// Takes over what the ledger says of an allocation; answers how it stands if it could not give way before and can,
    /// or gives way more readily.
    pub(crate) fn update(&mut self, state: &State, id: AllocationId) -> Option<Standing> {
        let before = self.known.remove(&id);
        if let Some(Some(known)) = &before
            && let Some(of_queue) = self.by_queue.get_mut(&known.queue)
        {
            of_queue.remove(&(known.priority, Reverse(id)));
            if of_queue.is_empty() {
                self.by_queue.remove(&known.queue);
            }
        }
        let allocation = state.allocation(id)?;
        let job = state.job(allocation.job)?;
        if !can_give_way(job, allocation) {
            self.known.insert(id, None);
            return None;
        }
        let known = self.by_queue.get_key_value(job.spec.queue.as_str());
        let queue = known.map_or_else(|| Arc::from(job.spec.queue.as_str()), |(queue, _)| Arc::clone(queue));
        let priority = job.effective_priority();
        let (preemptible, idle) = (job.is_preemptible(), job.gives_way_for_idleness());
        let standing = Standing { queue: Arc::clone(&queue), priority, preemptible, idle };
        self.by_queue.entry(queue).or_default().insert((priority, Reverse(id)));
        self.known.insert(id, Some(standing.clone()));
        let was_idle = before.as_ref().is_some_and(|before| before.as_ref().is_some_and(|before| before.idle));
        (before == Some(None) || idle && !was_idle).then_some(standing)
    }

    /// The standing of an allocation that could give way; `None` for any other.
    pub(crate) fn standing(&self, id: AllocationId) -> Option<&Standing> {
        self.known.get(&id)?.as_ref()
    }

    /// The allocations of a queue whose effective priority is below `priority`: lowest first, and among equals the
    /// youngest first.
    pub(crate) fn below<'a>(&'a self, queue: &str, priority: u32) -> impl Iterator<Item = AllocationId> + use<'a> {
        let of_queue = self.by_queue.get(queue).into_iter();
        of_queue.flat_map(move |set| set.range(..(priority, Reverse(AllocationId(u64::MAX))))).map(|(_, id)| id.0)
    }

    /// The lowest effective priority of a queue that could give way.
    pub(crate) fn lowest(&self, queue: &str) -> u32 {
        self.by_queue.get(queue).and_then(|set| set.first()).map_or(0, |(priority, _)| *priority)
    }

    /// The allocations of all queues but one, queue by queue.
    pub(crate) fn outside<'a>(&'a self, queue: &'a str) -> impl Iterator<Item = AllocationId> + use<'a> {
        let others = self.by_queue.iter().filter(move |(other, _)| &***other != queue);
        others.flat_map(|(_, set)| set).map(|(_, id)| id.0)
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = &str> {
        self.by_queue.keys().map(|queue| &**queue)
    }
}

fn can_give_way(job: &Job, allocation: &Allocation) -> bool {
    job.allocation == Some(allocation.id)
        && matches!(job.state, JobState::Starting | JobState::Running)
        && allocation.phase == AllocationPhase::Active
        && allocation
            .workers
            .iter()
            .all(|worker| matches!(worker.state, WorkerState::Held | WorkerState::Running | WorkerState::Stopped))
}

pub(crate) fn live_workers(allocation: &Allocation) -> impl Iterator<Item = &Worker> {
    allocation.workers.iter().filter(|worker| matches!(worker.state, WorkerState::Held | WorkerState::Running))
}

pub(crate) fn live_slices(allocation: &Allocation) -> impl Iterator<Item = &Slice> {
    live_workers(allocation).flat_map(|worker| &worker.slices)
}

pub(crate) fn live_blocks(allocation: &Allocation) -> u64 {
    live_slices(allocation).map(|slice| u64::from(slice.length.0)).sum()
}

/// The slices of an allocation that count in its queue: those of lost workers too.
pub(crate) fn unstopped_slices(allocation: &Allocation) -> impl Iterator<Item = &Slice> + Clone {
    let unstopped = allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped);
    unstopped.flat_map(|worker| &worker.slices)
}
