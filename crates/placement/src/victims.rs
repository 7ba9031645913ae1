//! Who could be preempted: the grants in force of jobs that allow it, by priority.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, Job, JobState, LogTime, Slice, State, Worker, WorkerState,
};

/// The time within which preemptions of one job are counted (law L4).
const WINDOW: Duration = Duration::from_secs(3600);

/// Every grant, and which of them could be preempted at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    /// Grants that cannot be preempted now, but may be later.
    others: BTreeSet<AllocationId>,
    priorities: BTreeMap<AllocationId, u32>,
    by_priority: BTreeSet<(u32, Reverse<AllocationId>)>,
}

impl Victims {
    /// Takes over what the ledger says of a grant; answers its priority if it could not be preempted before and can be now.
    pub(crate) fn update(&mut self, state: &State, id: AllocationId) -> Option<u32> {
        if let Some(priority) = self.priorities.remove(&id) {
            self.by_priority.remove(&(priority, Reverse(id)));
        }
        let was_other = self.others.remove(&id);
        let allocation = state.allocation(id)?;
        let job = state.job(allocation.job)?;
        if !can_be_preempted(job, allocation) {
            self.others.insert(id);
            return None;
        }
        self.priorities.insert(id, job.spec.priority);
        self.by_priority.insert((job.spec.priority, Reverse(id)));
        was_other.then_some(job.spec.priority)
    }

    /// The priority of a grant that can be preempted.
    pub(crate) fn priority(&self, id: AllocationId) -> Option<u32> {
        self.priorities.get(&id).copied()
    }

    /// The grants whose priority is below `priority`: lowest first, and among equals the youngest first.
    pub(crate) fn below(&self, priority: u32) -> impl Iterator<Item = AllocationId> {
        self.by_priority.range(..(priority, Reverse(AllocationId(u64::MAX)))).map(|(_, Reverse(id))| *id)
    }
}

fn can_be_preempted(job: &Job, allocation: &Allocation) -> bool {
    job.spec.preemptible
        && job.allocation == Some(allocation.id)
        && matches!(job.state, JobState::Starting | JobState::Running)
        && allocation.phase == AllocationPhase::Active
        && allocation
            .workers
            .iter()
            .all(|worker| matches!(worker.state, WorkerState::Held | WorkerState::Running | WorkerState::Stopped))
}

/// When the job may be preempted again; `None` when it may be now, or never (law L4).
pub(crate) fn protected_until(job: &Job, now: LogTime, limit: u32) -> Option<LogTime> {
    let mut recent: Vec<LogTime> = job.preempted_at.iter().copied().filter(|at| now.since(*at) < WINDOW).collect();
    recent.sort_unstable();
    let surplus = recent.len().checked_sub(limit as usize)?;
    // With a limit of zero nobody is ever preempted.
    Some(recent.get(surplus).map_or(LogTime(u64::MAX), |at| at.after(WINDOW)))
}

/// The workers of a grant that hold blocks.
pub(crate) fn live_workers(allocation: &Allocation) -> impl Iterator<Item = &Worker> {
    allocation.workers.iter().filter(|worker| matches!(worker.state, WorkerState::Held | WorkerState::Running))
}

/// The slices of a grant that hold blocks.
pub(crate) fn live_slices(allocation: &Allocation) -> impl Iterator<Item = &Slice> {
    live_workers(allocation).flat_map(|worker| &worker.slices)
}
