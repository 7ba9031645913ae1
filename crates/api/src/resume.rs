//! Resume tokens of watches: the place among all events of the pool after which a watch goes on.

use prost::Message;
use tessera_ledger::Revision;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::Refusal;
use crate::token::{self, Purpose};
use crate::v1;

/// A place among all events of the pool: everything up to it has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchPlace {
    /// Index of the entry.
    pub revision: Revision,
    /// The number of the entry's events that have been sent; [`WatchPlace::WHOLE`]: all.
    pub events: u32,
}

impl WatchPlace {
    /// All events of an entry.
    pub const WHOLE: u32 = u32::MAX;

    /// After everything of an entry.
    #[must_use]
    pub const fn after(revision: Revision) -> Self {
        Self { revision, events: Self::WHOLE }
    }

    /// Just after one event.
    #[must_use]
    pub const fn after_event(revision: Revision, ordinal: u32) -> Self {
        Self { revision, events: ordinal.saturating_add(1) }
    }

    /// Returns whether an event has been sent already.
    #[must_use]
    pub const fn covers(&self, revision: Revision, ordinal: u32) -> bool {
        revision.0 < self.revision.0 || (revision.0 == self.revision.0 && ordinal < self.events)
    }

    /// The revision after which events must still be remembered for the watch to go on.
    #[must_use]
    pub const fn needs_after(&self) -> Revision {
        if self.events == Self::WHOLE { self.revision } else { Revision(self.revision.0.saturating_sub(1)) }
    }
}

/// Makes and reads the resume tokens of one watch, and of all later ones with the same filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeTokens {
    query: u64,
}

impl ResumeTokens {
    #[must_use]
    pub fn of_jobs(filter: Option<&v1::JobFilter>) -> Self {
        let encoded = filter.map(Message::encode_to_vec).unwrap_or_default();
        Self { query: xxh3_64(&[b"jobs", encoded.as_slice()].concat()) }
    }

    #[must_use]
    pub fn of_pool() -> Self {
        Self { query: xxh3_64(b"pool") }
    }

    #[must_use]
    pub fn make(&self, place: WatchPlace) -> String {
        let mut bytes = place.revision.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(&place.events.to_be_bytes());
        token::make(Purpose::Resume, self.query, &bytes)
    }

    /// The place of a token.
    ///
    /// # Errors
    /// A [`Refusal`] with RESUME_TOKEN_INVALID when it is damaged or belongs to a watch with another filter.
    pub fn read(&self, text: &str) -> Result<WatchPlace, Refusal> {
        let read = || {
            let bytes = token::read(Purpose::Resume, self.query, text)?;
            let (revision, events) = bytes.split_at_checked(8)?;
            let revision = Revision(u64::from_be_bytes(revision.try_into().ok()?));
            Some(WatchPlace { revision, events: u32::from_be_bytes(events.try_into().ok()?) })
        };
        read().ok_or_else(|| {
            let message = "resume_token: is damaged or belongs to a watch with another filter; hand it back unchanged, or \
                           start the watch anew";
            Refusal::new(v1::ErrorReason::ResumeTokenInvalid, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_by_the_same_watch_only() {
        let filter = v1::JobFilter { job_ids: vec![4], ..Default::default() };
        let (all, one) = (ResumeTokens::of_jobs(None), ResumeTokens::of_jobs(Some(&filter)));
        let place = WatchPlace::after_event(Revision(12), 3);
        let token = all.make(place);
        assert_eq!(all.read(&token), Ok(place));
        for other in [one, ResumeTokens::of_pool()] {
            let refusal = other.read(&token).expect_err("another watch");
            assert_eq!(refusal.reason(), v1::ErrorReason::ResumeTokenInvalid);
        }
    }

    #[test]
    fn a_place_divides_what_was_sent_from_what_was_not() {
        let place = WatchPlace::after_event(Revision(12), 3);
        assert!(place.covers(Revision(11), 99) && place.covers(Revision(12), 3));
        assert!(!place.covers(Revision(12), 4) && !place.covers(Revision(13), 0));
        assert_eq!(place.needs_after(), Revision(11));
        let whole = WatchPlace::after(Revision(12));
        assert!(whole.covers(Revision(12), u32::MAX - 1) && !whole.covers(Revision(13), 0));
        assert_eq!(whole.needs_after(), Revision(12));
    }
}
