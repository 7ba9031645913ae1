//! Refusals by other members that turn this one away: it was removed, or its data folder was copied. They say so to
//! whoever asks them for a vote or for digests; nobody else would tell a member that nobody follows.

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
    why: String,
    heard: Instant,
    logged: Instant,
}

impl Refusals {
    /// Notes a refusal, and logs one that is new.
    pub(crate) fn note(&self, by: MemberId, why: &str, now: Instant) {
        let mut newest = self.lock();
        let before = newest.get(&by).filter(|before| before.why == why && now - before.logged < SAID_AGAIN);
        let logged = before.map_or(now, |before| before.logged);
        if before.is_none() {
            tracing::warn!(%by, why, "another member turns this one away");
        }
        newest.insert(by, Newest { why: why.to_owned(), heard: now, logged });
    }

    /// Returns the newest refusal, unless it is old.
    pub(crate) fn newest(&self, now: Instant) -> Option<Refused> {
        let all = self.lock();
        let (by, newest) = all.iter().max_by_key(|(_, newest)| newest.heard)?;
        (now - newest.heard < FRESH).then(|| Refused { by: *by, why: newest.why.clone() })
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
        refusals.note(MemberId(2), "it was removed", now);
        let later = now + FRESH / 2;
        refusals.note(MemberId(3), "there are two of it", later);
        let refused = Refused { by: MemberId(3), why: "there are two of it".to_owned() };
        assert_eq!(refusals.newest(now + FRESH), Some(refused));
        assert_eq!(refusals.newest(later + FRESH), None);
    }
}
