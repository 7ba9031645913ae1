//! Accelerators as an interpreter tells of them that answers what PyTorch answered on a host with two NVIDIA H200, and
//! as others would.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use tempfile::TempDir;
use tessera_ledger::{AllocationId, CardKind, Epoch, LinkKind, Rank};

use super::*;
use crate::node::NodeDevices;
use crate::slices::Share;

#[path = "readings_tests.rs"]
mod readings;

const OWNER: Owner = Owner { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };
const UUIDS: [&str; 2] = ["GPU-1d8e9d8a-4e4c-3b1f-5d0e-6f1c0a9b7e55", "GPU-77aa01c4-0b0f-9a6d-2c53-91e4f0d3b210"];

fn card(number: usize, tflops: &str) -> String {
    format!(
        r#"{{"device": "cuda:0", "environment": {{"CUDA_VISIBLE_DEVICES": "{uuid}"}},
            "hidden": {{"CUDA_VISIBLE_DEVICES": ""}}, "vendor": "NVIDIA", "kind": "gpu", "model": "H200",
            "uuid": "{uuid}", "memory_bytes": 150109880320,
            "pci_address": "0000:4{number}:00.0"{tflops}}}"#,
        uuid = UUIDS[number]
    )
    .replace('\n', " ")
}

const MEASURED: &str = r#", "tflops": {"fp32": 51.24, "tf32": 430.1, "fp16": 731.9, "bf16": 748.205}"#;

fn answer(cards: &[String]) -> String {
    format!(r#"{{"pytorch": "2.11.0+cu130", "cards": [{}]}}"#, cards.join(", "))
}

/// A file that is written and started while another thread forks is "busy": one writes and starts at a time.
static STARTING: Mutex<()> = Mutex::new(());

/// A host, and an interpreter that says what is in the file `plain`, or `measured` when it is asked to measure, and
/// writes down what it was asked.
struct Case {
    root: TempDir,
    host: HostRoot,
}

impl Case {
    fn new(script: &str) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let host = HostRoot::with_root(root.path(), "node-a", root.path().join("data"));
        let case = Self { root, host };
        case.write("python", &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(case.at("python"), fs::Permissions::from_mode(0o755)).expect("ours");
        case.starts();
        case
    }

    fn says(plain: &str, measured: &str) -> Self {
        let case = Self::new(
            "cd \"$ROOT\"; echo \"$*\" >>asked; echo a library says something first; \
             case \"$*\" in *--measure*) cat measured;; *) cat plain;; esac",
        );
        case.now_says(plain, measured);
        case
    }

    fn now_says(&self, plain: &str, measured: &str) {
        self.write("plain", plain);
        self.write("measured", measured);
    }

    fn two() -> Self {
        Self::says(&answer(&[card(0, ""), card(1, "")]), &answer(&[card(0, MEASURED), card(1, MEASURED)]))
    }

    /// The host starts again.
    fn starts(&self) {
        self.write("proc/sys/kernel/random/boot_id", &format!("{:?}\n", Instant::now()));
    }

    /// The arguments of each call of the interpreter, one line per call.
    fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.at("asked")).unwrap_or_default();
        asked.lines().map(|words| words.replace("-m tessera.devices --held", "").trim().to_owned()).collect()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn backend(&self, slicing: TimeSlicing) -> AcceleratorBackend {
        let environment = [("ROOT", self.root.path().display().to_string()), ("PATH", "/usr/bin:/bin".to_owned())];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
        let interpreter = Interpreter { python: self.root.path().join("python"), environment };
        AcceleratorBackend::new(self.host.clone(), interpreter, slicing)
    }

    fn node(&self) -> Result<NodeDevices, DeviceError> {
        self.node_with(TimeSlicing::Device)
    }

    fn node_with(&self, slicing: TimeSlicing) -> Result<NodeDevices, DeviceError> {
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        NodeDevices::of(vec![Box::new(self.backend(slicing))])
    }

    fn refused(&self) -> String {
        self.node().err().expect("it cannot be used").to_string()
    }

    /// Puts the cards under one bridge, or under one each.
    fn bus(&self, ways: [&str; 2]) {
        let devices = self.root.path().join("sys/bus/pci/devices");
        fs::create_dir_all(&devices).expect("writable");
        let driver = self.root.path().join("sys/bus/pci/drivers/nvidia");
        let module = self.root.path().join("sys/module/nvidia");
        fs::create_dir_all(&driver).expect("writable");
        fs::create_dir_all(&module).expect("writable");
        fs::write(module.join("version"), "580.95.05\n").expect("writable");
        for (number, way) in ways.into_iter().enumerate() {
            let address = format!("0000:4{number}:00.0");
            let card = self.root.path().join("sys/devices").join(way).join(&address);
            fs::create_dir_all(&card).expect("writable");
            fs::write(card.join("numa_node"), "0\n").expect("writable");
            fs::write(card.join("config"), [0xde, 0x10, 0x35, 0x23, 0x06]).expect("writable");
            symlink(&driver, card.join("driver")).expect("possible");
            symlink(&card, devices.join(address)).expect("possible");
        }
    }
}

