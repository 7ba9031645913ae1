//! The slices that a worker holds of this node's cards, stored in its folder so that a later agent can register them
//! with the cards.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use tessera_devices::{GrantedSlice, Share, WorkerSlices};
use tessera_ledger::{Mebibytes, Owner};

use super::folder::WorkerFolder;

pub(super) const FILE: &str = "grant.json";

#[derive(Serialize, Deserialize)]
struct Entry {
    card_index: u32,
    share_thousandths: u32,
    memory_mib: u64,
    elastic: bool,
}

/// Writes what a worker holds into its folder.
///
/// # Errors
/// What the file system says.
pub fn store(held: &WorkerSlices, folder: &WorkerFolder) -> io::Result<()> {
    let entry = |slice: &GrantedSlice| Entry {
        card_index: slice.card_index,
        share_thousandths: slice.share.0,
        memory_mib: slice.memory.0,
        elastic: held.elastic,
    };
    let entries: Vec<Entry> = held.slices.iter().map(entry).collect();
    fs::write(folder.file(FILE), serde_json::to_vec(&entries)?)
}

/// Reads it back; `None` when it is not there or not understood.
#[must_use]
pub fn load(owner: Owner, folder: &WorkerFolder) -> Option<WorkerSlices> {
    let entries: Vec<Entry> = serde_json::from_slice(&fs::read(folder.file(FILE)).ok()?).ok()?;
    let slice = |entry: Entry| GrantedSlice {
        card_index: entry.card_index,
        share: Share(entry.share_thousandths),
        memory: Mebibytes(entry.memory_mib),
    };
    let elastic = entries.iter().any(|entry| entry.elastic);
    Some(WorkerSlices { owner, slices: entries.into_iter().map(slice).collect(), elastic })
}
