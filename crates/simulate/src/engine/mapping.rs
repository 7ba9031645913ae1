//! The mapping of a trace to a pool and jobs of the ledger.
//!
//! A card has so many blocks as the [`Scale`] says: 1000, so that a block is a thousandth of a card, unless the effect
//! of coarser blocks is the question. A share of a card becomes a virtual card on one card; several whole cards become
//! one virtual card on one node that takes its cards whole; processors and memory of hosts are what they are. Work that
//! asks for no card still needs a slice to be granted: each node has its own processors as a card of the last resort
//! with more blocks than a host runs workers, and such work holds one block of it, so that only the host's processors
//! and memory ever bind it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_ledger::{
    BlockCount, CardDescription, CardHealth, CardId, CardKind, CheckpointMode, CheckpointPolicy, HostCapacity,
    HostRequest, Isolation, JobSpec, Mebibytes, MilliCpus, MilliTflops, NodeDescription, NodeId, PlannedWorker,
    PoolConfig, PoolLimits, Precision, Span, VirtualCardRequest,
};

use crate::plain::Place;
use crate::trace::{Ask, TraceJob, TraceNode, WHOLE_CARD};

/// Blocks of the card that stands for the processors of a host: about as many as another card has.
const HOST_BLOCKS: u32 = 1_000;

/// Memory of a card of which alone the list does not say how much it has: more than anybody asks for.
const UNKNOWN_CARD_MEMORY: Mebibytes = Mebibytes(1 << 30);

/// The properties of cards that a list of nodes specifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The granularity at which cards are divided.
    pub scale: Scale,
    /// True if memory of cards is known. Otherwise cards have none and jobs request none: memory that nobody uses would
    /// only be counted as room.
    pub memory: bool,
}

impl Counted {
    /// The properties that a list of nodes specifies, at a scale.
    #[must_use]
    pub fn of(nodes: &[TraceNode], scale: Scale) -> Self {
        Self { scale, memory: nodes.iter().any(|node| node.card_memory_mib.is_some()) }
    }
}

/// The granularity at which cards are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub blocks_per_card: BlockCount,
}

impl Default for Scale {
    /// A block is a thousandth of a card.
    fn default() -> Self {
        Self { blocks_per_card: BlockCount(WHOLE_CARD) }
    }
}

impl Scale {
    /// The compute of `milli` thousandths of one card. A block computes one TFLOPS here, whatever it is in the world.
    fn compute(self, milli: u64) -> MilliTflops {
        MilliTflops(milli.saturating_mul(u64::from(self.blocks_per_card.0)))
    }
}

/// The pool's settings for simulations: as they are by default, but for the history of events, which nobody
/// watches here.
pub(super) fn config() -> PoolConfig {
    PoolConfig {
        event_limit: 1,
        job_limit: u64::MAX,
        block_size: MilliTflops::from_tflops(1),
        limits: PoolLimits::NONE,
        ..PoolConfig::default()
    }
}

/// The description that an agent of the node would send.
pub(super) fn node(node: &TraceNode, counted: Counted) -> (NodeDescription, Vec<CardDescription>) {
    let description = NodeDescription {
        name: node.name.clone(),
        uid: node.name.clone(),
        incarnation: 1,
        agent_version: String::new(),
        address: String::new(),
        worker_host: String::new(),
        labels: BTreeMap::new(),
        host: Some(HostCapacity { cpu: MilliCpus(node.cpu_milli), memory: Mebibytes(node.memory_mib) }),
        cached: BTreeSet::new(),
        start: tessera_ledger::AgentStart::default(),
        containment: tessera_ledger::Containment::Whole,
    };
    let unknown = if counted.memory { UNKNOWN_CARD_MEMORY } else { Mebibytes::ZERO };
    let memory = node.card_memory_mib.map_or(unknown, Mebibytes);
    let rate = counted.scale.compute(u64::from(WHOLE_CARD));
    let mut cards: Vec<CardDescription> =
        (0..node.cards).map(|index| card(index, CardKind::Gpu, &node.model, rate, memory)).collect();
    let host = MilliTflops::from_tflops(u64::from(HOST_BLOCKS));
    cards.push(card(node.cards, CardKind::Cpu, "", host, Mebibytes::ZERO));
    (description, cards)
}

fn card(index: u32, kind: CardKind, model: &str, rate: MilliTflops, memory: Mebibytes) -> CardDescription {
    CardDescription {
        index,
        kind,
        vendor: "trace".to_owned(),
        model: model.to_owned(),
        uuid: String::new(),
        memory,
        rated: BTreeMap::from([(Precision::Fp16, rate)]),
        measured: BTreeMap::new(),
        links: Vec::new(),
        isolation: Isolation::Soft,
        simulated: true,
        pci_address: String::new(),
        max_slices: 0,
        health: CardHealth::Healthy,
    }
}

fn virtual_card(ask: &Ask, counted: Counted) -> VirtualCardRequest {
    let (kind, compute) = match ask.cards {
        0 => (CardKind::Cpu, MilliTflops::from_tflops(1)),
        _ => (CardKind::Gpu, counted.scale.compute(ask.all_cards_milli())),
    };
    let memory =
        if counted.memory { Mebibytes(ask.card_memory_mib).saturating_mul(ask.cards) } else { Mebibytes::ZERO };
    VirtualCardRequest {
        span: if ask.cards > 1 { Span::Node } else { Span::Card },
        kinds: BTreeSet::from([kind]),
        models: ask.models.clone(),
        whole_cards: ask.is_whole(),
        ..VirtualCardRequest::new(compute, memory)
    }
}

/// The job as it would be submitted.
#[must_use]
pub fn spec(job: &TraceJob, counted: Counted) -> JobSpec {
    JobSpec {
        name: job.name.chars().take(200).collect(),
        queue: job.queue.clone(),
        gang: job.workers,
        priority: job.priority,
        preemptible: job.preemptible,
        time_limit: job.limit_ms.map(Duration::from_millis),
        checkpoint: CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() },
        host: HostRequest { cpu: MilliCpus(job.ask.cpu_milli), memory: Mebibytes(job.ask.memory_mib) },
        ..JobSpec::new(vec!["simulated".to_owned()], virtual_card(&job.ask, counted))
    }
}

/// The places of an allocation's workers, in the words of the trace: nodes by their place in its list, cards by theirs
/// on the node.
pub(super) fn places<'a>(
    workers: impl Iterator<Item = (NodeId, &'a [tessera_ledger::Slice])>,
    nodes: &[TraceNode],
) -> Vec<Place> {
    workers
        .map(|(node, slices)| {
            let node = node.0 as usize;
            let count = nodes.get(node).map_or(0, |node| node.cards);
            let of_trace = |card: &CardId| card.index < count;
            let mut cards: Vec<usize> =
                slices.iter().map(|slice| slice.card).filter(of_trace).map(|card| card.index as usize).collect();
            cards.sort_unstable();
            cards.dedup();
            Place { node, cards }
        })
        .collect()
}

pub(super) fn planned_places(workers: &[PlannedWorker], nodes: &[TraceNode]) -> Vec<Place> {
    places(workers.iter().map(|worker| (worker.node, worker.slices.as_slice())), nodes)
}
