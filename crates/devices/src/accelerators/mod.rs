//! The accelerators of this host that PyTorch computes on: GPUs of NVIDIA, AMD, Intel and Moore Threads, NPUs of Huawei
//! and Cambricon, by the same code.
//!
//! The interpreter that slice servers are run by is asked which cards it finds and what they compute (`python -m
//! tessera.devices`), once for each start of the host: an agent that starts again has workers to look after, and no
//! time for that. What was found is kept, so that a card is the same one and has the same number for as long as it is
//! there, and is missed when it is not. Their place in the host, their driver and whether they still answer are read
//! from the files of the host; readings there are of NVIDIA's cards, by the library of their driver.
//!
//! A slice server holds itself to its part of a card's time and memory; where the agent is told so, it lets the workers
//! on a card compute in turns instead. Programs that use such a card by themselves see no other than theirs, but nobody
//! holds them to a part of its memory: to the pool the cards are *shared*.

mod again;
mod ask;
mod bus;
mod claims;
mod known;
mod nvidia;

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::{CardDescription, CardHealth, Isolation, Link, Mebibytes, MilliTflops, Owner, Precision, Ratings};

use crate::backend::{Backend, Hardware, HealthReport, HostUse, Probe, Sample, SliceSample};
use crate::caps::{Caps, MemoryControl, Migration, ShareControl, Suspension, TimeSlicing};
use crate::error::DeviceError;
use crate::host::HostRoot;
use crate::node::to_index;
use crate::slices::{Attach, GrantedSlice, Share, TorchDevice, WorkerSlices};
use again::Missing;
pub use ask::Interpreter;
use claims::Claims;
use known::{Card, Known};
use nvidia::{Driver, Seen, Watch};

/// Memory that the driver and PyTorch take of a card for each process that computes on it (621 MiB were seen on an
/// H200).
const FOR_EACH_SERVER: Mebibytes = Mebibytes(640);
/// The part of a card's memory that is left for that: one of so many, and no less than some servers need.
const RESERVE_PART: u64 = 16;
const RESERVE_LEAST: Mebibytes = Mebibytes(2048);

/// The accelerators of a host.
#[derive(Debug)]
pub struct AcceleratorBackend {
    host: HostRoot,
    interpreter: Interpreter,
    slicing: TimeSlicing,
    driver: Driver,
    look_again: Duration,
    cards: Vec<Card>,
    missing: Missing,
    /// Readings of NVIDIA's cards; `None` where there is no such card.
    readings: Option<Watch>,
    claims: Claims,
}

impl AcceleratorBackend {
    /// A backend for the accelerators that an interpreter finds.
    #[must_use]
    pub fn new(host: HostRoot, interpreter: Interpreter, slicing: TimeSlicing) -> Self {
        Self {
            host,
            interpreter,
            slicing,
            driver: Driver::default(),
            look_again: again::EVERY,
            cards: Vec::new(),
            missing: Missing::default(),
            readings: None,
            claims: Claims::default(),
        }
    }

    fn describe(&self, index: usize, card: &Card) -> CardDescription {
        let peers = self.cards.iter().enumerate().filter(|(peer, _)| *peer != index);
        let link = |(peer, other): (usize, &Card)| {
            let kind = bus::closeness(&self.host, &card.found.pci_address, &other.found.pci_address)?;
            Some(Link { peer_index: to_index(peer), kind, megabytes_per_second: 0 })
        };
        let (memory, max_slices) = offered(Mebibytes(card.found.memory_bytes >> 20));
        CardDescription {
            index: to_index(index),
            kind: card.found.kind.into(),
            vendor: card.found.vendor.clone(),
            model: card.found.model.clone(),
            uuid: card.identity.clone(),
            memory,
            rated: Ratings::new(),
            measured: Ratings::new(),
            links: peers.filter_map(link).collect(),
            isolation: Isolation::Shared,
            simulated: false,
            pci_address: card.found.pci_address.clone(),
            max_slices,
            health: CardHealth::Healthy,
        }
    }

    fn seen(&self, card: &Card) -> Option<Seen> {
        self.readings.as_ref()?.seen(&card.identity)
    }

    /// The reason why a card cannot be used; `None`: no fault is known.
    fn fault(&self, card: &Card) -> Option<&'static str> {
        if self.missing.has(&card.identity) {
            return Some("PyTorch does not find it any more; where it was taken out, remove accelerators.json");
        }
        let on_bus = card.on_bus.then(|| bus::fault(&self.host, &card.found.pci_address)).flatten();
        on_bus.or_else(|| self.readings.as_ref()?.fault(&card.identity))
    }

    fn of(&self, index: u32) -> Result<&Card, DeviceError> {
        self.cards.get(index as usize).ok_or(DeviceError::NoSuchCard { index, count: self.cards.len() })
    }

    fn torch(&self, slice: &GrantedSlice) -> Result<TorchDevice, DeviceError> {
        let card = self.of(slice.card_index)?;
        Ok(TorchDevice {
            name: card.found.device.clone(),
            environment: card.found.environment.clone(),
            // A server whose agent gives it turns has all of the card in them.
            share: if self.slicing == TimeSlicing::Freeze { Share::WHOLE } else { slice.share },
            part: slice.share,
            threads: 0,
            memory: slice.memory,
        })
    }
}

