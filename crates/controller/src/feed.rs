//! The input of placement: after each applied entry the newest state and the keys touched since placement looked last.
//!
//! Applying must never wait for placement, and memory must stay bounded. So there is one slot, not a queue: touched
//! keys add up in it until they are taken together with the newest state, and when they become too many the reader is
//! told to look at everything, which then costs less.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tessera_ledger::{State, Touched};
use tokio::sync::Notify;

/// Beyond so many touched keys the reader reads the whole state anew.
const LIMIT: usize = 65_536;

/// The part of a state that the reader must examine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole state: the reader is new, lagged too far behind, or the state was replaced by a snapshot.
    Everything,
    Keys(Vec<Touched>),
}

/// A newer state and what changed in it since the last one taken.
#[derive(Clone, Debug)]
pub struct Change {
    /// The newest state.
    pub state: Arc<State>,
    pub scope: Scope,
}

#[derive(Debug)]
struct Slot {
    state: Arc<State>,
    scope: Scope,
    /// Nothing was published since the last take.
    taken: bool,
    /// Nobody reads: keys are not collected.
    open: bool,
}

#[derive(Debug)]
struct Shared {
    slot: Mutex<Slot>,
    published: Notify,
}

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        // Every change of the slot is a plain assignment: it is whole even if a holder panicked.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the ledger machine.
#[derive(Debug)]
pub struct FeedWriter(Arc<Shared>);

/// The side of the leader; clones are the same feed.
#[derive(Clone, Debug)]
pub struct Feed(Arc<Shared>);

/// The one who reads at the moment.
#[derive(Debug)]
pub struct FeedReader(Arc<Shared>);

#[must_use]
pub fn feed(state: Arc<State>) -> (FeedWriter, Feed) {
    let slot = Slot { state, scope: Scope::Keys(Vec::new()), taken: true, open: false };
    let shared = Arc::new(Shared { slot: Mutex::new(slot), published: Notify::new() });
    (FeedWriter(Arc::clone(&shared)), Feed(shared))
}

impl FeedWriter {
    /// Publishes a state and what was touched since the last one; nobody is woken before [`announce`](Self::announce).
    pub fn publish(&self, state: Arc<State>, touched: Vec<Touched>) {
        self.put(state, Scope::Keys(touched));
    }

    /// Publishes a state that did not come about by applying entries.
    pub fn replace(&self, state: Arc<State>) {
        self.put(state, Scope::Everything);
    }

    fn put(&self, state: Arc<State>, scope: Scope) {
        let mut slot = self.0.slot();
        slot.state = state;
        if !slot.open {
            return;
        }
        slot.taken = false;
        match (&mut slot.scope, scope) {
            (Scope::Keys(known), Scope::Keys(more)) if known.len() + more.len() <= LIMIT => known.extend(more),
            (known, _) => *known = Scope::Everything,
        }
    }

    /// Wakes who reads, if there is something to read.
    pub fn announce(&self) {
        let new = {
            let slot = self.0.slot();
            slot.open && !slot.taken
        };
        if new {
            self.0.published.notify_one();
        }
    }
}

impl Feed {
    /// Begins to read: the first change is everything. One reader at a time; an older one gets nothing any more.
    #[must_use]
    pub fn open(&self) -> FeedReader {
        let mut slot = self.0.slot();
        slot.scope = Scope::Everything;
        slot.taken = false;
        slot.open = true;
        drop(slot);
        self.0.published.notify_one();
        FeedReader(Arc::clone(&self.0))
    }
}

impl FeedReader {
    /// Takes the change since the last call; `None` if nothing was published since.
    pub fn take(&mut self) -> Option<Change> {
        let mut slot = self.0.slot();
        if slot.taken {
            return None;
        }
        slot.taken = true;
        let scope = match std::mem::replace(&mut slot.scope, Scope::Keys(Vec::new())) {
            Scope::Everything => Scope::Everything,
            Scope::Keys(mut keys) => {
                keys.sort_unstable();
                keys.dedup();
                Scope::Keys(keys)
            }
        };
        Some(Change { state: Arc::clone(&slot.state), scope })
    }

    /// Waits until something is published. Dropping the future loses nothing.
    pub async fn changed(&mut self) -> Change {
        let shared = Arc::clone(&self.0);
        loop {
            let published = shared.published.notified();
            if let Some(change) = self.take() {
                return change;
            }
            published.await;
        }
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        let mut slot = self.0.slot();
        slot.open = false;
        slot.scope = Scope::Keys(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{JobId, NodeId};

    use super::*;

    fn state() -> Arc<State> {
        Arc::new(State::new())
    }

    #[tokio::test]
    async fn keys_add_up_until_they_are_taken_once() {
        let (writer, feed) = feed(state());
        writer.publish(state(), vec![Touched::Job(JobId(9))]);
        let mut reader = feed.open();
        assert_eq!(reader.changed().await.scope, Scope::Everything, "a new reader reads everything");
        writer.publish(state(), vec![Touched::Job(JobId(2)), Touched::Node(NodeId(1))]);
        writer.publish(state(), vec![Touched::Job(JobId(2)), Touched::Queues]);
        let keys = vec![Touched::Node(NodeId(1)), Touched::Job(JobId(2)), Touched::Queues];
        assert_eq!(reader.changed().await.scope, Scope::Keys(keys));
        assert!(reader.take().is_none());
    }

    #[tokio::test]
    async fn a_reader_that_lags_reads_everything_anew() {
        let (writer, feed) = feed(state());
        let mut reader = feed.open();
        reader.changed().await;
        for job in 0..=LIMIT as u64 {
            writer.publish(state(), vec![Touched::Job(JobId(job))]);
        }
        assert_eq!(reader.changed().await.scope, Scope::Everything);
        writer.replace(state());
        assert_eq!(reader.changed().await.scope, Scope::Everything, "a snapshot replaced the state");
    }

    #[tokio::test]
    async fn nothing_is_kept_for_nobody() {
        let (writer, feed) = feed(state());
        drop(feed.open());
        writer.publish(state(), vec![Touched::Queues]);
        assert_eq!(writer.0.slot().scope, Scope::Keys(Vec::new()));
    }
}
