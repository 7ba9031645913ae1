//! Findings about nodes for a request: those about a node are remembered until something of it changes, so that a round
//! of decisions costs as much as has changed since the one before.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{NodeId, Span, State};

use super::{Sought, Wait};
use crate::demand::Demand;
use crate::fit::seats::Sums;
use crate::index::Index;
use crate::index::changes::NOTHING;

/// Nodes by how long it takes until something is free there, the soonest first, and what else is known of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking<T> {
    of_node: BTreeMap<NodeId, (Wait, T)>,
    order: BTreeSet<(Wait, NodeId)>,
}

impl<T: Copy> Ranking<T> {
    /// Notes what was found out of a node; `None`: it never has anything. Answers what was known before.
    pub(super) fn set(&mut self, id: NodeId, known: Option<(Wait, T)>) -> Option<(Wait, T)> {
        let before = match known {
            Some(known) => self.of_node.insert(id, known),
            None => self.of_node.remove(&id),
        };
        let [old, new] = [before, known].map(|known| known.map(|(wait, _)| (wait, id)));
        if old != new {
            old.map(|old| self.order.remove(&old));
            self.order.extend(new);
        }
        before
    }

    pub(super) fn order(&self) -> impl Iterator<Item = &(Wait, NodeId)> {
        self.order.iter()
    }

    fn nodes(&self) -> impl Iterator<Item = (NodeId, T)> {
        self.order.iter().map(|(_, id)| (*id, self.of_node[id].1))
    }
}

/// The room that all nodes give to virtual cards that spread over nodes: node by node, and the sum.
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

    /// Returns how many of the first nodes have enough for a gang together, as far as sums say; `None` if all have too
    /// little.
    pub(super) fn enough_for(&self, demand: &Demand) -> Option<usize> {
        if self.all.virtual_cards(demand) < demand.gang {
            return None;
        }
        let mut sums = Sums::default();
        let enough = |(_, part)| {
            sums.plus(&part);
            sums.virtual_cards(demand) >= demand.gang
        };
        self.of_nodes.nodes().position(enough).map(|last| last + 1)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.of_nodes.nodes().map(|(id, _)| id)
    }
}

/// Most requests for which that is remembered; those that were not asked for longest are dropped.
const MOST_REQUESTS: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Nodes by the wait until there is room for a virtual card on one card or one node.
    pub(super) seats: Ranking<()>,
    /// Room for those that spread over nodes, if they may: beside jobs without a time limit, and with what those hold.
    pub(super) parts: [Parts; 2],
}

impl Nodes {
    /// Looks at some nodes. The index must know their schedules.
    pub(super) fn of(sought: Sought<'_>, nodes: &[NodeId]) -> Self {
        let mut known = Self::default();
        nodes.iter().for_each(|id| known.look_at(sought, *id));
        known
    }

    /// Looks at a node that has changed.
    fn look_at(&mut self, sought: Sought<'_>, id: NodeId) {
        let outlook = sought.outlook(id);
        let first = outlook.as_ref().and_then(|outlook| outlook.seats(1));
        self.seats.set(id, first.map(|(wait, _)| (wait, ())));
        if sought.demand.span == Span::Pool {
            for (with_endless, parts) in [false, true].into_iter().zip(&mut self.parts) {
                let part = outlook.as_ref().and_then(|outlook| outlook.part(with_endless));
                parts.set(id, part.map(|part| (part.wait, Sums::of(sought.demand, part.site.cards))));
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Known {
    demand: Demand,
    /// Changes of nodes that were taken over.
    seen: usize,
    nodes: Nodes,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    /// Changes of nodes whose schedules were read, if any ever were.
    seen: Option<usize>,
    /// The requests for which room was sought last, the latest at the end.
    known: Vec<Known>,
}

impl Remembered {
    /// Returns the findings about all nodes for a request, brought up to date.
    pub(super) fn current(&mut self, index: &mut Index, state: &State, demand: &Demand) -> &Nodes {
        for id in index.changed_since(self.seen.get_or_insert(NOTHING)) {
            index.read_schedule(state, id);
        }
        let known = self.known.iter().position(|known| known.demand == *demand).map(|place| self.known.remove(place));
        if known.is_none() && self.known.len() >= MOST_REQUESTS {
            self.known.remove(0);
        }
        let mut known =
            known.unwrap_or_else(|| Known { demand: demand.clone(), seen: NOTHING, nodes: Nodes::default() });
        let changed = index.changed_since(&mut known.seen);
        index.looked_at += changed.len() as u64;
        changed.iter().for_each(|id| known.nodes.look_at(Sought { index, state, demand }, *id));
        self.known.push(known);
        &self.known.last().expect("it was just put there").nodes
    }
}