/// Waits until something is so.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what} never was");
        thread::sleep(Duration::from_millis(5));
    }
}

fn held(cards: &[u32]) -> WorkerSlices {
    let slice = |card: &u32| GrantedSlice { card_index: *card, share: Share(250), memory: Mebibytes(4096) };
    WorkerSlices { owner: OWNER, slices: cards.iter().map(slice).collect(), elastic: false }
}

#[test]
fn cards_are_what_pytorch_says_and_compute_what_was_measured() {
    let node = Case::two().node().expect("two cards");
    let cards = node.cards();
    assert_eq!(cards.iter().map(|card| &*card.uuid).collect::<Vec<_>>(), UUIDS);
    let CardDescription { kind, vendor, model, memory, measured, simulated, isolation, pci_address, .. } = &cards[1];
    assert_eq!((*kind, &**vendor, &**model, *memory), (CardKind::Gpu, "NVIDIA", "H200", Mebibytes(143_155 - 8947)));
    assert_eq!((*simulated, *isolation, &**pci_address), (false, Isolation::Shared, "0000:41:00.0"));
    let rates = [(Precision::Fp32, 51_240), (Precision::Tf32, 430_100), (Precision::Fp16, 731_900)];
    let rates = rates.into_iter().chain([(Precision::Bf16, 748_205)]);
    assert_eq!(*measured, rates.map(|(precision, rate)| (precision, MilliTflops(rate))).collect());
}

#[test]
fn a_rate_that_no_card_has_is_left_out() {
    let says = |tflops: &str| {
        let case = Case::says(&answer(&[card(0, "")]), &answer(&[card(0, &MEASURED.replace("51.24", tflops))]));
        case.node().expect("a card").cards()[0].measured.get(&Precision::Fp32).copied()
    };
    assert_eq!(says("1000000"), Some(MilliTflops(1_000_000_000)));
    for none in ["1000000.1", "-1", "0"] {
        assert_eq!(says(none), None, "{none}");
    }
}

#[test]
fn an_agent_that_starts_again_waits_for_nobody() {
    let case = Case::two();
    let first = case.node().expect("two cards").cards().to_vec();
    assert_eq!(case.asked(), ["", "--measure 0 1"]);
    case.now_says("it would have said something else", "");
    assert_eq!(case.node().expect("the same").cards(), first);
    assert_eq!(case.asked().len(), 2);
    case.write("data/accelerators.json", "{ broken");
    let refused = case.refused();
    assert!(refused.contains("accelerators.json cannot be understood"), "no card is forgotten: {refused}");
}

#[test]
fn after_the_host_has_started_a_card_is_the_same_and_one_that_is_gone_is_missed() {
    let case = Case::two();
    let first = case.node().expect("two cards").cards().to_vec();
    case.starts();
    let other = card(1, "").replace(UUIDS[1], "GPU-new").replace("0000:41", "0000:42");
    let said = answer(&[other.clone(), card(1, "")]);
    case.now_says(&said, &said);
    let mut node = case.node().expect("three cards are known");
    assert_eq!(node.cards()[..2], first[..], "numbers, identities and rates stay");
    assert_eq!(node.cards()[2].uuid, "GPU-new");
    assert_eq!(case.asked().last().expect("it was"), "--measure 0", "the others were measured");
    assert_eq!(node.cards()[2].measured, Ratings::new(), "an answer without a rate is none");
    let changed = node.changed_health();
    assert_eq!(changed.iter().map(|report| report.card_index).collect::<Vec<_>>(), [0]);
    assert!(changed[0].reason.contains("does not find it any more"), "{}", changed[0].reason);
    // What could not be measured is tried again when the host starts, and no card is lost by then.
    drop(node);
    case.starts();
    let measured = other.replacen("0000:42:00.0\"", &format!("0000:42:00.0\"{MEASURED}"), 1);
    case.now_says(&answer(&[other, card(0, ""), card(1, "")]), &answer(&[measured, card(0, ""), card(1, "")]));
    let mut node = case.node().expect("three cards");
    assert_eq!(node.cards()[2].measured[&Precision::Fp32], MilliTflops(51_240));
    assert_eq!(node.changed_health(), []);
}

