//! What was found out of nodes for a request is remembered until something of them changes, so that a round of
//! decisions costs as much as has changed since the one before.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tessera_ledger::{LogTime, NodeId, Span, State};

use super::outlook::Ends;
use super::{NONE, Sought, Wait, millionths};
use crate::demand::{Demand, Offer};
use crate::fit::seats::Sums;
use crate::index::Index;
use crate::index::changes::NOTHING;
use crate::index::class::ClassId;

/// Nodes by how long it takes until something is free there, the soonest first, and what else is known of each.
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

    pub(super) fn after(&self, passed: Option<(Wait, NodeId)>) -> Option<(NodeId, Wait, T)> {
        let (_, id) = match passed {
            Some(passed) => self.order.range((Excluded(passed), Unbounded)).next()?,
            None => self.order.first()?,
        };
        self.of_node[id.0 as usize].map(|(wait, known)| (*id, wait, known))
    }

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

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.of_nodes.nodes().map(|(id, _)| id)
    }
}

/// The little of each node that bounds how soon one of its cards has room, held in columns. When room is sought for a
/// request for the first time they are read of all nodes; to read every card of a large pool instead takes a hundred
/// times as long.
#[derive(Clone, Debug, Default)]
struct Briefs {
    /// By node: when something comes back there first, as far as time limits say.
    first: Vec<Option<LogTime>>,
    /// By class and node: the most blocks that a card has free, and the most MiB, be it another one.
    largest: Vec<Vec<Option<(u32, u64)>>>,
}

impl Briefs {
    fn read(&mut self, index: &Index, id: NodeId) {
        let Some(node) = index.node(id) else { return };
        let position = id.0 as usize;
        *entry(&mut self.first, position) = node.schedule.as_ref().and_then(|schedule| schedule.first());
        self.largest.iter_mut().filter_map(|of_class| of_class.get_mut(position)).for_each(|largest| *largest = None);
        for card in node.cards.iter().filter(|card| card.is_open()) {
            let ClassId(class) = card.class;
            let largest = entry(entry(&mut self.largest, class), position);
            let (blocks, memory) = largest.unwrap_or_default();
            *largest = Some((blocks.max(card.free.total()), memory.max(card.memory_free)));
        }
    }

    /// No more than how long the first seat on one card of a node takes; `None` when it has none for the request.
    fn bound(&self, demand: &Demand, id: NodeId, ends: Ends) -> Option<Wait> {
        let position = id.0 as usize;
        let short = |offer: &Offer| {
            let (blocks, memory) = (*self.largest.get(offer.class.0)?.get(position)?)?;
            let blocks = millionths(offer.need.saturating_sub(blocks).into(), offer.need.into());
            Some(blocks.saturating_add(millionths(demand.memory.saturating_sub(memory), demand.memory)))
        };
        let endless = demand.on_one_card().filter_map(short).min()?;
        if endless == 0 || ends == Ends::AtOnce {
            return Some(NONE);
        }
        // Whatever ends at a known time could be what is missing.
        let first = self.first.get(position).copied().flatten();
        Some(first.map_or(Wait { endless, at: NONE.at }, |at| Wait { endless: 0, at }))
    }
}

/// An entry of a column that is made as long as it must be.
fn entry<T: Clone + Default>(column: &mut Vec<T>, position: usize) -> &mut T {
    if column.len() <= position {
        column.resize(position + 1, T::default());
    }
    &mut column[position]
}

/// Most requests for which that is remembered; those that were not asked for longest are dropped.
const MOST_REQUESTS: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Room for virtual cards on one card or one node each.
    pub(super) seats: Bounds,
    /// Room for those that spread over nodes, if they may: beside jobs without a time limit, and with what those hold.
    pub(super) parts: [Parts; 2],
}

impl Nodes {
    /// What is known of some nodes. The index must know their schedules, if these matter.
    pub(super) fn of(sought: Sought<'_>, nodes: &[NodeId]) -> Self {
        let mut briefs = Briefs::default();
        if sought.demand.span == Span::Card {
            nodes.iter().for_each(|id| briefs.read(sought.index, *id));
        }
        Self::with_briefs(sought, nodes, &briefs)
    }

    fn with_briefs(sought: Sought<'_>, nodes: &[NodeId], briefs: &Briefs) -> Self {
        let mut known = Self::default();
        if sought.demand.span == Span::Card {
            let bound = |id: &NodeId| Some((briefs.bound(sought.demand, *id, sought.ends)?, *id));
            known.seats = Bounds::of(nodes.iter().filter_map(bound), false);
        } else {
            nodes.iter().for_each(|id| known.look_at(sought, *id, briefs));
        }
        known
    }

    /// Looks at a node that has changed.
    fn look_at(&mut self, sought: Sought<'_>, id: NodeId, briefs: &Briefs) {
        let span = sought.demand.span;
        let outlook = if span == Span::Card { None } else { sought.outlook(id) };
        let wait = match span {
            Span::Card => briefs.bound(sought.demand, id, sought.ends),
            Span::Node | Span::Pool => outlook.as_ref().and_then(|outlook| outlook.first_bound()),
        };
        self.seats.set(id, wait.map(|wait| (wait, false)));
        if span == Span::Pool {
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
    briefs: Briefs,
    /// Changes of nodes that the briefs have taken over, if they were ever read.
    seen: Option<usize>,
    /// The requests for which room was sought last, the latest at the end.
    known: Vec<Known>,
}

impl Remembered {
    /// What is known of all nodes for a request, current.
    pub(super) fn current(&mut self, index: &mut Index, state: &State, demand: &Demand) -> &mut Nodes {
        for id in index.changed_since(self.seen.get_or_insert(NOTHING)) {
            index.read_schedule(state, id);
            self.briefs.read(index, id);
        }
        let known = self.known.iter().position(|known| known.demand == *demand).map(|place| self.known.remove(place));
        if known.is_none() && self.known.len() >= MOST_REQUESTS {
            self.known.remove(0);
        }
        let is_new = known.is_none();
        let mut known =
            known.unwrap_or_else(|| Known { demand: demand.clone(), seen: NOTHING, nodes: Nodes::default() });
        let changed = index.changed_since(&mut known.seen);
        index.looked_at += changed.len() as u64;
        let sought = Sought { index, state, demand, ends: Ends::InTime };
        if is_new {
            known.nodes = Nodes::with_briefs(sought, &changed, &self.briefs);
        } else {
            changed.iter().for_each(|id| known.nodes.look_at(sought, *id, &self.briefs));
        }
        self.known.push(known);
        &mut self.known.last_mut().expect("it was just put there").nodes
    }
}
