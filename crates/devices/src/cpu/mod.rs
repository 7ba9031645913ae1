//! The processors of the host as one card: the accelerator of last resort, and the only one that every machine has.
//!
//! Its rating is measured in 32-bit floating point. The 16-bit formats and TF32 are computed by processors in 32-bit
//! registers, so they are given the same rate. Shares are enforced by the CPU quota and memory limit of the worker's
//! control group. One card stands for the whole host, whatever its sockets.

mod benchmark;
mod rating;
mod readings;

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::{
    CardDescription, CardHealth, CardKind, Isolation, Mebibytes, MilliTflops, Owner, Precision, Ratings,
};

use crate::backend::{Backend, Hardware, HealthReport, HostUse, Probe, Sample, SliceSample};
use crate::caps::{Caps, MemoryControl, Migration, ShareControl, Suspension};
use crate::error::DeviceError;
use crate::host::{HostRoot, field};
use crate::slices::{Attach, GrantedSlice, HostLimits, Share, TorchDevice, WorkerSlices};
use readings::Readings;

/// Least memory that is left to the host itself.
const RESERVE_MIN: Mebibytes = Mebibytes(512);
/// Share of the host's memory that is left to the host itself: one part of so many.
const RESERVE_PART: u64 = 10;

/// The host's processors.
#[derive(Debug)]
pub struct CpuBackend {
    host: HostRoot,
    readings: Readings,
    cores: u64,
    /// The share of all processors that each worker holds.
    held: BTreeMap<Owner, Share>,
}

impl CpuBackend {
    /// The processors of a host.
    #[must_use]
    pub fn new(host: HostRoot) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Self { readings: Readings::new(host.clone()), host, cores, held: BTreeMap::new() }
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn probe(&self) -> Probe {
        match self.host.read("/proc/cpuinfo").and_then(|_| self.host.read("/proc/meminfo")) {
            Ok(_) => Probe::Present,
            Err(error) => Probe::Absent(error.to_string()),
        }
    }

    fn discover(&mut self) -> Result<Vec<CardDescription>, DeviceError> {
        let processor = Processor::of(&self.host)?;
        let machine = self.host.read("/etc/machine-id").unwrap_or_default();
        Ok(vec![CardDescription {
            index: 0,
            kind: CardKind::Cpu,
            vendor: processor.vendor,
            model: format!("{} ({} cores)", processor.model, self.cores),
            uuid: format!("cpu-{}-{}", self.host.node(), machine.trim().get(..8).unwrap_or("unknown")),
            memory: offered_memory(&self.host)?,
            rated: Ratings::new(),
            measured: Ratings::new(),
            links: Vec::new(),
            isolation: Isolation::Soft,
            simulated: false,
            pci_address: String::new(),
            max_slices: 0,
            health: CardHealth::Healthy,
        }])
    }

    fn caps(&self, _card: &CardDescription) -> Caps {
        Caps {
            share: ShareControl::ControlGroup,
            memory: MemoryControl::Hard,
            suspension: vec![Suspension::Freeze, Suspension::Application],
            migration: Migration::Any,
            remote: false,
        }
    }

    fn calibrate(&mut self, card: &CardDescription, precision: Precision) -> Result<Option<MilliTflops>, DeviceError> {
        match precision {
            Precision::Fp32 | Precision::Tf32 | Precision::Fp16 | Precision::Bf16 => {
                rating::measured_or_cached(&self.host, &card.model, self.cores).map(Some)
            }
            Precision::Fp8 | Precision::Int8 => Ok(None),
        }
    }

    fn sample(&mut self, _since_start: Duration) -> Vec<Sample> {
        self.readings.take().into_iter().collect()
    }

    fn hardware(&self, _card: &CardDescription) -> Hardware {
        let word = |path| self.host.read(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        // The kernel is what drives processors.
        Hardware { serial: word("/sys/class/dmi/id/product_serial"), driver: word("/proc/sys/kernel/osrelease") }
    }

    /// The use of this card by a worker: the use of the host by its processes.
    fn slices(&mut self, owner: Owner, host: HostUse, _since_start: Duration) -> Vec<SliceSample> {
        let Some(share) = self.held.get(&owner) else { return Vec::new() };
        let processors = f64::from(share.0) / 1000.0 * self.cores as f64;
        let utilization = if processors > 0.0 { host.processors / processors } else { 0.0 };
        vec![SliceSample { card_index: 0, utilization, memory_used_bytes: host.memory_bytes }]
    }

    fn health(&mut self) -> Vec<HealthReport> {
        // A host whose processors do not work has no agent that could say so.
        vec![HealthReport { card_index: 0, health: CardHealth::Healthy, reason: String::new() }]
    }

    fn prepare(&mut self, held: &WorkerSlices) -> Result<Attach, DeviceError> {
        let share = held.slices.iter().fold(0_u32, |sum, slice| sum.saturating_add(slice.share.0)).min(Share::WHOLE.0);
        let millicores = u64::from(share) * self.cores;
        let memory: Mebibytes = held.slices.iter().map(|slice| slice.memory).sum();
        self.held.insert(held.owner, Share(share));
        // Libraries start a thread per core of the machine otherwise, and are throttled most of the time.
        let threads = |share: Share| {
            let used = if held.elastic { Share::WHOLE } else { share };
            (u64::from(used.0) * self.cores).div_ceil(1000).max(1)
        };
        // The control group holds the share; a second gate would take off once more what it has taken already.
        let torch = |slice: &GrantedSlice| TorchDevice {
            name: "cpu".to_owned(),
            environment: BTreeMap::new(),
            share: Share::WHOLE,
            part: slice.share,
            threads: u32::try_from(threads(slice.share)).unwrap_or(u32::MAX),
            memory: slice.memory,
        };
        Ok(Attach {
            torch: held.slices.iter().map(torch).collect(),
            environment: BTreeMap::from([("OMP_NUM_THREADS".to_owned(), threads(Share(share)).to_string())]),
            limits: HostLimits {
                cpu_millicores: Some(millicores),
                cpu_elastic: held.elastic,
                memory: (memory > Mebibytes::ZERO).then_some(memory),
            },
            ..Attach::default()
        })
    }

    fn release(&mut self, owner: Owner) {
        self.held.remove(&owner);
    }
}

/// Maker and model of the processors.
struct Processor {
    vendor: String,
    model: String,
}

impl Processor {
    fn of(host: &HostRoot) -> Result<Self, DeviceError> {
        let text = host.read("/proc/cpuinfo")?;
        let value = |name: &str| {
            let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            Some(line.split_once(':')?.1.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let vendor = match value("vendor_id").as_deref() {
            Some("AuthenticAMD") => "AMD".to_owned(),
            Some("GenuineIntel") => "Intel".to_owned(),
            Some(other) => other.to_owned(),
            None => "unknown".to_owned(),
        };
        // Other architectures than x86 name no model.
        let model = value("model name").or_else(|| value("CPU part")).unwrap_or_else(|| "processor".to_owned());
        Ok(Self { vendor, model })
    }
}

/// The memory of the host without the reserve for its own needs.
fn offered_memory(host: &HostRoot) -> Result<Mebibytes, DeviceError> {
    let expected = || DeviceError::Unreadable { path: host.path("/proc/meminfo"), expected: "a line `MemTotal`" };
    let total = Mebibytes(field(&host.read("/proc/meminfo")?, "MemTotal").ok_or_else(expected)? / 1024);
    let reserve = RESERVE_MIN.max(Mebibytes(total.0 / RESERVE_PART));
    Ok(total.saturating_sub(reserve))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