#[test]
fn a_card_that_comes_back_is_found_without_the_agent_s_restart() {
    let case = Case::two();
    drop(case.node().expect("two cards"));
    case.starts();
    case.write("plain", "the driver is not loaded yet");
    let look_again = Duration::from_millis(5);
    let backend = AcceleratorBackend { look_again, ..case.backend(TimeSlicing::Device) };
    let mut node = NodeDevices::of(vec![Box::new(backend)]).expect("what it had is known");
    assert_eq!(node.cards().iter().map(|card| &*card.uuid).collect::<Vec<_>>(), UUIDS);
    assert_eq!(node.changed_health().len(), 2, "nothing is offered of what is not there");
    case.write("plain", &answer(&[card(0, ""), card(1, "")]));
    let mut back = Vec::new();
    wait("both cards back", || {
        back.extend(node.changed_health().into_iter().map(|report| report.health));
        back.len() == 2
    });
    assert_eq!(back, [CardHealth::Healthy; 2]);
}

#[test]
fn another_card_in_the_place_of_one_is_measured() {
    let npu = |model: &str, tflops: &str| {
        format!(
            r#"{{"device": "npu:0", "environment": {{"ASCEND_RT_VISIBLE_DEVICES": "0"}}, "hidden": {{}},
               "vendor": "Huawei", "kind": "npu", "model": "{model}", "uuid": "", "memory_bytes": 68719476736,
               "pci_address": "0000:41:00.0"{tflops}}}"#
        )
        .replace('\n', " ")
    };
    let says = |model| (answer(&[npu(model, "")]), answer(&[npu(model, MEASURED)]));
    let (plain, measured) = says("Ascend910B3");
    let case = Case::says(&plain, &measured);
    drop(case.node().expect("a card"));
    case.starts();
    let (plain, measured) = says("Ascend910B4");
    case.now_says(&plain, &measured.replace("51.24", "40.0"));
    let node = case.node().expect("another card");
    assert_eq!(
        (&*node.cards()[0].model, node.cards()[0].measured[&Precision::Fp32]),
        ("Ascend910B4", MilliTflops(40_000))
    );
}

#[test]
fn two_agents_of_a_host_do_not_offer_the_same_cards() {
    let case = Case::two();
    let first = case.node().expect("two cards");
    let refused = case.refused();
    assert!(refused.contains(UUIDS[0]) && refused.contains("run/tessera-cards"), "{refused}");
    drop(first);
    assert_eq!(case.node().expect("they are free").cards().len(), 2);
}

#[test]
fn some_memory_is_left_for_servers_and_there_are_no_more_of_them_than_that() {
    let of = |gib: u64| offered(Mebibytes(gib * 1024));
    assert_eq!(of(140), (Mebibytes(134_400), 14));
    assert_eq!(of(80), (Mebibytes(76_800), 8));
    assert_eq!(of(16), (Mebibytes(14_336), 3));
    assert_eq!(of(2), (Mebibytes(1536), 1));
}

#[test]
fn a_card_is_divided_by_its_agent_or_by_the_servers_of_its_slices() {
    let divided = |slicing| {
        let mut node = Case::two().node_with(slicing).expect("two cards");
        let attach = node.prepare(&held(&[0])).expect("it is there");
        (node.caps(0).expect("a card").share, attach.torch[0].share)
    };
    // A program may wait for such a card without using a processor: nobody's turn is taken for one that is not used.
    assert_eq!(divided(TimeSlicing::Freeze), (ShareControl::Freeze { lends: false }, Share::WHOLE));
    assert_eq!(divided(TimeSlicing::Device), (ShareControl::None, Share(250)));
}

