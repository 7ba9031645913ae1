//! The interface that every mechanism implements.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::{CardDescription, CardHealth, MilliTflops, Owner, Precision};

use crate::caps::Caps;
use crate::error::DeviceError;
use crate::reading::ErrorKind;
use crate::slices::{Attach, WorkerSlices};

/// The availability of a mechanism on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It can.
    Present,
    /// It cannot, and why.
    Absent(String),
}

/// One reading of one card. What cannot be read is absent, never a made-up number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Index of the card.
    pub card_index: u32,
    /// Share of time it computed since the last reading, 0 to 1.
    pub utilization: f64,
    /// Memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// Degrees Celsius.
    pub temperature_celsius: Option<f64>,
    /// Watts.
    pub power_watts: Option<f64>,
    /// Joules that it has drawn; only grows, but for restarts.
    pub energy_joules: Option<f64>,
    /// Errors that it has had, of the kinds that its mechanism tells; only grow, but for restarts.
    pub errors: BTreeMap<ErrorKind, u64>,
}

/// Properties of a card that the ledger does not record: for whoever has to find the card in a rack, or its driver in a
/// list. Unknown properties are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The maker's serial number.
    pub serial: String,
    /// Version of the driver.
    pub driver: String,
}

/// The use of host resources by a worker's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostUse {
    /// Processors that they kept busy since the last reading; 1.5 are one and a half.
    pub processors: f64,
    /// Memory in bytes, without cached files that the kernel can drop.
    pub memory_bytes: u64,
}

/// One reading of a worker's slices on one card.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SliceSample {
    /// Index of the card.
    pub card_index: u32,
    /// Share of what it may compute there that it computed: 1 is all of it, and more where nothing holds it to that.
    pub utilization: f64,
    /// Memory in use, in bytes.
    pub memory_used_bytes: u64,
}

/// Health of one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// Index of the card.
    pub card_index: u32,
    /// The health of the card, which decides if it can be used.
    pub health: CardHealth,
    /// The reason for bad health, for people.
    pub reason: String,
}

/// One mechanism by which cards are found and used. Indexes are those of the backend's own list of cards, from 0.
pub trait Backend: Send {
    /// The mechanism's name.
    fn name(&self) -> &'static str;

    /// Returns whether the mechanism can work on this host.
    fn probe(&self) -> Probe;

    /// The cards, with their links and what the maker or the operator says of them.
    ///
    /// # Errors
    /// When the host cannot be read.
    fn discover(&mut self) -> Result<Vec<CardDescription>, DeviceError>;

    /// The capabilities of a card.
    fn caps(&self, card: &CardDescription) -> Caps;

    /// Measures a card; `None` where there is nothing to measure in that precision. May compute for some 200 ms, or
    /// answer from what was measured before on the same hardware.
    ///
    /// # Errors
    /// When the benchmark cannot run.
    fn calibrate(&mut self, card: &CardDescription, precision: Precision) -> Result<Option<MilliTflops>, DeviceError>;

    /// Newest readings. `since_start` is the caller's time, counted from any fixed moment.
    fn sample(&mut self, since_start: Duration) -> Vec<Sample>;

    /// Properties of a card beyond its description.
    fn hardware(&self, card: &CardDescription) -> Hardware;

    /// Readings of a worker's use of its slices, one for each card, where the mechanism can tell; `host` is the use of
    /// the host by the worker's processes.
    fn slices(&mut self, owner: Owner, host: HostUse, since_start: Duration) -> Vec<SliceSample>;

    /// Health of every card.
    fn health(&mut self) -> Vec<HealthReport>;

    /// Variables with which a program sees none of the accelerators of this host: every worker has them, but for those
    /// of its own cards.
    fn hidden(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Prepares a worker's part of the cards. Called again for the same worker, what it holds now replaces what
    /// it held.
    ///
    /// # Errors
    /// When a card does not exist.
    fn prepare(&mut self, held: &WorkerSlices) -> Result<Attach, DeviceError>;

    /// Forgets what a worker holds.
    fn release(&mut self, owner: Owner);
}
