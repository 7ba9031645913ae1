//! The file that tells a program what backs its virtual card: slices, block numbers, coordinates, weights (P6).
//!
//! It is true at every moment: when blocks are renumbered or a card is rated anew, the whole file is replaced in one
//! step and its version counts up. It lies in the agent's own folder, so that the worker can read and never replace it.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use tessera_api::v1 as wire;
use tessera_ledger::CardKind;

use super::environment::VCARD_FILE;
use super::folder::WorkerFolder;
use crate::durable;

/// The file's form; raised when a field changes its meaning.
const FORMAT: u32 = 1;

/// Writes the file of an order's virtual card into the worker's folder, if it would say anything new.
///
/// # Errors
/// What the file system says.
pub fn store(order: &wire::WorkerOrder, node: &str, folder: &WorkerFolder) -> io::Result<()> {
    let path = folder.file(VCARD_FILE);
    let mut file = VirtualCardFile::new(order, node);
    let before = match fs::read(&path) {
        // It was made ahead.
        Ok(bytes) if bytes.is_empty() => None,
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(bytes) = &before {
        // A file that nobody can read has no version to count from.
        file.version = serde_json::from_slice::<Versioned>(bytes).map_or(1, |known| known.version);
        if serde_json::to_vec_pretty(&file)? == *bytes {
            return Ok(());
        }
        file.version += 1;
    }
    let text = serde_json::to_vec_pretty(&file)?;
    match before {
        None => fs::write(&path, text),
        Some(_) => durable::replace_soon_like(&path, &text),
    }
}

/// The part of an earlier file that is read.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

#[derive(Debug, Serialize)]
pub struct VirtualCardFile<'a> {
    format: u32,
    version: u64,
    job: u64,
    attempt: u32,
    allocation: u64,
    epoch: u64,
    rank: u32,
    world_size: u32,
    /// Index of the virtual card within the gang, from 0.
    #[serde(rename = "member")]
    virtual_card: u32,
    node: &'a str,
    slices: Vec<SliceEntry<'a>>,
}

/// One slice. Its coordinate is (node, region, card): the region of a node holds its cards of one kind.
#[derive(Debug, Serialize)]
struct SliceEntry<'a> {
    node: &'a str,
    region: &'static str,
    card: u32,
    card_uuid: &'a str,
    vendor: &'a str,
    model: &'a str,
    first_block: u32,
    blocks: u32,
    first_block_number: u64,
    last_block_number: u64,
    memory_mib: u64,
    isolation: &'static str,
    rank: u32,
    weight: f64,
    local: bool,
}

impl<'a> VirtualCardFile<'a> {
    /// The virtual card of an order, seen from a node.
    #[must_use]
    pub fn new(order: &'a wire::WorkerOrder, node: &'a str) -> Self {
        let worker = order.worker.unwrap_or_default();
        Self {
            format: FORMAT,
            version: 1,
            job: order.job_id,
            attempt: order.attempt,
            allocation: worker.allocation_id,
            epoch: worker.epoch,
            rank: worker.rank,
            world_size: order.world_size,
            virtual_card: order.member,
            node,
            slices: order.slices.iter().filter_map(|placed| entry(placed, node)).collect(),
        }
    }
}

fn entry<'a>(placed: &'a wire::PlacedSlice, node: &str) -> Option<SliceEntry<'a>> {
    let slice = placed.slice.as_ref()?;
    Some(SliceEntry {
        node: &placed.node_name,
        region: kind_name(placed.kind()),
        card: slice.card_index,
        card_uuid: &placed.card_uuid,
        vendor: &placed.vendor,
        model: &placed.model,
        first_block: slice.start,
        blocks: slice.blocks,
        first_block_number: placed.first_block_number,
        last_block_number: (placed.first_block_number + u64::from(slice.blocks)).saturating_sub(1),
        memory_mib: slice.memory_mib,
        isolation: isolation_name(slice.isolation()),
        rank: placed.rank,
        weight: placed.weight,
        local: placed.node_name == node,
    })
}

const fn kind_name(kind: wire::CardKind) -> &'static str {
    match kind {
        wire::CardKind::Gpu => CardKind::Gpu.name(),
        wire::CardKind::Npu => CardKind::Npu.name(),
        wire::CardKind::Fpga => CardKind::Fpga.name(),
        wire::CardKind::Cpu => CardKind::Cpu.name(),
        wire::CardKind::Unspecified => "unknown",
    }
}

const fn isolation_name(isolation: wire::Isolation) -> &'static str {
    match isolation {
        wire::Isolation::Hard => "hard",
        wire::Isolation::Soft => "soft",
        wire::Isolation::Shared | wire::Isolation::Unspecified => "shared",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_when_it_would_say_something_new_and_its_version_counts_up() {
        use std::os::unix::fs::PermissionsExt;
        let data = tempfile::tempdir().expect("a temporary folder");
        let folder = WorkerFolder::at(data.path());
        let placed = |start| wire::PlacedSlice {
            slice: Some(wire::Slice { start, blocks: 4, ..Default::default() }),
            first_block_number: u64::from(start) + 1,
            ..Default::default()
        };
        let order = |start| wire::WorkerOrder { job_id: 5, slices: vec![placed(start)], ..Default::default() };
        let path = folder.file(VCARD_FILE);
        let stored = |start| -> serde_json::Value {
            store(&order(start), "node-0", &folder).expect("writable");
            serde_json::from_slice(&fs::read(&path).expect("there")).expect("whole")
        };
        assert_eq!(stored(6)["version"], 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("mine");
        assert_eq!(stored(6)["version"], 1, "nothing new");
        let renumbered = stored(0);
        assert_eq!((&renumbered["version"], &renumbered["slices"][0]["first_block_number"]), (&2.into(), &1.into()));
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "whoever could read it still can");
        fs::write(&path, "{").expect("mine");
        assert_eq!(stored(0)["version"], 2, "a damaged file is replaced");
    }

    #[test]
    fn blocks_are_named_by_their_pool_wide_numbers() {
        let slice = wire::Slice { node_id: 1, card_index: 2, start: 3, blocks: 12, memory_mib: 512, isolation: 2 };
        let placed = wire::PlacedSlice {
            slice: Some(slice),
            node_name: "node-0".to_owned(),
            kind: wire::CardKind::Fpga.into(),
            first_block_number: 39,
            weight: 0.24,
            ..Default::default()
        };
        let order = wire::WorkerOrder { job_id: 5, slices: vec![placed], ..Default::default() };
        let text = serde_json::to_value(VirtualCardFile::new(&order, "node-0")).expect("plain data");
        let entry = &text["slices"][0];
        assert_eq!((&entry["region"], &entry["card"], &entry["local"]), (&"fpga".into(), &2.into(), &true.into()));
        assert_eq!((&entry["first_block_number"], &entry["last_block_number"]), (&39.into(), &50.into()));
        assert_eq!(entry["isolation"], "soft");
    }
}
