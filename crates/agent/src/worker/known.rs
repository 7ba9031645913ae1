//! The notes of all settled workers of a node, by age, and what they take.
//!
//! Ages are counted on the clock that nobody sets. Only the age of what an earlier agent noted is taken from the time
//! of day in its note, and an order for such a worker may come late as long as for any other after this agent's start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::id::WorkerId;
use super::settled::{NOTE, Settled};
use crate::boot::BootTime;

/// The time for which the output of a worker stays in any case: whoever follows it reads it to its end.
const READ_TO_THE_END: Duration = Duration::from_secs(60);
/// The least time for which the folder of a settled worker stays, however short its output is kept. An order that is
/// late, from a leader that is none any more or after a clock was set, finds by it that the worker was here before, and
/// does not start it a second time.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// The part of the budget that notes of output which is gone may take.
const OF_NOTES: u64 = 10;

/// A settled worker with its age.
#[derive(Clone, Copy, Debug)]
struct Aged {
    settled: Settled,
    /// The boot time, in milliseconds, at which it was settled; negative for one of before this boot.
    since: i128,
    /// The time at which this agent settled it, or found its note.
    known: BootTime,
}

impl Aged {
    fn is_older(&self, than: Duration, now: BootTime) -> bool {
        i128::from(now.0) - self.since >= in_millis(than)
    }

    /// Returns whether the worker is to be remembered, whatever became of its output.
    fn is_remembered(&self, now: BootTime) -> bool {
        self.known.until(now) < REMEMBERED
    }
}

#[derive(Debug, Default)]
pub(super) struct Known {
    settled: BTreeMap<WorkerId, Aged>,
    /// Workers whose output is kept, the oldest first.
    kept: BTreeSet<(i128, WorkerId)>,
    /// Workers of which only the note is left, the oldest first.
    notes: BTreeSet<(i128, WorkerId)>,
    bytes: u64,
    /// True once those that earlier agents settled are among them.
    pub is_complete: bool,
    /// True since output went for lack of room, until there is room again.
    pub is_short: bool,
}

impl Known {
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_known(&self, worker: WorkerId) -> bool {
        self.settled.contains_key(&worker)
    }

    /// Takes up a worker that was settled so long ago, unless it is known.
    pub fn put(&mut self, worker: WorkerId, settled: Settled, ago: Duration, now: BootTime) {
        if !self.is_known(worker) {
            self.insert(worker, Aged { settled, since: i128::from(now.0) - in_millis(ago), known: now });
        }
    }

    /// Takes another note of a worker that is known.
    pub fn change(&mut self, worker: WorkerId, settled: Settled) {
        if let Some(aged) = self.take(worker) {
            self.insert(worker, Aged { settled, ..aged });
        }
    }

    fn insert(&mut self, worker: WorkerId, aged: Aged) {
        let by_age = if aged.settled.removed { &mut self.notes } else { &mut self.kept };
        by_age.insert((aged.since, worker));
        self.bytes += aged.settled.bytes;
        self.settled.insert(worker, aged);
    }

    pub fn forget(&mut self, worker: WorkerId) {
        self.take(worker);
    }

    fn take(&mut self, worker: WorkerId) -> Option<Aged> {
        let aged = self.settled.remove(&worker)?;
        self.kept.remove(&(aged.since, worker));
        self.notes.remove(&(aged.since, worker));
        self.bytes -= aged.settled.bytes;
        Some(aged)
    }

    /// Workers of which something is to go because its time is over; and whether all of it is.
    pub fn due(&self, usual: Option<Duration>, now: BootTime) -> Vec<(WorkerId, Settled, bool)> {
        let is_over = |aged: &Aged| aged.settled.retention(usual).is_some_and(|kept| aged.is_older(kept, now));
        let is_done = |aged: &Aged| aged.settled.removed && aged.is_remembered(now);
        let due = self.settled.iter().filter(|(_, aged)| is_over(aged) && !is_done(aged));
        due.map(|(worker, aged)| (*worker, aged.settled, !aged.is_remembered(now))).collect()
    }

    /// The next of which something goes: where room is short, and where notes take more than their part of `budget`.
    pub fn next_to_go(&self, is_short: bool, budget: u64, now: BootTime) -> Option<(WorkerId, Settled)> {
        let oldest = |of: &BTreeSet<(i128, WorkerId)>| {
            let (_, worker) = of.first()?;
            Some((*worker, *self.settled.get(worker)?))
        };
        let note = oldest(&self.notes).filter(|(_, note)| !note.is_remembered(now));
        let kept = oldest(&self.kept).filter(|(_, kept)| is_short && kept.is_older(READ_TO_THE_END, now));
        let next = match self.notes.len() as u64 * NOTE > budget / OF_NOTES {
            true => note.or(kept),
            false => kept.or(note.filter(|_| is_short)),
        };
        next.map(|(worker, aged)| (worker, aged.settled))
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.settled.len()
    }
}

fn in_millis(duration: Duration) -> i128 {
    i128::try_from(duration.as_millis()).unwrap_or(i128::MAX / 2)
}