impl Backend for AcceleratorBackend {
    fn name(&self) -> &'static str {
        "accelerators"
    }

    fn probe(&self) -> Probe {
        Probe::Present
    }

    fn discover(&mut self) -> Result<Vec<CardDescription>, DeviceError> {
        let mut known = Known::load(&self.host)?;
        let is_known = known.is_of(&self.host, &self.interpreter);
        let found = if is_known { Vec::new() } else { known.look(&self.host, &self.interpreter)? };
        let there = known.cards.iter().filter(|card| !card.is_missing);
        self.claims = Claims::take(&self.host, there.map(|card| &*card.identity))?;
        if !is_known {
            known.measure(&self.host, &self.interpreter, &found);
            known.store(&self.host)?;
        }
        self.missing = Missing::of(&known, &self.host, &self.interpreter, self.look_again);
        self.cards = known.cards;
        let of_nvidia: Vec<String> =
            self.cards.iter().filter(|card| card.found.is_known_to_nvml()).map(|card| card.identity.clone()).collect();
        self.readings = (!of_nvidia.is_empty()).then(|| Watch::start(self.driver.clone(), of_nvidia));
        Ok(self.cards.iter().enumerate().map(|(index, card)| self.describe(index, card)).collect())
    }

    fn caps(&self, _card: &CardDescription) -> Caps {
        Caps {
            share: match self.slicing {
                TimeSlicing::Freeze => ShareControl::Freeze { lends: false },
                TimeSlicing::Device => ShareControl::None,
            },
            memory: MemoryControl::None,
            suspension: vec![Suspension::Freeze, Suspension::Application],
            migration: Migration::Any,
            remote: false,
        }
    }

    fn calibrate(&mut self, card: &CardDescription, precision: Precision) -> Result<Option<MilliTflops>, DeviceError> {
        Ok(self.of(card.index)?.found.rate(precision))
    }

    fn sample(&mut self, _since_start: Duration) -> Vec<Sample> {
        let readings = self.cards.iter().enumerate().filter_map(|(index, card)| {
            let sample = self.seen(card)?.sample?;
            Some(Sample { card_index: to_index(index), ..sample })
        });
        readings.collect()
    }

    fn hardware(&self, card: &CardDescription) -> Hardware {
        let seen = self.of(card.index).ok().and_then(|card| self.seen(card)).unwrap_or_default();
        Hardware { serial: seen.serial, driver: bus::driver(&self.host, &card.pci_address) }
    }

    fn slices(&mut self, _owner: Owner, _host: HostUse, _since_start: Duration) -> Vec<SliceSample> {
        Vec::new()
    }

    fn health(&mut self) -> Vec<HealthReport> {
        let report = |(index, card): (usize, &Card)| {
            let fault = self.fault(card);
            let health = if fault.is_some() { CardHealth::Unhealthy } else { CardHealth::Healthy };
            HealthReport { card_index: to_index(index), health, reason: fault.unwrap_or_default().to_owned() }
        };
        self.cards.iter().enumerate().map(report).collect()
    }

    fn hidden(&self) -> BTreeMap<String, String> {
        self.cards.iter().flat_map(|card| card.found.hidden.clone()).collect()
    }

    fn prepare(&mut self, held: &WorkerSlices) -> Result<Attach, DeviceError> {
        let torch = held.slices.iter().map(|slice| self.torch(slice)).collect::<Result<Vec<_>, _>>()?;
        Ok(Attach { environment: visible(&torch), torch, ..Attach::default() })
    }

    fn release(&mut self, _owner: Owner) {}
}

/// Memory that a card offers, and how many slices at once, so that all of them can be held by servers.
fn offered(total: Mebibytes) -> (Mebibytes, u32) {
    let reserve = RESERVE_LEAST.max(Mebibytes(total.0 / RESERVE_PART)).min(Mebibytes(total.0 / 4));
    let slices = (reserve.0 / FOR_EACH_SERVER.0).max(1);
    (total.saturating_sub(reserve), u32::try_from(slices).unwrap_or(u32::MAX))
}

/// Variables with which a program sees these cards and no other.
fn visible(cards: &[TorchDevice]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, value) in cards.iter().flat_map(|card| &card.environment) {
        let named = all.entry(name.clone()).or_default();
        if !named.contains(&value.as_str()) {
            named.push(value);
        }
    }
    all.into_iter().map(|(name, values)| (name, values.join(","))).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
