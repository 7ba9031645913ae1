//! Estimates when a job may start: the pool is played forward on a copy of the ledger, running jobs end at their time
//! limits in order, and what fits is granted each time by the code that decides. An estimate says what it rests on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::{Command, Job, JobId, JobSpec, JobState, LogTime, Outcome, Rejection, State};

use crate::rehearsal::Rehearsal;
use tessera_explain::{Explanation, WaitCode, explain, is_never_together};
use tessera_placement::Limits;

/// Most ends of jobs that are played through, and most allocations that are looked at for all of them together.
const ENDS: u64 = 4_096;
const ALLOCATIONS: u64 = 8_000_000;

/// Most moments at which something is decided.
const MOMENTS: u32 = 8_192;

/// For whom the estimate is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// A job in the ledger.
    Job(JobId),
    /// A job that is submitted now.
    Submitted(Box<JobSpec>),
}

/// The assumptions of an estimate, beside that nothing else is submitted, no job fails and no node is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumptions {
    /// Jobs that were taken to end at their time limits before the job starts.
    pub ends_at_limits: u32,
    /// Jobs without a time limit that hold blocks.
    pub without_limit: u32,
    /// The assumed run time of those jobs; `None`: for ever.
    pub assumed_limit: Option<Duration>,
}

/// The estimated start of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// No later than then, as far as the assumptions hold.
    At {
        time: LogTime,
        /// The assumptions that the time rests on.
        rests_on: Assumptions,
    },
    /// Nobody can say.
    Unknown {
        /// The reason why not.
        why: Unknown,
        /// The assumptions up to the end of the search.
        rests_on: Assumptions,
    },
}

/// Most times that a time window opens or closes in an estimate.
const FLIPS: u32 = 256;

/// The reason why nobody can say when a job starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It does not wait for an allocation, or something else than capacity keeps it.
    NotWaiting(Explanation),
    /// It would be refused.
    Refused(Rejection),
    /// The capacity that it waits for is held by jobs without a time limit.
    HeldWithoutLimit,
    /// Even when all that has a time limit has ended, it does not fit.
    NeverFits(Explanation),
    /// Too much happens before it.
    TooFar,
}

/// Estimates when a job starts; jobs without a time limit are taken to run for ever, or for `assumed_limit` from
/// their start.
#[must_use]
pub fn when(state: &State, now: LogTime, whom: &Whom, assumed_limit: Option<Duration>) -> Estimate {
    let mut rests_on = Assumptions { assumed_limit, ..Assumptions::default() };
    let mut rehearsal = Rehearsal::of(state, now);
    rehearsal.catch_up();
    let id = match whom {
        Whom::Job(id) => *id,
        Whom::Submitted(spec) => {
            let spec = Arc::new(JobSpec { held: false, ..(**spec).clone() });
            match rehearsal.apply(Command::SubmitJob { spec, traceparent: String::new(), secret: None }) {
                Outcome::Submitted(id) => id,
                Outcome::Rejected(rejection) => return unknown(Unknown::Refused(rejection), rests_on),
                _ => return unknown(Unknown::TooFar, rests_on),
            }
        }
    };
    let limits = Limits { preemption_searches: 256, ..Limits::default() };
    let mut ends = Ends::default();
    let allocations = u64::try_from(rehearsal.state.allocations().count()).unwrap_or(u64::MAX);
    let most_ends = (ALLOCATIONS / allocations.max(1)).min(ENDS);
    let mut flips = 0;
    for _ in 0..MOMENTS {
        let settled = rehearsal.settle(&limits);
        if started(&rehearsal.state, id) {
            return Estimate::At { time: rehearsal.now, rests_on };
        }
        if let Some(explanation) = kept(&mut rehearsal, id) {
            return unknown(Unknown::NotWaiting(explanation), rests_on);
        }
        rests_on.without_limit = ends.read(&rehearsal.state, assumed_limit);
        // Windows open and close for ever; an answer that waits for so many of them is none.
        let window = rehearsal.next_window().filter(|_| flips < FLIPS);
        let wakeup = settled.next_wakeup.into_iter().chain(window).min();
        flips += u32::from(wakeup.is_some() && wakeup == window);
        match (ends.next(), wakeup) {
            (Some((end, job)), wakeup) if wakeup.is_none_or(|wakeup| end <= wakeup) => {
                if u64::from(rests_on.ends_at_limits) >= most_ends {
                    break;
                }
                rests_on.ends_at_limits += 1;
                ends.over(job);
                rehearsal.now = rehearsal.now.max(end);
                rehearsal.end(job);
            }
            (_, Some(wakeup)) => {
                rehearsal.now = wakeup;
                rehearsal.apply(Command::Tick);
            }
            (_, None) => {
                let why = never(&mut rehearsal, id, rests_on.without_limit);
                return unknown(why, rests_on);
            }
        }
    }
    unknown(Unknown::TooFar, rests_on)
}

