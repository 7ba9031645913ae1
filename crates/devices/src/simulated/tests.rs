//! Simulated cards behave like cards.

use std::fs;
use std::path::Path;

use tessera_ledger::{AllocationId, BlockCount, CardKind, Epoch, Rank};

use super::inventory::Inventory;
use super::*;
use crate::node::NodeDevices;
use crate::slices::{GrantedSlice, HostLimits};

const OWNER: Owner = Owner { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };

/// Node 3 of the reference pool (P8), its kinds in another order than that of the numbering.
const NODE: &str = r#"
[[node]]
name = "node-3"
card = [
  { kind = "fpga", vendor = "amd", model = "V80", count = 1, memory_gib = 32, tflops = { fp16 = 12 } },
  { kind = "gpu", vendor = "nvidia", model = "A30", count = 2, memory_gib = 24, tflops = { fp16 = 14 }, link = { kind = "fabric" } },
  { kind = "npu", vendor = "huawei", model = "310P", count = 1, memory_gib = 24, tflops = { fp16 = 15 } },
]
"#;

fn devices(data: &Path) -> NodeDevices {
    let file = data.join("pool.toml");
    fs::write(&file, NODE).expect("writable");
    NodeDevices::declared(&file, &HostRoot::new("node-3", data)).expect("declared")
}

fn held(slices: &[(u32, Share, Mebibytes)]) -> WorkerSlices {
    let slice = |(card_index, share, memory): &(u32, Share, Mebibytes)| GrantedSlice {
        card_index: *card_index,
        share: *share,
        memory: *memory,
    };
    WorkerSlices { owner: OWNER, slices: slices.iter().map(slice).collect(), elastic: false }
}

#[test]
fn cards_are_indexed_in_the_order_in_which_blocks_are_numbered() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let devices = devices(data.path());
    let kinds: Vec<CardKind> = devices.cards().iter().map(|card| card.kind).collect();
    assert_eq!(kinds, [CardKind::Gpu, CardKind::Gpu, CardKind::Npu, CardKind::Fpga]);
    assert!(devices.cards().iter().enumerate().all(|(place, card)| card.index as usize == place && card.simulated));
    assert_eq!(devices.cards()[0].links[0].peer_index, 1, "links follow the cards");
    let blocks: u32 =
        devices.cards().iter().map(|card| card.block_count(Precision::Fp16, MilliTflops::from_tflops(1)).0).sum();
    assert_eq!(blocks, 55);
    assert!(matches!(devices.caps(0).expect("a card").share, ShareControl::TimeGate { .. }));
    assert_eq!(devices.caps(9), None);
}

#[test]
fn readings_follow_what_is_held_and_nothing_else() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut devices = devices(data.path());
    let time = Duration::from_secs(7);
    assert!(devices.sample(time).iter().all(|sample| sample.utilization == 0.0));
    let half = Share::of(BlockCount(7), MilliTflops(1000), MilliTflops(14_000));
    devices.prepare(&held(&[(1, half, Mebibytes(1000)), (3, Share::WHOLE, Mebibytes(2000))])).expect("cards exist");
    let samples = devices.sample(time);
    assert_eq!(samples, devices.sample(time), "the same time, the same readings");
    assert!(samples[0].utilization == 0.0 && (0.4..0.5).contains(&samples[1].utilization));
    assert!((0.84..1.0).contains(&samples[3].utilization));
    assert_eq!(samples[1].memory_used_bytes, 1300 << 20);
    devices.release(OWNER);
    assert!(devices.sample(time).iter().all(|sample| sample.utilization == 0.0));
}

