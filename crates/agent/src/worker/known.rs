//! The notes of all settled workers of a node, by age, and what they take.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::id::WorkerId;
use super::settled::{NOTE, Settled};

/// The time for which the output of a worker stays in any case: whoever follows it reads it to its end.
const READ_TO_THE_END: u64 = 60_000;
/// The part of the budget that notes of output which is gone may take.
const OF_NOTES: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct Known {
    settled: BTreeMap<WorkerId, Settled>,
    /// Workers whose output is kept, the oldest first.
    kept: BTreeSet<(u64, WorkerId)>,
    /// Workers of which only the note is left, the oldest first.
    notes: BTreeSet<(u64, WorkerId)>,
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

    pub fn of(&self, worker: WorkerId) -> Option<&Settled> {
        self.settled.get(&worker)
    }

    pub fn put(&mut self, worker: WorkerId, settled: Settled) {
        self.take(worker);
        let by_age = if settled.removed { &mut self.notes } else { &mut self.kept };
        by_age.insert((settled.settled_unix_ms, worker));
        self.bytes += settled.bytes;
        self.settled.insert(worker, settled);
    }

    pub fn take(&mut self, worker: WorkerId) {
        let Some(Settled { settled_unix_ms, bytes, .. }) = self.settled.remove(&worker) else { return };
        self.kept.remove(&(settled_unix_ms, worker));
        self.notes.remove(&(settled_unix_ms, worker));
        self.bytes -= bytes;
    }

    /// Workers of which something is to go because its time is over.
    pub fn due(&self, usual: Option<Duration>, now: u64) -> Vec<(WorkerId, Settled)> {
        let is_over = |settled: &Settled| settled.expiry(usual).is_some_and(|expiry| expiry <= now);
        let is_done = |settled: &Settled| settled.removed && settled.is_remembered(now);
        let due = self.settled.iter().filter(|(_, settled)| is_over(settled) && !is_done(settled));
        due.map(|(worker, settled)| (*worker, *settled)).collect()
    }

    /// The next of which something goes: where room is short, and where notes take more than their part of `budget`.
    pub fn next_to_go(&self, is_short: bool, budget: u64, now: u64) -> Option<(WorkerId, Settled)> {
        let oldest = |of: &BTreeSet<(u64, WorkerId)>| {
            let (_, worker) = of.first()?;
            Some((*worker, *self.settled.get(worker)?))
        };
        let note = oldest(&self.notes).filter(|(_, settled)| !settled.is_remembered(now));
        let kept = oldest(&self.kept).filter(|(_, settled)| settled.settled_unix_ms + READ_TO_THE_END <= now);
        let kept = kept.filter(|_| is_short);
        match self.notes.len() as u64 * NOTE > budget / OF_NOTES {
            true => note.or(kept),
            false => kept.or(note.filter(|_| is_short)),
        }
    }

    /// Lets a worker have been settled so much earlier.
    #[cfg(test)]
    pub fn age(&mut self, worker: WorkerId, by: Duration) {
        let mut settled = *self.of(worker).expect("it is settled");
        settled.settled_unix_ms -= u64::try_from(by.as_millis()).expect("short");
        self.put(worker, settled);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.settled.len()
    }
}
