//! The journal: every entry of the log, taken in while it is applied, whoever applies it first.
//!
//! Ledgers forget their past; that is their right ([`tessera_ledger::PoolConfig::event_limit`]). So no oracle reads a
//! ledger's past: each is shown every entry once, in order, by the run (`Oracle::learn`), from here. The journal looks
//! on in every member ([`Seat`]) and cannot lose anything: a snapshot holds only what somebody has applied. When it
//! finds nevertheless that something was applied before what goes before it, or twice in different ways, that is a
//! violation, and never silence.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_controller::machine::Onlooker;
use tessera_ledger::{Command, EntryPosition, Event, Outcome, Request, Revision, State};
use xxhash_rust::xxh3::Xxh3;

use crate::machine::now;

/// One entry of the log, as it was applied first.
#[derive(Clone, Debug)]
pub struct Applied {
    pub at: EntryPosition,
    /// Simulated time when it was applied first.
    pub seen: Duration,
    pub before: State,
    pub requests: Vec<Request>,
    /// The answer to each request.
    pub outcomes: Vec<Outcome>,
    /// The changes of the entry, in order.
    pub events: Arc<[Event]>,
    pub after: Arc<State>,
}

impl Applied {
    /// The commands that were carried out and have nothing more to answer.
    pub fn done(&self) -> impl Iterator<Item = &Command> {
        let answered = self.requests.iter().zip(&self.outcomes);
        answered.filter_map(|(request, outcome)| (*outcome == Outcome::Done).then_some(&request.command))
    }
}

/// Reads the journal: every entry once, in order, from when it was made.
pub struct Reader {
    journal: Journal,
    place: usize,
}

impl Reader {
    /// Takes the entries that were applied since the last call, in order.
    ///
    /// # Errors
    /// The log was not applied one entry after the other, and the same by everybody.
    pub fn take(&self) -> Result<Vec<Arc<Applied>>, String> {
        let mut kept = self.journal.kept();
        match &kept.wrong {
            Some(what) => Err(what.clone()),
            None => Ok(std::mem::take(&mut kept.news[self.place])),
        }
    }
}

/// The first observation of an entry: the member, and a hash of the results.
struct Print {
    member: String,
    hash: u64,
}

#[derive(Default)]
struct Kept {
    /// Entries that each reader has not taken yet.
    news: Vec<Vec<Arc<Applied>>>,
    /// By revision; without a gap from the first one on.
    prints: BTreeMap<Revision, Print>,
    newest: Option<Arc<State>>,
    /// The first thing that was wrong.
    wrong: Option<String>,
}

impl Kept {
    fn known(&self) -> Revision {
        self.newest.as_ref().map_or(Revision(0), |state| state.revision())
    }

