//! Cards that a request cannot tell apart, ordered by what they have left.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::capacity::CardClass;
use tessera_ledger::{Card, CardId, NodeId, Precision};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClassId(pub(crate) usize);

/// The identity of a class: the ledger's class, and the number of blocks that such a card offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassKey {
    pub(crate) class: CardClass,
    pub(crate) blocks: u32,
}

impl ClassKey {
    /// Returns whether this is the key of a card, without making that key.
    fn is_of(&self, card: &Card) -> bool {
        let (class, description) = (&self.class, &card.description);
        let rates = Precision::ALL.into_iter().filter_map(|precision| Some((precision, card.rate(precision)?)));
        self.blocks == card.blocks.0
            && class.kind == description.kind
            && class.memory == description.memory
            && class.isolation == card.isolation()
            && class.model == description.model
            && class.vendor == description.vendor
            && class.rates.iter().copied().eq(rates)
    }
}

/// The cards of one class that have something left.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassIndex {
    /// Cards by what one worker could be given: blocks, then MiB.
    pub(crate) cards: BTreeSet<(u32, u64, CardId)>,
    /// Nodes by the free blocks of all their cards of this class.
    pub(crate) nodes: BTreeSet<(u32, NodeId)>,
    /// Free blocks of all cards.
    pub(crate) free: u64,
    /// Free MiB of all cards that have free blocks.
    pub(crate) memory: u64,
}

impl ClassIndex {
    /// The nodes with so many free blocks at least, those with the least first.
    pub(crate) fn nodes_with(&self, free: u32) -> impl DoubleEndedIterator<Item = (u32, NodeId)> + Clone {
        self.nodes.range((free, NodeId(0))..).copied()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    ids: BTreeMap<ClassKey, ClassId>,
    table: Vec<(ClassKey, ClassIndex)>,
}

impl Classes {
    /// The class of a card, which was of the class `before` when it was read last; a new one is made when none
    /// was known.
    pub(crate) fn intern(&mut self, card: &Card, before: Option<ClassId>) -> ClassId {
        if let Some(before) = before.filter(|id| self.table[id.0].0.is_of(card)) {
            return before;
        }
        let key = ClassKey { class: CardClass::of(card), blocks: card.blocks.0 };
        *self.ids.entry(key).or_insert_with_key(|key| {
            self.table.push((key.clone(), ClassIndex::default()));
            ClassId(self.table.len() - 1)
        })
    }

    /// Number of classes; it only grows.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Classes in the order of kinds (gpu, npu, fpga, cpu), then of everything else: the same in every index of a pool.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&ClassKey, ClassId)> {
        self.ids.iter().map(|(key, id)| (key, *id))
    }

    pub(crate) fn get(&self, id: ClassId) -> &ClassIndex {
        &self.table[id.0].1
    }

    pub(super) fn get_mut(&mut self, id: ClassId) -> &mut ClassIndex {
        &mut self.table[id.0].1
    }
}
