//! Blocks change hands here and only here. Each function keeps the counts by state and the memory of cards right
//! (law L1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::allocation::{Allocation, AllocationPhase, Slice, Worker, WorkerExit, WorkerState};
use crate::card::{Card, CardHealth};
use crate::event::{Event, Touched};
use crate::extent::BlockState;
use crate::ids::{AllocationId, CardId, JobId, NodeId, Owner, Rank};
use crate::node::Eligibility;
use crate::queue::QueueAmount;
use crate::state::State;
use crate::units::{BlockCount, BlockIndex, Mebibytes, MilliTflops};

impl State {
    /// Changes a card and keeps the pool's counts.
    pub(super) fn with_card<R>(&mut self, id: CardId, change: impl FnOnce(&mut Card) -> R) -> Option<R> {
        let card = Arc::make_mut(self.cards.get_mut_cow(&id)?);
        let before = card.extents.counts();
        let result = change(card);
        self.counts = self.counts.plus(card.extents.counts()).minus(before);
        self.touched.push(Touched::Card(id));
        Some(result)
    }

    pub(super) fn with_allocation<R>(
        &mut self,
        id: AllocationId,
        change: impl FnOnce(&mut Allocation) -> R,
    ) -> Option<R> {
        let allocation = Arc::make_mut(self.allocations.get_mut_cow(&id)?);
        self.touched.push(Touched::Allocation(id));
        Some(change(allocation))
    }

    /// Puts a worker into a state and says so.
    pub(super) fn set_worker(&mut self, allocation: &Allocation, rank: Rank, state: WorkerState) {
        let Some(worker) = allocation.worker(rank) else { return };
        let event = Event::Worker { job: allocation.job, allocation: allocation.id, rank, node: worker.node, state };
        self.pending_events.push(event);
        let [was_lost, is_lost] = [worker.state, state].map(|state| state == WorkerState::Lost);
        if was_lost != is_lost {
            self.note_loss_of_host(worker.node, self.asked_of_host(allocation, rank), is_lost);
        }
        self.with_worker(allocation.id, rank, |worker| worker.state = state);
    }

    pub(super) fn with_worker(&mut self, id: AllocationId, rank: Rank, change: impl FnOnce(&mut Worker)) {
        self.with_allocation(id, |allocation| {
            let workers = Arc::make_mut(&mut allocation.workers);
            if let Some(worker) = workers.get_mut(rank.0 as usize) {
                change(worker);
            }
        });
    }

    /// Gives blocks that nobody holds the state that node and card call for: free, or offline while the node is
    /// drained, the card is unhealthy, or the block was shrunk away.
    pub(super) fn rest_card(&mut self, id: CardId) {
        let draining = self.nodes.get(&id.node).is_some_and(|node| node.eligibility == Eligibility::Draining);
        self.with_card(id, |card| {
            let usable = !draining && card.description.health == CardHealth::Healthy;
            let resting = if usable { BlockState::Free } else { BlockState::Offline };
            card.extents.update_all(|state| if state.owner().is_none() { resting } else { state });
            let surplus = BlockCount(card.extents.length().0.saturating_sub(card.blocks.0));
            card.extents.update(BlockIndex(card.blocks.0), surplus, |state| {
                if state.owner().is_none() { BlockState::Offline } else { state }
            });
        });
    }

    /// Gives the blocks of a worker's slices another state.
    pub(super) fn change_blocks(&mut self, owner: Owner, slices: &[Slice], change: impl Fn(BlockState) -> BlockState) {
        for slice in slices {
            self.with_card(slice.card, |card| {
                card.extents.update(slice.start, slice.length, |state| {
                    if state.owner() == Some(owner) { change(state) } else { state }
                });
            });
        }
    }

    /// The amount that a worker's slices count for in its queue, at the reference precision.
    pub(super) fn amount_of(&self, slices: &[Slice]) -> QueueAmount {
        let blocks: u64 = slices.iter().map(|slice| u64::from(slice.length.0)).sum();
        QueueAmount {
            compute: MilliTflops(blocks.saturating_mul(self.config.block_size.0)),
            memory: slices.iter().map(|slice| slice.memory).sum(),
        }
    }

