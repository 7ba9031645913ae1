//! The file that tells a program what backs its virtual card: slices, block numbers, coordinates, weights (P6).

use serde::Serialize;
use tessera_api::v1 as wire;
use tessera_ledger::CardKind;

/// Version of the file's form; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// A whole virtual card as its worker sees it.
#[derive(Debug, Serialize)]
pub struct VirtualCardFile<'a> {
    version: u32,
    job: u64,
    attempt: u32,
    allocation: u64,
    epoch: u64,
    rank: u32,
    world_size: u32,
    member: u32,
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
            version: VERSION,
            job: order.job_id,
            attempt: order.attempt,
            allocation: worker.allocation_id,
            epoch: worker.epoch,
            rank: worker.rank,
            world_size: order.world_size,
            member: order.member,
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
