//! Growth: a gang that runs with fewer virtual cards than it would like is started again with more, once there is room
//! for more that nobody else would take.
//!
//! Whether there is, is played through: the gang is stopped in a copy of the pool, and what the next decision gives it
//! is what it would get. It is left alone unless it comes back with more, at once, and nobody else gains or loses
//! anything by it. What it had computed must not be lost either: the newest checkpoint of it that counts has to suit
//! the larger gang, which was seen and is not promised.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationId, Command, Job, JobId, JobState, LogTime, State};
use tessera_placement::Limits;

use crate::rehearsal::Rehearsal;

/// Most gangs that are played through at one look.
const LOOKED_AT: usize = 4;

/// A gang that is to be started again with more virtual cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    pub job: JobId,
    pub allocation: AllocationId,
    /// Virtual cards that it has.
    pub from: u32,
    /// Virtual cards that it would get.
    pub to: u32,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// A gang that would grow if it were started again.
    pub growth: Option<Growth>,
    /// The last allocation that was played through; the next look begins behind it. `None`: there was none to look at.
    pub last: Option<AllocationId>,
    /// True if all that might grow were played through.
    pub whole: bool,
}

/// Looks for a gang that would grow if it were started again at `now`, beginning behind the allocation `behind`. Equal
/// states give equal answers.
#[must_use]
pub fn growth(state: &State, now: LogTime, behind: Option<AllocationId>) -> Look {
    let may = |allocation: &&Arc<Allocation>| {
        state.may_grow_since(allocation, now).is_some() && keeps_work(state, allocation)
    };
    let candidates: Vec<&Arc<Allocation>> = state.allocations().filter(may).collect();
    let first =
        candidates.iter().position(|allocation| behind.is_none_or(|behind| allocation.id > behind)).unwrap_or(0);
    let mut look = Look { whole: candidates.len() <= LOOKED_AT, ..Look::default() };
    if candidates.is_empty() {
        return look;
    }
    // What others were told to give back is not there yet: a gang that is stopped for it would come back as small.
    let mut before = Rehearsal::of(state, now);
    before.settle(&Limits::default());
    for allocation in candidates[first..].iter().chain(&candidates[..first]).take(LOOKED_AT) {
        look.last = Some(allocation.id);
        look.growth = play(before.clone(), allocation);
        if look.growth.is_some() {
            break;
        }
    }
    look
}

/// True if any number of workers can go on from the newest checkpoint.
fn keeps_work(state: &State, allocation: &Allocation) -> bool {
    let newest = state.job(allocation.job).and_then(|job| job.checkpoints.that_count().next());
    newest.is_some_and(|newest| newest.suits(usize::MAX))
}

/// Stops a gang in this rehearsal; returns its growth, if it comes back with more and nobody else notices.
fn play(mut rehearsal: Rehearsal, allocation: &Allocation) -> Option<Growth> {
    let others = holders(&rehearsal.state, allocation.job);
    rehearsal.apply(Command::GrowJob { job: allocation.job, allocation: allocation.id });
    rehearsal.obey(allocation.job);
    rehearsal.settle(&Limits::default());
    let job = rehearsal.state.job(allocation.job).filter(|job| job.state == JobState::Running)?;
    let grown = rehearsal.state.allocation(job.allocation?)?;
    let (from, to) = (allocation.virtual_cards(), grown.virtual_cards());
    let alone = holders(&rehearsal.state, allocation.job) == others;
    (to > from && alone).then_some(Growth { job: allocation.job, allocation: allocation.id, from, to })
}

/// The allocations of all other jobs.
fn holders(state: &State, but: JobId) -> BTreeMap<JobId, AllocationId> {
    let holds = |job: &Job| Some((job.id, job.allocation?));
    let jobs = state.allocations().filter_map(|allocation| state.job(allocation.job));
    jobs.filter(|job| job.id != but).filter_map(|job| holds(job)).collect()
}
