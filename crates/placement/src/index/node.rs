//! What placement knows of one node: its cards and what they have left together.

use std::sync::Arc;

use tessera_ledger::{CardId, Node};

use super::card::CardEntry;
use super::class::ClassId;

/// What the cards of one class on a node have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTotal {
    /// The class.
    pub(crate) class: ClassId,
    /// Free blocks.
    pub(crate) free: u32,
    /// Free MiB of the cards that have free blocks.
    pub(crate) memory: u64,
}

/// A node as placement sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeEntry {
    /// The ledger's node.
    pub(crate) node: Option<Arc<Node>>,
    /// Its cards in order of index.
    pub(crate) cards: Vec<CardEntry>,
    /// Totals of the classes that have been seen on it.
    pub(crate) totals: Vec<NodeTotal>,
}

impl NodeEntry {
    /// A card.
    pub(crate) fn card(&self, id: CardId) -> Option<&CardEntry> {
        self.position(id).map(|position| &self.cards[position])
    }

    /// Where a card stands in the list.
    pub(crate) fn position(&self, id: CardId) -> Option<usize> {
        let guess = id.index as usize;
        if self.cards.get(guess).is_some_and(|card| card.id == id) {
            return Some(guess);
        }
        self.cards.binary_search_by_key(&id, |card| card.id).ok()
    }

    /// What the cards of a class have left.
    pub(crate) fn total(&self, class: ClassId) -> Option<&NodeTotal> {
        self.totals.iter().find(|total| total.class == class)
    }

    /// The same, to be changed.
    pub(crate) fn total_mut(&mut self, class: ClassId) -> &mut NodeTotal {
        if let Some(position) = self.totals.iter().position(|total| total.class == class) {
            return &mut self.totals[position];
        }
        self.totals.push(NodeTotal { class, free: 0, memory: 0 });
        let last = self.totals.len() - 1;
        &mut self.totals[last]
    }
}
