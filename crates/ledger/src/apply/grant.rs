//! Grants: a gang gets its virtual cards, whole and together with the preemptions that make room for it (P5, P6,
//! law L4).

use std::sync::Arc;

use planted::Bug;

use crate::allocation::{
    Allocation, AllocationPhase, PlannedWorker, Slice, StopCause, Worker, WorkerExit, WorkerState,
};
use crate::event::{Event, Touched};
use crate::extent::BlockState;
use crate::ids::{AllocationId, CardId, JobId, NodeId, Owner, Rank};
use crate::job::{Attempt, Job, JobState};
use crate::ports::MeetingPorts;
use crate::queue::QueueAmount;
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::standing::PREEMPTION_WINDOW;
use crate::state::State;
use crate::units::{BlockIndex, Epoch};

/// The ports that an allocation takes.
pub(super) struct Meetings {
    /// The port at which its programs meet, on the node of the first worker.
    programs: u16,
    /// The ports of virtual cards, by worker. Empty: there are none.
    cards: Vec<CardPorts>,
}

/// The ports of a virtual card on the node of a worker; 0: it has none there.
#[derive(Clone, Copy, Default)]
struct CardPorts {
    /// The port at which its slice servers meet.
    servers: u16,
    /// The port at which its program, which is on another node, reaches the first slice server.
    program: u16,
}

