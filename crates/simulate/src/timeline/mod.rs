//! A trace played through: jobs come when they came, run as long as they ran, wait, are preempted and moved, and
//! everything that happens is measured on the way.
//!
//! A job that is suspended goes on where it stopped; what that costs is a setting, paid when it resumes. Nothing fails,
//! no node is lost, and agents do at once what they are told; what is simulated is where and when jobs run.

mod books;
mod cost;
mod events;
mod result;
mod scheduler;

use std::collections::BTreeSet;
use std::time::Duration;

use tessera_foresight::WAY_EVERY;
use tessera_ledger::AttainedOrder;

use crate::engine::EngineError;
use crate::placer::Choice;
use crate::plain::{Impossible, Place};
use crate::trace::{TraceJob, TraceNode};

use books::Books;
use scheduler::{PlainScheduler, Scheduler, Step, TesseraScheduler};

pub use cost::{InvalidCost, SuspendCost};
pub use events::{JobEvent, JobEventKind, write_events};
pub(crate) use result::duration;
pub use result::{RunSummary, Sample, Spread};

/// Pause before another decision after one that was cut short without doing anything.
const PAUSE_MS: u64 = 50;

/// Samples over the time that the trace says it takes.
const SAMPLES: u64 = 400;

/// Most samples, should it take much longer.
const MOST_SAMPLES: usize = 4000;

/// The options of a playback.
#[derive(Clone, Copy, Debug)]
pub struct TimelineOptions {
    /// The placer.
    pub policy: Choice,
    /// Seed of what the policy draws.
    pub seed: u64,
    /// The schedule of moves by which free room is brought together; `None`: no moves. Only Tessera moves.
    pub compaction: Option<Compaction>,
    /// The cost that each resumption and each move has for a job.
    pub cost: SuspendCost,
    /// The order of all queues where it is by attained service; `None`: by submission. Only Tessera has it.
    pub order: Option<AttainedOrder>,
}

impl TimelineOptions {
    /// A placer that draws nothing, moves nothing, and whose suspensions cost nothing.
    #[must_use]
    pub fn new(policy: Choice) -> Self {
        Self { policy, seed: 0, compaction: None, cost: SuspendCost::default(), order: None }
    }
}

/// The schedule of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Not more often than this, in milliseconds, and only when something happens.
    pub every_ms: u64,
    /// Most moves each time.
    pub moves: u32,
}

impl Default for Compaction {
    /// Every ten minutes, at most 16 moves.
    fn default() -> Self {
        Self { every_ms: 600_000, moves: 16 }
    }
}

/// A run that had to be given up.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The list has no times.
    #[error(
        "job {job} has no runtime: this list says what was asked for, not when; `tessera simulate saturate` needs no times"
    )]
    NoTimes {
        /// The first job without.
        job: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Something was put where it does not fit.
    #[error("job {job} was put where it does not fit: {why}")]
    Misplaced {
        job: String,
        /// The reason why it does not fit.
        why: Impossible,
    },
    /// Something was finished, suspended or moved that does not run.
    #[error("job {job} does not run and was {what}")]
    NotRunning { job: String, what: &'static str },
}

/// The events, in the order in which they are taken at one time: ends make room before anybody new comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A job ends; the number tells its runs apart.
    End { job: usize, run: u32 },
    /// A job is submitted.
    Submit { job: usize },
    /// Time alone changes something.
    Wake,
}

/// Plays a list of jobs on a list of nodes.
///
/// # Errors
/// [`TimelineError`].
pub fn play(nodes: &[TraceNode], jobs: &[TraceJob], options: TimelineOptions) -> Result<RunSummary, TimelineError> {
    if let Some(job) = jobs.iter().find(|job| job.runtime_ms.is_none()) {
        return Err(TimelineError::NoTimes { job: job.name.clone() });
    }
    let queues: BTreeSet<&str> = jobs.iter().map(|job| job.queue.as_str()).collect();
    let queues: Vec<&str> = queues.into_iter().collect();
    let mut scheduler: Box<dyn Scheduler> = match options.policy {
        Choice::Tessera => Box::new(TesseraScheduler::new(nodes, &queues, options.order)?),
        Choice::Other(named) => Box::new(PlainScheduler::new(nodes, named.make(options.seed))),
    };
    Play::new(nodes, jobs, options).run(scheduler.as_mut())
}

/// A run in progress.
struct Play<'a> {
    jobs: &'a [TraceJob],
    events: BTreeSet<(u64, Event)>,
    books: Books<'a>,
    options: TimelineOptions,
    /// The time at which the scheduler asks to be woken, as of its last decision.
    wake: Option<u64>,
    next_compaction: u64,
    next_way: u64,
}

