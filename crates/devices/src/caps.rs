//! What can be done with a card. Users see it, and the scheduler never promises what it lacks.

use serde::Deserialize;

/// How a share of a card's compute is enforced.
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
        /// Whether a worker that uses no processor time in its turn leaves it to others. Not where a program can wait
        /// for its card without using a processor.
        lends: bool,
    },
    /// In space: a part of the card's units, in steps of so many thousandths of the card.
    Spatial {
        /// Smallest step.
        step_thousandths: u32,
    },
}

/// Who divides the time of a card among the workers on it, as people say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeSlicing {
    /// The card, or whoever drives it.
    #[default]
    Device,
    /// The agent, which lets all workers but one stand still, in rounds.
    Freeze,
}

/// How a share of a card's memory is enforced.
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

/// How far a worker can be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Not at all.
    No,
    /// To the same model of card.
    SameModel,
    /// To any card, because the program carries its own state.
    Any,
}

/// What can be done with a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Enforcement of compute.
    pub share: ShareControl,
    /// Enforcement of memory.
    pub memory: MemoryControl,
    /// Ways to suspend, the cheapest first.
    pub suspension: Vec<Suspension>,
    /// How far a worker can be carried.
    pub migration: Migration,
    /// Whether work of another host can use it.
    pub remote: bool,
}
