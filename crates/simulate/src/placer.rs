//! Placers of workers one by one: Tessera itself, or a policy from the literature on the plain model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tessera_ledger::JobId;
use tessera_placement::Limits;

use crate::engine::{Decided, Engine, EngineError, Placed, Scale};
use crate::plain::{Place, PlainCluster, Request};
use crate::policy::{Named, Policy};
use crate::trace::{Ask, TraceJob, TraceNode};

/// The answer to one arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Earlier arrivals, by their number, that were moved first, and where to.
    pub moves: Vec<(u64, Place)>,
    /// The place of the arrival; `None` when it was rejected.
    pub place: Option<Place>,
    /// Parts of plans that the ledger refused; more than none is a fault of placement.
    pub refused: u64,
    /// The time that the decision took, without what is done to carry it out.
    pub took: Duration,
}

/// A placer that could not go on: a fault of its own, never the trace's.
#[derive(Debug, thiserror::Error)]
#[error("arrival {arrival}: {problem}")]
pub struct PlacerError {
    pub arrival: u64,
    pub problem: String,
}

/// A placer that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// Tessera's own placement, on the real ledger.
    Tessera,
    /// A policy from the literature, on the plain model.
    Other(Named),
}

impl Choice {
    /// All, Tessera's own last.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Named::ALL.into_iter().map(Self::Other).chain([Self::Tessera]).collect()
    }

    /// Its name on the command line and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tessera => "tessera",
            Self::Other(named) => named.name(),
        }
    }

    /// The choice of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|choice| choice.name() == name)
    }

    /// A placer on an empty cluster.
    ///
    /// # Errors
    /// [`EngineError`] when the ledger refuses a node.
    pub fn placer(self, nodes: &[TraceNode], seed: u64, moves: Moves) -> Result<Box<dyn Placer>, EngineError> {
        Ok(match self {
            Self::Tessera => Box::new(TesseraPlacer::new(nodes, moves)?),
            Self::Other(named) => Box::new(PlainPlacer::new(nodes, named.make(seed))),
        })
    }
}

/// The permission to move earlier arrivals for later ones. Only Tessera moves; the policies of the literature do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moves {
    /// They may not.
    #[default]
    None,
    /// At most this many moves for each hundred arrivals.
    PerHundred(u64),
}

/// Most moves for one arrival; placement looks for no more.
const MOVES_AT_ONCE: u32 = 2;

impl Moves {
    /// The number of moves that may be made now.
    fn left(self, arrivals: u64, made: u64) -> u32 {
        let Self::PerHundred(rate) = self else { return 0 };
        let left = (arrivals * rate / 100).saturating_sub(made);
        u32::try_from(left).unwrap_or(MOVES_AT_ONCE).min(MOVES_AT_ONCE)
    }
}

/// Places workers one by one, without knowing what comes next.
pub trait Placer {
    /// A shape of work that was seen in the past, and how often.
    fn expect(&mut self, shape: &Ask, weight: u64);

    /// One worker arrives; numbers grow.
    ///
    /// # Errors
    /// [`PlacerError`] when the placer contradicts itself.
    fn arrive(&mut self, number: u64, ask: &Ask) -> Result<Answer, PlacerError>;
}

/// A policy with its own plain model of the cluster.
pub struct PlainPlacer {
    cluster: PlainCluster,
    policy: Box<dyn Policy>,
}

impl PlainPlacer {
    #[must_use]
    pub fn new(nodes: &[TraceNode], policy: Box<dyn Policy>) -> Self {
        Self { cluster: PlainCluster::new(nodes), policy }
    }

    fn request(&self, ask: &Ask) -> Request {
        self.cluster.request(ask)
    }
}

impl Placer for PlainPlacer {
    fn expect(&mut self, shape: &Ask, weight: u64) {
        self.policy.expect(self.request(shape), weight);
    }

