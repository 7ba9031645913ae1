//! Orders: what should run here, against what does.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_api::v1 as wire;
use wire::WorkerDesire;

use super::event::{Effect, Now};
use super::record::{Stage, WorkerRecord, from_ref, policy_of};
use super::state::Node;
use crate::supervisor::status::{Cause, Status};
use crate::worker::{StopPolicy, WorkerId};

impl Node {
    /// Follows orders of a term that is on disk.
    pub(super) fn obey(&mut self, now: Now, orders: wire::Orders) -> Vec<Effect> {
        let mut named = BTreeSet::new();
        let mut effects = Vec::new();
        for order in orders.workers {
            let Some(worker) = order.worker.as_ref().map(from_ref) else { continue };
            named.insert(worker);
            effects.extend(match order.desire() {
                WorkerDesire::Run => self.ordered_to_run(now, worker, order),
                WorkerDesire::Stop => self.ordered_to_stop(now, worker, order),
                WorkerDesire::Forget => self.ordered_to_forget(worker),
                WorkerDesire::Unspecified => Vec::new(),
            });
        }
        if orders.complete {
            effects.extend(self.stop_unnamed(&named));
        }
        effects
    }

    fn ordered_to_run(&mut self, now: Now, worker: WorkerId, order: wire::WorkerOrder) -> Vec<Effect> {
        if let Some(record) = self.workers.get_mut(&worker) {
            record.granted = true;
            let order = Arc::new(order);
            let readdressed = record.order.as_ref().is_none_or(|before| before.slices != order.slices);
            record.order = Some(Arc::clone(&order));
            record.touch();
            return match record.stage {
                Stage::Launched if readdressed => vec![Effect::Readdress { worker, order }],
                Stage::Launched | Stage::Waiting => Vec::new(),
                Stage::Over => {
                    // The leader does not know yet that it is over; it is never started a second time.
                    record.report_again();
                    Vec::new()
                }
            };
        }
        let newest = self.newest_epoch(worker);
        let mut record = self.new_record(now, worker, order);
        if newest.is_some_and(|newest| newest > worker.epoch) {
            record.end_unstarted(Cause::StartFailed, "refused: a newer epoch of the same allocation was seen here");
            record.granted = false;
        }
        self.workers.insert(worker, record);
        let older: Vec<WorkerId> = self.older_of_same_rank(worker);
        older.into_iter().flat_map(|older| self.stop(older, None, Cause::NotGranted)).collect()
    }

    fn new_record(&self, now: Now, worker: WorkerId, order: wire::WorkerOrder) -> WorkerRecord {
        let status = Status::new(worker, order.job_id, self.fence(worker), self.facts.boot_id.clone());
        WorkerRecord::ordered(now, status, Arc::new(order))
    }

    fn newest_epoch(&self, worker: WorkerId) -> Option<tessera_ledger::Epoch> {
        self.workers.keys().filter(|other| other.allocation == worker.allocation).map(|other| other.epoch).max()
    }

    fn older_of_same_rank(&self, worker: WorkerId) -> Vec<WorkerId> {
        let older = |other: &&WorkerId| {
            other.allocation == worker.allocation && other.rank == worker.rank && other.epoch < worker.epoch
        };
        self.workers.keys().filter(older).copied().collect()
    }

    fn ordered_to_stop(&mut self, now: Now, worker: WorkerId, order: wire::WorkerOrder) -> Vec<Effect> {
        let policy = order.stop.as_ref().map(|policy| policy_of(Some(policy)));
        let save = order.stop.as_ref().is_some_and(|policy| policy.save);
        let Some(record) = self.workers.get_mut(&worker) else {
            // It was never here: the leader is told so, and a later order to run it is refused.
            let mut record = self.new_record(now, worker, order);
            record.end_unstarted(Cause::Ordered, "it was never started here");
            self.workers.insert(worker, record);
            return Vec::new();
        };
        record.granted = true;
        if record.stage == Stage::Over {
            record.report_again();
            return Vec::new();
        }
        let saves = record.saves().then_some(Effect::SaveAtEnd { worker, save });
        saves.into_iter().chain(self.stop(worker, policy, Cause::Ordered)).collect()
    }

    /// Stops a worker that is here, by an order of a term that is not on disk yet.
    pub(super) fn stop_early(&mut self, now: Now, order: wire::WorkerOrder) -> Vec<Effect> {
        let worker = order.worker.as_ref().map(from_ref).filter(|worker| self.workers.contains_key(worker));
        worker.map_or_else(Vec::new, |worker| self.ordered_to_stop(now, worker, order))
    }

    fn ordered_to_forget(&mut self, worker: WorkerId) -> Vec<Effect> {
        let Some(record) = self.workers.get_mut(&worker) else { return Vec::new() };
        record.settled = true;
        if record.stage == Stage::Over { Vec::new() } else { self.stop(worker, None, Cause::NotGranted) }
    }

    fn stop_unnamed(&mut self, named: &BTreeSet<WorkerId>) -> Vec<Effect> {
        let unnamed: Vec<WorkerId> = self.workers.keys().filter(|worker| !named.contains(worker)).copied().collect();
        let mut effects = Vec::new();
        for worker in unnamed {
            if let Some(record) = self.workers.get_mut(&worker) {
                record.granted = false;
            }
            effects.extend(self.stop(worker, None, Cause::NotGranted));
        }
        effects
    }

    /// Stops a worker that is not over. What waits ends at once; what is being stopped already is stopped again only
    /// where the new word is another one.
    fn stop(&mut self, worker: WorkerId, policy: Option<StopPolicy>, cause: Cause) -> Vec<Effect> {
        let fence = self.fence(worker);
        let Some(record) = self.workers.get_mut(&worker) else { return Vec::new() };
        let policy = policy.unwrap_or_else(|| record.stop_policy());
        match record.stage {
            Stage::Over => Vec::new(),
            Stage::Waiting => {
                record.end_unstarted(cause, "it was stopped before it was started");
                Vec::new()
            }
            Stage::Launched if record.stop == Some((policy, cause)) => Vec::new(),
            Stage::Launched => {
                record.stop = Some((policy, cause));
                vec![Effect::Stop { worker, fence, policy, cause }]
            }
        }
    }
}
