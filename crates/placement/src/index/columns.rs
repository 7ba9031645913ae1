//! Columns: for each request that is being placed, what it would cost on every node, by outline.
//!
//! A placement changes one node, so a column that was computed once is kept current by looking again at the outlines
//! that changed since it was used last. The best is then found among the best of each block of outlines. Columns of
//! requests that have not been placed for long are dropped when there are too many.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{CardId, HostRequest, NodeId};

use super::Index;
use super::class::ClassId;
use super::node::NodeEntry;
use super::outlines::{OutlineId, Outlines};
use super::surroundings::Surroundings;
use super::worth::{Ask, Badness, NOWHERE, Place};
use crate::demand::Demand;
use crate::price::Prices;

/// Outlines whose best is found together.
const BLOCK: usize = 64;

/// Nodes with equal costs among which the least busy one is looked for.
const NODES_COMPARED: usize = 256;

/// Most costs that are kept, of all columns together: 40 MiB.
const MOST_COSTS: usize = 4 << 20;

/// Most columns.
const MOST_COLUMNS: usize = 8192;

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

/// What one request would cost on every node, by outline.
#[derive(Clone, Debug, Default)]
struct Column {
    badness: Vec<Badness>,
    /// Position of the card on the node.
    card: Vec<u16>,
    /// The least badness of each block of outlines.
    least: Vec<Badness>,
    /// Changes taken over.
    seen: usize,
    /// When it was used last.
    used: u64,
}

/// The prices in force, and the columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    prices: Arc<Prices>,
    kept: BTreeMap<Arc<ColumnKey>, Column>,
    uses: u64,
    /// Uses before the prices came into force.
    uses_before: u64,
    /// How often a request was judged on an outline.
    judged: u64,
}

impl Columns {
    /// Puts new prices into force. Columns that were not used since the last time are dropped; the others will be
    /// computed anew.
    fn reprice(&mut self, prices: Prices) {
        self.prices = Arc::new(prices);
        let since = std::mem::replace(&mut self.uses_before, self.uses);
        self.kept.retain(|_, column| column.used > since);
    }

    /// The column of a request, current.
    fn current(&mut self, nodes: &[NodeEntry], outlines: &mut Outlines, demand: &Demand) -> &Column {
        self.uses += 1;
        let positions = outlines.positions();
        self.make_room(positions);
        let column = self.kept.entry(Arc::clone(&demand.column)).or_default();
        let seen = std::mem::replace(&mut column.seen, outlines.changes.read());
        column.used = self.uses;
        column.make_room(positions);
        let ask = Ask::new(demand, &self.prices);
        let Outlines { shared, changes, .. } = outlines;
        let changed = changes.since(seen);
        if changed.is_none() {
            column.clear();
        }
        let judge = |position: usize| {
            let shared = &mut shared[position];
            self.judged += u64::from(!shared.nodes.is_empty());
            column.set(OutlineId(position), shared.place(nodes, &self.prices, &ask));
        };
        match changed {
            Some(changed) => changed.for_each(judge),
            None => (0..positions).for_each(judge),
        }
        column
    }

    /// Drops the half of the columns that have not been used for longest when there are too many for so many outlines.
    fn make_room(&mut self, positions: usize) {
        if self.kept.len() > (MOST_COSTS / positions.max(1)).min(MOST_COLUMNS) {
            let mut uses: Vec<u64> = self.kept.values().map(|column| column.used).collect();
            let half = uses.len() / 2;
            let median = *uses.select_nth_unstable(half).1;
            self.kept.retain(|_, column| column.used > median);
        }
    }
}

impl Column {
    /// Makes room for so many outlines.
    fn make_room(&mut self, positions: usize) {
        if self.badness.len() < positions {
            let blocks = positions.div_ceil(BLOCK);
            self.badness.resize(blocks * BLOCK, NOWHERE);
            self.card.resize(blocks * BLOCK, 0);
            self.least.resize(blocks, NOWHERE);
        }
    }

    /// Forgets all costs.
    fn clear(&mut self) {
        self.badness.fill(NOWHERE);
        self.least.fill(NOWHERE);
    }

    /// Takes over what it would cost on nodes of an outline.
    fn set(&mut self, OutlineId(position): OutlineId, place: Place) {
        let before = std::mem::replace(&mut self.badness[position], place.badness);
        self.card[position] = place.card;
        let block = position / BLOCK;
        if place.badness <= self.least[block] {
            self.least[block] = place.badness;
        } else if before == self.least[block] {
            let all = self.badness[block * BLOCK..].iter().take(BLOCK);
            self.least[block] = all.copied().min().unwrap_or(NOWHERE);
        }
    }

    /// The best node and the card there: the first node of equals; of the first equals the least busy one, where that
    /// is known.
    fn best(&self, outlines: &Outlines, surroundings: &Surroundings) -> Option<(NodeId, u16)> {
        let least = self.least.iter().copied().min().filter(|least| *least != NOWHERE)?;
        let blocks = self.least.iter().enumerate().filter(|(_, best)| **best == least).map(|(block, _)| block * BLOCK);
        let within = |start: usize| (start..).zip(self.badness[start..].iter().take(BLOCK));
        let equals = blocks.flat_map(within).filter(|(_, badness)| **badness == least).map(|(position, _)| position);
        let nodes = |position: usize, most| {
            outlines.shared[position].nodes.iter().take(most).map(move |node| (*node, position))
        };
        let (node, position) = if surroundings.knows_load() {
            let mut nodes: Vec<(NodeId, usize)> = equals.flat_map(|position| nodes(position, NODES_COMPARED)).collect();
            nodes.sort_unstable();
            nodes.truncate(NODES_COMPARED);
            nodes.into_iter().min_by_key(|(node, _)| (surroundings.load(*node), *node))
        } else {
            equals.flat_map(|position| nodes(position, 1)).min()
        }?;
        Some((node, self.card[position]))
    }
}

impl Index {
    /// Puts new prices into force.
    pub(crate) fn reprice(&mut self, prices: Prices) {
        self.columns.reprice(prices);
        self.outlines.reprice();
    }

    /// How often a request was judged on an outline.
    pub(crate) fn judged(&self) -> u64 {
        self.columns.judged
    }

    /// Looks again at the nodes that have changed since their outlines were asked for.
    pub(crate) fn settle_outlines(&mut self) {
        self.outlines.settle(&self.nodes, &mut self.changes);
    }

    /// The card on which one virtual card costs least; for requests that take several whole cards, one of the node
    /// where they do.
    pub(crate) fn cheapest(&mut self, demand: &Demand) -> Option<CardId> {
        self.follow(&demand.labels);
        self.settle_outlines();
        let column = self.columns.current(&self.nodes, &mut self.outlines, demand);
        let (node, card) = column.best(&self.outlines, &self.surroundings)?;
        self.nodes[node.0 as usize].cards.get(usize::from(card)).map(|card| card.id)
    }
}
