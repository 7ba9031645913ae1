//! Queries of the state: everything that the ledger itself and others read of it.

use std::sync::Arc;

use super::{AnsweredRequest, State};
use crate::allocation::{Allocation, Move};
use crate::capacity::Capacity;
use crate::card::Card;
use crate::config::PoolConfig;
use crate::event::{EntryEvents, Touched};
use crate::extent::BlockCounts;
use crate::host::{HostRequest, HostUse};
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, RequestId};
use crate::job::{Job, JobState};
use crate::lease::LeaseCeiling;
use crate::node::{Node, NodeState};
use crate::queue::Queue;
use crate::units::{BlockNumber, LogTime, Revision};

impl State {
    /// Index of the last applied entry.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// Log time of the last applied entry; it never goes back.
    #[must_use]
    pub const fn time(&self) -> LogTime {
        self.time
    }

    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The longest leases that may be out there.
    #[must_use]
    pub const fn lease_ceiling(&self) -> LeaseCeiling {
        self.lease_ceiling
    }

    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(&id)
    }

    /// A node that is not forgotten, by name.
    #[must_use]
    pub fn node_by_name(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(self.node_names.get(name)?)
    }

    /// All nodes, forgotten ones included, in order of registration.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.into_iter().map(|(_, node)| node)
    }

    #[must_use]
    pub fn card(&self, id: CardId) -> Option<&Arc<Card>> {
        self.cards.get(&id)
    }

    /// The cards of a node in order of index.
    pub fn cards_of(&self, node: NodeId) -> impl Iterator<Item = (CardId, &Arc<Card>)> {
        let (first, last) = (CardId { node, index: 0 }, CardId { node, index: u32::MAX });
        self.cards.range(first..=last).map(|(id, card)| (*id, card))
    }

    /// All cards by node and index.
    pub fn cards(&self) -> impl Iterator<Item = (CardId, &Arc<Card>)> {
        self.cards.into_iter().map(|(id, card)| (*id, card))
    }

    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&Arc<Queue>> {
        self.queues.get(name)
    }

    /// All queues by name.
    pub fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.into_iter().map(|(_, queue)| queue)
    }

    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Arc<Job>> {
        self.jobs.get(&id)
    }

    /// The jobs whose number is at least `first`, in order of number.
    pub fn jobs_from(&self, first: JobId) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.range(first..).map(|(_, job)| job)
    }

    /// The jobs whose number is at most `last`, newest first.
    pub fn jobs_back_from(&self, last: JobId) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.range(..=last).rev().map(|(_, job)| job)
    }

    /// The jobs that wait for an allocation, now or after their backoff, in the order of
    /// [`WaitingKey`](super::WaitingKey).
    pub fn waiting(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.waiting.into_iter().filter_map(|(key, ())| self.jobs.get(&key.job))
    }

    #[must_use]
    pub fn job_count(&self, state: JobState) -> u64 {
        self.job_counts.get(&state).copied().unwrap_or(0)
    }

    /// Bytes of all jobs, ended ones included, against [`PoolLimits::spec_bytes`](crate::PoolLimits::spec_bytes).
    #[must_use]
    pub const fn spec_bytes(&self) -> u64 {
        self.spec_bytes
    }

    /// Events that are remembered, over all entries.
    #[must_use]
    pub const fn events_held(&self) -> u64 {
        self.events_held
    }

    /// Number of nodes, forgotten ones included.
    #[must_use]
    pub fn node_count(&self) -> u64 {
        self.nodes.len() as u64
    }

    #[must_use]
    pub fn card_count(&self) -> u64 {
        self.cards.len() as u64
    }

    #[must_use]
    pub fn queue_count(&self) -> u64 {
        self.queues.len() as u64
    }

    #[must_use]
    pub fn allocation(&self, id: AllocationId) -> Option<&Arc<Allocation>> {
        self.allocations.get(&id)
    }

    pub fn allocations(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocations.into_iter().map(|(_, allocation)| allocation)
    }

    /// The allocations that have a worker on a node, over or not.
    pub fn allocations_on(&self, node: NodeId) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocation_ids_on(node).filter_map(|id| self.allocations.get(&id))
    }

    /// Their numbers alone, in order.
    pub fn allocation_ids_on(&self, node: NodeId) -> impl Iterator<Item = AllocationId> {
        self.node_workers.get(&node).into_iter().flat_map(|ids| ids.iter().copied())
    }

    #[must_use]
    pub fn move_in_progress(&self, id: MoveId) -> Option<&Arc<Move>> {
        self.moves.get(&id)
    }

    pub fn moves(&self) -> impl Iterator<Item = &Arc<Move>> {
        self.moves.into_iter().map(|(_, movement)| movement)
    }

    /// The answer that a request was given, while it is remembered.
    #[must_use]
    pub fn answered(&self, id: RequestId) -> Option<&AnsweredRequest> {
        self.requests.get(&id)
    }

    /// The time at which the newest forgotten request id was made; zero while none was. For an id that was made then or
    /// before, and is not remembered, nobody knows whether it was answered.
    #[must_use]
    pub const fn request_floor(&self) -> LogTime {
        self.request_floor
    }

    /// The number of answered requests that are remembered.
    #[must_use]
    pub const fn requests_remembered(&self) -> u64 {
        self.requests_held
    }

    /// Blocks of the whole pool by state (law L1).
    #[must_use]
    pub const fn block_counts(&self) -> BlockCounts {
        self.counts
    }

    /// The resources of a node's host that workers hold, or were promised.
    #[must_use]
    pub fn host_use(&self, node: NodeId) -> HostUse {
        self.host_use.get(&node).copied().unwrap_or_default()
    }

    /// The resources that a node's host has left; `None` when its capacity is not known, and not limited.
    #[must_use]
    pub fn host_left(&self, node: NodeId) -> Option<HostRequest> {
        let capacity = self.nodes.get(&node)?.description.host?;
        Some(self.host_use(node).left_of(capacity))
    }

    /// Total capacity of the pool's cards, by class of card.
    #[must_use]
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The pool-wide number of a block (P2): an address for people.
    #[must_use]
    pub fn block_number(&self, card: CardId, index: u32) -> Option<BlockNumber> {
        let node = self.nodes.get(&card.node)?;
        let offset = self.cards.get(&card)?.offset;
        Some(BlockNumber(node.base.0 + u64::from(offset) + u64::from(index)))
    }

    /// The events of the entries after `revision`, oldest first; `None` when they are no longer all remembered.
    #[must_use]
    pub fn events_after(&self, revision: Revision) -> Option<impl Iterator<Item = &EntryEvents>> {
        if revision < self.compacted {
            return None;
        }
        // From the newest back: the map finds the beginning of a range by going through all that is before it.
        let later = self.history.into_iter().rev().take_while(|(known, _)| **known > revision);
        let later: Vec<&EntryEvents> = later.map(|(_, entry)| entry).collect();
        Some(later.into_iter().rev())
    }

    /// The events of the entry of a revision, when it had any and they are remembered. Reading a long way back entry by
    /// entry costs no more than what is read.
    #[must_use]
    pub fn events_of(&self, revision: Revision) -> Option<&EntryEvents> {
        self.history.get(&revision)
    }

    /// Watches must start after this revision or anew.
    #[must_use]
    pub const fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Takes the list of what was touched since the last call. Only the owner of the state calls it; copies have their
    /// own list.
    pub fn take_touched(&mut self) -> Vec<Touched> {
        self.settle();
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Returns whether the node is known and ready.
    #[must_use]
    pub fn is_ready(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.state == NodeState::Ready)
    }
}
