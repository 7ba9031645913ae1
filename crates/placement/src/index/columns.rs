//! Columns: for each request that is being placed, what it would cost on every node.
//!
//! A placement changes one node, so a column that was computed once is kept current by looking again at the nodes that changed since
//! it was used last. The best node is then found among the best of each block of nodes. Columns of requests that have not been
//! placed for long are dropped when there are too many.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{CardId, HostRequest, NodeId};

use super::Index;
use super::class::ClassId;
use super::node::NodeEntry;
use super::surroundings::Surroundings;
use super::worth::{Ask, Badness, NOWHERE, NodeWorth};
use crate::demand::Demand;
use crate::price::Prices;

/// Nodes whose best is found together.
const BLOCK: usize = 64;

/// Blocks of nodes with equal costs among which the least busy node is looked for.
const BLOCKS_COMPARED: usize = 4;

/// Most costs that are kept, of all columns together: 40 MiB.
const MOST_COSTS: usize = 4 << 20;

/// Changes that are remembered for every node of the pool; a column that missed more is computed anew.
const REMEMBERED: usize = 4;

/// What tells two requests apart when one virtual card of them is placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnKey {
    /// What a worker needs of its host; first, because most requests differ in it.
    pub(crate) host: HostRequest,
    /// MiB of card memory.
    pub(crate) memory: u64,
    /// Classes accepted, and blocks needed of each.
    pub(crate) needs: Vec<(ClassId, u32)>,
    /// Whether whole cards are taken.
    pub(crate) whole: bool,
    /// Whether one card must do.
    pub(crate) on_one_card: bool,
    /// Labels that nodes must carry.
    pub(crate) labels: BTreeMap<String, String>,
}

/// What one request would cost on every node.
#[derive(Clone, Debug, Default)]
struct Column {
    badness: Vec<Badness>,
    card: Vec<u16>,
    /// The least badness of each block of nodes.
    least: Vec<Badness>,
    /// Changes taken over.
    seen: usize,
    /// When it was used last.
    used: u64,
}

/// The prices in force, what every node is worth by them, and the columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    sheet: Sheet,
    kept: BTreeMap<Arc<ColumnKey>, Column>,
    changes: Changes,
    uses: u64,
}

/// The prices in force, and what every node is worth by them.
#[derive(Clone, Debug, Default)]
struct Sheet {
    prices: Arc<Prices>,
    worth: Vec<Option<NodeWorth>>,
}

/// Nodes in the order of their changes. Changes of one node between two uses of columns are one change.
#[derive(Clone, Debug, Default)]
struct Changes {
    nodes: Vec<NodeId>,
    /// Number of the first of `nodes`.
    first: usize,
    /// By node, one more than the number of its latest change.
    latest: Vec<usize>,
    /// How many changes the column has taken over that was used last: no column has seen a later one.
    seen: usize,
}

impl Changes {
    fn end(&self) -> usize {
        self.first + self.nodes.len()
    }

    /// Notes a change, unless the node has one that no column has seen.
    fn push(&mut self, node: NodeId) {
        let position = node.0 as usize;
        if self.latest.len() <= position {
            self.latest.resize(position + 1, 0);
        }
        if self.latest[position] > self.seen {
            return;
        }
        if self.nodes.len() >= REMEMBERED * self.latest.len() + BLOCK {
            self.forget();
        }
        self.nodes.push(node);
        self.latest[position] = self.end();
    }

    /// Forgets all changes: no column can be kept current that has not seen them.
    fn forget(&mut self) {
        self.first = self.end();
        self.nodes.clear();
    }

    /// The nodes that changed since a column took over `seen` changes, each once; `None` when not all are remembered.
    fn since(&self, seen: usize) -> Option<impl Iterator<Item = usize>> {
        let missed = self.nodes.get(seen.checked_sub(self.first)?..)?;
        let numbered = (seen + 1..).zip(missed.iter().map(|node| node.0 as usize));
        Some(numbered.filter(|(number, node)| self.latest[*node] == *number).map(|(_, node)| node))
    }
}

