//! Potential victims: the allocations in force, by queue and precedence. Where a queue goes by attained service the
//! precedence of a running job falls with time, from band to band.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, Job, JobState, LogTime, Precedence, Slice, State, Worker, WorkerState,
};

/// The standing of an allocation, which decides who may preempt it (law L4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) queue: Arc<str>,
    pub(crate) precedence: Precedence,
    /// True if jobs of its queue may preempt it.
    pub(crate) preemptible: bool,
    /// True if nothing that it asked for protects it, because it is idle.
    pub(crate) idle: bool,
    /// The time at which its precedence falls, if it runs on.
    falls_at: Option<LogTime>,
}

/// Every allocation, and which of them could be preempted or recalled at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    /// The standing of each; `None`: it cannot give way now, but may be able to later.
    known: BTreeMap<AllocationId, Option<Standing>>,
    by_queue: BTreeMap<Arc<str>, BTreeSet<(Precedence, Reverse<AllocationId>)>>,
    /// The times at which precedences fall, and whose.
    falls: BTreeSet<(LogTime, AllocationId)>,
}

impl Victims {
    /// Takes over what the ledger says of an allocation, as of `now`; answers how it stands if it could not give way
    /// before and can, or gives way more readily.
    pub(crate) fn update(&mut self, state: &State, id: AllocationId, now: LogTime) -> Option<Standing> {
        let before = self.known.remove(&id);
        if let Some(at) = before.as_ref().and_then(|before| before.as_ref()?.falls_at) {
            self.falls.remove(&(at, id));
        }
        if let Some(Some(known)) = &before
            && let Some(of_queue) = self.by_queue.get_mut(&known.queue)
        {
            of_queue.remove(&(known.precedence, Reverse(id)));
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
        let mut precedence = state.precedence_of(job, now);
        if !job.goes_on() {
            // No band ever takes from it, so that none need be followed.
            precedence.band = Reverse(0);
        }
        let (preemptible, idle) = (job.is_preemptible(), job.gives_way_for_idleness());
        let falls_at = state.order_of(&queue).and_then(|order| job.next_band_at(order, now));
        self.falls.extend(falls_at.map(|at| (at, id)));
        let standing = Standing { queue: Arc::clone(&queue), precedence, preemptible, idle, falls_at };
        self.by_queue.entry(queue).or_default().insert((precedence, Reverse(id)));
        self.known.insert(id, Some(standing.clone()));
        let gives_more = |before: &Standing| idle && !before.idle || precedence < before.precedence;
        let gives_more = before.is_some_and(|before| before.as_ref().is_none_or(gives_more));
        gives_more.then_some(standing)
    }

    /// Takes over the bands that have changed by `now`; answers how their jobs stand.
    pub(crate) fn advance(&mut self, state: &State, now: LogTime) -> Vec<Standing> {
        let mut fallen = Vec::new();
        while let Some((_, id)) = self.falls.first().copied().filter(|(at, _)| *at <= now) {
            fallen.extend(self.update(state, id, now));
        }
        fallen
    }

    /// The next time at which the precedence of a job falls.
    pub(crate) fn next_fall(&self) -> Option<LogTime> {
        self.falls.first().map(|(at, _)| *at)
    }

    /// The standing of an allocation that could give way; `None` for any other.
    pub(crate) fn standing(&self, id: AllocationId) -> Option<&Standing> {
        self.known.get(&id)?.as_ref()
    }

    /// The allocations of a queue whose precedence is below one: lowest first, and among equals the youngest first.
    pub(crate) fn below<'a>(
        &'a self,
        queue: &str,
        precedence: Precedence,
    ) -> impl Iterator<Item = AllocationId> + use<'a> {
        let of_queue = self.by_queue.get(queue).into_iter();
        of_queue.flat_map(move |set| set.range(..(precedence, Reverse(AllocationId(u64::MAX))))).map(|(_, id)| id.0)
    }

    /// The lowest precedence of a queue that could give way.
    pub(crate) fn lowest(&self, queue: &str) -> Precedence {
        self.by_queue.get(queue).and_then(|set| set.first()).map_or(Precedence::default(), |(lowest, _)| *lowest)
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

pub(crate) fn can_give_way(job: &Job, allocation: &Allocation) -> bool {
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
