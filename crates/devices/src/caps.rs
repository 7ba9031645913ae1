//! The capabilities of a card. Users see them, and the scheduler never promises one that the card lacks.

use serde::Deserialize;

/// The enforcement of a share of a card's compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareControl {
    /// Not at all: tenants compete.
    None,
    /// In time, by the control groups of the workers.
    ControlGroup,
    /// In time, by whoever drives the card, in steps of so many thousandths of it.
    TimeGate {
        /// Smallest step.
        step_thousandths: u32,
    },
    /// In time, by nobody but the agent: it lets all workers but one stand still, in rounds.
    Freeze {
        /// True if a worker that uses no processor time in its turn yields it to others. False where a program can wait
        /// for its card without using a processor.
        lends: bool,
    },
    /// In space: a part of the card's units, in steps of so many thousandths of the card.
    Spatial {
        /// Smallest step.
        step_thousandths: u32,
    },
}

/// The party that divides the time of a card among the workers on it, as people write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeSlicing {
    /// The card, or whoever drives it.
    #[default]
    Device,
    /// The agent, which lets all workers but one stand still, in rounds.
    Freeze,
}

/// The enforcement of a share of a card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryControl {
    /// Not at all.
    None,
    /// Exceeding it fails or ends the worker.
    Hard,
}

/// A way to take compute away from a worker and give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Stopped in place; memory stays.
    Freeze,
    /// The whole state goes to disk.
    ToDisk,
    /// The program saves itself when it is told.
    Application,
}

/// The range of cards to which a worker can migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Not at all.
    No,
    /// To the same model of card.
    SameModel,
    /// To any card, because the program carries its own state.
    Any,
}

/// The capabilities of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Enforcement of compute.
    pub share: ShareControl,
    /// Enforcement of memory.
    pub memory: MemoryControl,
    /// Ways to suspend, the cheapest first.
    pub suspension: Vec<Suspension>,
    /// The range of cards to which a worker can migrate.
    pub migration: Migration,
    /// True if work of another host can use the card.
    pub remote: bool,
}
