//! What of a node decides what can be placed there, and at what cost.

use super::card::CardEntry;
use super::class::ClassId;
use super::followed::LabelId;
use super::node::{Host, NodeEntry};

/// How a node looks to requests. Nodes with equal outlines differ in nothing but their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Outline {
    /// What its host has left; `None`: not limited.
    pub(crate) host: Option<Host>,
    /// Those of the labels that it carries that somebody has asked for.
    pub(super) labels: Vec<LabelId>,
    /// Its cards, as far as they offer anything.
    pub(crate) groups: Vec<Group>,
    /// The most blocks that one card offers.
    pub(super) most: u32,
}

/// Cards of a node that are the same to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    /// Their class.
    pub(crate) class: ClassId,
    /// How many.
    pub(crate) count: u16,
    /// Whether they are empty.
    pub(crate) empty: bool,
    /// Position of the first of them on the node.
    pub(super) position: u16,
    /// Blocks that one worker could be given of each.
    pub(crate) offered: u32,
    /// How many of them are one run.
    pub(super) largest: u32,
    /// MiB that each has left.
    pub(crate) memory: u64,
}

impl Outline {
    /// How a node looks now.
    pub(super) fn of(node: &NodeEntry) -> Self {
        let mut groups: Vec<Group> = Vec::with_capacity(node.cards.len());
        for (position, card) in node.cards.iter().enumerate() {
            let group = Group::of(card, position);
            if group.offered == 0 {
                continue;
            }
            match groups.iter_mut().find(|other| other.is_like(&group)) {
                Some(other) => other.count += 1,
                None => groups.push(group),
            }
        }
        let most = groups.iter().map(|group| group.offered).max().unwrap_or(0);
        Self { host: node.host, labels: node.followed.clone(), groups, most }
    }
}

impl Group {
    fn of(card: &CardEntry, position: usize) -> Self {
        Self {
            class: card.class,
            count: 1,
            empty: card.is_empty(),
            position: u16::try_from(position).unwrap_or(u16::MAX),
            offered: card.offered(),
            largest: card.free.largest(),
            memory: card.memory_free,
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let place = Self { count: self.count, position: self.position, ..*other };
        *self == place
    }

    /// How often the group counts in what its node is worth: empty cards are worth something together, others each
    /// for itself.
    pub(crate) fn counts(&self) -> u16 {
        if self.empty { 1 } else { self.count }
    }

    /// How many of them are empty.
    pub(super) fn empties(&self) -> u16 {
        if self.empty { self.count } else { 0 }
    }
}
