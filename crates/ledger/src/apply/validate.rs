//! The conditions that an allocation must satisfy, checked against the state as it is when the entry is applied: a
//! stale plan can do no harm.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::{PlannedWorker, Slice};
use crate::card::CardHealth;
use crate::extent::BlockState;
use crate::ids::{AllocationId, CardId, JobId};
use crate::job::Job;
use crate::queue::QueueAmount;
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::{Mebibytes, MilliTflops};
use crate::virtual_card::Span;

impl State {
    /// Checks that the workers give the job what it asked for, on blocks that are free or that victims give back.
    pub(super) fn validate_workers(
        &self,
        job: &Job,
        workers: &[PlannedWorker],
        victims: &[JobId],
    ) -> Result<(), Rejection> {
        let mismatch = |problem: String| Rejection::GrantMismatch { job: job.id, problem };
        let mut virtual_cards: BTreeMap<u32, Vec<&PlannedWorker>> = BTreeMap::new();
        let mut last = 0;
        for worker in workers {
            if worker.virtual_card < last {
                return Err(mismatch("workers are not in order of their virtual cards".to_owned()));
            }
            last = worker.virtual_card;
            virtual_cards.entry(worker.virtual_card).or_default().push(worker);
        }
        let (count, sizes) = (last.saturating_add(1), job.spec.gang_sizes());
        if virtual_cards.len() != count as usize || !sizes.contains(&count) {
            let (least, most) = (sizes.start(), sizes.end());
            let problem = format!("the gang has {least} to {most} virtual cards, not {}", virtual_cards.len());
            return Err(mismatch(problem));
        }
        let given_back = self.given_back_by(victims);
        self.validate_blocks(workers, &given_back)?;
        self.validate_whole_cards(job, workers, &given_back)?;
        self.validate_hosts(job, workers, &given_back)?;
        for (virtual_card, workers) in virtual_cards {
            self.validate_virtual_card(job, &workers).map_err(|problem| {
                problem.unwrap_or_else(|text| mismatch(format!("virtual card {virtual_card}: {text}")))
            })?;
        }
        Ok(())
    }

    fn given_back_by(&self, victims: &[JobId]) -> BTreeSet<AllocationId> {
        victims.iter().filter_map(|victim| self.jobs.get(victim)?.allocation).collect()
    }

    /// Checks blocks, memory and number of slices, card by card.
    fn validate_blocks(&self, workers: &[PlannedWorker], given_back: &BTreeSet<AllocationId>) -> Result<(), Rejection> {
        let mut by_card: BTreeMap<CardId, Vec<Slice>> = BTreeMap::new();
        for worker in workers {
            for slice in &worker.slices {
                if slice.card.node != worker.node {
                    return Err(Rejection::UnknownCard(slice.card));
                }
                by_card.entry(slice.card).or_default().push(*slice);
            }
        }
        for (id, mut slices) in by_card {
            let node = self.nodes.get(&id.node).ok_or(Rejection::UnknownNode(id.node))?;
            let card = self.cards.get(&id).ok_or(Rejection::UnknownCard(id))?;
            if !node.grantable() || card.description.health != CardHealth::Healthy {
                return Err(Rejection::NodeNotGrantable(id.node));
            }
            slices.sort_unstable();
            let mut end = 0u32;
            for slice in &slices {
                let after = slice.start.0.saturating_add(slice.length.0);
                let usable = |state: BlockState| match state {
                    BlockState::Free => true,
                    BlockState::Held(owner) | BlockState::Running(owner) => given_back.contains(&owner.allocation),
                    _ => false,
                };
                let inside = slice.start.0 >= end && after <= card.blocks.0;
                if !inside || !card.extents.all(slice.start, slice.length, usable) {
                    return Err(Rejection::BlocksNotFree { card: id, start: slice.start.0, end: after });
                }
                end = after;
            }
            let (memory_back, slices_back) = self.held_on(id, given_back);
            let asked: Mebibytes = slices.iter().map(|slice| slice.memory).sum();
            if asked > card.memory_free().saturating_add(memory_back) {
                return Err(Rejection::MemoryNotFree { card: id });
            }
            let limit = card.description.max_slices;
            let count = u32::try_from(slices.len()).unwrap_or(u32::MAX);
            if limit > 0 && (card.slices - slices_back).saturating_add(count) > limit {
                return Err(Rejection::MemoryNotFree { card: id });
            }
        }
        Ok(())
    }

    /// Checks that a job that takes whole cards gets all of each, and that nobody is put beside such a job.
    fn validate_whole_cards(
        &self,
        job: &Job,
        workers: &[PlannedWorker],
        given_back: &BTreeSet<AllocationId>,
    ) -> Result<(), Rejection> {
        let whole = job.spec.virtual_card.whole_cards;
        for slice in workers.iter().flat_map(|worker| &worker.slices) {
            let card = self.cards.get(&slice.card).ok_or(Rejection::UnknownCard(slice.card))?;
            if whole && (slice.start.0, slice.length) != (0, card.blocks) {
                let problem = format!("{} must be taken whole, all {} of it", slice.card, card.blocks);
                return Err(Rejection::GrantMismatch { job: job.id, problem });
            }
            let others = card.extents.as_slice().iter().flat_map(|extent| extent.state.holders());
            for other in others.filter(|other| !given_back.contains(&other.allocation)) {
                let Some(other) = self.allocations.get(&other.allocation).map(|held| held.job) else { continue };
                if whole || self.takes_whole_cards(other) {
                    let holder = if whole { job.id } else { other };
                    return Err(Rejection::CardTakenWhole { card: slice.card, job: holder });
                }
            }
        }
        Ok(())
    }

