//! Cards: what they are, what they compute, and which worker holds which of their blocks.

use std::collections::BTreeMap;

use crate::extent::ExtentMap;
use crate::units::{BlockCount, Mebibytes, MilliTflops, Percent};

/// The kind of an accelerator, in the order in which a node's blocks are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CardKind {
    /// A graphics processor.
    Gpu,
    /// A neural processor.
    Npu,
    /// A field-programmable gate array.
    Fpga,
    /// The processors of the host: the accelerator of last resort.
    Cpu,
}

impl CardKind {
    /// Every kind, in numbering order.
    pub const ALL: [Self; 4] = [Self::Gpu, Self::Npu, Self::Fpga, Self::Cpu];

    /// The word used in files, labels and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Npu => "npu",
            Self::Fpga => "fpga",
            Self::Cpu => "cpu",
        }
    }
}

/// A number format; rates are dense, without sparsity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    Fp32,
    /// TF32 tensor operations.
    Tf32,
    Fp16,
    Bf16,
    Fp8,
    /// 8-bit integers (TOPS).
    Int8,
}

impl Precision {
    pub const ALL: [Self; 6] = [Self::Fp32, Self::Tf32, Self::Fp16, Self::Bf16, Self::Fp8, Self::Int8];

    /// The word used in files, labels and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
        }
    }
}

/// Degree of isolation between the tenants of one card; a later one is stronger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// Several tenants without enforcement.
    #[default]
    Shared,
    /// Enforced by software on the host.
    Soft,
    /// Enforced by hardware, or the card is held whole.
    Hard,
}

/// Health of a card as its agent sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CardHealth {
    #[default]
    Healthy,
    /// Not usable: blocks that nobody holds are offline.
    Unhealthy,
}

/// Closeness of two cards of a node; an earlier one is closer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkKind {
    /// A direct fabric between cards: NVLink, XGMI, HCCS, Xe Link.
    Fabric,
    /// Under one PCIe switch.
    PcieSwitch,
    /// Under one NUMA node.
    Numa,
    /// Elsewhere in the node.
    Node,
}

/// A link to another card of the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    pub peer_index: u32,
    pub kind: LinkKind,
    /// 0 when unknown.
    pub megabytes_per_second: u64,
}

pub type Ratings = BTreeMap<Precision, MilliTflops>;

/// A card as its agent declares it (P3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CardDescription {
    /// Position on the node.
    pub index: u32,
    pub kind: CardKind,
    pub vendor: String,
    /// The model as its maker names it.
    pub model: String,
    pub uuid: String,
    pub memory: Mebibytes,
    /// Rates that the maker or the inventory file states.
    pub rated: Ratings,
    /// Rates that a benchmark on the node measured; they take precedence over `rated`.
    pub measured: Ratings,
    /// Links to other cards of the node.
    pub links: Vec<Link>,
    /// The strongest isolation that can be enforced between tenants.
    pub isolation: Isolation,
    pub simulated: bool,
    /// Empty when there is none.
    pub pci_address: String,
    /// Most slices at once; 0 when only the blocks limit it.
    pub max_slices: u32,
    pub health: CardHealth,
}

impl CardDescription {
    /// The rate at a precision, measured before rated; `None` when the card cannot compute in it.
    #[must_use]
    pub fn rate(&self, precision: Precision) -> Option<MilliTflops> {
        self.measured.get(&precision).or_else(|| self.rated.get(&precision)).copied().filter(|rate| rate.0 > 0)
    }

    /// The number of whole blocks that the card holds at the pool's reference (P2).
    #[must_use]
    pub fn block_count(&self, reference: Precision, block_size: MilliTflops) -> BlockCount {
        let rate = self.rate(reference).unwrap_or_default().0;
        BlockCount(u32::try_from(rate / block_size.0.max(1)).unwrap_or(u32::MAX))
    }

