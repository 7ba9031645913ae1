//! Lists of nodes: `openb` and our own.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::table::{Row, Table};
use super::{CARD_LIMIT, TraceError, TraceNode};

/// A row of `openb_node_list_*.csv`.
#[derive(Deserialize)]
struct OpenbNode {
    sn: String,
    cpu_milli: u64,
    memory_mib: u64,
    gpu: u32,
    #[serde(default)]
    model: String,
}

/// A row of our own format.
#[derive(Deserialize)]
struct PlainNode {
    node: String,
    cards: u32,
    #[serde(default)]
    model: String,
    #[serde(default)]
    card_memory_mib: Option<u64>,
    cpu_milli: u64,
    memory_mib: u64,
}

/// Reads a list of nodes.
///
/// # Errors
/// [`TraceError`].
pub fn read_nodes(path: &Path) -> Result<Vec<TraceNode>, TraceError> {
    let mut table = Table::open(path)?;
    let (column, rows) = if table.has(&["sn", "cpu_milli", "memory_mib", "gpu"]) {
        ("sn", table.rows::<OpenbNode>()?.into_iter().map(|row| (row.line, openb(row))).collect::<Vec<_>>())
    } else if table.has(&["node", "cards", "cpu_milli", "memory_mib"]) {
        ("node", table.rows::<PlainNode>()?.into_iter().map(|row| (row.line, plain(row))).collect())
    } else {
        return Err(table.unknown("nodes", "`sn,cpu_milli,memory_mib,gpu` or `node,cards,cpu_milli,memory_mib`"));
    };
    let mut names = BTreeSet::new();
    for (line, node) in &rows {
        if node.name.is_empty() || !names.insert(&node.name) {
            return Err(table.wrong(*line, column, format!("{:?} is no new name; each node needs its own", node.name)));
        }
        if node.cards > CARD_LIMIT {
            let problem = format!("{} cards are too many; a node has at most {CARD_LIMIT}", node.cards);
            return Err(table.wrong(*line, if column == "sn" { "gpu" } else { "cards" }, problem));
        }
    }
    Ok(rows.into_iter().map(|(_, node)| node).collect())
}

fn openb(row: Row<OpenbNode>) -> TraceNode {
    let OpenbNode { sn, cpu_milli, memory_mib, gpu, model } = row.value;
    TraceNode { name: sn, cpu_milli, memory_mib, cards: gpu, model, card_memory_mib: None }
}

fn plain(row: Row<PlainNode>) -> TraceNode {
    let PlainNode { node, cards, model, card_memory_mib, cpu_milli, memory_mib } = row.value;
    TraceNode { name: node, cpu_milli, memory_mib, cards, model, card_memory_mib }
}
