//! The ledger as the state machine that consensus replicates.

use std::sync::Arc;

use bytes::Bytes;
use tessera_consensus::{EntryPosition, Frozen, Machine, Unreadable};
use tessera_ledger::wire::{SnapshotChunks, WireError, decode_request, decode_snapshot, encode_snapshot};
use tessera_ledger::{LogTime, Outcome, Request, Revision, State};
use tokio::sync::watch;

use crate::feed::{self, Feed, FeedWriter};
use crate::view::LedgerView;

/// Applies committed entries to the ledger and publishes what came of it.
#[derive(Debug)]
pub struct LedgerMachine {
    state: State,
    published: watch::Sender<Arc<State>>,
    feed: FeedWriter,
    /// The state was replaced since the last publication.
    replaced: bool,
}

impl LedgerMachine {
    /// An empty ledger, the view of what it publishes, and the feed for placement.
    #[must_use]
    pub fn new() -> (Self, LedgerView, Feed) {
        let state = State::new();
        let first = Arc::new(state.clone());
        let (published, seen) = watch::channel(Arc::clone(&first));
        let (writer, feed) = feed::feed(first);
        (Self { state, published, feed: writer, replaced: false }, LedgerView::new(seen), feed)
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
        let outcomes = self.state.apply(position(at), &requests?);
        tracing::trace!(index = at.index.0, term = at.term.0, commands = commands.len(), "applied");
        Ok(outcomes)
    }

    fn observe(&mut self, at: EntryPosition) {
        self.state.observe(position(at));
    }

    fn publish(&mut self) {
        let touched = self.state.take_touched();
        let state = Arc::new(self.state.clone());
        if std::mem::take(&mut self.replaced) {
            self.feed.replace(Arc::clone(&state));
        } else {
            self.feed.publish(Arc::clone(&state), touched);
        }
        self.published.send_replace(state);
    }

    fn freeze(&self) -> Box<dyn Frozen> {
        Box::new(FrozenLedger(encode_snapshot(&self.state)))
    }

    fn restore(&mut self, chunks: &mut dyn Iterator<Item = Bytes>) -> Result<(), Unreadable> {
        self.state = decode_snapshot(chunks).map_err(|error| unreadable("the snapshot", &error))?;
        self.replaced = true;
        Ok(())
    }

    fn digest(&self) -> Option<u128> {
        Some(self.state.digest())
    }
}

/// A copy of the ledger that is being written out.
struct FrozenLedger(SnapshotChunks);

impl Frozen for FrozenLedger {
    fn chunks(self: Box<Self>) -> Box<dyn Iterator<Item = Bytes> + Send> {
        Box::new(self.0)
    }
}

#[cfg(test)]
mod tests {
    use tessera_consensus::{LogIndex, Term};
    use tessera_ledger::wire::encode_request;
    use tessera_ledger::{Command, QueueAmount, QueueSettings, Touched};

    use super::*;
    use crate::feed::Scope;

    fn at(index: u64) -> EntryPosition {
        EntryPosition { index: LogIndex(index), term: Term(1), time: tessera_consensus::LogTime(index * 1000) }
    }

    fn make_queue(name: &str) -> Bytes {
        let queue = QueueSettings {
            name: name.to_owned(),
            parent: String::new(),
            guaranteed: QueueAmount::default(),
            maximum: None,
            weight: 1,
            packing: None,
        };
        let request = Request { key: None, actor: "test".to_owned(), command: Command::SetQueue { queue } };
        Bytes::from(encode_request(&request))
    }

    #[tokio::test]
    async fn what_is_applied_is_seen_when_it_is_published() {
        let (mut machine, view, feed) = LedgerMachine::new();
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
    async fn what_cannot_be_read_stops_the_member_and_changes_nothing() {
        let (mut machine, _, _) = LedgerMachine::new();
        let digest = machine.digest();
        let error = machine.apply(at(1), &[make_queue("red"), Bytes::from_static(b"\xff\xff")]);
        assert!(error.expect_err("no command").what.contains("command 1 of entry 1"));
        assert_eq!(machine.digest(), digest);
    }

    #[tokio::test]
    async fn a_snapshot_carries_the_state_over() {
        let (mut machine, _, _) = LedgerMachine::new();
        machine.apply(at(1), &[make_queue("red")]).expect("it can be read");
        let chunks: Vec<Bytes> = machine.freeze().chunks().collect();
        let (mut other, view, feed) = LedgerMachine::new();
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
