//! The request of a job, compiled against the classes of cards that the pool has: comparing numbers is all that is left
//! to do. Every job that is tried, in a round of decisions or outside of one, is an applicant: a job with its demand,
//! and with the least amount that it counts for in its queue.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tessera_ledger::{
    CardKind, HostRequest, Job, JobSpec, Mebibytes, MilliTflops, Node, NodeId, PoolConfig, Precedence, QueueAmount,
    Span, State,
};

use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::class::{ClassId, ClassKey, Classes};
use crate::index::columns::ColumnKey;
use crate::index::node::NodeEntry;
use crate::queues;
use crate::request::Request;

/// The capability of cards of one class for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) class: ClassId,
    pub(crate) kind: CardKind,
    /// Blocks of one card.
    pub(crate) blocks: u32,
    /// Compute of one whole card at the precision asked for, in thousandths of a TFLOPS; never zero.
    pub(crate) rate: u64,
    /// Memory of one card in MiB.
    pub(crate) memory: u64,
    /// Blocks that give one virtual card all its compute; may be more than a card has.
    pub(crate) need: u32,
}

impl Offer {
    /// Returns the number of blocks that give `compute` thousandths of a TFLOPS; as the ledger counts.
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

    /// Returns the compute of blocks of any number of cards, in thousandths of a TFLOPS; as the ledger counts.
    pub(crate) fn compute_of_many(&self, blocks: u64) -> u128 {
        u128::from(self.rate) * u128::from(blocks) / u128::from(self.blocks.max(1))
    }

    pub(crate) fn compute_of(&self, blocks: u32) -> u64 {
        u64::try_from(self.compute_of_many(blocks.into())).unwrap_or(u64::MAX)
    }
}

/// The demand of a job: its request without priority, time limit and whether it gave way before, and an offer of each
/// class of cards that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// With as much memory as its slices need at least.
    request: Arc<Request>,
    /// The classes that it accepts, in the order of kinds.
    pub(crate) offers: Vec<Offer>,
    /// The only nodes that are considered; `None`: all. Such a demand is placed node by node: searches by column do not
    /// know it.
    pub(crate) within: Option<Arc<BTreeSet<NodeId>>>,
    /// The key that distinguishes it from other demands where single virtual cards are placed.
    pub(crate) column: Arc<ColumnKey>,
}

impl Deref for Demand {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl DerefMut for Demand {
    fn deref_mut(&mut self) -> &mut Request {
        Arc::make_mut(&mut self.request)
    }
}

impl Demand {
    pub(crate) fn compile(spec: &JobSpec, request: &Request, classes: &Classes, config: &PoolConfig) -> Self {
        let precision = request.precision.unwrap_or(config.reference_precision);
        let memory = request.memory.max(request.slice_memory);
        let offer = |(key, class): (&ClassKey, ClassId)| {
            let rate = key.class.rate(precision).0;
            if rate == 0 || key.blocks == 0 || !key.class.is_accepted_by(spec) {
                return None;
            }
            let mut offer =
                Offer { class, kind: key.class.kind, blocks: key.blocks, rate, memory: key.class.memory.0, need: 0 };
            offer.need = offer.blocks_for(request.compute).max(1);
            if request.whole_cards {
                offer.need = offer.whole_cards_for(memory);
            }
            Some(offer)
        };
        let offers = classes.in_order().filter_map(offer).collect();
        let precedence = Precedence::default();
        let request = Request { memory, precedence, limit: 0, gave_way: false, ..request.clone() };
        Self { request: Arc::new(request), offers, within: None, column: Arc::default() }.changed(|_| ())
    }

    /// The same with something else about it. What is told apart where single virtual cards are placed follows, so that
    /// no two different requests ever share a column.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        // What is let go of decides over several virtual cards or several cards, or among nodes, or whose turn it is,
        // or is in what the offers need.
        let Request {
            host,
            memory,
            span,
            whole_cards,
            compute: _,
            gang: _,
            gang_min: _,
            program: _,
            mixed: _,
            precision: _,
            isolation: _,
            kinds: _,
            vendors: _,
            models: _,
            node_labels: _,
            slice_memory: _,
            affinity: _,
            packing: _,
            queue: _,
            precedence: _,
            limit: _,
            gave_way: _,
        } = &*changed.request;
        changed.column = Arc::new(ColumnKey {
            host: *host,
            memory: *memory,
            needs: changed.offers.iter().map(|offer| (offer.class, offer.need)).collect(),
            whole: *whole_cards,
            on_one_card: *span == Span::Card,
        });
        changed
    }

    /// The same on these nodes alone.
    pub(crate) fn among(&self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self { within: Some(Arc::new(nodes.into_iter().collect())), ..self.clone() }
    }

    /// The same for so many virtual cards, no more and no less.
    pub(crate) fn of_gang(&self, gang: u32) -> Self {
        self.changed(|demand| (demand.gang, demand.gang_min) = (gang, None))
    }

    /// The least that an allocation can count for in a queue.
    pub(crate) fn least(&self, block_size: MilliTflops) -> QueueAmount {
        self.least_of(self.offers.iter().map(|offer| offer.need).min().unwrap_or(0), block_size)
    }

    /// The least that an allocation of virtual cards of so many blocks each can count for.
    pub(crate) fn least_of(&self, need: u32, block_size: MilliTflops) -> QueueAmount {
        let memory = Mebibytes(self.memory).saturating_mul(self.gang_min());
        queues::amount(u64::from(need).saturating_mul(u64::from(self.gang_min())), memory, block_size)
    }