impl Columns {
    /// Notes that a node has changed.
    pub(super) fn touch(&mut self, node: NodeId) {
        let (position, worth) = (node.0 as usize, &mut self.sheet.worth);
        if worth.len() <= position {
            worth.resize_with(position + 1, || None);
        }
        worth[position] = None;
        self.changes.push(node);
    }

    fn reprice(&mut self, prices: Prices) {
        self.sheet.prices = Arc::new(prices);
        self.sheet.worth.fill_with(|| None);
        self.kept.clear();
        self.changes.forget();
    }

    /// The column of a request, current.
    fn current(&mut self, nodes: &[NodeEntry], demand: &Demand) -> &Column {
        self.uses += 1;
        self.changes.seen = self.changes.end();
        if !self.kept.contains_key(&demand.column) {
            self.make_room(nodes.len());
        }
        let column = self.kept.entry(Arc::clone(&demand.column)).or_default();
        column.used = self.uses;
        let ask = Ask::new(demand, &self.sheet.prices);
        match self.changes.since(column.seen).filter(|_| column.badness.len() == nodes.len()) {
            Some(changed) => changed.for_each(|position| self.sheet.judge(column, nodes, position, &ask)),
            None => {
                column.badness = vec![NOWHERE; nodes.len()];
                column.card = vec![0; nodes.len()];
                column.least = vec![NOWHERE; nodes.len().div_ceil(BLOCK)];
                (0..nodes.len()).for_each(|position| self.sheet.judge(column, nodes, position, &ask));
            }
        }
        column.seen = self.changes.end();
        column
    }

    /// Drops the column that has not been used for longest when there are too many for so many nodes.
    fn make_room(&mut self, nodes: usize) {
        if self.kept.len() >= (MOST_COSTS / nodes.max(1)).max(1) {
            let oldest = self.kept.iter().min_by_key(|(_, column)| column.used).map(|(key, _)| Arc::clone(key));
            oldest.and_then(|key| self.kept.remove(&key));
        }
    }
}

impl Sheet {
    /// Computes what the request would cost on one node.
    fn judge(&mut self, column: &mut Column, nodes: &[NodeEntry], position: usize, ask: &Ask<'_>) {
        let node = &nodes[position];
        let worth = self.worth[position].get_or_insert_with(|| NodeWorth::of(node, &self.prices));
        let place = worth.place(node, &self.prices, ask);
        let before = std::mem::replace(&mut column.badness[position], place.badness);
        column.card[position] = place.card;
        let block = position / BLOCK;
        if place.badness <= column.least[block] {
            column.least[block] = place.badness;
        } else if before == column.least[block] {
            let all = &column.badness[block * BLOCK..nodes.len().min((block + 1) * BLOCK)];
            column.least[block] = all.iter().copied().min().unwrap_or(NOWHERE);
        }
    }
}

impl Column {
    /// The best node, the first of equals; of the first equals the least busy one, where that is known.
    fn best(&self, surroundings: &Surroundings) -> Option<usize> {
        let (block, least) = self.least.iter().enumerate().min_by_key(|(block, least)| (**least, *block))?;
        if *least == NOWHERE {
            return None;
        }
        let equals = |block: usize| {
            let start = block * BLOCK;
            let within = self.badness[start..].iter().take(BLOCK).enumerate();
            within.filter(|(_, badness)| *badness == least).map(move |(place, _)| start + place)
        };
        if !surroundings.knows_load() {
            return equals(block).next();
        }
        let blocks = (block..self.least.len()).filter(|block| self.least[*block] == *least).take(BLOCKS_COMPARED);
        let id = |position: usize| NodeId(u32::try_from(position).unwrap_or(u32::MAX));
        blocks.flat_map(equals).min_by_key(|position| (surroundings.load(id(*position)), *position))
    }
}

impl Index {
    /// Puts new prices into force.
    pub(crate) fn reprice(&mut self, prices: Prices) {
        self.columns.reprice(prices);
    }

    /// The card on which one virtual card costs least; for requests that take several whole cards, one of the node where they do.
    pub(crate) fn cheapest(&mut self, demand: &Demand) -> Option<CardId> {
        let column = self.columns.current(&self.nodes, demand);
        let position = column.best(&self.surroundings)?;
        self.nodes[position].cards.get(usize::from(column.card[position])).map(|card| card.id)
    }
}
