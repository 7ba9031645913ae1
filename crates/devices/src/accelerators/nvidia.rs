//! Readings of NVIDIA's cards, by the library of their driver (NVML).
//!
//! A driver in trouble may keep whoever asks it for as long as it likes. So a thread of its own asks, again and again,
//! and everybody else sees what it saw last. When it comes back from the driver no more, that is a fault of the cards.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::Utilization;
use nvml_wrapper::{Device, Nvml};

use crate::backend::Sample;
use crate::reading::ErrorKind;

/// The longest wait for the first look.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// The library, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// Its name for the loader of programs. Hosts that only run programs have no other name of it than this.
    pub(super) library: OsString,
    /// From one look to the next.
    pub(super) every: Duration,
    /// The age from which a look says nothing any more.
    pub(super) stale: Duration,
}

impl Default for Driver {
    fn default() -> Self {
        let library = OsString::from("libnvidia-ml.so.1");
        Self { library, every: Duration::from_secs(2), stale: Duration::from_secs(30) }
    }
}

/// The observations of one card.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Without its index.
    pub(super) sample: Option<Sample>,
    pub(super) serial: String,
    /// True if the driver has lost the card.
    lost: bool,
}

/// The last look.
#[derive(Debug, Default)]
struct Look {
    at: Option<Instant>,
    cards: BTreeMap<String, Seen>,
}

/// Looks at cards for as long as it is there.
#[derive(Debug)]
pub(super) struct Watch {
    last: Arc<Mutex<Look>>,
    stale: Duration,
}

impl Watch {
    /// Begins to look at the cards with these identities. Where there is no library, nothing is ever seen.
    pub(super) fn start(driver: Driver, cards: Vec<String>) -> Self {
        // A driver that never answers has not answered since now.
        let last = Arc::new(Mutex::new(Look { at: Some(Instant::now()), cards: BTreeMap::new() }));
        let (seen, stale, weak) = (sync_channel(1), driver.stale, Arc::downgrade(&last));
        let look = move || {
            if let Err(error) = watch(&driver, &cards, &weak, &seen.0) {
                tracing::warn!(library = ?driver.library, %error, "cards of NVIDIA have no readings here");
                if let Some(last) = weak.upgrade() {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Look::default();
                }
            }
        };
        match thread::Builder::new().name("nvml".to_owned()).spawn(look) {
            // Whoever waits longer would wait for a driver that does not answer.
            Ok(_) => drop(seen.1.recv_timeout(FIRST_LOOK)),
            Err(error) => tracing::warn!(%error, "cards of NVIDIA have no readings: no thread can be started"),
        }
        Self { last, stale }
    }

    /// The last observations of a card, unless they are older than the limit (`stale`).
    pub(super) fn seen(&self, card: &str) -> Option<Seen> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.at.filter(|at| at.elapsed() < self.stale).and_then(|_| last.cards.get(card).cloned())
    }

    /// The reason why a card cannot be used; `None`: no fault is known.
    pub(super) fn fault(&self, card: &str) -> Option<&'static str> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let at = last.at?;
        if at.elapsed() >= self.stale {
            return Some("its driver does not answer any more: its host needs a restart");
        }
        last.cards.get(card)?.lost.then_some("its driver has lost the card: it needs a reset, or its host a restart")
    }
}

/// Looks until nobody wants to know.
fn watch(driver: &Driver, cards: &[String], last: &Weak<Mutex<Look>>, seen: &SyncSender<()>) -> Result<(), NvmlError> {
    let library = Nvml::builder().lib_path(&driver.library).init()?;
    while let Some(last) = last.upgrade() {
        let cards = cards.iter().map(|card| (card.clone(), look(&library, card))).collect();
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Look { at: Some(Instant::now()), cards };
        drop(last);
        let _ = seen.try_send(());
        thread::sleep(driver.every);
    }
    Ok(())
}

fn look(library: &Nvml, card: &str) -> Seen {
    match library.device_by_uuid(card) {
        Ok(device) => {
            let load = device.utilization_rates();
            let lost = matches!(load, Err(NvmlError::GpuLost));
            let sample = load.ok().and_then(|load| sample(&device, load));
            Seen { sample, serial: device.serial().unwrap_or_default(), lost }
        }
        Err(error) => Seen { lost: matches!(error, NvmlError::GpuLost), ..Seen::default() },
    }
}

/// A card without load or memory has no reading; what else it does not tell is left out.
fn sample(device: &Device<'_>, load: Utilization) -> Option<Sample> {
    let errors =
        [(ErrorKind::EccCorrected, MemoryError::Corrected), (ErrorKind::EccUncorrected, MemoryError::Uncorrected)];
    let counted = |(kind, error)| Some((kind, device.total_ecc_errors(error, EccCounter::Aggregate).ok()?));
    Some(Sample {
        card_index: 0,
        utilization: f64::from(load.gpu) / 100.0,
        memory_used_bytes: device.memory_info().ok()?.used,
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
        power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
        energy_joules: device.total_energy_consumption().ok().map(|millijoules| millijoules as f64 / 1000.0),
        errors: errors.into_iter().filter_map(counted).collect(),
    })
}
