//! The ledger as the state machine that consensus replicates.

use std::sync::Arc;

use bytes::Bytes;
use planted::Bug;
use tessera_consensus::{EntryPosition, Frozen, Machine, Unreadable};
use tessera_ledger::wire::{SnapshotChunks, WireError, decode_request, decode_snapshot, encode_snapshot};
use tessera_ledger::{Command, Level, LogTime, Outcome, Request, Revision, State, Touched};
use tessera_usage::books::Entry;
use tessera_usage::{Books, Keeper};
use tokio::sync::watch;

use crate::feed::{self, Feed, FeedWriter};
use crate::view::LedgerView;

/// Looks on while a member applies the log. What the ledger remembers of the past is bounded; whoever holds promises
/// against all of it, such as a simulation, takes it in here as it happens.
pub trait Onlooker: std::fmt::Debug + Send + Sync {
    /// One entry was applied, and made `after` of `before`. An entry without commands has no requests.
    fn applied(
        &self,
        at: tessera_ledger::EntryPosition,
        before: &State,
        requests: &[Request],
        outcomes: &[Outcome],
        after: &State,
    );

    /// The state was replaced by that of a snapshot.
    fn restored(&self, state: &State);
}

/// Applies committed entries to the ledger and publishes what came of it.
#[derive(Debug)]
pub struct LedgerMachine {
    state: State,
    /// The highest release level that this member applies.
    highest: Level,
    published: watch::Sender<Arc<State>>,
    feed: FeedWriter,
    /// The state was replaced since the last publication.
    replaced: bool,
    onlooker: Option<Arc<dyn Onlooker>>,
    accounts: Option<Accounts>,
    /// The keys touched since the last publication and already examined for the accounts.
    touched: Vec<Touched>,
}

/// The accounts of what jobs hold, and their keeper.
#[derive(Debug)]
struct Accounts {
    books: Books,
    keeper: Keeper,
}

impl LedgerMachine {
    /// An empty ledger of a member that applies release levels up to `highest`, the view of what it publishes, and the
    /// feed for placement.
    #[must_use]
    pub fn new(highest: Level) -> (Self, LedgerView, Feed) {
        let state = State::new();
        let first = Arc::new(state.clone());
        let (published, seen) = watch::channel(Arc::clone(&first));
        let (writer, feed) = feed::feed(first);
        let machine = Self {
            state,
            highest,
            published,
            feed: writer,
            replaced: false,
            onlooker: None,
            accounts: None,
            touched: Vec::new(),
        };
        (machine, LedgerView::new(seen), feed)
    }

    /// The same, with somebody who looks on.
    #[must_use]
    pub fn seen_by(self, onlooker: Option<Arc<dyn Onlooker>>) -> Self {
        Self { onlooker, ..self }
    }

    /// The same, with accounts of what jobs hold.
    #[must_use]
    pub fn accounted_by(self, keeper: Option<Keeper>) -> Self {
        let accounts = keeper.map(|keeper| Accounts { books: Books::default(), keeper });
        Self { accounts, ..self }
    }

    /// Enters into the accounts what the entry that was just applied changed.
    fn account(&mut self) {
        let Some(Accounts { books, keeper }) = &mut self.accounts else { return };
        let touched = self.state.take_touched();
        let allocations = touched.iter().filter_map(|touched| match touched {
            Touched::Allocation(id) => Some(*id),
            _ => None,
        });
        let changes = books.note(&self.state, allocations);
        self.touched.extend(touched);
        if !changes.is_empty() {
            keeper.keep(Entry { revision: self.state.revision(), time: self.state.time(), changes });
        }
    }

    /// Changes the state, and tells whoever looks on.
    fn change(
        &mut self,
        at: EntryPosition,
        requests: &[Request],
        change: impl FnOnce(&mut State) -> Vec<Outcome>,
    ) -> Vec<Outcome> {
        let before = self.onlooker.is_some().then(|| self.state.clone());
        let outcomes = change(&mut self.state);
        self.account();
        if let (Some(onlooker), Some(before)) = (&self.onlooker, before) {
            onlooker.applied(position(at), &before, requests, &outcomes, &self.state);
        }
        outcomes
    }

    /// Refuses a pool at a level that this member cannot apply: it would take entries for what they do not mean.
    fn can_apply(&self, level: Level) -> Result<(), Unreadable> {
        if level <= self.highest {
            return Ok(());
        }
        let what = format!("the pool is at release level {level}, and this member goes up to {}", self.highest);
        Err(Unreadable { what })
    }
}

pub(crate) fn position(at: EntryPosition) -> tessera_ledger::EntryPosition {
    tessera_ledger::EntryPosition { revision: Revision(at.index.0), time: LogTime(at.time.0) }
}

