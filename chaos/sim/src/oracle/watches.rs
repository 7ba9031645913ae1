//! A watch is the committed log: what happened to jobs, in its order, without gap and without doubling, also when the
//! watch went on at another member.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use tessera_api::event_view::job_of;
use tessera_ledger::{JobId, Revision};

use super::{Oracle, View};
use crate::history::Shown;
use crate::journal::Applied;

/// Place of an event among all events.
type Place = (u64, u32);

/// The events that one watcher was shown: the place up to which they are checked, and those not checked yet.
#[derive(Default)]
struct Watcher {
    /// Everything up to here was shown or listed; `None` before the first list is complete.
    upto: Option<Place>,
    /// Shown, and not compared yet.
    pending: VecDeque<Shown>,
}

#[derive(Default)]
pub struct Watches {
    /// Committed events of jobs.
    committed: BTreeMap<Place, JobId>,
    known: Revision,
    watchers: BTreeMap<usize, Watcher>,
}

impl Watches {
    /// The first event after a place and up to a revision.
    fn next(&self, after: Place, upto: u64) -> Option<(Place, JobId)> {
        let range = (Bound::Excluded(after), Bound::Included((upto, u32::MAX)));
        self.committed.range(range).next().map(|(place, job)| (*place, *job))
    }

    fn compare(&self, watcher: &mut Watcher, shown: &Shown) -> Result<(), String> {
        let Some(upto) = watcher.upto else {
            if let Shown::Synced(revision) = shown {
                watcher.upto = Some((*revision, u32::MAX));
            }
            return Ok(());
        };
        match *shown {
            Shown::Relisting => watcher.upto = None,
            Shown::Event { revision, ordinal, job } => {
                let place = (revision, ordinal);
                match self.next(upto, revision) {
                    Some((next, of)) if next == place && of.0 == job => watcher.upto = Some(place),
                    next => {
                        return Err(format!("was shown {place:?} of job {job} after {upto:?}; committed is {next:?}"));
                    }
                }
            }
            Shown::Synced(revision) | Shown::Progress(revision) => {
                if let Some(missed) = self.next(upto, revision) {
                    return Err(format!("was told of everything up to {revision}, and never of {missed:?}"));
                }
                watcher.upto = Some(upto.max((revision, u32::MAX)));
            }
        }
        Ok(())
    }
}

impl Oracle for Watches {
    fn name(&self) -> &'static str {
        "watches are the committed log"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        for (ordinal, event) in (0u32..).zip(entry.events.iter()) {
            if let Some(job) = job_of(event) {
                self.committed.insert((entry.at.revision.0, ordinal), job);
            }
        }
        self.known = entry.at.revision;
        Ok(())
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        for (number, shown) in view.history.take_shown() {
            self.watchers.entry(number).or_default().pending.push_back(shown);
        }
        let mut watchers = std::mem::take(&mut self.watchers);
        for (number, watcher) in &mut watchers {
            // A member may show what this oracle has not seen anywhere yet.
            while let Some(shown) = watcher.pending.pop_front_if(|shown| shown.revision() <= self.known.0) {
                self.compare(watcher, &shown).map_err(|what| format!("watcher {number} {what}"))?;
            }
        }
        self.watchers = watchers;
        Ok(())
    }
}
