//! A job's request for one virtual card, and the cards that could back it.

use std::collections::{BTreeMap, BTreeSet};

use crate::card::{CardKind, Isolation, Precision};
use crate::rejection::Rejection;
use crate::units::{Mebibytes, MilliTflops};

/// The range over which one virtual card may spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// All slices on one card.
    #[default]
    Card,
    /// Over the cards of one node.
    Node,
    /// Over the nodes of the pool.
    Pool,
}

/// The way in which a program uses its virtual card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// It is told what its slices are, and computes on them itself: one worker on each node of the card.
    #[default]
    Worker,
    /// It has one device of PyTorch; slice servers compute for it (docs/device.md).
    Device,
    /// Its program runs on a host of its own and has one device there; the job's worker is the slice server.
    Remote,
}

impl Access {
    /// Returns whether slice servers of PyTorch back the virtual card.
    #[must_use]
    pub const fn is_device(self) -> bool {
        match self {
            Self::Worker => false,
            Self::Device | Self::Remote => true,
        }
    }
}

/// The label of nodes whose agents start slice servers, and its value: which library the device is one of.
pub const DEVICE_LABEL: (&str, &str) = ("tessera.device", "pytorch");
/// The label that says which version of that library; slice servers of one card need the same.
pub const DEVICE_VERSION_LABEL: &str = "tessera.pytorch";
/// Kinds of cards that can back a device of PyTorch: it has none of FPGAs.
pub const DEVICE_KINDS: [CardKind; 3] = [CardKind::Gpu, CardKind::Npu, CardKind::Cpu];

/// Requirements of one virtual card (P1, P5a).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualCardRequest {
    /// Compute at `precision`.
    pub compute: MilliTflops,
    pub memory: Mebibytes,
    /// Precision of `compute`; `None`: the pool's reference.
    pub precision: Option<Precision>,
    /// The range over which it may spread.
    pub span: Span,
    /// Kinds that may back it; empty: any.
    pub kinds: BTreeSet<CardKind>,
    /// True if several kinds may back one virtual card at once (P1).
    pub mixed: bool,
    /// The weakest isolation that is acceptable.
    pub isolation: Isolation,
    /// Vendors that may back it; empty: any.
    pub vendors: BTreeSet<String>,
    /// Models that may back it; empty: any.
    pub models: BTreeSet<String>,
    /// True if its slices take whole cards: nobody else computes on them.
    pub whole_cards: bool,
    /// The least memory on each card that it takes something of. It gets more than `memory` where it spreads over
    /// more cards.
    pub slice_memory: Mebibytes,
    pub access: Access,
    /// True if it takes time of its cards that nobody else uses; else it gets its share and no more. The ledger only
    /// stores it: agents decide who computes when.
    pub elastic: bool,
}

impl VirtualCardRequest {
    /// A request for `compute` at the pool's reference precision and `memory`, of one card of any kind, and nothing
    /// more.
    #[must_use]
    pub fn new(compute: MilliTflops, memory: Mebibytes) -> Self {
        Self {
            compute,
            memory,
            precision: None,
            span: Span::Card,
            kinds: BTreeSet::new(),
            mixed: false,
            isolation: Isolation::Shared,
            vendors: BTreeSet::new(),
            models: BTreeSet::new(),
            whole_cards: false,
            slice_memory: Mebibytes::ZERO,
            access: Access::Worker,
            elastic: false,
        }
    }

    /// Refuses a device of PyTorch that nothing could back.
    pub(crate) fn check_access(&self, node_labels: &BTreeMap<String, String>) -> Result<(), Rejection> {
        let (key, value) = DEVICE_LABEL;
        let kinds = !self.kinds.is_empty() && self.kinds.iter().all(|kind| DEVICE_KINDS.contains(kind));
        let refused = |field: &str, problem| Err(Rejection::invalid(format!("spec.{field}"), problem));
        if !self.access.is_device() {
            return Ok(());
        }
        // A program elsewhere reaches one worker, whose first slice server saves all of the card.
        if self.access == Access::Remote && self.span == Span::Pool {
            return refused("virtual_card.span", "must be card or node when access is remote");
        }
        if self.memory == Mebibytes::ZERO {
            return refused("virtual_card.memory", "is needed for a device");
        }
        if !kinds {
            return refused("virtual_card.kinds", "must be gpu, npu or cpu for a device");
        }
        if node_labels.get(key).is_none_or(|has| has != value) {
            return refused("node_labels", "must name nodes that serve devices");
        }
        Ok(())
    }

    /// Returns whether the virtual card may lie on several nodes and yet has only one program, in its first worker. The
    /// other workers only serve slices, know one another by a secret, and ask for nothing of their hosts. The first
    /// worker may be on a node beside theirs.
    #[must_use]
    pub fn serves_across_nodes(&self) -> bool {
        self.access == Access::Device && self.span == Span::Pool
    }

    /// The memory that it needs of a card that backs it alone.
    #[must_use]
    pub fn memory_on_one_card(&self) -> Mebibytes {
        self.memory.max(self.slice_memory)
    }

    /// Returns whether such a card may back the virtual card.
    #[must_use]
    pub fn accepts(&self, kind: CardKind, vendor: &str, model: &str, isolation: Isolation) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.vendors.is_empty() || self.vendors.contains(vendor))
            && (self.models.is_empty() || self.models.contains(model))
            && self.isolation <= isolation
    }
}
