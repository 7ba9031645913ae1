//! Accelerators on the PCI bus, their drivers, and their makers' libraries.

use std::fs;
use std::path::Path;

use crate::doctor::facts::{Accelerator, DeviceFacts, Seen};

/// Makers: PCI id, and the libraries through which programs reach their cards.
const MAKERS: [(&str, &[&str]); 5] = [
    ("0x10de", &["libcuda.so.1"]),
    ("0x1002", &["libamdhip64.so", "libhsa-runtime64.so.1"]),
    ("0x19e5", &["libascendcl.so"]),
    ("0x8086", &["libze_loader.so.1"]),
    ("0x10ee", &["libxrt_core.so.2", "libxrt_coreutil.so.2"]),
];
/// Classes of devices: displays, 3D controllers, other displays, accelerators.
const CLASSES: [&str; 4] = ["0x0300", "0x0302", "0x0380", "0x1200"];
/// Folders of libraries.
const LIBRARIES: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/opt/rocm/lib",
    "/opt/xilinx/xrt/lib",
    "/usr/local/Ascend/ascend-toolkit/latest/lib64",
];

pub(super) fn look() -> Seen<DeviceFacts> {
    look_under(Path::new("/"))
}

fn look_under(root: &Path) -> Seen<DeviceFacts> {
    let bus = root.join("sys/bus/pci/devices");
    let entries = fs::read_dir(&bus).map_err(|error| format!("{}: {error}", bus.display()))?;
    let mut accelerators: Vec<Accelerator> =
        entries.flatten().filter_map(|entry| accelerator(root, &entry.path())).collect();
    accelerators.sort_by(|one, other| one.address.cmp(&other.address));
    Ok(DeviceFacts { accelerators })
}

fn accelerator(root: &Path, device: &Path) -> Option<Accelerator> {
    let read = |file: &str| fs::read_to_string(device.join(file)).map(|text| text.trim().to_owned()).ok();
    let (vendor, class) = (read("vendor")?, read("class")?);
    let (_, libraries) = MAKERS.iter().find(|(id, _)| *id == vendor)?;
    // Graphics that are part of a processor of Intel are displays, and no accelerators.
    let display = vendor == "0x8086" && class.starts_with("0x0300");
    if display || !CLASSES.iter().any(|known| class.starts_with(known)) {
        return None;
    }
    let driver = fs::read_link(device.join("driver")).ok();
    let there =
        |name: &&&str| LIBRARIES.iter().any(|folder| root.join(folder.trim_start_matches('/')).join(name).exists());
    Some(Accelerator {
        address: device.file_name()?.to_string_lossy().into_owned(),
        vendor,
        driver: driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
        library: libraries.iter().find(there).map(|name| (*name).to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerators_are_found_with_their_drivers_and_libraries() {
        let root = tempfile::tempdir().expect("a folder");
        let device = |address: &str, vendor: &str, class: &str| {
            let folder = root.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join("vendor"), format!("{vendor}\n")).expect("written");
            fs::write(folder.join("class"), format!("{class}\n")).expect("written");
            folder
        };
        let card = device("0000:01:00.0", "0x10de", "0x030200");
        std::os::unix::fs::symlink("../../../bus/pci/drivers/nvidia", card.join("driver")).expect("linked");
        device("0000:02:00.0", "0x1002", "0x120000");
        device("0000:03:00.0", "0x8086", "0x030000");
        device("0000:04:00.0", "0x10de", "0x020000");
        let libraries = root.path().join("usr/lib64");
        fs::create_dir_all(&libraries).expect("made");
        fs::write(libraries.join("libcuda.so.1"), "").expect("written");
        let found = look_under(root.path()).expect("a bus").accelerators;
        let shown: Vec<(&str, Option<&str>, Option<&str>)> =
            found.iter().map(|of| (of.address.as_str(), of.driver.as_deref(), of.library.as_deref())).collect();
        assert_eq!(shown, [("0000:01:00.0", Some("nvidia"), Some("libcuda.so.1")), ("0000:02:00.0", None, None)]);
    }
}