    fn blame(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

/// See the module. Clones are the same journal.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Kept>>);

impl Journal {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The onlooker of a member's machine.
    pub fn seat(&self, member: &str) -> Arc<dyn Onlooker> {
        Arc::new(Seat { member: member.to_owned(), journal: self.clone() })
    }

    /// One more who reads.
    pub fn reader(&self) -> Reader {
        let mut kept = self.kept();
        kept.news.push(Vec::new());
        Reader { journal: self.clone(), place: kept.news.len() - 1 }
    }

    /// The newest state that any member ever applied.
    pub fn newest(&self) -> Option<Arc<State>> {
        self.kept().newest.clone()
    }

    fn applied(
        &self,
        member: &str,
        applied: impl FnOnce(Arc<[Event]>) -> Applied,
        at: EntryPosition,
        outcomes: &[Outcome],
        after: &State,
    ) {
        let mut kept = self.kept();
        let Some(events) = own_events(after) else {
            return kept.blame(format!("{member} forgot what entry {} changed before it was seen", at.revision));
        };
        let hash = hash_of(at, outcomes, &events);
        let known = kept.known();
        if at.revision <= known {
            let Some(first) = kept.prints.get(&at.revision).filter(|first| first.hash != hash) else { return };
            let what = format!("{member} applied another entry {} than {} had applied", at.revision, first.member);
            return kept.blame(what);
        }
        if at.revision.0 != known.0 + 1 {
            return kept.blame(format!(
                "{member} applied entry {} after {known}: what is between was never seen",
                at.revision
            ));
        }
        kept.prints.insert(at.revision, Print { member: member.to_owned(), hash });
        let entry = applied(events);
        kept.newest = Some(Arc::clone(&entry.after));
        let entry = Arc::new(entry);
        kept.news.iter_mut().for_each(|news| news.push(Arc::clone(&entry)));
    }

    fn restored(&self, member: &str, state: &State) {
        let mut kept = self.kept();
        if state.revision() > kept.known() {
            let known = kept.known();
            let what = format!("{member} was restored to {}, and nobody applied more than {known}", state.revision());
            kept.blame(what);
        }
    }
}

/// The changes of the newest entry of a state; `None` when the state has forgotten them already.
#[allow(clippy::disallowed_methods, reason = "the journal is where all others are shown it from")]
fn own_events(state: &State) -> Option<Arc<[Event]>> {
    let forgotten = state.compacted() >= state.revision() && state.revision().0 > 0;
    (!forgotten)
        .then(|| state.events_of(state.revision()).map_or_else(|| Arc::from([]), |entry| Arc::clone(&entry.events)))
}

fn hash_of(at: EntryPosition, outcomes: &[Outcome], events: &[Event]) -> u64 {
    let mut hasher = Xxh3::new();
    (at.revision, at.time).hash(&mut hasher);
    outcomes.hash(&mut hasher);
    events.hash(&mut hasher);
    hasher.finish()
}

/// Looks on in one member, for the journal.
pub struct Seat {
    member: String,
    journal: Journal,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Onlooker for Seat {
    fn applied(&self, at: EntryPosition, before: &State, requests: &[Request], outcomes: &[Outcome], after: &State) {
        let entry = |events| Applied {
            at,
            seen: now(),
            before: before.clone(),
            requests: requests.to_vec(),
            outcomes: outcomes.to_vec(),
            events,
            after: Arc::new(after.clone()),
        };
        self.journal.applied(&self.member, entry, at, outcomes, after);
    }

    fn restored(&self, state: &State) {
        self.journal.restored(&self.member, state);
    }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{Command, Level, LogTime, PoolConfig};

    use super::*;

    fn at(revision: u64) -> EntryPosition {
        EntryPosition { revision: Revision(revision), time: LogTime(revision) }
    }

    fn set(config: PoolConfig) -> Request {
        tessera_testkit::request(Command::SetConfig { config, expected: None })
    }

    /// A state and the journal that its member is looked on from.
    struct Member(State, Arc<dyn Onlooker>);

    impl Member {
        fn apply(&mut self, revision: u64, requests: &[Request]) {
            let before = self.0.clone();
            let outcomes = self.0.apply(at(revision), requests);
            self.1.applied(at(revision), &before, requests, &outcomes, &self.0);
        }
    }

    fn member(journal: &Journal, name: &str) -> Member {
        Member(State::at(Level::NEWEST), journal.seat(name))
    }

    fn changed(reader: &Reader) -> Vec<usize> {
        reader.take().expect("nothing is wrong").iter().map(|entry| entry.events.len()).collect()
    }

    #[test]
    fn every_entry_is_shown_once_whoever_applies_it_and_whatever_ledgers_forget() {
        let journal = Journal::default();
        let (reader, other) = (journal.reader(), journal.reader());
        let (mut one, mut two) = (member(&journal, "m1"), member(&journal, "m2"));
        let forgetful = PoolConfig { event_limit: 1, ..PoolConfig::default() };
        one.apply(1, &[set(forgetful.clone())]);
        two.apply(1, &[set(forgetful.clone())]);
        one.apply(2, &[]);
        one.apply(3, &[set(PoolConfig { job_limit: 5, ..forgetful })]);
        assert!(one.0.compacted() >= Revision(1), "the ledger remembers one entry only");
        assert_eq!(changed(&reader), [1, 0, 1]);
        assert_eq!(changed(&reader), [0; 0]);
        assert_eq!(changed(&other), [1, 0, 1], "what one has read the other reads too");
        assert_eq!(journal.newest().map(|state| state.revision()), Some(Revision(3)));
    }

    #[test]
    fn an_entry_that_nobody_was_seen_to_apply_is_a_violation() {
        let journal = Journal::default();
        let mut one = member(&journal, "m1");
        one.apply(1, &[]);
        one.apply(3, &[]);
        assert!(journal.reader().take().is_err_and(|what| what.contains("between was never seen")));
    }

    #[test]
    fn a_snapshot_of_what_nobody_applied_is_a_violation() {
        let journal = Journal::default();
        let mut one = member(&journal, "m1");
        one.apply(1, &[]);
        journal.seat("m2").restored(&one.0);
        assert!(journal.reader().take().is_ok());
        one.0.observe(at(2));
        journal.seat("m2").restored(&one.0);
        assert!(journal.reader().take().is_err_and(|what| what.contains("nobody applied more")));
    }

    #[test]
    fn an_entry_that_comes_to_something_else_on_another_member_is_a_violation() {
        let journal = Journal::default();
        let (mut one, mut two) = (member(&journal, "m1"), member(&journal, "m2"));
        one.apply(1, &[set(PoolConfig::default())]);
        two.apply(1, &[]);
        assert!(journal.reader().take().is_err_and(|what| what.contains("m2 applied another entry")));
    }
}
