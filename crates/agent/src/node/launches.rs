//! Starts of workers: which of those that wait are launched now.
//!
//! So many start at a time: all workers of a large gang at once would keep the host from what runs on it already, and
//! the agent from its leader. They go by age, and a large gang lets others pass a while for each of its workers, so
//! that a small job waits for few starts and not for all those of a gang.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::{AllocationId, Epoch, Rank};

use super::event::{Effect, LaunchOrder, Now, PoolTerms};
use super::record::{Stage, WorkerRecord};
use super::state::Node;
use crate::boot::BootTime;
use crate::supervisor::status::Phase;
use crate::worker::{Lease, WorkerId};

/// The time for which a start counts. One that takes longer waits for something else than the host's processors: the
/// bytes of a checkpoint, a slice server, a worker that is not started yet.
const START: Duration = Duration::from_secs(2);

/// The time by which each worker of an allocation lets later orders pass: a second for ten of them.
const SPACING: Duration = Duration::from_millis(100);

/// Starts at once on a host of so many processors: two for each, because a start waits for the disk as long as it
/// computes, and eight at least, because so few disturb nobody and ordinary gangs are not to wait for each other.
pub(super) const fn starts_at_once(processors: usize) -> usize {
    let starts = processors.saturating_mul(2);
    if starts < 8 { 8 } else { starts }
}

impl WorkerRecord {
    /// Returns whether it was launched a short while ago and does not run yet.
    fn is_starting(&self, now: Now) -> bool {
        let launched = self.launched_at.is_some_and(|launched| now < launched.after(START));
        launched && self.stage == Stage::Launched && self.status.phase == Phase::Preparing
    }
}

impl Node {
    /// Starts what waits and may start: the lease must be valid, no older allocation of the same rank alive, and not
    /// too many others be starting. Further ones follow once those run, at the latest with the heartbeat after
    /// [`START`].
    pub(super) fn launch_waiting(&mut self, now: Now) -> Vec<Effect> {
        let Some(pool) = self.pool else { return Vec::new() };
        let Some(lease) = self.lease.filter(|lease| now < lease.stop_at) else { return Vec::new() };
        let mut ready: Vec<WorkerId> = self
            .workers
            .values()
            .filter(|record| record.stage == Stage::Waiting && !self.has_older_alive(record.status.worker))
            .map(|record| record.status.worker)
            .collect();
        if ready.is_empty() {
            return Vec::new();
        }
        let starting = self.workers.values().filter(|record| record.is_starting(now)).count();
        let room = self.starts_at_once.saturating_sub(starting);
        if ready.len() > room {
            ready = self.by_turn(ready);
            ready.truncate(room);
        }
        ready.into_iter().filter_map(|worker| self.launch(now, worker, lease, pool)).collect()
    }

    /// The same workers in the order in which they start: the turn of each comes when it was ordered, and a [`SPACING`]
    /// later for each of its own allocation before it. So small jobs pass a large gang's rest, and no stream of them
    /// passes it for ever.
    fn by_turn(&self, ready: Vec<WorkerId>) -> Vec<WorkerId> {
        let mut launched: BTreeMap<AllocationId, u32> = BTreeMap::new();
        for record in self.workers.values().filter(|record| record.stage == Stage::Launched) {
            *launched.entry(record.status.worker.allocation).or_default() += 1;
        }
        let mut turns: Vec<(Option<BootTime>, WorkerId)> = Vec::with_capacity(ready.len());
        for worker in ready {
            let before = launched.entry(worker.allocation).or_default();
            let ordered = self.workers.get(&worker).map(|record| record.ordered_at);
            turns.push((ordered.map(|ordered| ordered.after(SPACING.saturating_mul(*before))), worker));
            *before += 1;
        }
        turns.sort_unstable();
        turns.into_iter().map(|(_, worker)| worker).collect()
    }

    fn has_older_alive(&self, worker: WorkerId) -> bool {
        let first = WorkerId { epoch: Epoch(0), rank: Rank(0), ..worker };
        let mut older = self.workers.range(first..worker);
        older.any(|(other, record)| {
            other.rank == worker.rank && other.epoch < worker.epoch && record.stage == Stage::Launched
        })
    }

    fn launch(&mut self, now: Now, worker: WorkerId, lease: Lease, pool: PoolTerms) -> Option<Effect> {
        let fence = self.fence(worker);
        let record = self.workers.get_mut(&worker)?;
        let order = record.order.clone()?;
        record.stage = Stage::Launched;
        record.launched_at = Some(now);
        let lease = (!order.keep_on_disconnect).then_some(lease);
        Some(Effect::Launch(Box::new(LaunchOrder { worker, order, fence, lease, pool })))
    }
}
