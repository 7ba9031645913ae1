//! The one place where a client takes randomness from: request ids and the seeds of jitter.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of randomness, seeded in simulations.
#[derive(Debug)]
pub(crate) struct Entropy {
    generator: Mutex<StdRng>,
}

impl Entropy {
    /// From `seed`, or from the operating system.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let generator = Mutex::new(seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64));
        Self { generator }
    }

    /// A fresh request id: a UUID that begins with the time (version 7). By it the ledger knows an id that is older
    /// than all that it remembers.
    ///
    /// The ledger remembers answered requests in the order of their ids, in a map of which every entry of the log
    /// copies what it changes. Ids that begin with the time fall beside each other there, so that one copy serves all
    /// submissions of an entry; with random ones each submission copies a part of the map of its own, a fifth of a
    /// follower's whole work.
    pub(crate) fn request_id(&self) -> String {
        let bytes: [u8; 16] = self.with(Rng::random);
        let [random @ .., _, _, _, _, _, _] = bytes;
        uuid::Builder::from_unix_timestamp_millis(unix_millis(), &random).into_uuid().to_string()
    }

    /// A seed for the jitter of one call.
    pub(crate) fn jitter_seed(&self) -> u64 {
        self.with(Rng::random)
    }

    fn with<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        // A generator is usable after any panic of a holder: it holds no invariant.
        let mut generator = self.generator.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        draw(&mut generator)
    }
}

/// An id from a clock that is far off is refused, with a word about the clock. A simulation has this clock in its
/// hands.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_ids_differ() {
        let ids = |seed| {
            let entropy = Entropy::new(seed);
            [entropy.request_id(), entropy.request_id()]
        };
        // What follows the time.
        let drawn = |ids: [String; 2]| ids.map(|id| id.get(15..).expect("36 characters").to_owned());
        assert_eq!(drawn(ids(Some(7))), drawn(ids(Some(7))));
        assert_ne!(ids(Some(7)), ids(Some(8)));
        let [first, second] = ids(None);
        assert_ne!(first, second);
        assert!(uuid::Uuid::parse_str(&first).is_ok_and(|id| id.get_version_num() == 7));
    }

    #[test]
    fn ids_follow_each_other_in_time() {
        let entropy = Entropy::new(None);
        let before = unix_millis();
        let ids: Vec<String> = (0..100).map(|_| entropy.request_id()).collect();
        let after = unix_millis();
        for id in &ids {
            let millis = u64::from_str_radix(&id.replace('-', "")[..12], 16).expect("hexadecimal");
            assert!((before..=after).contains(&millis), "{id}");
        }
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len());
    }
}
