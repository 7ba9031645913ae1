//! Numbers by which another member finds out whether it was this one that opened a line for appends, or began to send a
//! snapshot.
//!
//! Anybody can say a member's id. A number that nobody can guess, told on the way there and asked back for at the
//! address that the membership has, shows that whoever is at that address told it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ids::MemberId;

/// The message that a number is told with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ToldWith {
    Line,
    Snapshot,
}

/// The newest number of each kind that each member was told.
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    keys: RandomState,
    drawn: AtomicU64,
    newest: Mutex<BTreeMap<(MemberId, ToldWith), u64>>,
}

impl Nonces {
    /// Draws a number for `member`, in the place of the one before.
    pub(crate) fn draw(&self, member: MemberId, with: ToldWith) -> u64 {
        let nonce = self.keys.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed));
        self.lock().insert((member, with), nonce);
        nonce
    }

    /// Tells whether `member` was told this number.
    pub(crate) fn told(&self, member: MemberId, nonce: u64) -> bool {
        self.lock().iter().any(|((told, _), known)| *told == member && *known == nonce)
    }

    /// Forgets what members were told that are none any more.
    pub(crate) fn forget(&self, is_removed: impl Fn(MemberId) -> bool) {
        self.lock().retain(|(member, _), _| !is_removed(*member));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(MemberId, ToldWith), u64>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_member_was_told_last_is_known() {
        let (nonces, member) = (Nonces::default(), MemberId(2));
        let appends = nonces.draw(member, ToldWith::Line);
        let snapshot = nonces.draw(member, ToldWith::Snapshot);
        assert!(nonces.told(member, appends) && nonces.told(member, snapshot));
        assert!(!nonces.told(MemberId(3), appends), "it is another's");
        let again = nonces.draw(member, ToldWith::Line);
        assert!(nonces.told(member, again) && !nonces.told(member, appends));
        nonces.forget(|id| id == member);
        assert!(nonces.lock().is_empty(), "it was removed");
    }
}
