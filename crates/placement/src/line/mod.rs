//! The lines of waiting jobs, one per queue, in the order of [`WaitingKey`], grouped by shape so that a hundred
//! thousand waiting jobs cost no more than the few different requests among them; and whose turn it is among the first
//! jobs of all queues.

mod retry;
pub(crate) mod shapes;

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{JobId, LogTime, QueueAmount, State, UNKNOWN};

use crate::index::class::Classes;
use crate::index::put;
use crate::queues::Turn;
use shapes::{LineId, Shape, ShapeId, Shapes};

/// A waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    key: WaitingKey,
    shape: ShapeId,
    filed: Filed,
}

/// Among which a waiting job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filed {
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
    /// Their requests, and which of these are to be tried.
    pub(crate) shapes: Shapes,
    later: BTreeSet<(LogTime, JobId)>,
    planned: BTreeSet<JobId>,
}

impl Line {
    /// Takes over what the ledger says of a job.
    pub(crate) fn update(&mut self, state: &State, id: JobId, now: LogTime, classes: &Classes) {
        if let Some(known) = self.jobs.remove(&id) {
            self.file(id, known, false);
        }
        let Some(job) = state.job(id).filter(|job| job.is_waiting()) else { return };
        let (shape, key) = (self.shapes.intern(state, job, classes), state.waiting_key(job));
        let until = job.waits_until();
        let waiting = Waiting { key, shape, filed: if until > now { Filed::Later(until) } else { Filed::Line } };
        self.jobs.insert(id, waiting);
        self.file(id, waiting, true);
    }

    /// Enters a job into the set that it belongs to, or takes it out.
    fn file(&mut self, id: JobId, Waiting { key, shape, filed }: Waiting, enter: bool) {
        match filed {
            Filed::Line => {}
            Filed::Later(at) => put(&mut self.later, (at, id), enter),
            Filed::Planned => put(&mut self.planned, id, enter),
        }
        self.shapes.count(shape, Some(key).filter(|_| filed == Filed::Line), enter);
    }

    /// Files a job elsewhere.
    fn put(&mut self, id: JobId, filed: Filed) {
        let Some(waiting) = self.jobs.get_mut(&id) else { return };
        let before = *waiting;
        waiting.filed = filed;
        self.file(id, Waiting { filed, ..before }, true);
        self.file(id, before, false);
    }

    /// Notes that a job has its place in the plan being made.
    pub(crate) fn plan(&mut self, id: JobId) {
        self.put(id, Filed::Planned);
    }

    /// The shape of a job that is in line.
    pub(crate) fn shape_in_line(&self, id: JobId) -> Option<&Shape> {
        let waiting = self.jobs.get(&id).filter(|waiting| waiting.filed == Filed::Line)?;
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
        while let Some((_, id)) = self.later.first().copied().filter(|(at, _)| *at <= now) {
            self.put(id, Filed::Line);
        }
    }

    /// The next time at which something changes by the passing of time alone.
    pub(crate) fn next_wakeup(&self) -> Option<LogTime> {
        let later = self.later.first().map(|(at, _)| *at).filter(|at| *at != UNKNOWN);
        later.into_iter().chain(self.shapes.next_retry()).min()
    }
}

/// The first jobs of all queues, in the order of their turns; of equal queues the one goes first whose job does. A
/// round of decisions begins with one entry per queue; what is granted moves the queue's entry back, and nobody else's:
/// entries that a grant has made out of date are found when they come to the front.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    positions: BTreeSet<(Turn, WaitingKey, LineId)>,
    /// Position of each queue's first job, and the least that it could be granted.
    by_line: BTreeMap<LineId, (Turn, WaitingKey, QueueAmount)>,
}

impl Order {
    /// Enters the first job of a queue, instead of the one that was known; `None`: it has none.
    pub(crate) fn set(
        &mut self,
        line: LineId,
        first: Option<(WaitingKey, QueueAmount)>,
        turn: impl FnOnce(QueueAmount) -> Turn,
    ) {
        if let Some((turn, key, _)) = self.by_line.remove(&line) {
            self.positions.remove(&(turn, key, line));
        }
        if let Some((key, least)) = first {
            let turn = turn(least);
            self.by_line.insert(line, (turn.clone(), key, least));
            self.positions.insert((turn, key, line));
        }
    }

    /// The first of all. Turns only move back while grants are counted in, so that an entry which comes to the front
    /// and is still right goes before all others; one that is not is entered anew.
    pub(crate) fn first(&mut self, turn: impl Fn(LineId, QueueAmount) -> Turn) -> Option<(WaitingKey, LineId)> {
        loop {
            let (known, key, line) = self.positions.first()?;
            let (key, line, least) = (*key, *line, self.by_line.get(line)?.2);
            let now = turn(line, least);
            if now <= *known {
                return Some((key, line));
            }
            self.set(line, Some((key, least)), |_| now);
        }
    }
}
