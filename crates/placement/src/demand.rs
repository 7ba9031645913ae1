//! What a job asks for, compiled against the classes of cards that the pool has: comparing numbers is all that is left
//! to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{
    Affinity, BlockCount, CardKind, HostRequest, Isolation, JobSpec, Mebibytes, MilliTflops, Node, NodeId, Packing,
    PoolConfig, QueueAmount, Span,
};

use crate::index::class::{ClassId, ClassKey, Classes};
use crate::index::columns::ColumnKey;
use crate::index::node::NodeEntry;
use crate::queues;
use crate::request::Request;

/// What cards of one class can do for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The class.
    pub(crate) class: ClassId,
    /// Its kind.
    pub(crate) kind: CardKind,
    /// Blocks of one card.
    pub(crate) blocks: u32,
    /// What one whole card computes at the precision asked for, in thousandths of a TFLOPS; never zero.
    pub(crate) rate: u64,
    /// Memory of one card in MiB.
    pub(crate) memory: u64,
    /// Blocks that give one virtual card all its compute; may be more than a card has.
    pub(crate) need: u32,
}

impl Offer {
    /// How many blocks give `compute` thousandths of a TFLOPS; as the ledger counts.
    pub(crate) fn blocks_for(&self, compute: u64) -> u32 {
        let blocks = (u128::from(compute) * u128::from(self.blocks)).div_ceil(u128::from(self.rate));
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// The blocks of as many whole cards as give `need` blocks and `memory` MiB.
    fn whole_cards_for(&self, memory: u64) -> u32 {
        let by_memory = if self.memory == 0 { 1 } else { memory.div_ceil(self.memory) };
        let cards = self.need.div_ceil(self.blocks).max(u32::try_from(by_memory).unwrap_or(u32::MAX));
        cards.saturating_mul(self.blocks)
    }

    /// What `blocks` compute, in thousandths of a TFLOPS; as the ledger counts.
    pub(crate) fn compute_of(&self, blocks: u32) -> u64 {
        let compute = u128::from(self.rate) * u128::from(blocks) / u128::from(self.blocks.max(1));
        u64::try_from(compute).unwrap_or(u64::MAX)
    }
}

/// What a job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Number of virtual cards.
    pub(crate) gang: u32,
    /// With how many of them it may start at least.
    pub(crate) gang_min: u32,
    /// Compute of each, in thousandths of a TFLOPS.
    pub(crate) compute: u64,
    /// Memory of each in MiB.
    pub(crate) memory: u64,
    /// The least memory on each card in MiB.
    pub(crate) slice_memory: u64,
    /// How far each may spread.
    pub(crate) span: Span,
    /// Whether one may be of several kinds.
    pub(crate) mixed: bool,
    /// The isolation that slices get.
    pub(crate) isolation: Isolation,
    /// Labels that nodes must carry.
    pub(crate) labels: BTreeMap<String, String>,
    /// What each worker needs of its host.
    pub(crate) host: HostRequest,
    /// Whether its slices take whole cards.
    pub(crate) whole: bool,
    /// The classes that it accepts, in the order of kinds.
    pub(crate) offers: Vec<Offer>,
    /// Where it would rather be, and must not be.
    pub(crate) affinity: Arc<Affinity>,
    /// How its virtual cards are laid over the pool, if it says so; else its queue does.
    pub(crate) packing: Option<Packing>,
    /// That queue.
    pub(crate) queue: Arc<str>,
    /// The only nodes that are considered; `None`: all. Such a demand is placed node by node: searches by column do not
    /// know it.
    pub(crate) within: Option<Arc<BTreeSet<NodeId>>>,
    /// What tells it apart where single virtual cards are placed.
    pub(crate) column: Arc<ColumnKey>,
}

impl Demand {
    /// Compiles a request of a job with such a spec.
    pub(crate) fn compile(spec: &JobSpec, request: &Request, classes: &Classes, config: &PoolConfig) -> Self {
        // What is let go of decides whose turn it is, or is in which cards are accepted, as the ledger says that.
        let Request {
            compute,
            memory,
            host,
            gang,
            gang_min,
            span,
            mixed,
            precision,
            isolation,
            kinds: _,
            vendors: _,
            models: _,
            node_labels,
            whole_cards,
            slice_memory,
            affinity,
            packing,
            queue: _,
            priority: _,
            limit: _,
            gave_way: _,
        } = request;
        let precision = precision.unwrap_or(config.reference_precision);
        let memory = *memory.max(slice_memory);
        let offer = |key: &ClassKey, class: ClassId| {
            let rate = key.class.rate(precision).0;
            if rate == 0 || key.blocks == 0 || !key.class.is_accepted_by(spec) {
                return None;
            }
            let mut offer =
                Offer { class, kind: key.class.kind, blocks: key.blocks, rate, memory: key.class.memory.0, need: 0 };
            offer.need = offer.blocks_for(*compute).max(1);
            if *whole_cards {
                offer.need = offer.whole_cards_for(memory);
            }
            Some(offer)
        };
        let mut demand = Self {
            gang: *gang,
            gang_min: gang_min.unwrap_or(*gang),
            compute: *compute,
            memory,
            slice_memory: *slice_memory,
            span: *span,
            mixed: *mixed,
            isolation: *isolation,
            labels: node_labels.clone(),
            host: *host,
            whole: *whole_cards,
            offers: classes.in_order().filter_map(|(key, class)| offer(key, class)).collect(),
            affinity: Arc::new(affinity.clone()),
            packing: *packing,
            queue: Arc::from(spec.queue.as_str()),
            within: None,
            column: Arc::default(),
        };
        demand.column = demand.column_of();
        demand
    }

