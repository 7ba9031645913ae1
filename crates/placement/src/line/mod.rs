//! The lines of waiting jobs, one per queue, in the order of [`WaitingKey`], grouped by shape so that a hundred
//! thousand waiting jobs cost no more than the few different requests among them. Which queue's turn it is,
//! [`order`] says.

pub(crate) mod order;
mod retry;
pub(crate) mod shape;
pub(crate) mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{Job, JobId, LogTime, PoolConfig, UNKNOWN};

use crate::index::class::Classes;
use shape::ShapeId;
use shapes::Shapes;

/// A waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    key: WaitingKey,
    shape: ShapeId,
    place: Place,
}

/// Where a waiting job is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In line.
    Line,
    /// Not before this time.
    Later(LogTime),
    /// In a plan that the ledger has not answered.
    Planned,
}

/// All waiting jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    jobs: BTreeMap<JobId, Waiting>,
    /// What they ask for, and which requests are to be tried.
    pub(crate) shapes: Shapes,
    later: BTreeSet<(LogTime, JobId)>,
    planned: BTreeSet<JobId>,
}

impl Line {
    /// Takes over what the ledger says of a job.
    pub(crate) fn update(
        &mut self,
        id: JobId,
        job: Option<&Arc<Job>>,
        now: LogTime,
        classes: &Classes,
        config: &PoolConfig,
    ) {
        self.remove(id);
        let Some(job) = job.filter(|job| job.is_waiting()) else { return };
        let shape = self.shapes.intern(job, classes, config);
        let key = WaitingKey::of(job);
        let until = job.waits_until();
        let place = if until > now { Place::Later(until) } else { Place::Line };
        self.jobs.insert(id, Waiting { key, shape, place });
        match place {
            Place::Later(at) => {
                self.later.insert((at, id));
                self.shapes.keep(shape);
            }
            Place::Line | Place::Planned => self.shapes.enter(shape, key),
        }
    }

    fn remove(&mut self, id: JobId) {
        let Some(known) = self.jobs.remove(&id) else { return };
        match known.place {
            Place::Line => self.shapes.leave(known.shape, known.key),
            Place::Later(at) => {
                self.later.remove(&(at, id));
                self.shapes.let_go(known.shape);
            }
            Place::Planned => {
                self.planned.remove(&id);
                self.shapes.let_go(known.shape);
            }
        }
    }

    /// Notes that a job has its place in the plan being made.
    pub(crate) fn plan(&mut self, id: JobId) {
        let Some(waiting) = self.jobs.get_mut(&id) else { return };
        waiting.place = Place::Planned;
        self.planned.insert(id);
        self.shapes.keep(waiting.shape);
        self.shapes.leave(waiting.shape, waiting.key);
    }

    /// What a job asks for that is in line.
    pub(crate) fn shape_in_line(&self, id: JobId) -> Option<&shape::Shape> {
        let waiting = self.jobs.get(&id).filter(|waiting| waiting.place == Place::Line)?;
        self.shapes.get(waiting.shape)
    }

    /// The jobs whose backoff is not over, or whose windows are closed.
    pub(crate) fn later(&self) -> impl Iterator<Item = JobId> {
        self.later.iter().map(|(_, id)| *id)
    }

    /// The jobs of plans that the ledger has not answered.
    pub(crate) fn planned(&self) -> Vec<JobId> {
        self.planned.iter().copied().collect()
    }

    /// Lets jobs in whose backoff is over or whose windows open, and tries shapes again whose time has come.
    pub(crate) fn advance(&mut self, now: LogTime) {
        self.shapes.advance(now);
        while let Some((at, id)) = self.later.first().copied().filter(|(at, _)| *at <= now) {
            self.later.remove(&(at, id));
            let Some(waiting) = self.jobs.get_mut(&id) else { continue };
            waiting.place = Place::Line;
            self.shapes.enter(waiting.shape, waiting.key);
            self.shapes.let_go(waiting.shape);
        }
    }

    /// When something will change by the passing of time alone.
    pub(crate) fn next_wakeup(&self) -> Option<LogTime> {
        let later = self.later.first().map(|(at, _)| *at).filter(|at| *at != UNKNOWN);
        later.into_iter().chain(self.shapes.next_retry()).min()
    }
}
