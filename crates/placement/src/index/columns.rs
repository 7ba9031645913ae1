//! Columns: for each request that is being placed, what it would cost on every node, by outline.
//!
//! A placement changes one node, so a column that was computed once is kept current by looking again at the outlines
//! that changed since it was used last. The best is then found among the best of each block of outlines. When there
//! are too many columns all are forgotten, and computed again as they are asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{CardId, HostRequest, NodeId, Percent};

use super::Index;
use super::class::ClassId;
use super::outlines::Outlines;
use super::surroundings::Surroundings;
use super::worth::{Ask, Badness, NOWHERE, Place};
use crate::demand::Demand;
use crate::price::Prices;

/// Outlines whose best is found together.
const BLOCK: usize = 64;

/// Nodes of an outline among which the least busy one is looked for.
const NODES_COMPARED: usize = 256;

/// Most costs that are kept, of all columns together: 40 MiB.
const MOST_COSTS: usize = 4 << 20;

const MOST_COLUMNS: usize = 8192;

/// The properties that tell two requests apart when one virtual card of them is placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnKey {
    /// First, because most requests differ in it.
    pub(crate) host: HostRequest,
    pub(crate) memory: u64,
    /// Classes accepted, and blocks needed of each.
    pub(crate) needs: Vec<(ClassId, u32)>,
    pub(crate) whole: bool,
    pub(crate) on_one_card: bool,
}

/// Costs of one request on every node, by outline.
#[derive(Clone, Debug, Default)]
struct Column {
    badness: Vec<Badness>,
    /// Position of the card on the node.
    card: Vec<u16>,
    /// The least badness of each block of outlines.
    least: Vec<Badness>,
    seen: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    prices: Arc<Prices>,
    kept: BTreeMap<Arc<ColumnKey>, Column>,
    /// Number of times that a request was judged on an outline.
    pub(crate) judged: u64,
}

impl Column {
    fn make_room(&mut self, positions: usize) {
        if self.badness.len() < positions {
            let blocks = positions.div_ceil(BLOCK);
            self.badness.resize(blocks * BLOCK, NOWHERE);
            self.card.resize(blocks * BLOCK, 0);
            self.least.resize(blocks, NOWHERE);
        }
    }

    /// Takes over what it would cost on nodes of an outline.
    fn set(&mut self, position: usize, place: Place) {
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
        let compared = if surroundings.load.is_empty() { 1 } else { NODES_COMPARED };
        let mut least_busy: Option<((Percent, NodeId), usize)> = None;
        // Loops, and no chain of iterators: that would carry the best one along through every position.
        for start in (0..self.badness.len()).step_by(BLOCK).filter(|start| self.least[start / BLOCK] == least) {
            for (position, badness) in (start..).zip(&self.badness[start..start + BLOCK]) {
                if *badness != least {
                    continue;
                }
                for node in outlines.shared[position].nodes.iter().take(compared) {
                    let key = (surroundings.load(*node), *node);
                    if least_busy.is_none_or(|(known, _)| key < known) {
                        least_busy = Some((key, position));
                    }
                }
            }
        }
        let ((_, node), position) = least_busy?;
        Some((node, self.card[position]))
    }

    /// The same among given nodes.
    fn best_of<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeId>,
        outlines: &Outlines,
        surroundings: &Surroundings,
    ) -> Option<(NodeId, u16)> {
        let place = |id: &NodeId| Some((*id, outlines.of_node(*id)?));
        let nodes = nodes.filter_map(place).filter(|(_, position)| self.badness[*position] != NOWHERE);
        let best = nodes.min_by_key(|(id, position)| (self.badness[*position], surroundings.load(*id), *id));
        best.map(|(id, position)| (id, self.card[position]))
    }
}

impl Index {
    /// Puts new prices into force: every column will be computed anew.
    pub(crate) fn reprice(&mut self, prices: Prices) {
        self.columns.prices = Arc::new(prices);
        self.outlines.reprice();
    }

    /// Looks again at the nodes that have changed since their outlines were asked for.
    pub(crate) fn settle_outlines(&mut self) {
        self.outlines.settle(&self.nodes, &mut self.changes);
    }

    /// The card on which one virtual card costs least; for requests that take several whole cards, one of the node
    /// where they do.
    pub(crate) fn cheapest(&mut self, demand: &Demand) -> Option<CardId> {
        self.settle_outlines();
        let (Columns { prices, kept, judged }, Outlines { shared, changes, .. }) =
            (&mut self.columns, &mut self.outlines);
        if kept.len() >= (MOST_COSTS / shared.len().max(1)).min(MOST_COLUMNS) && !kept.contains_key(&demand.column) {
            kept.clear();
        }
        let column = kept.entry(Arc::clone(&demand.column)).or_default();
        if !changes.are_known_since(column.seen) {
            column.badness.fill(NOWHERE);
            column.least.fill(NOWHERE);
        }
        column.make_room(shared.len());
        let ask = Ask::new(demand, prices);
        for position in changes.take(&mut column.seen, shared.len()) {
            let shared = &mut shared[position];
            *judged += u64::from(!shared.nodes.is_empty());
            column.set(position, shared.place(prices, &ask));
        }
        let (node, card) = match self.carriers.of_rarest(&demand.node_labels) {
            None => column.best(&self.outlines, &self.surroundings)?,
            Some(carriers) => {
                // Of a single label they are known to carry it.
                let is_one = demand.node_labels.len() == 1;
                let accepted = carriers.iter().filter(|id| is_one || demand.accepts(&self.nodes[id.0 as usize]));
                column.best_of(accepted, &self.outlines, &self.surroundings)?
            }
        };
        self.nodes[node.0 as usize].cards.get(usize::from(card)).map(|card| card.id)
    }
}
