//! The read side: the state of the ledger as this member published it last.

use std::sync::Arc;

use tessera_ledger::{Revision, State};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The ledger as this member has applied it. Clones look at the same state; reading never waits for applying.
#[derive(Clone, Debug)]
pub struct LedgerView {
    published: watch::Receiver<Arc<State>>,
}

/// A revision was not reached in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this member has applied the ledger up to revision {reached}, not {wanted}; retry, or ask another member")]
pub struct NotReached {
    pub wanted: Revision,
    /// The revision that this member has applied.
    pub reached: Revision,
}

impl LedgerView {
    #[must_use]
    pub fn new(published: watch::Receiver<Arc<State>>) -> Self {
        Self { published }
    }

    /// The newest state that this member has applied.
    #[must_use]
    pub fn current(&self) -> Arc<State> {
        self.published.borrow().clone()
    }

    /// The newest state, once it includes the entry of `revision`.
    ///
    /// # Errors
    /// [`NotReached`] when this member has not applied that entry before the deadline, or applies nothing any more.
    pub async fn at_least(&self, revision: Revision, deadline: Instant) -> Result<Arc<State>, NotReached> {
        let mut published = self.published.clone();
        let reached = timeout_at(deadline, published.wait_for(|state| state.revision() >= revision)).await;
        match reached {
            Ok(Ok(state)) => Ok(state.clone()),
            Ok(Err(_)) | Err(_) => Err(NotReached { wanted: revision, reached: self.current().revision() }),
        }
    }

    /// Wakes on every publication. What happened since is in [`State::events_after`].
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Arc<State>> {
        self.published.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tessera_ledger::{EntryPosition, LogTime};

    use super::*;

    fn at(revision: u64) -> Arc<State> {
        let mut state = State::new();
        state.observe(EntryPosition { revision: Revision(revision), time: LogTime(0) });
        Arc::new(state)
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_waits_for_the_revision_it_needs() {
        let (publish, published) = watch::channel(at(1));
        let view = LedgerView::new(published);
        let deadline = Instant::now() + Duration::from_secs(1);
        let late = view.at_least(Revision(3), deadline).await;
        assert_eq!(late.map(|state| state.revision()), Err(NotReached { wanted: Revision(3), reached: Revision(1) }));

        let waiting = tokio::spawn({
            let view = view.clone();
            async move { view.at_least(Revision(3), Instant::now() + Duration::from_secs(1)).await }
        });
        publish.send_replace(at(4));
        let state = waiting.await.expect("the reader does not panic").expect("revision 4 includes revision 3");
        assert_eq!(state.revision(), Revision(4));
    }
}
