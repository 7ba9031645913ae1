//! The stock: the room that is free, as the solver of prices sees it.

use std::collections::BTreeMap;

use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::class::ClassId;
use crate::index::node::{Host, NodeEntry};

/// Most nodes that are looked at; of larger pools every n-th one, so that prices cost the same whatever the size of the pool.
const MOST_NODES: usize = 2048;

/// Weight of one node.
pub(crate) const ONE_NODE: i64 = 1 << 8;

/// Nodes that have the same left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stock {
    /// What the host has left; `None`: not limited.
    pub(crate) host: Option<Host>,
    /// Cards that are partly used: class, blocks and MiB left.
    pub(crate) parts: Vec<(ClassId, u32, u64)>,
    /// Classes with empty cards, and how many.
    pub(crate) empty: Vec<(ClassId, usize)>,
}

/// What all nodes have left, and how many nodes (in parts of [`ONE_NODE`]) have each.
pub(crate) fn stocks(index: &Index) -> Vec<(Stock, i64)> {
    let mut counted: BTreeMap<Stock, i64> = BTreeMap::new();
    for node in sample(index) {
        let stock = stock_of(node);
        if !stock.parts.is_empty() || !stock.empty.is_empty() {
            *counted.entry(stock).or_default() += ONE_NODE;
        }
    }
    counted.into_iter().collect()
}

/// Every n-th node with usable cards.
pub(crate) fn sample(index: &Index) -> impl Iterator<Item = &NodeEntry> {
    let step = index.node_count().div_ceil(MOST_NODES).max(1);
    let usable = index.nodes().map(|(_, node)| node).filter(|node| node.cards.iter().any(|card| card.usable));
    usable.step_by(step)
}

fn stock_of(node: &NodeEntry) -> Stock {
    let mut stock = Stock { host: node.host, parts: Vec::new(), empty: Vec::new() };
    for card in &node.cards {
        if card.is_empty() {
            match stock.empty.iter_mut().find(|(class, _)| *class == card.class) {
                Some((_, count)) => *count += 1,
                None => stock.empty.push((card.class, 1)),
            }
        } else if card.offered() > 0 {
            stock.parts.push(part_of(card));
        }
    }
    stock.parts.sort_unstable();
    stock
}

fn part_of(card: &CardEntry) -> (ClassId, u32, u64) {
    (card.class, card.offered(), card.memory_free)
}