    fn arrive(&mut self, number: u64, ask: &Ask) -> Result<Answer, PlacerError> {
        let request = self.request(ask);
        let began = Instant::now();
        let place = self.policy.choose(&self.cluster, &request);
        let took = began.elapsed();
        if let Some(place) = &place {
            let taken = self.cluster.take(&request, place);
            taken.map_err(|error| PlacerError { arrival: number, problem: error.to_string() })?;
        }
        Ok(Answer { place, took, ..Answer::default() })
    }
}

/// Tessera's own placement: each arrival is a job that is submitted, decided about once, and taken back if it was
/// not granted.
pub struct TesseraPlacer {
    engine: Engine,
    numbers: BTreeMap<JobId, u64>,
    moves: Moves,
    arrived: u64,
    moved: u64,
    /// Requests for which no moves could make room. Nothing departs while arrivals are answered, so that none will
    /// later.
    hopeless: BTreeSet<Ask>,
}

impl TesseraPlacer {
    /// An empty pool.
    ///
    /// # Errors
    /// [`EngineError`] when the ledger refuses a node.
    pub fn new(nodes: &[TraceNode], moves: Moves) -> Result<Self, EngineError> {
        let engine = Engine::new(nodes, &[], Scale::default(), Limits::default())?;
        Ok(Self { engine, numbers: BTreeMap::new(), moves, arrived: 0, moved: 0, hopeless: BTreeSet::new() })
    }

    /// Decides about an arrival, if need be once more after others were moved for it; takes it back when it does
    /// not fit.
    fn decide(&mut self, job: JobId, ask: &Ask) -> Result<Answer, EngineError> {
        let mut answer = Answer::default();
        self.try_to_place(job, &mut answer)?;
        let budget = self.moves.left(self.arrived, self.moved);
        if answer.place.is_none() && budget > 0 && !self.hopeless.contains(ask) {
            let began = Instant::now();
            let moved = self.engine.make_room(job, budget)?;
            answer.took += began.elapsed();
            let any = !moved.is_empty();
            self.note_moves(moved, &mut answer);
            if any {
                self.try_to_place(job, &mut answer)?;
            } else if budget == MOVES_AT_ONCE {
                self.hopeless.insert(ask.clone());
            }
        }
        if answer.place.is_none() {
            self.engine.cancel(job)?;
        }
        Ok(answer)
    }

    fn try_to_place(&mut self, job: JobId, answer: &mut Answer) -> Result<(), EngineError> {
        loop {
            let Decided { placed, moved, refused, more, took, .. } = self.engine.decide()?;
            answer.took += took;
            answer.refused += refused.len() as u64;
            self.note_moves(moved, answer);
            let found = placed.into_iter().find(|one| one.job == job);
            answer.place = found.and_then(|one| one.places.into_iter().next());
            if answer.place.is_some() || !more {
                return Ok(());
            }
        }
    }

    fn note_moves(&mut self, moved: Vec<Placed>, answer: &mut Answer) {
        for movement in moved {
            let number = self.numbers.get(&movement.job).copied().unwrap_or_default();
            self.moved += 1;
            answer.moves.extend(movement.places.into_iter().map(|place| (number, place)));
        }
    }
}

impl Placer for TesseraPlacer {
    fn expect(&mut self, shape: &Ask, weight: u64) {
        self.engine.expect(&TraceJob::of("expected".to_owned(), shape.clone()), weight);
    }

    fn arrive(&mut self, number: u64, ask: &Ask) -> Result<Answer, PlacerError> {
        self.arrived += 1;
        // What the pool could never hold is refused at once.
        let Ok(job) = self.engine.submit(&TraceJob::of(format!("arrival-{number}"), ask.clone())) else {
            return Ok(Answer::default());
        };
        self.numbers.insert(job, number);
        self.decide(job, ask).map_err(|error| PlacerError { arrival: number, problem: error.to_string() })
    }
}
