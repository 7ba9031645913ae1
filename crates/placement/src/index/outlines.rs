//! Outlines: nodes that look the same to every request share one.
//!
//! Large pools consist of few models of machines, and many of them are empty or full at a time. So what a request would
//! cost is computed once for each outline and not for each node, and so is what nodes have left when prices are made.
//! Nodes that have changed are looked at again, each once, before outlines are used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::NodeId;

use super::changes::Changes;
use super::node::{NodeEntry, id_at};
use super::outline::Outline;
use super::worth::{Ask, Place, Worth};
use crate::price::Prices;

/// An outline, by its position among all; the position is used again when no node looks so any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutlineId(pub(super) usize);

impl OutlineId {
    /// The position, below [`Outlines::positions`].
    pub(crate) const fn position(self) -> usize {
        self.0
    }
}

/// An outline and the nodes that share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    /// How they look.
    pub(super) outline: Arc<Outline>,
    /// Which they are; none when the position is unused.
    pub(super) nodes: BTreeSet<NodeId>,
    /// What each is worth at the prices in force, once it was asked for.
    worth: Option<Worth>,
}

impl Shared {
    /// The best place for one virtual card on one of the nodes. The labels asked for are followed: all of the nodes
    /// carry them, or none.
    pub(super) fn place(&mut self, nodes: &[NodeEntry], prices: &Prices, ask: &Ask<'_>) -> Place {
        let carried = || self.nodes.first().and_then(|first| nodes[first.0 as usize].node.as_ref());
        if self.nodes.is_empty() || ask.has_labels() && !carried().is_some_and(|node| ask.accepts(node)) {
            return Place::NOWHERE;
        }
        let worth = self.worth.get_or_insert_with(|| Worth::of(&self.outline, prices));
        worth.place(&self.outline, prices, ask)
    }
}

/// All outlines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outlines {
    /// By node.
    of_node: Vec<Option<OutlineId>>,
    /// Changes of nodes that were taken over.
    seen: usize,
    pub(super) shared: Vec<Shared>,
    known: BTreeMap<Arc<Outline>, OutlineId>,
    unused: Vec<OutlineId>,
    /// Positions in `shared` in the order in which something else came there.
    pub(super) changes: Changes,
}

impl Outlines {
    /// Looks again at the nodes that have changed.
    pub(super) fn settle(&mut self, nodes: &[NodeEntry], changed: &mut Changes) {
        self.of_node.resize(nodes.len(), None);
        for position in changed.take(&mut self.seen, nodes.len()) {
            self.look_at(id_at(position), &nodes[position]);
        }
    }

    fn look_at(&mut self, id: NodeId, node: &NodeEntry) {
        let (position, outline) = (id.0 as usize, Outline::of(node));
        let before = self.of_node[position];
        if before.is_some_and(|id| *self.shared[id.0].outline == outline) {
            return;
        }
        if let Some(before) = before {
            self.leave(before, id);
        }
        self.of_node[position] = Some(self.enter(outline, id));
    }

    fn leave(&mut self, id: OutlineId, node: NodeId) {
        let shared = &mut self.shared[id.0];
        shared.nodes.remove(&node);
        if shared.nodes.is_empty() {
            self.known.remove(&shared.outline);
            self.unused.push(id);
            self.changes.push(id.0);
        }
    }

    fn enter(&mut self, outline: Outline, node: NodeId) -> OutlineId {
        let known = self.known.get(&outline).copied();
        let id = known.unwrap_or_else(|| self.begin(Arc::new(outline)));
        self.shared[id.0].nodes.insert(node);
        id
    }

    fn begin(&mut self, outline: Arc<Outline>) -> OutlineId {
        let id = self.unused.pop().unwrap_or(OutlineId(self.shared.len()));
        if id.0 == self.shared.len() {
            self.shared.push(Shared::default());
        }
        self.known.insert(Arc::clone(&outline), id);
        self.shared[id.0] = Shared { outline, nodes: BTreeSet::new(), worth: None };
        self.changes.push(id.0);
        id
    }

    /// Forgets what nodes are worth: prices have changed.
    pub(super) fn reprice(&mut self) {
        self.shared.iter_mut().for_each(|shared| shared.worth = None);
        self.changes.all();
    }

    /// How a node looks; as of the last time that changes were taken over.
    pub(crate) fn of_node(&self, node: NodeId) -> Option<(OutlineId, &Outline)> {
        let id = (*self.of_node.get(node.0 as usize)?)?;
        Some((id, &self.shared[id.0].outline))
    }

    /// Number of positions of outlines.
    pub(crate) fn positions(&self) -> usize {
        self.shared.len()
    }
}
