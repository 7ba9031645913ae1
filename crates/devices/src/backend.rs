//! What every mechanism offers.

use std::time::Duration;

use tessera_ledger::{CardDescription, CardHealth, MilliTflops, Owner, Precision};

use crate::caps::Caps;
use crate::error::DeviceError;
use crate::grant::{Attach, Grant};

/// Whether a mechanism can work on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It can.
    Present,
    /// It cannot, and why.
    Absent(String),
}

/// One reading of one card. What cannot be read is absent, never a made-up number.
#[derive(Clone, Copy, Debug, PartialEq)]
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
}

/// Health of one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// Index of the card.
    pub card_index: u32,
    /// Whether it can be used.
    pub health: CardHealth,
    /// Why not, for people.
    pub reason: String,
}

/// One mechanism by which cards are found and used. Indexes are those of the backend's own list of cards, from 0.
pub trait Backend: Send {
    /// The mechanism's name.
    fn name(&self) -> &'static str;

    /// Whether it can work here.
    fn probe(&self) -> Probe;

    /// The cards, with their links and what the maker or the operator says of them.
    ///
    /// # Errors
    /// When the host cannot be read.
    fn discover(&mut self) -> Result<Vec<CardDescription>, DeviceError>;

    /// What can be done with a card.
    fn caps(&self, card: &CardDescription) -> Caps;

    /// Measures a card; `None` where there is nothing to measure in that precision. May compute for some 200 ms, or
    /// answer from what was measured before on the same hardware.
    ///
    /// # Errors
    /// When the benchmark cannot run.
    fn calibrate(&mut self, card: &CardDescription, precision: Precision) -> Result<Option<MilliTflops>, DeviceError>;

    /// Newest readings. `since_start` is the caller's time, counted from any fixed moment.
    fn sample(&mut self, since_start: Duration) -> Vec<Sample>;

    /// Health of every card.
    fn health(&mut self) -> Vec<HealthReport>;

    /// Prepares a worker's part of the cards. Called again for the same worker, the new grant replaces the old one.
    ///
    /// # Errors
    /// When a card does not exist.
    fn prepare(&mut self, grant: &Grant) -> Result<Attach, DeviceError>;

    /// Forgets a worker's grant.
    fn release(&mut self, owner: Owner);
}
