//! The position of a card in its host, its driver, and whether it still answers: read from the files of the PCI bus.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use tessera_ledger::LinkKind;

use crate::host::{HostRoot, number_in};

/// The folder of the bus.
const BUS: &str = "/sys/bus/pci/devices";

/// The closeness of two cards; `None` where the host does not report it.
pub(super) fn closeness(host: &HostRoot, one: &str, other: &str) -> Option<LinkKind> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let [one, other] = [one, other].map(|address| folder(host, address));
    let [way, other_way] = [fs::canonicalize(&one).ok()?, fs::canonicalize(&other).ok()?];
    let shared = way.components().zip(other_way.components()).take_while(|(one, other)| one == other);
    // `pci0000:4a`, the root of a part of the bus, is nothing that they share; a bridge below it is.
    let bridges = shared.filter(|(step, _)| step.as_os_str().to_str().is_some_and(is_address)).count();
    let of = |card: &Path| number_in(&card.join("numa_node"));
    Some(match (bridges, of(&one), of(&other)) {
        (1.., ..) => LinkKind::PcieSwitch,
        (0, Some(one), Some(other)) if one == other => LinkKind::Numa,
        _ => LinkKind::Node,
    })
}

/// Name and version of what drives it; empty where the host does not tell.
pub(super) fn driver(host: &HostRoot, address: &str) -> String {
    if address.is_empty() {
        return String::new();
    }
    let Ok(driver) = fs::canonicalize(folder(host, address).join("driver")) else { return String::new() };
    let name = driver.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    match host.read(&format!("/sys/module/{name}/version")) {
        Ok(version) => format!("{name} {}", version.trim()),
        Err(_) => name,
    }
}

/// Returns whether the host lists a card at this address. Containers and virtual machines may list none.
pub(super) fn knows(host: &HostRoot, address: &str) -> bool {
    !address.is_empty() && folder(host, address).exists()
}

/// The reason why a card that the host listed before cannot be used; `None`: it answers on the bus.
pub(super) fn fault(host: &HostRoot, address: &str) -> Option<&'static str> {
    if !knows(host, address) {
        return Some("the card is not on the PCI bus any more");
    }
    // Whoever does not answer is read as ones. What more there is to read would take as many times as long.
    let mut first = [0; 4];
    let read = File::open(folder(host, address).join("config")).and_then(|mut config| config.read_exact(&mut first));
    let silent = read.is_ok() && first == [0xff; 4];
    silent.then_some("the card does not answer on the PCI bus: it needs a reset, or its host a restart")
}

fn folder(host: &HostRoot, address: &str) -> PathBuf {
    host.path(BUS).join(address)
}

/// Returns whether the name has the form `0000:4a:02.0`.
fn is_address(name: &str) -> bool {
    let mut parts = name.split([':', '.']);
    let lengths = [parts.next(), parts.next(), parts.next(), parts.next()].map(|part| part.map_or(0, str::len));
    lengths == [4, 2, 2, 1] && parts.next().is_none()
}
