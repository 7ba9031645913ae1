//! The part of the state that is computed from the rest: rebuilt after a snapshot was read, and compared by the laws.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::Capacity;
use crate::extent::BlockCounts;
use crate::ids::{AllocationId, NodeId};
use crate::job::JobState;
use crate::ports::MeetingPorts;
use crate::queue::Queue;
use crate::state::State;

impl State {
    /// Computes every index and sum from scratch. A snapshot holds none of them.
    pub(crate) fn rebuild_derived(&mut self) {
        self.node_names = self
            .nodes()
            .filter(|node| node.state != crate::node::NodeState::Forgotten)
            .map(|node| (node.description.name.clone(), node.id))
            .collect();
        self.waiting = self
            .jobs_from(Default::default())
            .filter(|job| job.is_waiting())
            .map(|job| (self.waiting_key(job), ()))
            .collect();
        self.unguarded = self.find_unguarded();
        self.checkpointed = self
            .jobs_from(Default::default())
            .filter(|job| !job.checkpoints.is_empty())
            .map(|job| (job.id, ()))
            .collect();
        self.checkpoint_bytes = self.count_checkpoint_bytes();
        self.windowed =
            self.jobs_from(Default::default()).filter(|job| job.has_windows()).map(|job| (job.id, ())).collect();
        self.idlers = self.jobs_from(Default::default()).filter(|job| job.is_idler()).map(|job| (job.id, ())).collect();
        self.ended = self
            .jobs_from(Default::default())
            .filter(|job| job.state.is_terminal())
            .map(|job| ((job.changed_at, job.id), ()))
            .collect();
        self.request_times = self.requests.into_iter().map(|(id, answer)| ((answer.at, *id), ())).collect();
        self.requests_held = self.requests.len() as u64;
        let mut on_nodes: BTreeMap<NodeId, BTreeSet<AllocationId>> = BTreeMap::new();
        for allocation in self.allocations() {
            for worker in allocation.workers.iter() {
                on_nodes.entry(worker.node).or_default().insert(allocation.id);
            }
        }
        self.node_workers = on_nodes.into_iter().map(|(node, ids)| (node, Arc::new(ids))).collect();
        let mut ports = MeetingPorts::default();
        for allocation in self.allocations() {
            allocation.meetings().for_each(|(node, port)| ports.take(node, port));
        }
        self.ports = ports;
        self.host_use = self.count_host_use();
        self.rebuild_offers();
        self.counts = self.cards().fold(BlockCounts::default(), |sum, (_, card)| sum.plus(card.extents.counts()));
        let mut capacity = Capacity::default();
        self.cards().for_each(|(id, card)| capacity.add(card, self.host_of(id)));
        self.capacity = Arc::new(capacity);
        let mut job_counts: BTreeMap<JobState, u64> = BTreeMap::new();
        for job in self.jobs_from(Default::default()) {
            *job_counts.entry(job.state).or_insert(0) += 1;
        }
        self.job_counts = job_counts;
        self.spec_bytes = self.jobs_from(Default::default()).map(|job| job.spec.bytes()).sum();
        let ended = self.jobs_from(Default::default()).filter(|job| job.state.is_terminal());
        self.ended_spec_bytes = ended.map(|job| job.spec.bytes()).sum();
        self.events_held = self.history.into_iter().map(|(_, entry)| entry.events.len() as u64).sum();
        self.rebuild_queues();
    }

    /// Computes what queues hold from the allocations of their jobs. Their past use is not derived from anything.
    fn rebuild_queues(&mut self) {
        let empty = |queue: &Queue| Queue {
            past: queue.past,
            closed_until: queue.closed_until,
            ..Queue::new(queue.settings.clone())
        };
        let mut queues: BTreeMap<String, Queue> =
            self.queues.into_iter().map(|(name, queue)| (name.clone(), empty(queue))).collect();
        for allocation in self.allocations() {
            let Some(job) = self.jobs.get(&allocation.job) else { continue };
            let amount = self.held_by(allocation);
            for name in self.queue_line(&job.spec.queue) {
                let Some(queue) = queues.get_mut(&name) else { continue };
                queue.used = queue.used.plus(amount);
                if self.is_leaving(allocation) {
                    queue.leaving = queue.leaving.plus(amount);
                } else if !job.is_preemptible() {
                    queue.firm = queue.firm.plus(amount);
                }
            }
        }
        for job in self.jobs_from(Default::default()).filter(|job| !job.state.is_terminal()) {
            if let Some(queue) = queues.get_mut(&job.spec.queue) {
                queue.jobs += 1;
                if job.guarded {
                    queue.guarded = queue.guarded.saturating_add(job.asked());
                }
            }
        }
        self.queues = queues.into_iter().map(|(name, queue)| (name, Arc::new(queue))).collect();
    }
}
