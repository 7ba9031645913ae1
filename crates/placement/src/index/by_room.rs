//! Cards ordered by what they have left, so that best fit in blocks and memory at once is a search and not a scan.
//!
//! The order is by free blocks. A tree of maxima over it says where the next card with enough memory is, so that cards with enough
//! blocks and too little memory, of which a full pool has many, are not looked at one by one.

use std::collections::BTreeSet;
use std::ops::Bound;

use tessera_ledger::CardId;

/// Free blocks, free MiB, and the card.
type Entry = (u32, u64, CardId);

/// Most leaves of the tree; classes with more blocks share leaves.
const LEAVES: u32 = 4096;

/// An ordered set of cards of one class.
#[derive(Clone, Debug)]
pub(crate) struct ByRoom {
    cards: BTreeSet<Entry>,
    /// Free-block counts per leaf.
    width: u32,
    /// Number of leaves, a power of two; leaf `i` is at `leaves + i`, the root at 1. Zero means no card; memory is kept plus one.
    leaves: usize,
    most_memory: Vec<u64>,
}

impl ByRoom {
    /// An empty set for cards of so many blocks.
    pub(crate) fn new(blocks: u32) -> Self {
        let width = blocks / LEAVES + 1;
        let leaves = (blocks / width + 1).next_power_of_two() as usize;
        Self { cards: BTreeSet::new(), width, leaves, most_memory: vec![0; 2 * leaves] }
    }

    /// Adds a card.
    pub(crate) fn insert(&mut self, entry: Entry) {
        self.cards.insert(entry);
        self.update(self.leaf_of(entry.0));
    }

    /// Takes a card out.
    pub(crate) fn remove(&mut self, entry: Entry) {
        self.cards.remove(&entry);
        self.update(self.leaf_of(entry.0));
    }

    /// The most free blocks that one card has.
    pub(crate) fn most(&self) -> u32 {
        self.cards.last().map_or(0, |(free, ..)| *free)
    }

    /// The cards with the most room first.
    pub(crate) fn largest_first(&self) -> impl Iterator<Item = Entry> {
        self.cards.iter().rev().copied()
    }

    fn leaf_of(&self, free: u32) -> usize {
        ((free / self.width) as usize).min(self.leaves - 1)
    }

    /// The first card at or behind `from` within a leaf that has enough memory.
    fn next_in_leaf(&self, leaf: usize, mut from: Bound<Entry>, memory: u64) -> Option<Entry> {
        loop {
            let entry = *self.cards.range((from, Bound::Unbounded)).next()?;
            if self.leaf_of(entry.0) != leaf {
                return None;
            }
            if entry.1 >= memory {
                return Some(entry);
            }
            from = Bound::Included((entry.0, memory, CardId::default()));
        }
    }

    /// Computes the maximum of a leaf anew.
    fn update(&mut self, leaf: usize) {
        let start = u32::try_from(leaf).unwrap_or(u32::MAX).saturating_mul(self.width);
        let mut most = 0;
        let mut behind = (start.saturating_add(self.width), 0, CardId::default());
        // The last entry of each free-block count has the most memory of that count.
        while let Some(last) = self.cards.range(..behind).next_back().filter(|entry| entry.0 >= start) {
            most = most.max(last.1.saturating_add(1));
            behind = (last.0, 0, CardId::default());
        }
        let mut place = self.leaves + leaf;
        if self.most_memory[place] == most {
            return;
        }
        self.most_memory[place] = most;
        while place > 1 {
            place /= 2;
            self.most_memory[place] = self.most_memory[2 * place].max(self.most_memory[2 * place + 1]);
        }
    }

    /// The first leaf from `from` on that has a card with enough memory.
    fn next_leaf(&self, from: usize, memory: u64) -> Option<usize> {
        let enough = memory.saturating_add(1);
        if from >= self.leaves {
            return None;
        }
        let mut place = self.leaves + from;
        while self.most_memory[place] < enough {
            // To the right neighbour, going up as long as this is a right child.
            while place % 2 == 1 {
                place /= 2;
            }
            if place == 0 {
                return None;
            }
            place += 1;
        }
        while place < self.leaves {
            place = if self.most_memory[2 * place] >= enough { 2 * place } else { 2 * place + 1 };
        }
        Some(place - self.leaves)
    }

    /// Where to begin in a leaf.
    fn start_of(&self, leaf: usize, blocks: u32, memory: u64) -> Bound<Entry> {
        let start = u32::try_from(leaf).unwrap_or(u32::MAX).saturating_mul(self.width);
        Bound::Included((start.max(blocks), memory, CardId::default()))
    }

    /// The cards with at least `blocks` and `memory` left, fewest blocks first, then least memory.
    pub(crate) fn fitting(&self, blocks: u32, memory: u64) -> impl Iterator<Item = (u32, CardId)> {
        let mut leaf = if blocks > self.most() { self.leaves } else { self.leaf_of(blocks) };
        let mut from = self.start_of(0, blocks, memory);
        std::iter::from_fn(move || {
            loop {
                let next = self.next_leaf(leaf, memory)?;
                if next != leaf {
                    leaf = next;
                    from = self.start_of(leaf, blocks, memory);
                }
                if let Some(entry) = self.next_in_leaf(leaf, from, memory) {
                    from = Bound::Excluded(entry);
                    return Some((entry.0, entry.2));
                }
                leaf += 1;
                from = self.start_of(leaf, blocks, memory);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tessera_ledger::NodeId;

    proptest! {
        /// The same as looking at every card, for classes with one and with several block counts per leaf.
        #[test]
        fn fitting_is_what_a_scan_finds(
            blocks in prop::sample::select(vec![1u32, 7, 60, 5000, 100_000]),
            steps in prop::collection::vec((any::<u32>(), 0u64..6, 0u32..12, any::<bool>()), 1..80),
            need in any::<u32>(),
            memory in 0u64..7,
        ) {
            let mut set = ByRoom::new(blocks);
            let mut plain = BTreeSet::new();
            for (free, memory, index, insert) in steps {
                let entry = (free % (blocks + 1), memory, CardId { node: NodeId(0), index });
                if insert {
                    set.insert(entry);
                    plain.insert(entry);
                } else {
                    set.remove(entry);
                    plain.remove(&entry);
                }
            }
            let need = need % (blocks + 2);
            let scan = plain.iter().filter(|(free, left, _)| *free >= need && *left >= memory);
            let expected: Vec<(u32, CardId)> = scan.map(|(free, _, card)| (*free, *card)).collect();
            prop_assert_eq!(set.fitting(need, memory).collect::<Vec<_>>(), expected);
        }
    }
}
