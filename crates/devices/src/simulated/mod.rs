//! Simulated cards: declared by an inventory file, computing nothing, otherwise like real ones.
//!
//! Readings follow from what is granted and from the time given, so that two runs show the same. Cards are made
//! unhealthy by writing their indexes, in the order declared, into [`FAULTS_FILE`] in the node's data folder:
//! `unhealthy = [0, 2]`. The same file gives them errors: `errors = [{ card = 0, kind = "driver", count = 3 }]`.

pub mod inventory;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tessera_ledger::{CardDescription, CardHealth, Isolation, Mebibytes, MilliTflops, Owner, Precision, Ratings};

use crate::backend::{Backend, Hardware, HealthReport, HostUse, Probe, Sample, SliceSample};
use crate::caps::{Caps, MemoryControl, Migration, ShareControl, Suspension, TimeSlicing};
use crate::error::DeviceError;
use crate::host::HostRoot;
use crate::reading::ErrorKind;
use crate::slices::{Attach, GrantedSlice, Share, TorchDevice, WorkerSlices};
use inventory::DeclaredNode;

/// Name of the faults file in the node's data folder.
pub const FAULTS_FILE: &str = "faults.toml";
/// Variables by which frameworks find cards. A node whose cards are simulated must not let work slip onto real ones.
const HIDDEN: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
/// The driver that is reported.
const DRIVER: &str = "simulated";
/// Memory of a card that a driver takes before anyone uses it.
const DRIVER_MEMORY: Mebibytes = Mebibytes(300);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Faults {
    #[serde(default)]
    unhealthy: BTreeSet<u32>,
    #[serde(default)]
    errors: Vec<Errors>,
}

/// Errors that a card is to have had.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Errors {
    card: u32,
    kind: ErrorKind,
    count: u64,
}

/// The declared cards of one node.
#[derive(Debug)]
pub struct SimulatedBackend {
    node: DeclaredNode,
    cards: Vec<CardDescription>,
    faults: PathBuf,
    told: Faults,
    held: BTreeMap<Owner, WorkerSlices>,
    /// The time of the last readings, and the energy that each card had drawn by then, in joules.
    drawn: (Duration, Vec<f64>),
}

impl SimulatedBackend {
    /// The cards of a declared node.
    #[must_use]
    pub fn new(node: DeclaredNode, host: &HostRoot) -> Self {
        let faults = host.data_file(FAULTS_FILE);
        let cards = describe(&node);
        let drawn = (Duration::ZERO, vec![0.0; cards.len()]);
        Self { cards, node, faults, told: Faults::default(), held: BTreeMap::new(), drawn }
    }

    /// Returns whether the agent divides the time of a card.
    fn is_sliced(&self, index: u32) -> bool {
        let mut entries = self.node.cards.iter().flat_map(|card| (0..card.count).map(|_| card.time_slicing));
        entries.nth(index as usize) == Some(TimeSlicing::Freeze)
    }

    /// Share and memory granted on a card.
    fn granted(&self, index: u32) -> (Share, Mebibytes) {
        let slices = self.held.values().flat_map(|held| &held.slices).filter(|slice| slice.card_index == index);
        let (mut share, mut memory) = (0_u32, Mebibytes::ZERO);
        for slice in slices {
            share = share.saturating_add(slice.share.0);
            memory = memory.saturating_add(slice.memory);
        }
        (Share(share.min(Share::WHOLE.0)), memory)
    }
}

/// The cards of a node, in the order declared.
fn describe(node: &DeclaredNode) -> Vec<CardDescription> {
    let mut cards: Vec<CardDescription> = Vec::new();
    for declared in &node.cards {
        let first = cards.len();
        for _ in 0..declared.count {
            let index = u32::try_from(cards.len()).expect("the inventory bounds the number of cards");
            let peers = first..first + declared.count as usize;
            cards.push(CardDescription {
                index,
                kind: declared.kind,
                vendor: declared.vendor.clone(),
                model: declared.model.clone(),
                uuid: format!("sim-{}-{index}", node.name),
                memory: declared.memory,
                rated: declared.rated.clone(),
                measured: Ratings::new(),
                links: declared.links(index, peers),
                isolation: declared.isolation,
                simulated: true,
                pci_address: String::new(),
                max_slices: declared.max_slices,
                health: CardHealth::Healthy,
            });
        }
    }
    cards
}

impl Backend for SimulatedBackend {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn probe(&self) -> Probe {
        if self.cards.is_empty() {
            Probe::Absent(format!("node `{}` declares no card", self.node.name))
        } else {
            Probe::Present
        }
    }

    fn discover(&mut self) -> Result<Vec<CardDescription>, DeviceError> {
        Ok(self.cards.clone())
    }

    fn caps(&self, card: &CardDescription) -> Caps {
        let share = match card.isolation {
            _ if self.is_sliced(card.index) => ShareControl::Freeze { lends: true },
            Isolation::Shared => ShareControl::None,
            Isolation::Soft => ShareControl::TimeGate { step_thousandths: 10 },
            Isolation::Hard => ShareControl::Spatial { step_thousandths: 125 },
        };
        Caps {
            share,
            memory: if card.isolation == Isolation::Shared { MemoryControl::None } else { MemoryControl::Hard },
            suspension: vec![Suspension::Freeze, Suspension::Application],
            migration: Migration::Any,
            remote: false,
        }
    }

