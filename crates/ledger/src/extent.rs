//! Extents: the blocks of one card as runs of neighbours with one state and one owner. Law L1 is made here: an
//! [`ExtentMap`] always covers every block of its card exactly once, whatever is done to it.

use crate::ids::Owner;
use crate::units::{BlockCount, BlockIndex};

/// The state of a block (law L1). Every state but `Free` and `Offline` names exactly one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockState {
    Free,
    /// Unhealthy, drained or shrunk away; nobody holds it.
    Offline,
    /// Granted, not confirmed.
    Held(Owner),
    /// A worker computes on it.
    Running(Owner),
    /// The owner was told to stop and has not confirmed; `next` gets the block when it does (law L4).
    Draining {
        /// The owner that still holds the block.
        owner: Owner,
        /// For whom it was preempted.
        next: Option<Owner>,
    },
    /// The node is unreachable or the stop could not be confirmed: never granted until somebody knows better (law L2).
    Lost(Owner),
}

impl BlockState {
    /// The owner that holds the block, if any.
    #[must_use]
    pub const fn owner(self) -> Option<Owner> {
        match self {
            Self::Free | Self::Offline => None,
            Self::Held(owner) | Self::Running(owner) | Self::Lost(owner) | Self::Draining { owner, .. } => Some(owner),
        }
    }

    /// The owner that holds the block now, and the owner that gets it next.
    pub fn holders(self) -> impl Iterator<Item = Owner> {
        let next = match self {
            Self::Draining { next, .. } => next,
            _ => None,
        };
        self.owner().into_iter().chain(next)
    }

    /// The word used in metrics and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Offline => "offline",
            Self::Held(_) => "held",
            Self::Running(_) => "running",
            Self::Draining { .. } => "draining",
            Self::Lost(_) => "lost",
        }
    }
}

/// A run of neighbouring blocks in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    pub start: BlockIndex,
    /// Number of blocks; never zero.
    pub length: BlockCount,
    pub state: BlockState,
}

impl Extent {
    /// The index just after the last block.
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.start.0 + self.length.0
    }
}

/// Counts of blocks by state; they sum to the card's capacity (law L1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockCounts {
    pub free: u64,
    pub held: u64,
    pub running: u64,
    pub draining: u64,
    pub lost: u64,
    pub offline: u64,
}

impl BlockCounts {
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.free + self.held + self.running + self.draining + self.lost + self.offline
    }

    /// Counts `length` more (or, with `remove`, fewer) blocks in `state`.
    pub fn count(&mut self, state: BlockState, length: BlockCount, remove: bool) {
        let slot = match state {
            BlockState::Free => &mut self.free,
            BlockState::Offline => &mut self.offline,
            BlockState::Held(_) => &mut self.held,
            BlockState::Running(_) => &mut self.running,
            BlockState::Draining { .. } => &mut self.draining,
            BlockState::Lost(_) => &mut self.lost,
        };
        let length = u64::from(length.0);
        *slot = if remove { *slot - length } else { *slot + length };
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            free: self.free + other.free,
            held: self.held + other.held,
            running: self.running + other.running,
            draining: self.draining + other.draining,
            lost: self.lost + other.lost,
            offline: self.offline + other.offline,
        }
    }

    /// The difference of two counts, the other being a part of this one.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            free: self.free - other.free,
            held: self.held - other.held,
            running: self.running - other.running,
            draining: self.draining - other.draining,
            lost: self.lost - other.lost,
            offline: self.offline - other.offline,
        }
    }
}

/// All blocks of a card: sorted, without gap or overlap, neighbours of equal state joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtentMap {
    extents: Vec<Extent>,
}

impl ExtentMap {
    #[must_use]
    pub fn new(length: BlockCount, state: BlockState) -> Self {
        let mut map = Self::default();
        map.grow(length, state);
        map
    }

    /// Rebuilds a map from its extents, as read from a snapshot; `None` when they leave a gap or overlap.
    #[must_use]
    pub fn from_extents(extents: impl IntoIterator<Item = Extent>) -> Option<Self> {
        let mut map = Self::default();
        for extent in extents {
            let whole = extent.start.0.checked_add(extent.length.0).is_some();
            if extent.start.0 != map.length().0 || extent.length.0 == 0 || !whole {
                return None;
            }
            map.push(extent);
        }
        Some(map)
    }