    /// Returns whether the host of a node has enough left for `workers` workers to start on it; one without limits
    /// always has.
    pub(crate) fn fits_host(&self, node: &NodeEntry, workers: u32) -> bool {
        node.host.is_none_or(|host| self.host.times(workers).fits_in(host.left))
    }

    /// Returns whether `workers` workers may go to a node, and its host has room for them.
    pub(crate) fn fits_node(&self, node: &NodeEntry, workers: u32) -> bool {
        self.fits_host(node, workers) && self.accepts(node)
    }

    /// Returns the number of workers for which `left` of a host is enough.
    pub(crate) fn workers_in(&self, left: HostRequest) -> u32 {
        how_often(self.host, left)
    }

    /// The same of programs that are not with each worker.
    pub(crate) fn programs_in(&self, left: HostRequest) -> u32 {
        how_often(self.program.unwrap_or_default(), left)
    }

    /// Returns whether a node is there, carries the labels asked for and is one of those that are considered
    /// (`within`).
    pub(crate) fn accepts(&self, node: &NodeEntry) -> bool {
        let is_within = |node: &Arc<Node>| self.within.as_ref().is_none_or(|nodes| nodes.contains(&node.id));
        self.is_labelled(node) && node.node.as_ref().is_some_and(is_within)
    }

    /// Returns whether a host carries the labels asked for, also one on which no cards are looked for (`within`).
    pub(crate) fn is_labelled(&self, node: &NodeEntry) -> bool {
        node.node.as_ref().is_some_and(|node| node.description.carries(&self.node_labels))
    }

    /// Returns whether [`Demand::accepts`] holds for the node `id`; false for one that the index does not know.
    pub(crate) fn accepts_at(&self, index: &Index, id: NodeId) -> bool {
        index.node(id).is_some_and(|node| self.accepts(node))
    }

    /// The offer of a class, if the job accepts it.
    pub(crate) fn offer_of(&self, class: ClassId) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.class == class)
    }

    /// Compute in thousandths of a TFLOPS, and MiB, that all cards which it accepts have left together.
    pub(crate) fn left_in(&self, classes: &Classes) -> (u128, u128) {
        let of_class = self.offers.iter().map(|offer| (offer, classes.get(offer.class)));
        of_class.fold((0, 0), |(compute, memory), (offer, class)| {
            (compute + offer.compute_of_many(class.free), memory + u128::from(class.memory))
        })
    }

    /// The cards of a class on a node of which a virtual card may take something.
    pub(crate) fn cards_of_class<'a>(
        &'a self,
        node: &'a NodeEntry,
        offer: &'a Offer,
    ) -> impl Iterator<Item = &'a CardEntry> {
        node.cards.iter().filter(|card| card.class == offer.class && (!self.whole_cards || card.is_empty()))
    }

    /// The offers of classes of which one card is enough for a virtual card.
    pub(crate) fn on_one_card(&self) -> impl Iterator<Item = &Offer> + Clone {
        self.offers.iter().filter(|offer| self.fits_one_card(offer))
    }

    /// Returns whether one card of a class is enough for a virtual card.
    pub(crate) fn fits_one_card(&self, offer: &Offer) -> bool {
        offer.need <= offer.blocks && self.memory <= offer.memory
    }
}

/// A job that asks for room, or any of several that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    /// Its spec; of several that are alike one.
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) request: Arc<Request>,
    /// Its demand on the cards of the pool.
    pub(crate) demand: Arc<Demand>,
    /// The same for as few virtual cards as it starts with. Nobody gives way for more, and no cards are kept for more.
    pub(crate) least: Arc<Demand>,
    /// The least amount that it counts for in its queue.
    pub(crate) amount: QueueAmount,
}

impl Applicant {
    /// A job with such a spec, as if it came now.
    pub(crate) fn of(spec: &Arc<JobSpec>, classes: &Classes, config: &PoolConfig) -> Self {
        let request = Request::of(spec, Precedence::of_priority(spec.priority), false);
        Self::with(spec, Arc::new(request), classes, config)
    }

    /// A job that waits.
    pub(crate) fn waiting(state: &State, job: &Job, classes: &Classes) -> Self {
        let request = Request::of(&job.spec, state.precedence_of(job, state.time()), job.gave_way());
        Self::with(&job.spec, Arc::new(request), classes, state.config())
    }

    /// The same where its request is known.
    pub(crate) fn with(spec: &Arc<JobSpec>, request: Arc<Request>, classes: &Classes, config: &PoolConfig) -> Self {
        let demand = Arc::new(Demand::compile(spec, &request, classes, config));
        let least = match demand.gang_min() == demand.gang {
            true => Arc::clone(&demand),
            false => Arc::new(demand.of_gang(demand.gang_min())),
        };
        let amount = least.least(config.block_size);
        Self { spec: Arc::clone(spec), request, demand, least, amount }
    }

    pub(crate) fn queue(&self) -> &str {
        &self.request.queue
    }
}

fn how_often(request: HostRequest, left: HostRequest) -> u32 {
    let by_cpu = left.cpu.0.checked_div(request.cpu.0).unwrap_or(u64::MAX);
    let by_memory = left.memory.0.checked_div(request.memory.0).unwrap_or(u64::MAX);
    u32::try_from(by_cpu.min(by_memory)).unwrap_or(u32::MAX)
}
