//! Nodes by how long it takes until something is free there, the soonest first, and what else is known of each.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tessera_ledger::NodeId;

use super::briefs::entry;
use super::wait::Wait;
use crate::demand::Demand;
use crate::fit::sums::Sums;

/// Nodes in that order.
#[derive(Clone, Debug)]
pub(super) struct Ranking<T> {
    of_node: Vec<Option<(Wait, T)>>,
    order: BTreeSet<(Wait, NodeId)>,
}

impl<T> Default for Ranking<T> {
    fn default() -> Self {
        Self { of_node: Vec::new(), order: BTreeSet::new() }
    }
}

impl<T: Copy> Ranking<T> {
    /// Many nodes at once, of which the same is known.
    pub(super) fn of(waits: impl Iterator<Item = (Wait, NodeId)>, known: T) -> Self {
        let mut ranking = Self { order: waits.collect(), ..Self::default() };
        for (wait, id) in &ranking.order {
            *entry(&mut ranking.of_node, id.0 as usize) = Some((*wait, known));
        }
        ranking
    }

    /// Notes what was found out of a node; `None`: it never has anything. Answers what was known before.
    pub(super) fn set(&mut self, id: NodeId, known: Option<(Wait, T)>) -> Option<(Wait, T)> {
        let before = std::mem::replace(entry(&mut self.of_node, id.0 as usize), known);
        let [old, new] = [before, known].map(|known| known.map(|(wait, _)| (wait, id)));
        if old != new {
            old.map(|old| self.order.remove(&old));
            self.order.extend(new);
        }
        before
    }

    /// The first node after another one.
    pub(super) fn after(&self, passed: Option<(Wait, NodeId)>) -> Option<(NodeId, Wait, T)> {
        let (_, id) = match passed {
            Some(passed) => self.order.range((Excluded(passed), Unbounded)).next()?,
            None => self.order.first()?,
        };
        self.of_node[id.0 as usize].map(|(wait, known)| (*id, wait, known))
    }

    /// All nodes.
    fn nodes(&self) -> impl Iterator<Item = (NodeId, T)> {
        self.order.iter().filter_map(|(_, id)| Some((*id, self.of_node[id.0 as usize]?.1)))
    }
}

/// How long nodes take at least until they have room for one virtual card, and whether they take just as long.
pub(super) type Bounds = Ranking<bool>;

/// What all nodes give to virtual cards that spread over nodes, and how much it is together.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    of_nodes: Ranking<Sums>,
    all: Sums,
}

impl Parts {
    /// Notes what a node gives; `None`: nothing.
    pub(super) fn set(&mut self, id: NodeId, part: Option<(Wait, Sums)>) {
        if let Some((_, sums)) = self.of_nodes.set(id, part) {
            self.all.minus(&sums);
        }
        part.iter().for_each(|(_, sums)| self.all.plus(sums));
    }

    /// How many of the first nodes have enough for a gang together, as far as sums say.
    pub(super) fn enough_for(&self, demand: &Demand) -> Option<usize> {
        if self.all.members(demand) < demand.gang {
            return None;
        }
        let mut sums = Sums::default();
        let enough = |(_, part)| {
            sums.plus(&part);
            sums.members(demand) >= demand.gang
        };
        self.of_nodes.nodes().position(enough).map(|last| last + 1)
    }

    /// The nodes that give something.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.of_nodes.nodes().map(|(id, _)| id)
    }
}