    /// The extents in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Extent] {
        &self.extents
    }

    #[must_use]
    pub fn length(&self) -> BlockCount {
        BlockCount(self.extents.last().map_or(0, Extent::end))
    }

    #[must_use]
    pub fn counts(&self) -> BlockCounts {
        let mut counts = BlockCounts::default();
        for extent in &self.extents {
            counts.count(extent.state, extent.length, false);
        }
        counts
    }

    /// Returns whether every block of the run is in a state that `accept` takes. False when the run is empty or leaves
    /// the card.
    #[must_use]
    pub fn all(&self, start: BlockIndex, length: BlockCount, accept: impl Fn(BlockState) -> bool) -> bool {
        let Some(end) = start.0.checked_add(length.0) else { return false };
        length.0 > 0
            && end <= self.length().0
            && self.overlapping(start.0, end).iter().all(|extent| accept(extent.state))
    }

    /// The extents that share a block with `start..end`.
    fn overlapping(&self, start: u32, end: u32) -> &[Extent] {
        let first = self.extents.partition_point(|extent| extent.end() <= start);
        let last = self.extents.partition_point(|extent| extent.start.0 < end);
        &self.extents[first..last.max(first)]
    }

    /// Gives every block of the run the state that `change` makes of its present one. The caller has checked with
    /// [`Self::all`] that the run is on the card; blocks beyond it are left out.
    pub fn update(&mut self, start: BlockIndex, length: BlockCount, change: impl Fn(BlockState) -> BlockState) {
        let end = start.0.saturating_add(length.0);
        let first = self.extents.partition_point(|extent| extent.end() <= start.0);
        let last = self.extents.partition_point(|extent| extent.start.0 < end);
        if first >= last {
            return;
        }
        let mut replaced = Self::default();
        // One neighbour on each side is rebuilt too, so that equal states join.
        let (from, to) = (first.saturating_sub(1), (last + 1).min(self.extents.len()));
        for extent in &self.extents[from..to] {
            let (inner_start, inner_end) = (extent.start.0.max(start.0), extent.end().min(end));
            if inner_start >= inner_end {
                replaced.push(*extent);
                continue;
            }
            replaced.push_run(extent.start.0, inner_start, extent.state);
            replaced.push_run(inner_start, inner_end, change(extent.state));
            replaced.push_run(inner_end, extent.end(), extent.state);
        }
        self.extents.splice(from..to, replaced.extents);
    }

    /// Like [`Self::update`], over every block.
    pub fn update_all(&mut self, change: impl Fn(BlockState) -> BlockState) {
        self.update(BlockIndex(0), self.length(), change);
    }

    /// Adds blocks at the end.
    pub fn grow(&mut self, length: BlockCount, state: BlockState) {
        let start = self.length().0;
        self.push_run(start, start.saturating_add(length.0), state);
    }

    fn push_run(&mut self, start: u32, end: u32, state: BlockState) {
        if start < end {
            self.push(Extent { start: BlockIndex(start), length: BlockCount(end - start), state });
        }
    }

    fn push(&mut self, extent: Extent) {
        match self.extents.last_mut() {
            Some(last) if last.state == extent.state => last.length += extent.length,
            _ => self.extents.push(extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AllocationId, Rank};
    use crate::units::Epoch;
    use proptest::prelude::*;

    fn owner(n: u64) -> Owner {
        Owner { allocation: AllocationId(n), epoch: Epoch(n), rank: Rank(0) }
    }

    proptest! {
        /// Law L1: whatever is done, each block has exactly one state, as in a plain array of blocks.
        #[test]
        fn an_extent_map_is_an_array_of_blocks(
            length in 1u32..60,
            steps in prop::collection::vec((0u32..70, 0u32..70, 0u64..4), 0..40),
        ) {
            let mut map = ExtentMap::new(BlockCount(length), BlockState::Free);
            let mut plain = vec![BlockState::Free; length as usize];
            for (start, run, who) in steps {
                let state = if who == 0 { BlockState::Free } else { BlockState::Held(owner(who)) };
                map.update(BlockIndex(start), BlockCount(run), |_| state);
                for block in start..start.saturating_add(run).min(length) {
                    plain[block as usize] = state;
                }
                prop_assert_eq!(map.counts().total(), u64::from(length));
                for (index, expected) in (0u32..).zip(&plain) {
                    prop_assert!(map.all(BlockIndex(index), BlockCount(1), |state| state == *expected));
                }
                for pair in map.as_slice().windows(2) {
                    prop_assert_eq!(pair[0].end(), pair[1].start.0);
                    prop_assert_ne!(pair[0].state, pair[1].state);
                }
                prop_assert_eq!(ExtentMap::from_extents(map.as_slice().iter().copied()), Some(map.clone()));
            }
        }
    }
}
