//! The results of turns, for metrics and for heartbeats to the leader.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost_types::Duration as WireDuration;
use tessera_api::v1 as wire;
use tessera_devices::ShareControl;

use super::rounds::Terms;
use crate::worker::WorkerId;

/// Rounds over which switches are averaged.
const NEWEST: usize = 16;

/// The time of a worker's turns, and the time for which it stood still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnTimes {
    /// Its turns together.
    pub ran: Duration,
    /// The turns of others.
    pub rested: Duration,
}

/// The results of the turns on one card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CardTurns {
    /// Rounds in which workers took turns.
    pub rounds: u64,
    /// The number of times that another worker was put on the card.
    pub switches: u64,
    /// Workers that take turns.
    pub workers: usize,
    /// The reason why workers take no turns; empty when they do.
    pub competing: String,
    /// Switches of the newest rounds.
    newest: VecDeque<u64>,
}

/// The division of a card's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Slicing {
    share: ShareControl,
    terms: Terms,
    turns: CardTurns,
}

impl Slicing {
    /// The results of turns, where some are taken.
    #[must_use]
    pub fn turns(&self) -> Option<&CardTurns> {
        matches!(self.share, ShareControl::Freeze { .. }).then_some(&self.turns)
    }

    /// As the leader is told.
    #[must_use]
    pub fn to_wire(&self) -> wire::TimeSlicing {
        let slicer = match self.share {
            ShareControl::None => wire::TimeSlicer::None,
            ShareControl::ControlGroup => wire::TimeSlicer::ControlGroup,
            ShareControl::TimeGate { .. } | ShareControl::Spatial { .. } => wire::TimeSlicer::Device,
            ShareControl::Freeze { .. } => wire::TimeSlicer::Freeze,
        };
        let Some(turns) = self.turns() else {
            return wire::TimeSlicing { slicer: slicer.into(), ..wire::TimeSlicing::default() };
        };
        wire::TimeSlicing {
            slicer: slicer.into(),
            round: WireDuration::try_from(self.terms.round).ok(),
            workers: u32::try_from(turns.workers).unwrap_or(u32::MAX),
            switches_per_round: turns.per_round(),
            competing: turns.competing.clone(),
        }
    }
}

impl CardTurns {
    #[allow(clippy::cast_precision_loss, reason = "a few switches in a few rounds")]
    fn per_round(&self) -> f64 {
        self.newest.iter().sum::<u64>() as f64 / self.newest.len().max(1) as f64
    }
}

#[derive(Debug, Default)]
struct Entries {
    cards: BTreeMap<u32, CardTurns>,
    workers: BTreeMap<WorkerId, (u32, TurnTimes)>,
}

/// The book of a node. Clones share it.
#[derive(Clone, Debug)]
pub struct TurnBook {
    terms: Terms,
    entries: Arc<Mutex<Entries>>,
}

impl TurnBook {
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self { terms, entries: Arc::default() }
    }

    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// A turn of `whose` is over, or a time of nobody, of all that sit at the card.
    pub fn turn(&self, card: u32, whose: Option<WorkerId>, all: impl Iterator<Item = WorkerId>, took: Duration) {
        let mut entries = self.entries();
        for worker in all {
            let (_, times) = entries.workers.entry(worker).or_insert((card, TurnTimes::default()));
            let counts = if whose == Some(worker) { &mut times.ran } else { &mut times.rested };
            *counts += took;
        }
    }

    /// A round is over.
    pub fn round(&self, card: u32, workers: usize, switches: u64) {
        let mut entries = self.entries();
        let turns = entries.cards.entry(card).or_default();
        turns.rounds += 1;
        turns.switches += switches;
        turns.newest.push_back(switches);
        turns.newest.drain(..turns.newest.len().saturating_sub(NEWEST));
        turns.workers = workers;
        turns.competing.clear();
    }

    /// Nobody has to stand still: there is nobody, or one who has the card alone for some time.
    pub fn alone(&self, card: u32, whose: Option<WorkerId>, time: Duration) {
        self.turn(card, whose, whose.into_iter(), time);
        let mut entries = self.entries();
        let turns = entries.cards.entry(card).or_default();
        (turns.workers, turns.competing) = (usize::from(whose.is_some()), String::new());
        turns.newest.clear();
    }

    /// Workers compete for a card.
    pub fn competes(&self, card: u32, why: String) {
        let mut entries = self.entries();
        let turns = entries.cards.entry(card).or_default();
        if turns.competing != why {
            tracing::warn!(card, why, "workers take no turns on a card, and compete for it");
        }
        (turns.workers, turns.competing) = (0, why);
        turns.newest.clear();
    }

    #[must_use]
    pub fn of_card(&self, card: u32, share: ShareControl) -> Slicing {
        let turns = self.entries().cards.get(&card).cloned().unwrap_or_default();
        Slicing { share, terms: self.terms, turns }
    }

    /// The turns of a worker, and on which card.
    #[must_use]
    pub fn of_worker(&self, worker: WorkerId) -> Option<(u32, TurnTimes)> {
        self.entries().workers.get(&worker).copied()
    }

    /// A worker is over.
    pub fn forget(&self, worker: WorkerId) {
        self.entries().workers.remove(&worker);
    }

    /// A panic elsewhere leaves it usable: it holds sums only.
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