/// An error and its causes in one line: what consensus keeps of it is a sentence.
pub(crate) fn unreadable(what: &str, error: &WireError) -> Unreadable {
    let mut sentence = format!("{what}: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        sentence.push_str(&format!(": {error}"));
        cause = error.source();
    }
    Unreadable { what: sentence }
}

impl Machine for LedgerMachine {
    type Outcome = Outcome;

    fn apply(&mut self, at: EntryPosition, commands: &[Bytes]) -> Result<Vec<Outcome>, Unreadable> {
        let requests: Result<Vec<Request>, Unreadable> = commands
            .iter()
            .enumerate()
            .map(|(place, command)| {
                decode_request(command)
                    .map_err(|error| unreadable(&format!("command {place} of entry {}", at.index.0), &error))
            })
            .collect();
        let requests = requests?;
        for request in &requests {
            if let Command::RaiseLevel { to } = request.command {
                self.can_apply(to)?;
            }
        }
        let outcomes = self.change(at, &requests, |state| state.apply(position(at), &requests));
        tracing::trace!(index = at.index.0, term = at.term.0, commands = commands.len(), "applied");
        Ok(outcomes)
    }

    fn observe(&mut self, at: EntryPosition) {
        if planted::is(Bug::EntryUnnoted) {
            return;
        }
        self.change(at, &[], |state| {
            state.observe(position(at));
            Vec::new()
        });
    }

    fn publish(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.extend(self.state.take_touched());
        let state = Arc::new(self.state.clone());
        if std::mem::take(&mut self.replaced) {
            self.feed.replace(Arc::clone(&state));
        } else {
            self.feed.publish(Arc::clone(&state), touched);
        }
        self.published.send_if_modified(|published| {
            *published = state;
            false
        });
    }

    fn announce(&mut self) {
        self.feed.announce();
        self.published.send_modify(|_| {});
    }

    fn freeze(&self) -> Box<dyn Frozen> {
        let keeper = self.accounts.as_ref().map(|accounts| accounts.keeper.clone());
        let (revision, time) = (self.state.revision(), self.state.time());
        Box::new(FrozenLedger { chunks: encode_snapshot(&self.state), keeper, revision, time })
    }

    fn restore(&mut self, chunks: &mut dyn Iterator<Item = Bytes>) -> Result<(), Unreadable> {
        let state = decode_snapshot(chunks).map_err(|error| unreadable("the snapshot", &error))?;
        self.can_apply(state.level())?;
        let before = (self.state.revision(), self.state.time());
        self.state = state;
        self.replaced = true;
        self.touched.clear();
        if let Some(Accounts { books, keeper }) = &mut self.accounts {
            let held = books.replace(&self.state);
            keeper.take_over(before, held, (self.state.revision(), self.state.time()));
        }
        if let Some(onlooker) = &self.onlooker {
            onlooker.restored(&self.state);
        }
        Ok(())
    }

    fn highest_level(&self) -> u32 {
        self.highest.number()
    }

    fn digest(&self) -> Option<u128> {
        Some(self.state.digest())
    }
}

/// A copy of the ledger that is being written out. Its first chunk waits until the accounts up to it are on disk: once
/// the snapshot is kept, the entries before it cannot be read again.
struct FrozenLedger {
    chunks: SnapshotChunks,
    keeper: Option<Keeper>,
    revision: Revision,
    time: LogTime,
}

impl Frozen for FrozenLedger {
    fn chunks(self: Box<Self>) -> Box<dyn Iterator<Item = Bytes> + Send> {
        self
    }
}

impl Iterator for FrozenLedger {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(Err(error)) = self.keeper.take().map(|keeper| keeper.flush(self.revision, self.time)) {
            tracing::warn!(%error, "a snapshot is made of what the accounts do not have: they will have a gap");
        }
        self.chunks.next()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tessera_consensus::{LogIndex, Term};
    use tessera_ledger::QueueSettings;
    use tessera_ledger::wire::encode_request;

    use super::*;
    use crate::feed::Scope;

    fn at(index: u64) -> EntryPosition {
        EntryPosition { index: LogIndex(index), term: Term(1), time: tessera_consensus::LogTime(index * 1000) }
    }

    fn make_queue(name: &str) -> Bytes {
        written(Command::SetQueue { queue: QueueSettings::new(name) })
    }

    fn written(command: Command) -> Bytes {
        Bytes::from(encode_request(&tessera_testkit::request(command), Level::Drill).expect("the level is in force"))
    }

