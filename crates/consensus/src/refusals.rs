//! Refusals by those whom this member calls. They turn it away, because it was removed or its data folder was copied;
//! or they are somebody else than it looks for. They say so to whoever asks them for a vote or for digests; nobody else
//! would tell a member that nobody follows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ids::MemberId;
use crate::status::Refused;

/// For so long a refusal counts: a member that nobody follows asks several times a second.
const FRESH: Duration = Duration::from_secs(10);
/// The time after which the same refusal is logged again.
const SAID_AGAIN: Duration = Duration::from_secs(600);

/// The newest refusal of each member that called this one.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<MemberId, Newest>>);

#[derive(Debug)]
struct Newest {
    refused: Refused,
    heard: Instant,
    logged: Instant,
}

impl Refusals {
    /// Notes the refusal of who was called as the member `called`, and logs one that is new.
    pub(crate) fn note(&self, called: MemberId, refused: Refused, now: Instant) {
        let mut newest = self.lock();
        let before = newest.get(&called).filter(|before| before.refused == refused && now - before.logged < SAID_AGAIN);
        let logged = before.map_or(now, |before| before.logged);
        if before.is_none() {
            tracing::warn!("this member was refused: {refused}");
        }
        newest.insert(called, Newest { refused, heard: now, logged });
    }

    /// Returns the newest refusal, unless it is old. Who turns this member away means it, and goes before others.
    pub(crate) fn newest(&self, now: Instant) -> Option<Refused> {
        let all = self.lock();
        let fresh = all.values().filter(|newest| now - newest.heard < FRESH);
        let newest = fresh.max_by_key(|newest| (matches!(newest.refused, Refused::TurnedAway { .. }), newest.heard))?;
        Some(newest.refused.clone())
    }

    /// Forgets what members said that are none any more.
    pub(crate) fn forget(&self, is_removed: impl Fn(MemberId) -> bool) {
        self.lock().retain(|called, _| !is_removed(*called));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Newest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_while_it_is_repeated() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.newest(now), None);
        let away = |by| Refused::TurnedAway { by: MemberId(by), why: "it was removed".to_owned() };
        refusals.note(MemberId(2), away(2), now);
        let later = now + FRESH / 2;
        refusals.note(MemberId(3), away(3), later);
        assert_eq!(refusals.newest(now + FRESH), Some(away(3)));
        let misplaced = Refused::Misplaced { member: MemberId(4), why: "this is member 5".to_owned() };
        refusals.note(MemberId(4), misplaced.clone(), now + FRESH);
        assert_eq!(refusals.newest(now + FRESH), Some(away(3)), "who turns it away means it");
        assert_eq!(refusals.newest(later + FRESH), Some(misplaced));
        assert_eq!(refusals.newest(now + FRESH * 2), None);
        refusals.forget(|id| id == MemberId(4));
        assert_eq!(refusals.newest(later + FRESH), None, "the one that said so is no member any more");
    }
}