fn unknown(why: Unknown, rests_on: Assumptions) -> Estimate {
    Estimate::Unknown { why, rests_on }
}

fn started(state: &State, job: JobId) -> bool {
    state.job(job).is_some_and(|job| matches!(job.state, JobState::Starting | JobState::Running | JobState::Moving))
}

/// Explains the obstacle of a job that no end of another job can remove, if there is one.
fn kept(rehearsal: &mut Rehearsal, id: JobId) -> Option<Explanation> {
    let now = rehearsal.now;
    let (pool, state) = rehearsal.pool();
    let explanation = explain(pool, state, state.job(id)?, now);
    let helpless = match explanation.code {
        WaitCode::Affinity => is_never_together(pool, state, &state.job(id)?.spec),
        WaitCode::NotWaiting
        | WaitCode::Held
        | WaitCode::SuspendedByUser
        | WaitCode::IdleSuspended
        | WaitCode::ExceedsPool
        | WaitCode::ExceedsHost
        | WaitCode::NoAcceptableCard
        | WaitCode::NoBlocks
        | WaitCode::NoNodeWithLabels => true,
        _ => false,
    };
    helpless.then_some(explanation)
}

fn never(rehearsal: &mut Rehearsal, id: JobId, without_limit: u32) -> Unknown {
    if without_limit > 0 {
        return Unknown::HeldWithoutLimit;
    }
    let now = rehearsal.now;
    let (pool, state) = rehearsal.pool();
    state.job(id).map_or(Unknown::TooFar, |job| Unknown::NeverFits(explain(pool, state, job, now)))
}

/// The jobs that hold blocks, by when they end.
#[derive(Debug, Default)]
struct Ends {
    known: BTreeMap<tessera_ledger::AllocationId, Option<(LogTime, JobId)>>,
    in_order: BTreeSet<(LogTime, JobId)>,
}

impl Ends {
    /// Takes over the allocations of a state; answers how many of them have no end.
    fn read(&mut self, state: &State, assumed_limit: Option<Duration>) -> u32 {
        let mut without = 0;
        let mut present = BTreeMap::new();
        for allocation in state.allocations() {
            let end = self.known.get(&allocation.id).copied().unwrap_or_else(|| {
                let job = state.job(allocation.job)?;
                Some((end_of(job, allocation.started_at.unwrap_or(allocation.granted_at), assumed_limit)?, job.id))
            });
            without += u32::from(end.is_none());
            present.insert(allocation.id, end);
        }
        self.in_order = present.values().copied().flatten().collect();
        self.known = present;
        without
    }

    fn next(&self) -> Option<(LogTime, JobId)> {
        self.in_order.first().copied()
    }

    fn over(&mut self, job: JobId) {
        self.known.retain(|_, end| end.is_none_or(|(_, known)| known != job));
    }
}

fn end_of(job: &Job, started: LogTime, assumed_limit: Option<Duration>) -> Option<LogTime> {
    job.spec.time_limit.or(assumed_limit).map(|limit| started.after(limit))
}