    fn calibrate(
        &mut self,
        _card: &CardDescription,
        _precision: Precision,
    ) -> Result<Option<MilliTflops>, DeviceError> {
        Ok(None)
    }

    fn sample(&mut self, since_start: Duration) -> Vec<Sample> {
        let since_last = since_start.saturating_sub(self.drawn.0).as_secs_f64();
        let readings = self.cards.iter().zip(&self.drawn.1).map(|(card, drawn)| {
            let (share, memory) = self.granted(card.index);
            let used = memory.saturating_add(DRIVER_MEMORY).min(card.memory);
            let utilization = f64::from(share.0) / 1000.0 * intensity(since_start, card.index);
            let watts = 60.0 + 340.0 * utilization;
            let own = self.told.errors.iter().filter(|errors| errors.card == card.index);
            Sample {
                card_index: card.index,
                utilization,
                memory_used_bytes: used.0 << 20,
                temperature_celsius: Some(30.0 + 45.0 * utilization),
                power_watts: Some(watts),
                energy_joules: Some(drawn + watts * since_last),
                errors: [(ErrorKind::EccCorrected, 0), (ErrorKind::EccUncorrected, 0), (ErrorKind::Driver, 0)]
                    .into_iter()
                    .chain(own.map(|errors| (errors.kind, errors.count)))
                    .collect(),
            }
        });
        let readings: Vec<Sample> = readings.collect();
        self.drawn = (since_start, readings.iter().filter_map(|sample| sample.energy_joules).collect());
        readings
    }

    fn hardware(&self, card: &CardDescription) -> Hardware {
        Hardware { serial: format!("{}-{:04}", self.node.name, card.index), driver: DRIVER.to_owned() }
    }

    /// Work computes as hard on what it holds as the card's readings say, and keeps all of its memory in use.
    fn slices(&mut self, owner: Owner, _host: HostUse, since_start: Duration) -> Vec<SliceSample> {
        let Some(held) = self.held.get(&owner) else { return Vec::new() };
        let mut cards: BTreeMap<u32, Mebibytes> = BTreeMap::new();
        for slice in &held.slices {
            let memory = cards.entry(slice.card_index).or_insert(Mebibytes::ZERO);
            *memory = memory.saturating_add(slice.memory);
        }
        let sample = |(card_index, memory): (u32, Mebibytes)| SliceSample {
            card_index,
            utilization: intensity(since_start, card_index),
            memory_used_bytes: memory.0 << 20,
        };
        cards.into_iter().map(sample).collect()
    }

    fn health(&mut self) -> Vec<HealthReport> {
        match fs::read_to_string(&self.faults) {
            Ok(text) => match toml::from_str::<Faults>(&text) {
                Ok(faults) => self.told = faults,
                Err(error) => {
                    tracing::warn!(path = %self.faults.display(), %error, "the faults file is not understood; it should read `unhealthy = [0, 2]`")
                }
            },
            Err(_) => self.told = Faults::default(),
        }
        let report = |card: &CardDescription| {
            let faulty = self.told.unhealthy.contains(&card.index);
            let reason =
                if faulty { format!("declared unhealthy in {}", self.faults.display()) } else { String::new() };
            let health = if faulty { CardHealth::Unhealthy } else { CardHealth::Healthy };
            HealthReport { card_index: card.index, health, reason }
        };
        self.cards.iter().map(report).collect()
    }

    fn hidden(&self) -> BTreeMap<String, String> {
        HIDDEN.iter().map(|name| ((*name).to_owned(), String::new())).collect()
    }

    fn prepare(&mut self, held: &WorkerSlices) -> Result<Attach, DeviceError> {
        let missing = held.slices.iter().find(|slice| slice.card_index as usize >= self.cards.len());
        if let Some(slice) = missing {
            return Err(DeviceError::NoSuchCard { index: slice.card_index, count: self.cards.len() });
        }
        self.held.insert(held.owner, held.clone());
        // A thread of the host computes for the card that is not there, for as much of the time as the slice is of it.
        let torch = |slice: &GrantedSlice| TorchDevice {
            name: "cpu".to_owned(),
            environment: BTreeMap::new(),
            // What the rounds of the agent hold, the server need not hold a second time.
            share: if self.is_sliced(slice.card_index) { Share::WHOLE } else { slice.share },
            part: slice.share,
            threads: 1,
            memory: slice.memory,
        };
        let torch = held.slices.iter().map(torch).collect();
        Ok(Attach { torch, ..Attach::default() })
    }

    fn release(&mut self, owner: Owner) {
        self.held.remove(&owner);
    }
}

/// The intensity at which granted work computes, between 0.85 and 0.99: it swings, differently on every card, with a
/// period of a minute.
fn intensity(since_start: Duration, index: u32) -> f64 {
    let turns = since_start.as_secs_f64() / 60.0 + f64::from(index) * 0.37;
    0.92 + 0.07 * (turns * std::f64::consts::TAU).sin()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