impl<'a> Play<'a> {
    fn new(nodes: &[TraceNode], jobs: &'a [TraceJob], options: TimelineOptions) -> Self {
        let events = jobs.iter().enumerate().map(|(job, of)| (of.submitted_ms, Event::Submit { job })).collect();
        let books = Books::new(nodes, jobs, options.cost);
        Self { jobs, events, books, options, wake: None, next_compaction: 0, next_way: 0 }
    }

    fn run(mut self, scheduler: &mut dyn Scheduler) -> Result<RunSummary, TimelineError> {
        while let Some((now, _)) = self.events.first().copied() {
            self.books.advance(now);
            scheduler.advance_to(now);
            while let Some((_, event)) = self.events.pop_first_if(|(at, _)| *at == now) {
                self.take(event, scheduler)?;
            }
            self.decide(now, scheduler)?;
            let moved = self.make_way(now, scheduler)? | self.compact(now, scheduler)?;
            if moved {
                self.decide(now, scheduler)?;
            }
        }
        let name = self.options.policy.name();
        Ok(self.books.close(name))
    }

    /// Moves jobs for others as leaders do where queues go by attained service; answers whether any was.
    fn make_way(&mut self, now: u64, scheduler: &mut dyn Scheduler) -> Result<bool, TimelineError> {
        if self.options.order.is_none() || now < self.next_way {
            return Ok(false);
        }
        self.next_way = now.saturating_add(u64::try_from(WAY_EVERY.as_millis()).unwrap_or(u64::MAX));
        self.moved(scheduler.make_way()?)
    }

    /// Moves jobs when it is time to; answers whether any was.
    fn compact(&mut self, now: u64, scheduler: &mut dyn Scheduler) -> Result<bool, TimelineError> {
        let Some(compaction) = self.options.compaction.filter(|_| now >= self.next_compaction) else {
            return Ok(false);
        };
        self.next_compaction = now.saturating_add(compaction.every_ms);
        self.moved(scheduler.compact(compaction.moves)?)
    }

    /// Notes where jobs run now; answers whether there are any. One that pays for its move ends later.
    fn moved(&mut self, moved: Vec<(usize, Vec<Place>)>) -> Result<bool, TimelineError> {
        let any = !moved.is_empty();
        for (job, places) in moved {
            let (ends, run) = self.books.moved(job, places)?;
            self.events.insert((ends, Event::End { job, run }));
        }
        Ok(any)
    }

    fn take(&mut self, event: Event, scheduler: &mut dyn Scheduler) -> Result<(), TimelineError> {
        match event {
            Event::Submit { job } => {
                let accepted = scheduler.submit(job, &self.jobs[job]);
                self.books.submitted(job, accepted);
            }
            Event::End { job, run } if self.books.runs_as(job, run) => {
                self.books.finished(job)?;
                scheduler.finish(job)?;
            }
            // It was suspended meanwhile and ends later.
            Event::End { .. } | Event::Wake => {}
        }
        Ok(())
    }

    /// Decides until there is nothing left to decide at this time.
    fn decide(&mut self, now: u64, scheduler: &mut dyn Scheduler) -> Result<(), TimelineError> {
        loop {
            let Step { started, suspended, moved, wakeup_ms, more, refused, took } = scheduler.decide()?;
            let idle = started.is_empty() && suspended.is_empty() && moved.is_empty();
            self.books.decided(took, refused);
            for job in suspended {
                self.books.suspended(job)?;
            }
            self.moved(moved)?;
            for (job, places) in started {
                let (ends, run) = self.books.started(job, places)?;
                self.events.insert((ends, Event::End { job, run }));
            }
            match (more, idle) {
                (true, false) => {}
                (true, true) => {
                    self.wake(Some(now + PAUSE_MS));
                    return Ok(());
                }
                (false, _) => {
                    self.wake(wakeup_ms.filter(|at| *at > now));
                    return Ok(());
                }
            }
        }
    }

    /// Wakes the scheduler then and no sooner, unless nothing else will ever happen: who waits then waits for ever.
    fn wake(&mut self, at: Option<u64>) {
        if let Some(before) = self.wake.take() {
            self.events.remove(&(before, Event::Wake));
        }
        self.wake = at.filter(|_| !self.events.is_empty() || self.books.any_runs());
        self.events.extend(self.wake.map(|at| (at, Event::Wake)));
    }
}

/// Time as milliseconds of a float, for results.
fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

trait PopFirstIf<T> {
    /// Takes the first out if it is such.
    fn pop_first_if(&mut self, is: impl Fn(&T) -> bool) -> Option<T>;
}

impl<T: Ord> PopFirstIf<T> for BTreeSet<T> {
    fn pop_first_if(&mut self, is: impl Fn(&T) -> bool) -> Option<T> {
        if self.first().is_some_and(is) { self.pop_first() } else { None }
    }
}