    /// Revisions before and after, and answers.
    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<(u64, u64, usize)>>);

    impl Notes {
        fn add(&self, note: (u64, u64, usize)) {
            self.0.lock().expect("nobody panicked").push(note);
        }
    }

    impl Onlooker for Notes {
        fn applied(
            &self,
            _: tessera_ledger::EntryPosition,
            before: &State,
            _: &[Request],
            outcomes: &[Outcome],
            after: &State,
        ) {
            self.add((before.revision().0, after.revision().0, outcomes.len()));
        }

        fn restored(&self, state: &State) {
            self.add((0, state.revision().0, 0));
        }
    }

    #[tokio::test]
    async fn whoever_looks_on_sees_every_entry_and_every_snapshot() {
        let notes = Arc::new(Notes::default());
        let (machine, _view, _feed) = LedgerMachine::new(Level::NEWEST);
        let mut machine = machine.seen_by(Some(Arc::clone(&notes) as Arc<dyn Onlooker>));
        machine.apply(at(1), &[make_queue("red"), make_queue("")]).expect("both can be read");
        machine.observe(at(2));
        let chunks: Vec<Bytes> = machine.freeze().chunks().collect();
        machine.restore(&mut chunks.into_iter()).expect("it is whole");
        assert_eq!(*notes.0.lock().expect("nobody panicked"), [(0, 1, 2), (1, 2, 0), (0, 2, 0)]);
    }

    #[tokio::test]
    async fn a_member_that_is_too_old_stops_instead_of_misreading() {
        let raise = written(Command::RaiseLevel { to: Level::Drill });
        let (mut old, _, _) = LedgerMachine::new(Level::One);
        let error = old.apply(at(1), std::slice::from_ref(&raise)).expect_err("it cannot apply that level").to_string();
        assert!(error.contains("release level 1000") && error.contains("goes up to 1;"), "{error}");
        let (mut new, _, _) = LedgerMachine::new(Level::Drill);
        new.apply(at(1), &[raise]).expect("it can");
        let error = old.restore(&mut new.freeze().chunks()).expect_err("nor take up its state").to_string();
        assert!(error.contains("release level 1000") && error.contains("start it with a release"), "{error}");
        assert_eq!((old.highest_level(), new.highest_level()), (1, 1_000));
    }

    #[tokio::test]
    async fn what_is_applied_is_seen_when_it_is_published() {
        let (mut machine, view, feed) = LedgerMachine::new(Level::NEWEST);
        let mut reader = feed.open();
        reader.changed().await;
        let outcomes = machine.apply(at(1), &[make_queue("red"), make_queue("")]).expect("both can be read");
        assert_eq!(outcomes[0], Outcome::Done);
        assert!(matches!(outcomes[1], Outcome::Rejected(_)), "a queue needs a name");
        machine.observe(at(2));
        assert_eq!(view.current().revision(), Revision(0));
        machine.publish();
        assert_eq!(view.current().revision(), Revision(2));
        assert_eq!(reader.changed().await.scope, Scope::Keys(vec![Touched::Queues]));
    }

    #[tokio::test]
    async fn who_watches_is_woken_when_what_is_published_is_announced() {
        let (mut machine, view, feed) = LedgerMachine::new(Level::NEWEST);
        let (mut changes, mut reader) = (view.changes(), feed.open());
        reader.changed().await;
        machine.apply(at(1), &[make_queue("red")]).expect("it can be read");
        {
            let mut watching = std::pin::pin!(async { tokio::join!(changes.changed(), reader.changed()) });
            assert!(futures::poll!(watching.as_mut()).is_pending());
            machine.publish();
            machine.announce();
            watching.await.0.expect("the machine is there");
        }
        machine.announce();
        assert!(futures::poll!(std::pin::pin!(reader.changed())).is_pending(), "there is nothing new");
    }

    #[tokio::test]
    async fn what_cannot_be_read_stops_the_member_and_changes_nothing() {
        let (mut machine, _, _) = LedgerMachine::new(Level::NEWEST);
        let digest = machine.digest();
        let error = machine.apply(at(1), &[make_queue("red"), Bytes::from_static(b"\xff\xff")]);
        assert!(error.expect_err("no command").what.contains("command 1 of entry 1"));
        assert_eq!(machine.digest(), digest);
    }

    #[tokio::test]
    async fn a_snapshot_carries_the_state_over() {
        let (mut machine, _, _) = LedgerMachine::new(Level::NEWEST);
        machine.apply(at(1), &[make_queue("red")]).expect("it can be read");
        let chunks: Vec<Bytes> = machine.freeze().chunks().collect();
        let (mut other, view, feed) = LedgerMachine::new(Level::NEWEST);
        let mut reader = feed.open();
        reader.changed().await;
        other.restore(&mut chunks.into_iter()).expect("it is whole");
        other.publish();
        assert_eq!(other.digest(), machine.digest());
        assert!(view.current().queue("red").is_some());
        assert_eq!(reader.changed().await.scope, Scope::Everything);
        assert!(other.restore(&mut std::iter::empty()).is_err(), "nothing is no snapshot");
        assert_eq!(other.digest(), machine.digest());
    }
}
