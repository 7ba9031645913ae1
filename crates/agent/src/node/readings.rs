//! Measurements of a node, and views of its workers for the code that measures or displays them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::v1 as wire;
use tessera_devices::{Hardware, Sample};
use tessera_ledger::CardDescription;

use super::event::PoolTerms;
use super::record::{Stage, WorkerRecord};
use super::state::Node;
use crate::boot::BootTime;
use crate::supervisor::status::Phase;
use crate::turns::Slicing;
use crate::turns::holders::{Holder, Holders};
use crate::worker::{Measurable, WorkerId, WorkerUse, has_servers, is_elastic};

/// Readings that are older say nothing of now: whoever looks at the cards does not come back, because a driver or a
/// library of theirs hangs.
const STALE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// The time of the readings, or, before the first of them, of the agent's start; `None`: unknown.
    pub at: Option<BootTime>,
    /// Hardware details of its cards that the ledger does not have, by index.
    pub hardware: Arc<[Hardware]>,
    pub cards: Vec<Sample>,
    /// Resource use of the workers that were here.
    pub workers: BTreeMap<WorkerId, WorkerUse>,
    /// The division of each card's time, by index.
    pub slicing: BTreeMap<u32, Slicing>,
}

impl Readings {
    /// The age of the readings, if their time is known.
    #[must_use]
    pub fn age(&self, now: BootTime) -> Option<Duration> {
        self.at.map(|at| at.until(now))
    }
}

/// Blocks and memory that a worker holds of one card of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldSlice {
    pub blocks: u64,
    pub memory_mib: u64,
}

/// A worker that is here: what it is of, what it holds of this node's cards, and what it uses, which is nothing until
/// it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    pub job: u64,
    pub rank: u32,
    pub queue: String,
    /// Blocks and memory that the worker holds, by card.
    pub held: BTreeMap<u32, HeldSlice>,
    pub used: WorkerUse,
}

impl Node {
    /// The same node, whose agent has begun to read its cards.
    #[must_use]
    pub fn read_since(mut self, at: BootTime) -> Self {
        self.readings.at = Some(at);
        self
    }

    /// The newest readings, or what is left of them when they are too old to say anything of now.
    #[must_use]
    pub fn readings(&self, now: BootTime) -> Cow<'_, Readings> {
        let Readings { at, hardware, .. } = &self.readings;
        if self.readings.age(now).is_some_and(|age| age > STALE) {
            return Cow::Owned(Readings { at: *at, hardware: Arc::clone(hardware), ..Readings::default() });
        }
        Cow::Borrowed(&self.readings)
    }

    /// The workers that can be measured: those of which there may be a process.
    #[must_use]
    pub fn measurable(&self) -> Vec<Measurable> {
        let launched = self.workers().filter(|record| record.stage == Stage::Launched);
        let of =
            |record: &WorkerRecord| Measurable { worker: record.status.worker, group: record.status.group.clone() };
        launched.map(of).collect()
    }

    /// The workers that compute, with the blocks of this node that they hold. Slice servers take no turns before they
    /// have told something of themselves: what they have to be there within goes on while they stand still.
    #[must_use]
    pub fn holders(&self) -> Holders {
        let computes = |record: &&WorkerRecord| {
            record.stage == Stage::Launched && record.status.phase == Phase::Running && record.stop.is_none()
        };
        let holder = |record: &WorkerRecord| {
            let order = record.order.as_ref()?;
            let told = || self.readings.workers.get(&record.status.worker).is_some_and(|used| used.served.is_some());
            if has_servers(order) && !told() {
                return None;
            }
            let run = |slice: &wire::Slice| (slice.card_index, slice.start, slice.blocks);
            Some(Holder {
                worker: record.status.worker,
                job: order.job_id,
                group: record.status.group.clone(),
                blocks: self.slices_here(order).map(run).collect(),
                elastic: is_elastic(order),
            })
        };
        // As long as the pool's size of a block is not known, no card has any.
        let pool = self.pool.and_then(PoolTerms::blocks);
        let blocks = |card: CardDescription| {
            let (reference, block_size) = pool?;
            Some((card.index, card.block_count(reference, block_size).0))
        };
        let blocks = self.known_cards().filter_map(blocks).collect();
        Holders { blocks, workers: self.workers().filter(computes).filter_map(holder).collect() }
    }

    /// The workers that are here, from their order on and until they are over.
    #[must_use]
    pub fn worker_views(&self, readings: &Readings) -> Vec<WorkerView> {
        self.workers()
            .filter(|record| record.stage != Stage::Over)
            .filter_map(|record| self.worker_view(record, readings))
            .collect()
    }

    fn worker_view(&self, record: &WorkerRecord, readings: &Readings) -> Option<WorkerView> {
        let (worker, order) = (record.status.worker, record.order.as_ref()?);
        let mut held: BTreeMap<u32, HeldSlice> = BTreeMap::new();
        for slice in self.slices_here(order) {
            let sum = held.entry(slice.card_index).or_default();
            sum.blocks += u64::from(slice.blocks);
            sum.memory_mib += slice.memory_mib;
        }
        Some(WorkerView {
            job: order.job_id,
            rank: worker.rank.0,
            queue: order.spec.as_ref().map(|spec| spec.queue.clone()).unwrap_or_default(),
            held,
            used: readings.workers.get(&worker).cloned().unwrap_or_default(),
        })
    }

    /// The slices of an order on this node's cards: it names the whole virtual card, which may be spread over nodes.
    pub(super) fn slices_here<'a>(&'a self, order: &'a wire::WorkerOrder) -> impl Iterator<Item = &'a wire::Slice> {
        let here = order.slices.iter().filter(|placed| placed.node_name == self.facts.name);
        here.filter_map(|placed| placed.slice.as_ref())
    }

    /// The samples of the cards for the leader.
    pub(super) fn card_samples(&self, readings: &Readings) -> Vec<wire::CardSample> {
        let sample = |sample: &Sample| wire::CardSample {
            card_index: sample.card_index,
            utilization_ratio: sample.utilization,
            memory_used_bytes: sample.memory_used_bytes,
            time_slicing: readings.slicing.get(&sample.card_index).map(Slicing::to_wire),
            temperature_celsius: sample.temperature_celsius,
            power_watts: sample.power_watts,
            unread: false,
        };
        // How its time is divided is known of a card of which nothing is read.
        let is_read = |card: u32| readings.cards.iter().any(|sample| sample.card_index == card);
        let unread = readings.slicing.iter().filter(|(card, _)| !is_read(**card));
        let unread = unread.map(|(card, slicing)| wire::CardSample {
            card_index: *card,
            time_slicing: Some(slicing.to_wire()),
            unread: true,
            ..wire::CardSample::default()
        });
        readings.cards.iter().map(sample).chain(unread).collect()
    }

    /// The samples of the workers that are here, for the leader.
    pub(super) fn worker_samples(&self, readings: &Readings) -> Vec<wire::WorkerSample> {
        let here = |worker: &WorkerId| self.worker(*worker).is_some_and(|record| record.stage != Stage::Over);
        let known = readings.workers.iter().filter(|(worker, _)| here(worker));
        known.map(|(worker, used)| used.to_wire(*worker)).collect()
    }
}