    /// Memory and number of slices that some allocations hold on a card.
    fn held_on(&self, card: CardId, allocations: &BTreeSet<AllocationId>) -> (Mebibytes, u32) {
        let slices = allocations
            .iter()
            .filter_map(|id| self.allocations.get(id))
            .flat_map(|allocation| allocation.workers.iter())
            .filter(|worker| worker.state != crate::allocation::WorkerState::Stopped)
            .flat_map(|worker| &worker.slices)
            .filter(|slice| slice.card == card);
        slices.fold((Mebibytes::ZERO, 0), |(memory, count), slice| (memory.saturating_add(slice.memory), count + 1))
    }

    /// Checks one virtual card: span, kinds, labels, compute and memory. The error is a sentence about it, or
    /// a refusal.
    fn validate_virtual_card(&self, job: &Job, workers: &[&PlannedWorker]) -> Result<(), Result<Rejection, String>> {
        let request = &job.spec.virtual_card;
        let problem = |text: &str| Err(Err(text.to_owned()));
        let precision = request.precision.unwrap_or(self.config.reference_precision);
        let (mut compute, mut memory) = (MilliTflops::ZERO, Mebibytes::ZERO);
        let (mut cards, mut nodes, mut kinds) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        for (place, worker) in workers.iter().enumerate() {
            let node = self.nodes.get(&worker.node).ok_or(Ok(Rejection::UnknownNode(worker.node)))?;
            // In front of the others, a program may be beside its card.
            let has_card =
                !worker.slices.is_empty() || place == 0 && workers.len() > 1 && job.spec.program_may_be_beside();
            if !node.grantable() {
                return Err(Ok(Rejection::NodeNotGrantable(worker.node)));
            }
            if !node.description.carries(&job.spec.node_labels) {
                return problem("a node does not carry the labels asked for");
            }
            if !has_card || !nodes.insert(worker.node) {
                return problem("it needs one worker with slices on each of its nodes");
            }
            for slice in &worker.slices {
                let card = self.cards.get(&slice.card).ok_or(Ok(Rejection::UnknownCard(slice.card)))?;
                let offer = &card.description;
                let accepted = request.accepts(offer.kind, &offer.vendor, &offer.model, card.isolation());
                if !accepted || slice.isolation < request.isolation {
                    return problem("a card is not of a kind, vendor, model or isolation asked for");
                }
                if slice.isolation > card.isolation() {
                    return problem("a card cannot isolate as strongly as granted");
                }
                if card.description.rate(precision).is_none() {
                    return problem("a card does not compute in the precision asked for");
                }
                compute = compute.saturating_add(card.rate_of(slice.length, precision));
                memory = memory.saturating_add(slice.memory);
                let on_card: &mut Mebibytes = cards.entry(slice.card).or_default();
                *on_card = on_card.saturating_add(slice.memory);
                kinds.insert(card.description.kind);
            }
        }
        if request.span == Span::Card && cards.len() > 1 || request.span < Span::Pool && nodes.len() > 1 {
            return problem("it spreads further than asked for");
        }
        if kinds.len() > 1 && !request.mixed {
            return problem("it mixes kinds of cards");
        }
        if compute < request.compute || memory < request.memory {
            return problem("it has too little compute or memory");
        }
        if cards.values().any(|memory| *memory < request.slice_memory) {
            return problem("it has less memory on a card than asked for");
        }
        Ok(())
    }

    pub(super) fn amount_asked(&self, workers: &[PlannedWorker]) -> QueueAmount {
        workers.iter().fold(QueueAmount::default(), |sum, worker| sum.plus(self.amount_of(&worker.slices)))
    }

    /// Checks the maximum of the job's queue and of the queues above it, counting what victims give back.
    pub(super) fn validate_queue(
        &self,
        job: &Job,
        workers: &[PlannedWorker],
        victims: &[JobId],
    ) -> Result<(), Rejection> {
        let asked = self.amount_asked(workers);
        for name in self.queue_line(&job.spec.queue) {
            let Some(queue) = self.queues.get(&name) else { continue };
            let Some(maximum) = queue.settings.maximum else { continue };
            let back =
                victims.iter().fold(QueueAmount::default(), |sum, victim| sum.plus(self.held_in_queue(*victim, &name)));
            if !queue.used.minus(back).plus(asked).within(maximum) {
                return Err(Rejection::QueueLimit { queue: name });
            }
        }
        Ok(())
    }

    /// The amount that a job holds, as far as it counts in a queue.
    fn held_in_queue(&self, job: JobId, queue: &str) -> QueueAmount {
        let Some(job) = self.jobs.get(&job) else { return QueueAmount::default() };
        if !self.queue_line(&job.spec.queue).iter().any(|name| name == queue) {
            return QueueAmount::default();
        }
        let allocation = job.allocation.and_then(|id| self.allocations.get(&id));
        allocation.map_or_else(QueueAmount::default, |allocation| self.held_by(allocation))
    }
}