    /// The reason why the card holds not one whole block at the pool's reference, and a remedy; `None` when it does.
    #[must_use]
    pub fn lack_of_blocks(&self, reference: Precision, block_size: MilliTflops) -> Option<String> {
        if self.block_count(reference, block_size) > BlockCount(0) {
            return None;
        }
        let rates = Precision::ALL.into_iter().filter_map(|precision| Some((precision, self.rate(precision)?)));
        let computes: Vec<String> = rates.map(|(precision, rate)| format!("{rate} {}", precision.name())).collect();
        let computes = if computes.is_empty() { "nothing that is known".to_owned() } else { computes.join(", ") };
        Some(format!(
            "it has no block, so no job runs on it: a block of this pool is {block_size} {}, and the card computes {computes}; a pool \
             with smaller blocks, or blocks of another precision, is made with `tessera cluster init --block-size SIZE \
             --reference-precision PRECISION`",
            reference.name()
        ))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Card {
    /// The last declaration of the agent. The ledger sets its health to `Unhealthy` when the agent no longer names a
    /// card that is still held, or declares another card in its place; so too when the same hardware is still held
    /// under another index.
    pub description: CardDescription,
    /// Blocks that the card offers now; fewer than its extents cover while it is being shrunk (law L6).
    pub blocks: BlockCount,
    /// Blocks that it offers in percent of those that it is rated for: what the pool's policy says, as soon as no slice
    /// on it relies on more than isolation `shared`.
    pub oversubscription: Percent,
    /// True if the card can promise nothing but isolation `shared` now: it is oversubscribed, or blocks that it does
    /// not offer any more are still held.
    pub shared_only: bool,
    /// Blocks of the node's cards before this one: with the node's base it gives block numbers (P2).
    pub offset: u32,
    /// Every block, in exactly one state (law L1).
    pub extents: ExtentMap,
    /// Memory of all slices in force.
    pub memory_used: Mebibytes,
    /// Memory promised to allocations that wait for preempted workers to stop.
    pub memory_promised: Mebibytes,
    /// Slices in force.
    pub slices: u32,
}

impl Card {
    /// Memory that nobody holds or was promised.
    #[must_use]
    pub fn memory_free(&self) -> Mebibytes {
        self.description.memory.saturating_sub(self.memory_used.saturating_add(self.memory_promised))
    }

    /// The rate at a precision that its blocks stand for together; `None` when the card cannot compute in it.
    #[must_use]
    pub fn rate(&self, precision: Precision) -> Option<MilliTflops> {
        let rate = self.description.rate(precision)?;
        Some(MilliTflops(self.oversubscription.of(rate.0)))
    }

    /// The strongest isolation that it can promise now.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        if self.shared_only { Isolation::Shared } else { self.description.isolation }
    }

    /// Returns whether blocks that the card does not offer any more are still held.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        let held = self.extents.as_slice().iter().rev().find(|extent| extent.state.owner().is_some());
        held.is_some_and(|extent| extent.end() > self.blocks.0)
    }

    /// The number of blocks that give `amount` at `precision` on this card: a card that computes twice as fast in that
    /// precision needs half as many. `None` when it cannot compute in it.
    #[must_use]
    pub fn blocks_for(&self, amount: MilliTflops, precision: Precision) -> Option<BlockCount> {
        let rate = self.rate(precision)?;
        let blocks = (u128::from(amount.0) * u128::from(self.blocks.0)).div_ceil(u128::from(rate.0));
        Some(BlockCount(u32::try_from(blocks).unwrap_or(u32::MAX)))
    }

    #[must_use]
    pub fn rate_of(&self, blocks: BlockCount, precision: Precision) -> MilliTflops {
        let rate = self.rate(precision).unwrap_or_default();
        let share = u128::from(rate.0) * u128::from(blocks.0) / u128::from(self.blocks.0.max(1));
        MilliTflops(u64::try_from(share).unwrap_or(u64::MAX))
    }
}