    /// The amount for which those workers of an allocation that are not over count in its queue.
    pub(super) fn held_by(&self, allocation: &Allocation) -> QueueAmount {
        let live = allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped);
        live.fold(QueueAmount::default(), |sum, worker| sum.plus(self.amount_of(&worker.slices)))
    }

    /// Tells the workers of an allocation to stop. Those that never got an order are over at once.
    pub(super) fn begin_stop(&mut self, id: AllocationId) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        match allocation.phase {
            AllocationPhase::Waiting | AllocationPhase::Reserved => self.abandon(&allocation),
            AllocationPhase::Ending => {}
            AllocationPhase::Active => {
                self.with_allocation(id, |allocation| allocation.phase = AllocationPhase::Ending);
                self.charge_leaving(allocation.job, self.held_by(&allocation));
                for worker in allocation.workers.iter() {
                    if matches!(worker.state, WorkerState::Held | WorkerState::Running) {
                        let owner = allocation.owner(worker.rank);
                        self.set_worker(&allocation, worker.rank, WorkerState::Draining);
                        self.change_blocks(owner, &worker.slices, |_| BlockState::Draining { owner, next: None });
                    }
                }
            }
        }
    }

    /// Takes a worker's blocks back: its stop is confirmed, or its lease provably over (law L2). Blocks for which
    /// another worker was preempted go to it at once.
    pub(super) fn release_worker(&mut self, id: AllocationId, rank: Rank, exit: WorkerExit) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        let Some(worker) = allocation.worker(rank) else { return };
        if worker.state == WorkerState::Stopped {
            return;
        }
        let owner = allocation.owner(rank);
        let promised = allocation.phase == AllocationPhase::Waiting;
        for slice in &worker.slices {
            self.take_back(owner, slice, promised);
        }
        let request = self.asked_of_host(&allocation, rank);
        self.release_host(worker.node, request, promised);
        self.set_worker(&allocation, rank, WorkerState::Stopped);
        self.with_worker(id, rank, |worker| worker.exit = Some(exit));
        for slice in &worker.slices {
            self.settle_offer(slice.card);
        }
        let amount = self.amount_of(&worker.slices);
        self.charge_given_back(allocation.job, amount, self.is_leaving(&allocation));
        // One that is being given up, worker by worker, does not come into force with those that are left.
        for waiting in self.waiting_on(worker, !request.is_zero()).into_iter().filter(|waiting| *waiting != id) {
            self.activate_if_complete(waiting);
        }
    }

    /// Takes one slice back; blocks that are promised to another worker are held by it at once.
    fn take_back(&mut self, owner: Owner, slice: &Slice, promised: bool) {
        self.with_card(slice.card, |card| {
            // An allocation that waits owns some of its blocks already and is only named the next owner of the others.
            card.extents.update(slice.start, slice.length, |state| match state {
                BlockState::Draining { owner: holder, next: Some(next) } if holder == owner => BlockState::Held(next),
                BlockState::Draining { owner: holder, next: Some(next) } if next == owner => {
                    BlockState::Draining { owner: holder, next: None }
                }
                state if state.owner() == Some(owner) => BlockState::Free,
                state => state,
            });
            let memory = if promised { &mut card.memory_promised } else { &mut card.memory_used };
            *memory = memory.saturating_sub(slice.memory);
            card.slices -= 1;
        });
        self.rest_card(slice.card);
    }

    /// The allocations that wait for something that a worker holds: blocks, memory or a place for a slice on its cards,
    /// or, when it holds some of that, a part of its host.
    fn waiting_on(&self, worker: &Worker, holds_host: bool) -> Vec<AllocationId> {
        let cards: BTreeSet<CardId> = worker.slices.iter().map(|slice| slice.card).collect();
        self.allocations_on(worker.node)
            .filter(|allocation| {
                let mut held = allocation.workers.iter().flat_map(|worker| &worker.slices);
                allocation.phase == AllocationPhase::Waiting
                    && (held.any(|slice| cards.contains(&slice.card))
                        || holds_host && self.waits_for_host(allocation, worker.node))
            })
            .map(|allocation| allocation.id)
            .collect()
    }

    /// Puts an allocation into force once every one of its blocks is held by it and its cards have the memory and the
    /// room for its slices: now its workers may be started.
    pub(super) fn activate_if_complete(&mut self, id: AllocationId) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        let whole = self.takes_whole_cards(allocation.job);
        let complete = allocation.workers.iter().all(|worker| {
            let owner = allocation.owner(worker.rank);
            worker.slices.iter().all(|slice| {
                self.cards.get(&slice.card).is_some_and(|card| {
                    card.extents.all(slice.start, slice.length, |state| state == BlockState::Held(owner))
                        && card.extents.as_slice().iter().filter_map(|extent| extent.state.owner()).all(|other| {
                            let beside = || self.allocations.get(&other.allocation).map(|beside| beside.job);
                            other.allocation == id || !whole && !beside().is_some_and(|job| self.takes_whole_cards(job))
                        })
                })
            })
        });
        if allocation.phase != AllocationPhase::Waiting
            || !complete
            || !self.has_room(&allocation)
            || !self.hosts_have_room(&allocation)
        {
            return;
        }
        self.with_allocation(id, |allocation| allocation.phase = AllocationPhase::Active);
        for slice in allocation.workers.iter().flat_map(|worker| &worker.slices) {
            self.with_card(slice.card, |card| {
                card.memory_promised = card.memory_promised.saturating_sub(slice.memory);
                card.memory_used += slice.memory;
            });
        }
        self.keep_host_promises(&allocation);
        self.note_activated(&allocation);
    }

    /// Returns whether the cards of a waiting allocation have its memory, and the number of slices that it was
    /// promised.
    fn has_room(&self, allocation: &Allocation) -> bool {
        let mut asked: BTreeMap<CardId, Mebibytes> = BTreeMap::new();
        for slice in allocation.workers.iter().flat_map(|worker| &worker.slices) {
            *asked.entry(slice.card).or_default() += slice.memory;
        }
        asked.into_iter().all(|(id, memory)| {
            self.cards.get(&id).is_some_and(|card| {
                let limit = card.description.max_slices;
                card.memory_used.saturating_add(memory) <= card.description.memory
                    && (limit == 0 || card.slices <= limit)
            })
        })
    }

    /// Writes a worker off until somebody knows better (law L2). Whoever waited for its blocks waits in vain.
    pub(super) fn lose_worker(&mut self, id: AllocationId, rank: Rank) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        let Some(worker) = allocation.worker(rank) else { return };
        let owner = allocation.owner(rank);
        let holds_host = !self.asked_of_host(&allocation, rank).is_zero();
        for waiting in self.waiting_on(worker, holds_host) {
            self.abandon_waiting(waiting);
        }
        self.set_worker(&allocation, rank, WorkerState::Lost);
        self.change_blocks(owner, &worker.slices, |_| BlockState::Lost(owner));
    }

    /// Holds a worker's slices. `Draining` blocks are held as soon as their owner has stopped.
    pub(super) fn hold_slices(&mut self, owner: Owner, slices: &[Slice], promised: bool) {
        for slice in slices {
            self.with_card(slice.card, |card| {
                card.extents.update(slice.start, slice.length, |state| match state {
                    BlockState::Draining { owner: holder, .. } => {
                        BlockState::Draining { owner: holder, next: Some(owner) }
                    }
                    _ => BlockState::Held(owner),
                });
                let memory: &mut Mebibytes = if promised { &mut card.memory_promised } else { &mut card.memory_used };
                *memory += slice.memory;
                card.slices += 1;
            });
        }
    }

    /// Returns whether a job takes whole cards: nobody else may compute on them.
    pub(super) fn takes_whole_cards(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.spec.virtual_card.whole_cards)
    }

    pub(super) fn card_ids(&self, node: NodeId) -> Vec<CardId> {
        self.cards_of(node).map(|(id, _)| id).collect()
    }
}
