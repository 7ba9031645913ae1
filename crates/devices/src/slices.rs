//! The part of a node's cards that a worker is given, and the measures by which it gets that part and no more.

use std::collections::BTreeMap;

use tessera_ledger::{BlockCount, Mebibytes, MilliTflops, Owner};

/// A part of a card, in thousandths of it: 1000 is the whole card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u32);

impl Share {
    /// The whole card.
    pub const WHOLE: Self = Self(1000);

    /// The share that `blocks` of size `block` are of a card with the rate `card`; at least one thousandth, at most the
    /// whole. A card without a rate is given whole: nothing is known that could be divided.
    #[must_use]
    pub fn of(blocks: BlockCount, block: MilliTflops, card: MilliTflops) -> Self {
        if card.0 == 0 {
            return Self::WHOLE;
        }
        let thousandths = u128::from(blocks.0) * u128::from(block.0) * 1000 / u128::from(card.0);
        Self(u32::try_from(thousandths).unwrap_or(u32::MAX).clamp(1, 1000))
    }
}

/// One slice on one card of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedSlice {
    /// Index of the card on the node.
    pub card_index: u32,
    /// Compute.
    pub share: Share,
    /// Memory.
    pub memory: Mebibytes,
}

/// The slices that one worker holds on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSlices {
    /// The worker.
    pub owner: Owner,
    /// Its slices.
    pub slices: Vec<GrantedSlice>,
    /// True if the worker takes time that nobody else uses.
    pub elastic: bool,
}

/// Limits of the worker's control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// CPU time in thousandths of a core; `None`: no limit.
    pub cpu_millicores: Option<u64>,
    /// True if the worker gets more CPU time while nobody else wants it.
    pub cpu_elastic: bool,
    /// Memory; `None`: no limit.
    pub memory: Option<Mebibytes>,
}

/// One slice as PyTorch sees it: what a slice server computes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchDevice {
    /// PyTorch's name of the device, such as `cpu`, for a process that has `environment`.
    pub name: String,
    /// Variables that make the device the right one.
    pub environment: BTreeMap<String, String>,
    /// The part of its time that the server holds itself to; the whole where something else holds it.
    pub share: Share,
    /// The part of its time that the slice has, whoever holds it to that.
    pub part: Share,
    /// Threads of a processor that compute; 0: as many as PyTorch takes by itself.
    pub threads: u32,
    /// Memory for what the program keeps there.
    pub memory: Mebibytes,
}

/// The measures by which a worker gets the slices that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    /// Variables for its environment; what the job sets itself goes before them.
    pub environment: BTreeMap<String, String>,
    /// Variables with which a program sees none of the accelerators of this host.
    pub hidden: BTreeMap<String, String>,
    /// Limits of its control group.
    pub limits: HostLimits,
    /// Its slices as PyTorch sees them, in their order.
    pub torch: Vec<TorchDevice>,
}

impl Attach {
    /// Both together: a worker may hold slices of cards of several mechanisms (P1). Limits of the same resource add up.
    #[must_use]
    pub fn joined(mut self, other: Self) -> Self {
        self.environment.extend(other.environment);
        self.hidden.extend(other.hidden);
        self.torch.extend(other.torch);
        self.limits.cpu_millicores = sum(self.limits.cpu_millicores, other.limits.cpu_millicores, u64::saturating_add);
        self.limits.cpu_elastic |= other.limits.cpu_elastic;
        self.limits.memory = sum(self.limits.memory, other.limits.memory, Mebibytes::saturating_add);
        self
    }
}

fn sum<T>(left: Option<T>, right: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    match (left, right) {
        (Some(left), Some(right)) => Some(add(left, right)),
        (left, right) => left.or(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_nothing_and_never_more_than_the_card() {
        let block = MilliTflops(10);
        assert_eq!(Share::of(BlockCount(5), block, MilliTflops(200)), Share(250));
        assert_eq!(Share::of(BlockCount(1), MilliTflops(1), MilliTflops(1_000_000)), Share(1));
        assert_eq!(Share::of(BlockCount(u32::MAX), MilliTflops(u64::MAX), MilliTflops(1)), Share::WHOLE);
        assert_eq!(Share::of(BlockCount(1), block, MilliTflops(0)), Share::WHOLE);
    }
}
