//! The stock: the room that is free, as the solver of prices sees it.

use std::collections::BTreeMap;

use tessera_ledger::NodeId;

use crate::index::Index;
use crate::index::node::{Host, NodeEntry};
use crate::index::outline::{Group, Outline};

/// Most nodes that are looked at; of larger pools every n-th one, so that prices cost the same whatever the size of
/// the pool.
const MOST_NODES: usize = 2048;

/// Nodes that have the same left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stock<'index> {
    /// How they look.
    pub(crate) outline: &'index Outline,
    /// The one that registered first.
    pub(crate) first: NodeId,
    /// How many.
    pub(crate) nodes: u64,
}

/// What nodes have left, as far as they have anything; in the order in which the first of those that look the same
/// registered. As of the last time that the index took over changes.
pub(crate) fn stocks(index: &Index) -> Vec<Stock<'_>> {
    let mut stocks: Vec<Stock<'_>> = Vec::new();
    let mut known: Vec<Option<usize>> = vec![None; index.outlines.positions()];
    for (first, _) in sample(index) {
        let Some((id, outline)) = index.outlines.of_node(first).filter(|(_, outline)| !outline.groups.is_empty())
        else {
            continue;
        };
        let position = *known[id.position()].get_or_insert(stocks.len());
        if position == stocks.len() {
            stocks.push(Stock { outline, first, nodes: 0 });
        }
        stocks[position].nodes += 1;
    }
    stocks
}

/// The same where labels make no difference: prices know of none, and do not depend on which ones were asked
/// for before.
pub(crate) fn stocks_without_labels(index: &Index) -> Vec<Stock<'_>> {
    let mut merged: Vec<Stock<'_>> = Vec::new();
    let mut known: BTreeMap<(Option<Host>, &[Group]), usize> = BTreeMap::new();
    for stock in stocks(index) {
        let position = *known.entry((stock.outline.host, &stock.outline.groups)).or_insert(merged.len());
        match merged.get_mut(position) {
            Some(like) => like.nodes += stock.nodes,
            None => merged.push(stock),
        }
    }
    merged
}

/// Every n-th node with usable cards.
pub(crate) fn sample(index: &Index) -> impl Iterator<Item = (NodeId, &NodeEntry)> {
    let step = index.node_count().div_ceil(MOST_NODES).max(1);
    index.nodes().filter(|(_, node)| node.cards.iter().any(|card| card.usable)).step_by(step)
}
