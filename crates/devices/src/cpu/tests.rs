//! The host's processors, on this machine and on fixtures.

use std::fs;

use tempfile::TempDir;
use tessera_ledger::{AllocationId, Epoch, Rank};

use super::*;
use crate::node::NodeDevices;
use crate::reading::ErrorKind;
use crate::slices::GrantedSlice;

const OWNER: Owner = Owner { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };

fn fixture(files: &[(&str, &str)]) -> (TempDir, HostRoot) {
    let root = tempfile::tempdir().expect("a temporary folder");
    for (name, content) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        fs::write(path, content).expect("writable");
    }
    let host = HostRoot::with_root(root.path(), "node-a", root.path().join("data"));
    (root, host)
}

const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Example 9000\n\nprocessor\t: 1\n";
const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   4194304 kB\n";

#[test]
fn the_card_is_described_from_the_host_s_files() {
    let (_root, host) =
        fixture(&[("proc/cpuinfo", CPUINFO), ("proc/meminfo", MEMINFO), ("etc/machine-id", "0123456789abcdef\n")]);
    let mut backend = CpuBackend::new(host);
    assert_eq!(backend.probe(), Probe::Present);
    let cards = backend.discover().expect("readable");
    assert_eq!(cards.len(), 1);
    assert_eq!((cards[0].vendor.as_str(), cards[0].kind), ("Intel", CardKind::Cpu));
    assert!(cards[0].model.starts_with("Example 9000 ("));
    assert_eq!(cards[0].uuid, "cpu-node-a-01234567");
    assert_eq!(cards[0].memory, Mebibytes(16384 - 1638), "a tenth is left to the host");
}

#[test]
fn a_host_without_proc_offers_no_card_and_says_so() {
    let (_root, host) = fixture(&[]);
    assert!(matches!(CpuBackend::new(host.clone()).probe(), Probe::Absent(reason) if reason.contains("cpuinfo")));
    assert!(NodeDevices::local(host).expect("no card is no error").cards().is_empty());
}

#[test]
fn readings_cover_the_time_between_them() {
    let stat = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n";
    let (root, host) = fixture(&[
        ("proc/stat", stat),
        ("proc/meminfo", MEMINFO),
        ("sys/class/thermal/thermal_zone0/type", "acpitz\n"),
        ("sys/class/thermal/thermal_zone1/type", "x86_pkg_temp\n"),
        ("sys/class/thermal/thermal_zone1/temp", "45500\n"),
    ]);
    let mut backend = CpuBackend::new(host);
    let first = backend.sample(Duration::ZERO).remove(0);
    assert!((first.utilization - 0.2).abs() < 1e-9);
    assert_eq!(first.memory_used_bytes, 12 << 30);
    assert_eq!(first.temperature_celsius, Some(45.5));
    fs::write(root.path().join("proc/stat"), "cpu  190 0 100 710 100 0 0 0 0 0\n").expect("writable");
    assert!((backend.sample(Duration::ZERO)[0].utilization - 0.9).abs() < 1e-9);
    fs::write(root.path().join("proc/stat"), "nonsense").expect("writable");
    assert_eq!(backend.sample(Duration::ZERO), []);
}

#[test]
fn energy_goes_on_where_its_counter_begins_anew_and_errors_are_summed_over_controllers() {
    let package = "sys/class/powercap/intel-rapl:0";
    let (root, host) = fixture(&[
        ("proc/stat", "cpu  1 0 1 7 1 0 0 0 0 0\n"),
        ("proc/cpuinfo", CPUINFO),
        ("proc/meminfo", MEMINFO),
        ("sys/class/powercap/intel-rapl:0/energy_uj", "9000000\n"),
        ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "10000000\n"),
        ("sys/class/powercap/intel-rapl:0:0/energy_uj", "77\n"),
        ("sys/devices/system/edac/mc/mc0/ce_count", "3\n"),
        ("sys/devices/system/edac/mc/mc0/ue_count", "0\n"),
        ("sys/devices/system/edac/mc/mc1/ce_count", "4\n"),
        ("proc/sys/kernel/osrelease", "6.1.0-21\n"),
        ("sys/class/dmi/id/product_serial", "CZ1234\n"),
    ]);
    let mut backend = CpuBackend::new(host);
    let first = backend.sample(Duration::ZERO).remove(0);
    assert_eq!(first.energy_joules, Some(0.0));
    assert_eq!(first.errors, BTreeMap::from([(ErrorKind::EccCorrected, 7), (ErrorKind::EccUncorrected, 0)]));
    fs::write(root.path().join(package).join("energy_uj"), "500000").expect("writable");
    assert_eq!(backend.sample(Duration::ZERO)[0].energy_joules, Some(1.5));
    fs::remove_file(root.path().join(package).join("energy_uj")).expect("there");
    assert_eq!(backend.sample(Duration::ZERO)[0].energy_joules, None, "what is not told is absent");
    let card = backend.discover().expect("readable").remove(0);
    assert_eq!(backend.hardware(&card), Hardware { serial: "CZ1234".to_owned(), driver: "6.1.0-21".to_owned() });
}

#[test]
fn what_a_worker_does_on_the_host_is_what_it_does_on_its_share() {
    let (_root, host) = fixture(&[]);
    let mut backend = CpuBackend::new(host);
    backend.cores = 4;
    let used = HostUse { processors: 0.75, memory_bytes: 5 << 20 };
    assert_eq!(backend.slices(OWNER, used, Duration::ZERO), [], "it holds nothing");
    let slices = vec![GrantedSlice { card_index: 0, share: Share(375), memory: Mebibytes(100) }];
    backend.prepare(&WorkerSlices { owner: OWNER, slices, elastic: false }).expect("preparable");
    let read = backend.slices(OWNER, used, Duration::ZERO);
    assert_eq!(read, [SliceSample { card_index: 0, utilization: 0.5, memory_used_bytes: 5 << 20 }]);
    backend.release(OWNER);
    assert_eq!(backend.slices(OWNER, used, Duration::ZERO), []);
}

#[test]
fn a_share_becomes_a_quota_and_a_limit() {
    let (_root, host) = fixture(&[]);
    let mut backend = CpuBackend::new(host);
    backend.cores = 4;
    let slices = vec![GrantedSlice { card_index: 0, share: Share(375), memory: Mebibytes(100) }];
    let attach = backend.prepare(&WorkerSlices { owner: OWNER, slices, elastic: false }).expect("preparable");
    assert_eq!(
        attach.limits,
        HostLimits { cpu_millicores: Some(1500), cpu_elastic: false, memory: Some(Mebibytes(100)) }
    );
    assert_eq!(attach.environment["OMP_NUM_THREADS"], "2");
}

#[test]
fn this_machine_is_measured_once() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let host = HostRoot::new("node-a", data.path());
    let devices = NodeDevices::local(host.clone()).expect("measurable");
    let rate = devices.cards()[0].rate(Precision::Fp32).expect("measured");
    assert!(rate > MilliTflops::ZERO);
    assert_eq!(devices.cards()[0].rate(Precision::Fp16), Some(rate));
    let again = NodeDevices::local(host).expect("measurable");
    assert_eq!(again.cards(), devices.cards(), "the rating was kept");
    fs::write(data.path().join("cpu-rating.toml"), "broken [").expect("writable");
    assert!(NodeDevices::local(HostRoot::new("node-a", data.path())).is_ok(), "a broken file is measured anew");
}
