//! The stock: the room that is free, as the solver of prices sees it.

use tessera_ledger::NodeId;

use crate::index::Index;
use crate::index::node::NodeEntry;
use crate::index::outline::Outline;

/// Most nodes that are looked at; of larger pools every n-th one, so that prices cost the same whatever the size of the pool.
const MOST_NODES: usize = 2048;

/// Weight of one node.
pub(crate) const ONE_NODE: i64 = 1 << 8;

/// How the nodes look that have something left, each look once, and how many nodes (in parts of [`ONE_NODE`]) have it. In the order in which the
/// first of them registered. As of the last time that the index took over changes.
pub(crate) fn stocks(index: &Index) -> Vec<(&Outline, i64)> {
    let mut stocks: Vec<(&Outline, i64)> = Vec::new();
    let mut known: Vec<Option<usize>> = vec![None; index.outlines.positions()];
    for (node, _) in sample(index) {
        let Some((id, outline)) = index.outlines.of_node(node).filter(|(_, outline)| !outline.groups.is_empty()) else {
            continue;
        };
        let position = *known[id.position()].get_or_insert(stocks.len());
        if position == stocks.len() {
            stocks.push((outline, 0));
        }
        stocks[position].1 += ONE_NODE;
    }
    stocks
}

/// Every n-th node with usable cards.
pub(crate) fn sample(index: &Index) -> impl Iterator<Item = (NodeId, &NodeEntry)> {
    let step = index.node_count().div_ceil(MOST_NODES).max(1);
    index.nodes().filter(|(_, node)| node.cards.iter().any(|card| card.usable)).step_by(step)
}