#[test]
fn a_server_has_its_card_and_a_program_sees_those_of_its_worker() {
    let mut node = Case::two().node().expect("two cards");
    let attach = node.prepare(&held(&[1, 0, 1])).expect("they are there");
    let seen = |device: &TorchDevice| device.environment["CUDA_VISIBLE_DEVICES"].clone();
    assert_eq!(attach.torch.iter().map(seen).collect::<Vec<_>>(), [UUIDS[1], UUIDS[0], UUIDS[1]]);
    let TorchDevice { name, share, part, threads, memory, .. } = &attach.torch[0];
    assert_eq!((&**name, *share, *part, *threads), ("cuda:0", Share(250), Share(250), 0));
    assert_eq!(*memory, Mebibytes(4096));
    assert_eq!(attach.environment["CUDA_VISIBLE_DEVICES"], format!("{},{}", UUIDS[1], UUIDS[0]));
    let without = node.prepare(&held(&[])).expect("nothing is needed for nothing");
    assert_eq!(without.environment["CUDA_VISIBLE_DEVICES"], "", "whoever holds no card sees none");
    assert!(matches!(node.prepare(&held(&[2])), Err(DeviceError::NoSuchCard { index: 2, count: 2 })));
}

#[test]
fn cards_under_one_bridge_are_near_to_each_other() {
    let links = |ways| {
        let case = Case::two();
        case.bus(ways);
        let node = case.node().expect("two cards");
        node.cards().iter().flat_map(|card| card.links.clone()).map(|link| link.kind).collect::<Vec<_>>()
    };
    let under_one = ["pci0000:4a/0000:4a:02.0/0000:4b:00.0", "pci0000:4a/0000:4a:02.0/0000:4b:01.0"];
    assert_eq!(links(under_one), [LinkKind::PcieSwitch; 2]);
    assert_eq!(links(["pci0000:4a/0000:4a:02.0", "pci0000:4a/0000:4a:03.0"]), [LinkKind::Numa; 2]);
    assert!(Case::two().node().expect("two cards").cards().iter().all(|card| card.links.is_empty()), "nobody tells");
}

#[test]
fn a_card_that_leaves_the_bus_or_falls_silent_is_unhealthy() {
    let case = Case::two();
    case.bus(["pci0000:4a/0000:4a:02.0", "pci0000:4a/0000:4a:03.0"]);
    let mut node = case.node().expect("two cards");
    assert_eq!(node.hardware(0).expect("there").driver, "nvidia 580.95.05");
    assert_eq!(node.changed_health(), []);
    let devices = case.root.path().join("sys/bus/pci/devices");
    fs::write(devices.join("0000:40:00.0/config"), [0xff; 64]).expect("writable");
    fs::remove_file(devices.join("0000:41:00.0")).expect("there");
    let changed = node.changed_health();
    assert_eq!(changed.iter().map(|report| report.health).collect::<Vec<_>>(), [CardHealth::Unhealthy; 2]);
    assert!(changed[0].reason.contains("does not answer") && changed[1].reason.contains("not on the PCI bus"));
}

#[test]
fn a_card_without_an_identity_of_its_own_is_known_by_its_place() {
    let npu = r#"{"device": "npu:0", "environment": {"ASCEND_RT_VISIBLE_DEVICES": "4"}, "hidden": {},
        "vendor": "Huawei", "kind": "npu", "model": "Ascend910B3", "uuid": "", "memory_bytes": 65452113920,
        "pci_address": "", "tflops": {"fp32": 75.5, "fp16": 281.0, "bf16": 1e300, "tf32": -1.0}}"#
        .replace('\n', " ");
    let said = answer(std::slice::from_ref(&npu));
    let case = Case::says(&said, &said);
    let node = case.node().expect("a card");
    let card = &node.cards()[0];
    assert_eq!((&*card.uuid, card.kind), ("node-a-Huawei-4", CardKind::Npu));
    let rates = [(Precision::Fp32, MilliTflops(75_500)), (Precision::Fp16, MilliTflops(281_000))];
    assert_eq!(card.measured, rates.into(), "no card computes the others");
    let twice = answer(&[npu.clone(), npu]);
    assert!(Case::says(&twice, &twice).refused().contains("two cards are both `node-a-Huawei-4`"));
}

#[test]
fn an_interpreter_that_cannot_answer_is_named_with_its_last_words() {
    let broken = Case::new("echo Traceback >&2; echo \"No module named 'tessera'\" >&2; exit 1").refused();
    assert!(broken.contains("/python") && broken.contains("No module named 'tessera'"), "{broken}");
    assert!(Case::new("echo hello").refused().contains("expected value"));
    assert!(Case::new("exit 3").refused().contains("exit status: 3"));
    let none = Case::new("yes | head -c 300000 >&2; echo '{\"cards\": []}'").refused();
    assert!(none.contains("finds no accelerator"), "{none}");
    let left_behind = Case::new("sleep 5 & echo '{\"cards\": []}'; exit 7");
    assert!(left_behind.refused().contains("exit status: 7"), "whoever keeps its pipes is not waited for");
}
