//! The newest entry of the log and the time at which it was first seen: whoever leads and can write writes a tick at
//! least every few seconds.

use std::time::Duration;

use tessera_ledger::Revision;

use super::View;

/// The newest entry, followed from look to look.
#[derive(Default)]
pub struct NewestEntry {
    revision: Revision,
    seen_at: Duration,
}

impl NewestEntry {
    /// Looks for a newer one, and returns the time at which the one before was first seen when there is one.
    pub fn look(&mut self, view: &View<'_>) -> Option<Duration> {
        let revision = view.newest().map(|state| state.revision()).unwrap_or_default();
        if revision == self.revision {
            return None;
        }
        self.revision = revision;
        Some(std::mem::replace(&mut self.seen_at, view.now))
    }

    /// The time at which it was first seen.
    pub const fn seen_at(&self) -> Duration {
        self.seen_at
    }
}