    /// The same with something else about it. What is told apart where single virtual cards are placed follows, so that
    /// no two different requests ever share a column.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        changed.column = changed.column_of();
        changed
    }

    fn column_of(&self) -> Arc<ColumnKey> {
        // What is let go of decides over several virtual cards or several cards, or is in what the offers need.
        let Self {
            gang: _,
            gang_min: _,
            compute: _,
            memory,
            slice_memory: _,
            span,
            mixed: _,
            isolation: _,
            labels,
            host,
            whole,
            offers,
            affinity: _,
            packing: _,
            queue: _,
            within: _,
            column: _,
        } = self;
        Arc::new(ColumnKey {
            host: *host,
            memory: *memory,
            needs: offers.iter().map(|offer| (offer.class, offer.need)).collect(),
            whole: *whole,
            on_one_card: *span == Span::Card,
            labels: labels.clone(),
        })
    }

    /// The same on these nodes alone.
    pub(crate) fn among(&self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self { within: Some(Arc::new(nodes.into_iter().collect())), ..self.clone() }
    }

    /// The same for so many virtual cards, no more and no less.
    pub(crate) fn of_gang(&self, gang: u32) -> Self {
        Self { gang, gang_min: gang, ..self.clone() }
    }

    /// The least that a grant can count for in a queue.
    pub(crate) fn least(&self, block_size: MilliTflops) -> QueueAmount {
        self.least_of(self.offers.iter().map(|offer| offer.need).min().unwrap_or(0), block_size)
    }

    /// The least that a grant of virtual cards of so many blocks each can count for.
    pub(crate) fn least_of(&self, need: u32, block_size: MilliTflops) -> QueueAmount {
        let memory = Mebibytes(self.memory).saturating_mul(self.gang_min);
        queues::amount(u64::from(need).saturating_mul(u64::from(self.gang_min)), memory, block_size)
    }

    /// Whether a node has so much of its host left that so many workers can start on it.
    pub(crate) fn fits_host(&self, node: &NodeEntry, workers: u32) -> bool {
        node.host.is_none_or(|left| left.holds(self.host.times(workers)))
    }

    /// Whether so many workers may go to a node, and its host has room for them.
    pub(crate) fn fits_node(&self, entry: &NodeEntry, workers: u32) -> bool {
        self.fits_host(entry, workers) && entry.node.as_ref().is_some_and(|node| self.accepts(node))
    }

    /// How many workers a node's host is large enough for when nothing else runs there.
    pub(crate) fn workers_on(&self, node: &Node) -> u32 {
        node.description.host.map_or(u32::MAX, |host| self.workers_in(host.whole()))
    }

    /// How many workers so much of a host is enough for.
    pub(crate) fn workers_in(&self, left: HostRequest) -> u32 {
        let by_cpu = left.cpu.0.checked_div(self.host.cpu.0).unwrap_or(u64::MAX);
        let by_memory = left.memory.0.checked_div(self.host.memory.0).unwrap_or(u64::MAX);
        u32::try_from(by_cpu.min(by_memory)).unwrap_or(u32::MAX)
    }

    /// Whether a node carries the labels asked for.
    pub(crate) fn accepts(&self, node: &Node) -> bool {
        self.labels.iter().all(|(key, value)| node.description.labels.get(key) == Some(value))
            && self.within.as_ref().is_none_or(|nodes| nodes.contains(&node.id))
    }

    /// The offer of a class, if the job accepts it.
    pub(crate) fn offer_of(&self, class: ClassId) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.class == class)
    }

    /// Compute in thousandths of a TFLOPS, and MiB, that all cards which it accepts have left together.
    pub(crate) fn left_in(&self, classes: &Classes) -> (u128, u128) {
        let of_class = self.offers.iter().map(|offer| (offer, classes.get(offer.class)));
        of_class.fold((0, 0), |(compute, memory), (offer, class)| {
            let more = u128::from(class.free) * u128::from(offer.rate) / u128::from(offer.blocks.max(1));
            (compute + more, memory + u128::from(class.memory))
        })
    }

    /// The offers of each kind, in the order of kinds.
    pub(crate) fn by_kind(&self) -> impl Iterator<Item = &[Offer]> {
        self.offers.chunk_by(|left, right| left.kind == right.kind)
    }

    /// Blocks that a virtual card needs of a class, when one card of it is enough.
    pub(crate) fn need_on_one_card(&self, offer: &Offer) -> Option<BlockCount> {
        (offer.need <= offer.blocks && self.memory <= offer.memory).then_some(BlockCount(offer.need))
    }
}
