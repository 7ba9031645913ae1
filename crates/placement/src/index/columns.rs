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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnKey {
    /// Classes accepted, and blocks needed of each.
    pub(crate) needs: Vec<(ClassId, u32)>,
    /// MiB of card memory.
    pub(crate) memory: u64,
    /// What a worker needs of its host.
    pub(crate) host: HostRequest,
    /// Whether whole cards are taken.
    pub(crate) whole: bool,
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
    prices: Arc<Prices>,
    worth: Vec<Option<NodeWorth>>,
    kept: BTreeMap<Arc<ColumnKey>, Column>,
    /// Nodes in the order of their changes.
    changes: Vec<NodeId>,
    /// Number of the first of `changes`.
    first: usize,
    uses: u64,
}

impl Columns {
    /// Notes that a node has changed.
    pub(super) fn touch(&mut self, node: NodeId) {
        let position = node.0 as usize;
        if self.worth.len() <= position {
            self.worth.resize_with(position + 1, || None);
        }
        self.worth[position] = None;
        if self.kept.is_empty() {
            return;
        }
        if self.changes.len() >= REMEMBERED * self.worth.len() + BLOCK {
            self.first += self.changes.len();
            self.changes.clear();
        }
        self.changes.push(node);
    }

    fn reprice(&mut self, prices: Prices) {
        self.prices = Arc::new(prices);
        self.worth.fill_with(|| None);
        self.kept.clear();
        self.first += self.changes.len();
        self.changes.clear();
    }

    /// The column of a request, current; taken out of the table.
    fn current(&mut self, nodes: &[NodeEntry], demand: &Demand) -> Column {
        let mut column = self.kept.remove(&demand.column).unwrap_or_default();
        let ask = Ask::new(demand, &self.prices);
        if column.seen < self.first || column.badness.len() != nodes.len() {
            column.badness = vec![NOWHERE; nodes.len()];
            column.card = vec![0; nodes.len()];
            column.least = vec![NOWHERE; nodes.len().div_ceil(BLOCK)];
            for position in 0..nodes.len() {
                self.judge(&mut column, nodes, position, &ask);
            }
        } else {
            for change in column.seen - self.first..self.changes.len() {
                let position = self.changes[change].0 as usize;
                self.judge(&mut column, nodes, position, &ask);
            }
        }
        column.seen = self.first + self.changes.len();
        column
    }

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

    fn keep(&mut self, key: &Arc<ColumnKey>, mut column: Column) {
        self.uses += 1;
        column.used = self.uses;
        let most = (MOST_COSTS / column.badness.len().max(1)).max(1);
        if self.kept.len() >= most {
            let oldest = self.kept.iter().min_by_key(|(_, column)| column.used).map(|(key, _)| Arc::clone(key));
            oldest.and_then(|key| self.kept.remove(&key));
        }
        self.kept.insert(Arc::clone(key), column);
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
        let found = column.best(&self.surroundings).map(|position| (position, usize::from(column.card[position])));
        self.columns.keep(&demand.column, column);
        let (node, card) = found?;
        self.nodes[node].cards.get(card).map(|card| card.id)
    }
}
