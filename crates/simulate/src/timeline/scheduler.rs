//! Schedulers that decide when and where jobs run: Tessera itself, or a line in front of a policy from the literature.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tessera_ledger::{AttainedOrder, JobId};
use tessera_placement::Limits;

use crate::engine::{Decided, Engine, EngineError, Placed, Scale};
use crate::plain::{Place, PlainCluster, Request};
use crate::policy::Policy;
use crate::trace::{TraceJob, TraceNode};

/// The result of one decision; jobs by their place in the trace.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub started: Vec<(usize, Vec<Place>)>,
    pub suspended: Vec<usize>,
    pub moved: Vec<(usize, Vec<Place>)>,
    pub wakeup_ms: Option<u64>,
    pub more: bool,
    pub refused: u64,
    pub took: Duration,
}

/// Decides when and where jobs run.
pub(super) trait Scheduler {
    fn advance_to(&mut self, now_ms: u64);

    /// Answers whether it could ever run.
    fn submit(&mut self, number: usize, job: &TraceJob) -> bool;

    fn finish(&mut self, number: usize) -> Result<(), EngineError>;

    fn decide(&mut self) -> Result<Step, EngineError>;

    /// Moves jobs for those that wait in queues by attained service; answers where they are now.
    fn make_way(&mut self) -> Result<Vec<(usize, Vec<Place>)>, EngineError>;

    /// Moves at most so many jobs so that free room lies together; answers where they are now.
    fn compact(&mut self, most: u32) -> Result<Vec<(usize, Vec<Place>)>, EngineError>;
}

pub(super) struct TesseraScheduler {
    engine: Engine,
    ids: BTreeMap<usize, JobId>,
    numbers: BTreeMap<JobId, usize>,
}

impl TesseraScheduler {
    pub(super) fn new(nodes: &[TraceNode], queues: &[&str], order: Option<AttainedOrder>) -> Result<Self, EngineError> {
        let mut engine = Engine::new(nodes, queues, Scale::default(), Limits::default())?;
        engine.order_by(order)?;
        Ok(Self { engine, ids: BTreeMap::new(), numbers: BTreeMap::new() })
    }

    fn numbered(&self, placed: Vec<Placed>) -> Vec<(usize, Vec<Place>)> {
        placed.into_iter().filter_map(|one| Some((*self.numbers.get(&one.job)?, one.places))).collect()
    }
}

impl Scheduler for TesseraScheduler {
    fn advance_to(&mut self, now_ms: u64) {
        self.engine.advance_to(now_ms);
    }

    fn submit(&mut self, number: usize, job: &TraceJob) -> bool {
        let Ok(id) = self.engine.submit(job) else { return false };
        self.ids.insert(number, id);
        self.numbers.insert(id, number);
        true
    }

    fn finish(&mut self, number: usize) -> Result<(), EngineError> {
        let Some(id) = self.ids.remove(&number) else { return Ok(()) };
        self.numbers.remove(&id);
        self.engine.finish(id)
    }

    fn decide(&mut self) -> Result<Step, EngineError> {
        let Decided { placed, preempted, moved, refused, wakeup, more, took } = self.engine.decide()?;
        Ok(Step {
            started: self.numbered(placed),
            suspended: preempted.iter().filter_map(|id| self.numbers.get(id).copied()).collect(),
            moved: self.numbered(moved),
            wakeup_ms: wakeup.map(Engine::elapsed_at),
            more,
            refused: refused.len() as u64,
            took,
        })
    }

    fn make_way(&mut self) -> Result<Vec<(usize, Vec<Place>)>, EngineError> {
        let moved = self.engine.make_way()?;
        Ok(self.numbered(moved))
    }

    fn compact(&mut self, most: u32) -> Result<Vec<(usize, Vec<Place>)>, EngineError> {
        let moved = self.engine.compact(most)?;
        Ok(self.numbered(moved))
    }
}

/// A policy behind a line: by priority, then in order of submission; whoever fits starts, whoever does not is
/// passed by.
pub(super) struct PlainScheduler {
    cluster: PlainCluster,
    policy: Box<dyn Policy>,
    line: BTreeSet<(u32, usize)>,
    asked: BTreeMap<usize, (Request, u32)>,
    running: BTreeMap<usize, Vec<Place>>,
    changed: bool,
}

impl PlainScheduler {
    pub(super) fn new(nodes: &[TraceNode], policy: Box<dyn Policy>) -> Self {
        let cluster = PlainCluster::new(nodes);
        let (line, asked, running) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { cluster, policy, line, asked, running, changed: false }
    }

    /// Places all workers of a job, or none.
    fn place(&mut self, request: &Request, workers: u32) -> Option<Vec<Place>> {
        let mut places: Vec<Place> = Vec::new();
        for _ in 0..workers {
            let place = self.policy.choose(&self.cluster, request);
            let taken = place.filter(|place| self.cluster.take(request, place).is_ok());
            let Some(place) = taken else {
                places.iter().for_each(|place| self.cluster.give(request, place));
                return None;
            };
            places.push(place);
        }
        Some(places)
    }
}

impl Scheduler for PlainScheduler {
    fn advance_to(&mut self, _now_ms: u64) {}

    fn submit(&mut self, number: usize, job: &TraceJob) -> bool {
        let request = self.cluster.request(&job.ask);
        self.line.insert((100 - job.priority.min(100), number));
        self.asked.insert(number, (request, job.workers));
        self.changed = true;
        true
    }

    fn finish(&mut self, number: usize) -> Result<(), EngineError> {
        if let (Some(places), Some((request, _))) = (self.running.remove(&number), self.asked.remove(&number)) {
            places.iter().for_each(|place| self.cluster.give(&request, place));
            self.changed = true;
        }
        Ok(())
    }

    fn decide(&mut self) -> Result<Step, EngineError> {
        let began = Instant::now();
        let mut step = Step::default();
        if !std::mem::take(&mut self.changed) {
            return Ok(step);
        }
        // What did not fit once does not fit again before something ends.
        let mut too_large: BTreeSet<(Request, u32)> = BTreeSet::new();
        for key in self.line.clone() {
            let Some(asked) = self.asked.get(&key.1).copied() else { continue };
            if too_large.contains(&asked) {
                continue;
            }
            match self.place(&asked.0, asked.1) {
                Some(places) => {
                    self.line.remove(&key);
                    self.running.insert(key.1, places.clone());
                    step.started.push((key.1, places));
                }
                None => {
                    too_large.insert(asked);
                }
            }
        }
        step.took = began.elapsed();
        Ok(step)
    }

    fn make_way(&mut self) -> Result<Vec<(usize, Vec<Place>)>, EngineError> {
        Ok(Vec::new())
    }

    fn compact(&mut self, _most: u32) -> Result<Vec<(usize, Vec<Place>)>, EngineError> {
        Ok(Vec::new())
    }
}