#[test]
fn work_uses_what_it_holds_and_the_card_draws_what_that_costs() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut devices = devices(data.path());
    let (begin, host) = (Duration::from_secs(7), HostUse::default());
    devices.sample(begin);
    assert_eq!(devices.slices(OWNER, host, begin), [], "it holds nothing");
    let half = Share(500);
    devices.prepare(&held(&[(3, half, Mebibytes(2000)), (1, half, Mebibytes(1000))])).expect("cards exist");
    let used = devices.slices(OWNER, host, begin);
    let cards: Vec<(u32, u64)> = used.iter().map(|slice| (slice.card_index, slice.memory_used_bytes >> 20)).collect();
    assert_eq!(cards, [(3, 2000), (1, 1000)], "by this node's own numbers");
    assert!(used.iter().all(|slice| (0.84..1.0).contains(&slice.utilization)), "of what it holds: {used:?}");
    let drawn =
        |samples: &[Sample]| samples.iter().map(|sample| sample.energy_joules.expect("told")).collect::<Vec<_>>();
    let (before, after) = (drawn(&devices.sample(begin)), drawn(&devices.sample(begin + Duration::from_secs(10))));
    assert!((after[0] - before[0] - 600.0).abs() < 1e-6, "a card at rest draws 60 W");
    assert!(after[3] - before[3] > 1_800.0, "one that computes draws more");
}

#[test]
fn errors_are_those_of_the_file_and_a_card_says_who_made_it() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut devices = devices(data.path());
    fs::write(data.path().join(FAULTS_FILE), "errors = [{ card = 0, kind = \"driver\", count = 3 }]\n")
        .expect("writable");
    assert_eq!(devices.changed_health(), [], "errors alone make no card unhealthy");
    let errors: Vec<u64> =
        devices.sample(Duration::ZERO).iter().map(|sample| sample.errors[&ErrorKind::Driver]).collect();
    assert_eq!(errors, [0, 0, 0, 3], "card 0 of the file is card 3 of the node");
    let hardware = devices.hardware(3).expect("a card");
    assert_eq!((hardware.serial.as_str(), hardware.driver.as_str()), ("node-3-0000", "simulated"));
    assert_eq!(devices.hardware(9), None);
}

#[test]
fn a_slice_hides_real_cards_and_limits_nothing_of_the_host() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut devices = devices(data.path());
    let attach = devices.prepare(&held(&[(0, Share::WHOLE, Mebibytes(1))])).expect("the card exists");
    assert_eq!(attach.environment["CUDA_VISIBLE_DEVICES"], "");
    assert_eq!(attach.limits, HostLimits::default());
    let error = devices.prepare(&held(&[(4, Share::WHOLE, Mebibytes(1))])).expect_err("no such card");
    assert_eq!(error.to_string(), "the node has no card 4; it has 4 cards");
}

#[test]
fn faults_come_and_go_with_their_file() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut devices = devices(data.path());
    assert_eq!(devices.changed_health(), []);
    let faults = data.path().join(FAULTS_FILE);
    // Indexes of the file are those of the declaration: 0 is the FPGA.
    fs::write(&faults, "unhealthy = [0]\n").expect("writable");
    let changed = devices.changed_health();
    assert_eq!((changed.len(), changed[0].card_index, changed[0].health), (1, 3, CardHealth::Unhealthy));
    assert!(changed[0].reason.contains("faults.toml"));
    assert_eq!(devices.changed_health(), [], "told once");
    fs::write(&faults, "unhealthy = nonsense").expect("writable");
    assert_eq!(devices.changed_health(), [], "a broken file changes nothing");
    fs::remove_file(&faults).expect("there");
    assert_eq!(devices.changed_health()[0].health, CardHealth::Healthy);
}

#[test]
fn a_node_that_is_not_declared_is_told_which_are() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let file = data.path().join("pool.toml");
    fs::write(&file, NODE).expect("writable");
    let error = NodeDevices::declared(&file, &HostRoot::new("node-9", data.path())).err().expect("unknown");
    assert!(error.to_string().contains("no node `node-9`; it declares: node-3"), "{error}");
    let inventory = Inventory::load(&data.path().join("absent.toml"));
    assert!(inventory.expect_err("absent").to_string().contains("cannot be read"));
}
