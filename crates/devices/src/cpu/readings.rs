//! Utilisation, memory and temperature of the host.

use crate::backend::Sample;
use crate::host::{HostRoot, field, number_in};

/// Reads the host; utilisation is what happened since the last reading.
#[derive(Debug)]
pub struct Readings {
    host: HostRoot,
    last: Option<Ticks>,
}

/// Clock ticks of all processors since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Readings {
    /// No reading yet.
    pub const fn new(host: HostRoot) -> Self {
        Self { host, last: None }
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
        })
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
