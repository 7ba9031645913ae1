//! Utilisation, memory, temperature, energy and errors of the host.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::backend::Sample;
use crate::host::{HostRoot, field, number_in};
use crate::reading::ErrorKind;

/// Reads the host; utilisation is what happened since the last reading.
#[derive(Debug)]
pub struct Readings {
    host: HostRoot,
    last: Option<Ticks>,
    energy: Energy,
}

/// The energy that the packages of the processors have drawn since the first reading.
#[derive(Debug, Default)]
struct Energy {
    /// The last value of each counter, in microjoules; a counter begins anew at its end.
    shown: BTreeMap<PathBuf, u64>,
    microjoules: u64,
}

impl Energy {
    /// Joules; `None` where the host does not tell, or not to this user.
    fn read(&mut self, host: &HostRoot) -> Option<f64> {
        // `intel-rapl:0` is a package; `intel-rapl:0:1` is a part of it, and counted there. AMD's have the same name.
        let is_package = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix("intel-rapl:").is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let mut told = false;
        for package in host.folders("/sys/class/powercap").into_iter().filter(is_package) {
            let Some(now) = number_in(&package.join("energy_uj")) else { continue };
            told = true;
            let range = number_in(&package.join("max_energy_range_uj")).unwrap_or(0);
            let before = self.shown.insert(package, now).unwrap_or(now);
            let since = if now >= before { now - before } else { (now + range).saturating_sub(before) };
            self.microjoules = self.microjoules.saturating_add(since);
        }
        told.then(|| joules(self.microjoules))
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "2^53 microjoules are a kilowatt for a hundred days; readings need no more"
)]
fn joules(micro: u64) -> f64 {
    micro as f64 / 1e6
}

/// Clock ticks of all processors since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Readings {
    /// No reading yet.
    pub fn new(host: HostRoot) -> Self {
        Self { host, last: None, energy: Energy::default() }
    }

    /// A reading; `None` when the host cannot be read.
    pub fn take(&mut self) -> Option<Sample> {
        let now = ticks(&self.host.read("/proc/stat").ok()?)?;
        let last = self.last.replace(now).unwrap_or(Ticks { busy: 0, all: 0 });
        let memory = self.host.read("/proc/meminfo").ok()?;
        let used = field(&memory, "MemTotal")?.saturating_sub(field(&memory, "MemAvailable")?);
        Some(Sample {
            card_index: 0,
            utilization: ratio(now.busy.saturating_sub(last.busy), now.all.saturating_sub(last.all)),
            memory_used_bytes: used * 1024,
            temperature_celsius: self.temperature(),
            power_watts: None,
            energy_joules: self.energy.read(&self.host),
            errors: self.errors(),
        })
    }

    /// Errors of memory, as the kernel counts them; none where it does not.
    fn errors(&self) -> BTreeMap<ErrorKind, u64> {
        let controllers = self.host.folders("/sys/devices/system/edac/mc");
        let count = |file: &str| -> Option<u64> {
            controllers.iter().filter_map(|controller| number_in(&controller.join(file))).reduce(u64::saturating_add)
        };
        let kinds = [(ErrorKind::EccCorrected, count("ce_count")), (ErrorKind::EccUncorrected, count("ue_count"))];
        kinds.into_iter().filter_map(|(kind, count)| Some((kind, count?))).collect()
    }

    fn temperature(&self) -> Option<f64> {
        let zones = self.host.folders("/sys/class/thermal");
        let package = zones.into_iter().find(|zone| {
            std::fs::read_to_string(zone.join("type"))
                .is_ok_and(|kind| matches!(kind.trim(), "x86_pkg_temp" | "cpu-thermal"))
        })?;
        let thousandths = u32::try_from(number_in(&package.join("temp"))?).ok()?;
        Some(f64::from(thousandths) / 1000.0)
    }
}

/// The first line of `/proc/stat`: all processors together.
fn ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user time already.
    let all: u64 = fields.iter().take(8).sum();
    let idle = fields.get(3)? + fields.get(4).copied().unwrap_or(0);
    Some(Ticks { busy: all.saturating_sub(idle), all })
}

#[allow(clippy::cast_precision_loss, reason = "ticks stay far below 2^52")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).clamp(0.0, 1.0) }
}
