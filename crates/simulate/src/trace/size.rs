//! Clusters that are made up: so many nodes of so many cards, for traces without a list of nodes.

use std::path::Path;

use super::{TraceError, TraceNode, read_nodes};

/// Processors and memory of a made-up host: more than its workers could ask for.
pub(crate) const HOST_CPU_MILLI: u64 = 1_000_000_000;
/// See [`HOST_CPU_MILLI`].
pub(crate) const HOST_MEMORY_MIB: u64 = 1 << 32;

/// Most nodes of a made-up cluster.
const NODE_LIMIT: u32 = 1_000_000;

/// Nodes that are all alike, whose hosts never bind anybody.
#[must_use]
pub fn made_up(nodes: u32, cards: u32, card_memory_mib: Option<u64>) -> Vec<TraceNode> {
    let node = |number| TraceNode {
        name: format!("node-{number}"),
        cpu_milli: HOST_CPU_MILLI,
        memory_mib: HOST_MEMORY_MIB,
        cards,
        model: "card".to_owned(),
        card_memory_mib,
    };
    (0..nodes).map(node).collect()
}

/// The nodes of a list in a file, or of a size such as `300x8` when there is no such file.
///
/// # Errors
/// [`TraceError`].
pub fn read_cluster(text: &Path) -> Result<Vec<TraceNode>, TraceError> {
    let size = text.to_str().and_then(|text| text.split_once('x'));
    let size = size.and_then(|(nodes, cards)| Some((nodes.parse().ok()?, cards.parse().ok()?)));
    match size.filter(|(nodes, cards)| (1..=NODE_LIMIT).contains(nodes) && *cards <= super::CARD_LIMIT) {
        Some((nodes, cards)) if !text.exists() => Ok(made_up(nodes, cards, None)),
        _ => read_nodes(text),
    }
}