impl State {
    /// Grants virtual cards to a waiting job; `victims` are suspended for it.
    pub(super) fn grant(
        &mut self,
        id: JobId,
        workers: &[PlannedWorker],
        victims: &[JobId],
    ) -> Result<AllocationId, Rejection> {
        let job = self.known_job(id)?;
        if !job.is_eligible(self.time) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "granted blocks now" });
        }
        self.validate_windows(&job)?;
        if !planted::is(Bug::PlanNotValidated) {
            self.validate_workers(&job, workers, victims)?;
            self.validate_victims(&job, workers, victims)?;
            self.validate_queue(&job, workers, victims)?;
        }
        let ports = self.free_ports(&job, workers)?;
        for victim in victims {
            self.preempt(*victim, id);
        }
        // What an attempt before used says nothing of this one.
        self.set_idle(id, None);
        let number = job.attempts + 1;
        let phase = if victims.is_empty() { AllocationPhase::Active } else { AllocationPhase::Waiting };
        let allocation = self.make_allocation(id, number, workers, phase, &ports);
        self.begin_attempt(id, allocation);
        let reason = if victims.is_empty() { Reason::Granted } else { Reason::WaitingForPreempted };
        self.move_job(id, JobState::Starting, reason);
        Ok(allocation)
    }

    /// Makes an allocation and holds its blocks.
    pub(super) fn make_allocation(
        &mut self,
        job: JobId,
        attempt: u32,
        planned: &[PlannedWorker],
        phase: AllocationPhase,
        ports: &Meetings,
    ) -> AllocationId {
        let id = self.next_allocation;
        self.next_allocation = AllocationId(id.0 + 1);
        let epoch = Epoch(self.revision.0);
        let backed = planned.iter().map(|worker| worker.virtual_card);
        let asked: Vec<_> = self.jobs.get(&job).map(|job| job.spec.asked_by(backed)).into_iter().flatten().collect();
        let mut amount = QueueAmount::default();
        let mut workers = Vec::with_capacity(planned.len());
        for (rank, plan) in (0u32..).zip(planned) {
            let CardPorts { servers, program } = ports.cards.get(workers.len()).copied().unwrap_or_default();
            let (rank, request) = (Rank(rank), asked.get(workers.len()).copied().unwrap_or_default());
            let owner = Owner { allocation: id, epoch, rank };
            self.hold_slices(owner, &plan.slices, phase == AllocationPhase::Waiting);
            self.hold_host(plan.node, request, phase == AllocationPhase::Waiting);
            amount = amount.plus(self.amount_of(&plan.slices));
            Arc::make_mut(self.node_workers.get_or_default_cow(plan.node)).insert(id);
            workers.push(Worker {
                rank,
                virtual_card: plan.virtual_card,
                node: plan.node,
                slices: plan.slices.clone(),
                state: WorkerState::Held,
                exit: None,
                card_port: servers,
                program_port: program,
            });
            self.pending_events.push(Event::Worker {
                job,
                allocation: id,
                rank,
                node: plan.node,
                state: WorkerState::Held,
            });
        }
        self.charge_held(job, amount);
        let mut allocation = Allocation {
            id,
            epoch,
            job,
            attempt,
            phase,
            workers: Arc::new(workers),
            master_port: ports.programs,
            granted_at: self.time,
            started_at: None,
            from: None,
        };
        if phase != AllocationPhase::Reserved {
            allocation.from = self.begins_from(&allocation);
        }
        allocation.meetings().for_each(|(node, port)| self.ports.take(node, port));
        self.allocations.insert_cow(id, Arc::new(allocation));
        self.touched.push(Touched::Allocation(id));
        id
    }

    /// Makes an allocation the next attempt of its job.
    pub(super) fn begin_attempt(&mut self, id: JobId, held: AllocationId) {
        let Some(allocation) = self.allocations.get(&held).cloned() else { return };
        let mut attempt = Attempt::granted(&allocation, self.milli_cards(&allocation), self.time);
        attempt.passed_over = self.say_passed_over(&allocation);
        self.with_job(id, |job| {
            job.attempts = attempt.number;
            job.allocation = Some(held);
            job.history.push(attempt);
        });
    }

    /// The cards that an allocation holds, in thousandths of whole ones.
    fn milli_cards(&self, allocation: &Allocation) -> u32 {
        let share = |slice: &Slice| {
            let of_card = self.cards.get(&slice.card).map_or(1, |card| card.blocks.0.max(1));
            u64::from(slice.length.0) * 1_000_000 / u64::from(of_card)
        };
        let millionths = allocation.workers.iter().flat_map(|worker| &worker.slices).map(share).sum::<u64>();
        u32::try_from(millionths.div_ceil(1_000)).unwrap_or(u32::MAX)
    }

    /// Ports that nobody meets at, for the programs of an allocation, for the slice servers of each of its virtual
    /// cards that lies on several nodes, and for such a server and its program where that is on another node.
    pub(super) fn free_ports(&self, job: &Job, planned: &[PlannedWorker]) -> Result<Meetings, Rejection> {
        let mut taken = self.ports.clone();
        let mut free = |node, place| {
            let port = self.free_port(&taken, node, place)?;
            taken.take(node, port);
            Ok(port)
        };
        let programs = free(planned[0].node, 0)?;
        let serves = job.spec.virtual_card.serves_across_nodes();
        let mut cards = vec![CardPorts::default(); if serves { planned.len() } else { 0 }];
        let (mut first, mut turn) = (0, 1);
        for of_card in planned.chunk_by(|one, next| one.virtual_card == next.virtual_card).filter(|_| serves) {
            // In front is the program's worker, which may have no server.
            let apart = usize::from(of_card[0].slices.is_empty());
            let ports = &mut cards[first + apart];
            let server = of_card.get(apart).map_or(of_card[0].node, |server| server.node);
            if of_card.len() > apart + 1 {
                ports.servers = free(server, turn)?;
            }
            if apart > 0 {
                ports.program = free(server, turn + 1)?;
            }
            (first, turn) = (first + of_card.len(), turn + 2);
        }
        Ok(Meetings { programs, cards })
    }

    /// A port of a node that is not taken: the first from one that differs from grant to grant, and from place to place
    /// within one, because nodes may be containers of one host.
    fn free_port(&self, taken: &MeetingPorts, node: NodeId, place: u64) -> Result<u16, Rejection> {
        let (first, ports) = (self.config.first_master_port, self.config.master_ports);
        let lowest_from = |from| taken.lowest_free(node, from).filter(|port| port - first < ports);
        let turn = u16::try_from((self.next_allocation.0 + place) % u64::from(ports.max(1))).unwrap_or(0);
        let free = first.checked_add(turn).and_then(lowest_from).or_else(|| lowest_from(first));
        free.ok_or(Rejection::NoMasterPort(node))
    }

    /// Suspends a job for another one (law L4); it resumes by itself.
    fn preempt(&mut self, victim: JobId, beneficiary: JobId) {
        let now = self.time;
        self.with_job(victim, |job| {
            job.preempted_at.retain(|at| now.since(*at) < PREEMPTION_WINDOW);
            job.preempted_at.push(now);
        });
        self.begin_suspension(victim, Reason::Preempted { beneficiary });
    }

    /// The allocation that waited has all its blocks.
    pub(super) fn note_activated(&mut self, allocation: &Allocation) {
        if self.jobs.get(&allocation.job).is_some_and(|job| job.allocation == Some(allocation.id)) {
            self.move_job(allocation.job, JobState::Starting, Reason::Granted);
        }
    }

    /// Gives up an allocation whose workers never got an order.
    pub(super) fn abandon(&mut self, allocation: &Allocation) {
        for worker in allocation.workers.iter() {
            let exit = WorkerExit::without_word(StopCause::Ordered, "given up before it was started");
            self.release_worker(allocation.id, worker.rank, exit);
        }
        let Some(allocation) = self.allocations.get(&allocation.id).cloned() else { return };
        if self.jobs.get(&allocation.job).is_some_and(|job| job.allocation == Some(allocation.id)) {
            self.close_attempt(&allocation, &Reason::Queued);
        }
        self.remove_allocation(&allocation);
    }

    /// Gives up an allocation that waits for blocks which will not come; its job waits as before.
    pub(super) fn abandon_waiting(&mut self, id: AllocationId) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        if allocation.phase == AllocationPhase::Waiting {
            self.abandon(&allocation);
            self.move_job(allocation.job, JobState::Pending, Reason::Queued);
        }
    }

    /// Takes an allocation that holds nothing out of the ledger.
    pub(super) fn remove_allocation(&mut self, allocation: &Allocation) {
        for worker in allocation.workers.iter() {
            let there = self.node_workers.get_mut_cow(&worker.node).map(Arc::make_mut);
            let was_last = there.is_some_and(|there| there.remove(&allocation.id) && there.is_empty());
            if was_last {
                self.node_workers.remove_cow(&worker.node);
            }
        }
        allocation.meetings().for_each(|(node, port)| self.ports.give_back(node, port));
        self.allocations.remove_cow(&allocation.id);
        self.touched.push(Touched::Allocation(allocation.id));
        self.pending_events.push(Event::AllocationReleased { job: allocation.job, allocation: allocation.id });
    }

    /// Asks a job to leave a node that is being drained.
    pub(super) fn evict(&mut self, id: JobId, node: NodeId) -> Result<(), Rejection> {
        let job = self.known_job(id)?;
        let known = self.nodes.get(&node).ok_or(Rejection::UnknownNode(node))?;
        let there = job
            .allocation
            .and_then(|id| self.allocations.get(&id))
            .is_some_and(|allocation| allocation.workers.iter().any(|worker| worker.node == node));
        if !known.must_be_left(self.time) || !there {
            return Err(Rejection::GrantMismatch { job: id, problem: format!("it need not leave {node}") });
        }
        if !matches!(job.state, JobState::Starting | JobState::Running) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "evicted" });
        }
        self.begin_suspension(id, Reason::Drained { node });
        Ok(())
    }

    /// Moves the extents in use of a card together to its front, in their order (P7, P10). Only numbers change.
    pub(super) fn renumber(&mut self, id: CardId) -> Result<(), Rejection> {
        let card = self.cards.get(&id).cloned().ok_or(Rejection::UnknownCard(id))?;
        let movable = card.extents.as_slice().iter().all(|extent| match extent.state {
            BlockState::Held(_) | BlockState::Running(_) | BlockState::Free => true,
            BlockState::Draining { next, .. } => next.is_none(),
            // Offline blocks at the end were shrunk away and stay there.
            BlockState::Offline => extent.end() == card.extents.length().0,
            BlockState::Lost(_) => false,
        });
        let promised = card.memory_promised.0 > 0;
        if !movable || promised {
            return Err(Rejection::CardPinned(id));
        }
        // Slices, not extents, are what moves: neighbouring slices of one worker form a single extent.
        let mut slices: Vec<(BlockIndex, AllocationId, Rank, usize)> = Vec::new();
        for allocation in self.allocations_on(id.node) {
            for worker in allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped) {
                for (place, slice) in worker.slices.iter().enumerate().filter(|(_, slice)| slice.card == id) {
                    slices.push((slice.start, allocation.id, worker.rank, place));
                }
            }
        }
        slices.sort_unstable();
        let mut moved = Vec::with_capacity(slices.len());
        let mut next = 0u32;
        for (start, allocation, rank, place) in slices {
            let Some(slice) = self
                .allocations
                .get(&allocation)
                .and_then(|allocation| allocation.worker(rank))
                .and_then(|worker| worker.slices.get(place))
                .copied()
            else {
                continue;
            };
            let state = card.extents.as_slice().iter().find(|extent| extent.end() > start.0).map(|extent| extent.state);
            moved.push((BlockIndex(next), slice.length, state.unwrap_or(BlockState::Free)));
            self.with_worker(allocation, rank, |worker| worker.slices[place].start = BlockIndex(next));
            next += slice.length.0;
        }
        self.with_card(id, |card| {
            card.extents.update_all(|state| if state.owner().is_some() { BlockState::Free } else { state });
            for (start, length, state) in moved {
                card.extents.update(start, length, |_| state);
            }
        });
        self.rest_card(id);
        self.settle_offer(id);
        self.pending_events.push(Event::Card { card: id });
        Ok(())
    }
}
