//! Outlines: nodes that look the same to every request, whatever labels they carry, share one.
//!
//! Large pools consist of few models of machines, and many of them are empty or full at a time. So what a request would
//! cost is computed once for each outline and not for each node, and so is what nodes have left when prices are made.
//! Nodes that have changed are looked at again, each once, before outlines are used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::NodeId;

use super::card::CardEntry;
use super::changes::Changes;
use super::class::ClassId;
use super::node::{Host, NodeEntry, id_at};
use super::worth::{Ask, Place, Worth};
use crate::price::Prices;

/// The appearance of a node to requests. Nodes with equal outlines differ in nothing but their numbers and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Outline {
    /// Resources that its host has left; `None`: not limited.
    pub(crate) host: Option<Host>,
    /// Its cards, as far as they offer anything.
    pub(crate) groups: Vec<Group>,
}

/// Cards of a node that are the same to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) class: ClassId,
    pub(crate) count: u16,
    pub(crate) empty: bool,
    /// Position of the first of them on the node.
    pub(super) position: u16,
    /// Blocks that one worker could be given of each.
    pub(crate) offered: u32,
    /// Blocks of the longest free run of each.
    pub(super) largest: u32,
    pub(crate) memory: u64,
}

impl Outline {
    fn of(node: &NodeEntry) -> Self {
        let mut groups: Vec<Group> = Vec::with_capacity(node.cards.len());
        for (position, card) in node.cards.iter().enumerate() {
            let group = Group::of(card, position);
            if group.offered == 0 {
                continue;
            }
            let is_like = |other: &&mut Group| Group { count: 1, position: group.position, ..**other } == group;
            match groups.iter_mut().find(is_like) {
                Some(other) => other.count += 1,
                None => groups.push(group),
            }
        }
        Self { host: node.host, groups }
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

    /// The number of empty cards among them.
    pub(super) fn empties(&self) -> u16 {
        if self.empty { self.count } else { 0 }
    }
}

/// An outline and the nodes that share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) outline: Arc<Outline>,
    /// The nodes; none when the position is unused.
    pub(crate) nodes: BTreeSet<NodeId>,
    /// Worth of each of these nodes at the prices in force; `None` until it is asked for.
    worth: Option<Worth>,
}

impl Shared {
    /// The best place for one virtual card on one of the nodes, as far as labels let it go there.
    pub(super) fn place(&mut self, prices: &Prices, ask: &Ask<'_>) -> Place {
        if self.nodes.is_empty() {
            return Place::NOWHERE;
        }
        let worth = self.worth.get_or_insert_with(|| Worth::of(&self.outline, prices));
        worth.place(&self.outline, prices, ask)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Outlines {
    of_node: Vec<Option<usize>>,
    /// Changes of nodes that were taken over.
    seen: usize,
    /// A position is used again when no node looks so any more.
    pub(crate) shared: Vec<Shared>,
    known: BTreeMap<Arc<Outline>, usize>,
    unused: Vec<usize>,
    /// Positions in `shared` in the order in which something else came there.
    pub(super) changes: Changes,
}

impl Outlines {
    /// Looks again at the nodes that have changed.
    pub(super) fn settle(&mut self, nodes: &[NodeEntry], changed: &mut Changes) {
        self.of_node.resize(nodes.len(), None);
        for position in changed.take(&mut self.seen, nodes.len()) {
            let outline = Outline::of(&nodes[position]);
            let before = self.of_node[position];
            if before.is_some_and(|known| *self.shared[known].outline == outline) {
                continue;
            }
            if let Some(before) = before {
                self.leave(before, id_at(position));
            }
            self.of_node[position] = Some(self.enter(outline, id_at(position)));
        }
    }

    fn leave(&mut self, known: usize, node: NodeId) {
        let shared = &mut self.shared[known];
        shared.nodes.remove(&node);
        if shared.nodes.is_empty() {
            self.known.remove(&shared.outline);
            self.unused.push(known);
            self.changes.push(known);
        }
    }

    fn enter(&mut self, outline: Outline, node: NodeId) -> usize {
        let known = self.known.get(&outline).copied().unwrap_or_else(|| {
            let unused = self.unused.pop().unwrap_or(self.shared.len());
            if unused == self.shared.len() {
                self.shared.push(Shared::default());
            }
            let outline = Arc::new(outline);
            self.known.insert(Arc::clone(&outline), unused);
            self.shared[unused] = Shared { outline, ..Shared::default() };
            self.changes.push(unused);
            unused
        });
        self.shared[known].nodes.insert(node);
        known
    }

    /// Forgets what nodes are worth: prices have changed.
    pub(super) fn reprice(&mut self) {
        self.shared.iter_mut().for_each(|shared| shared.worth = None);
        self.changes.all();
    }

    /// The position of how a node looks, as of the last time that changes were taken over.
    pub(super) fn of_node(&self, node: NodeId) -> Option<usize> {
        *self.of_node.get(node.0 as usize)?
    }

    /// Outlines of nodes that have anything left, in the order in which the first node of each registered. As of the
    /// last time that changes were taken over.
    pub(crate) fn with_room(&self) -> Vec<&Shared> {
        let used = self.shared.iter().filter(|shared| !shared.nodes.is_empty() && !shared.outline.groups.is_empty());
        let mut used: Vec<&Shared> = used.collect();
        used.sort_unstable_by_key(|shared| shared.nodes.first());
        used
    }
}
