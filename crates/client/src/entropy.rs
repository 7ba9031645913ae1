//! The one place where a client takes randomness from: request ids and the seeds of jitter.

use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of randomness, seeded in simulations.
#[derive(Debug)]
pub(crate) struct Entropy(Mutex<StdRng>);

impl Entropy {
    /// From `seed`, or from the operating system.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(Mutex::new(seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)))
    }

    /// A fresh request id: a random UUID.
    pub(crate) fn request_id(&self) -> String {
        let bytes: [u8; 16] = self.with(Rng::random);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// A seed for the jitter of one call.
    pub(crate) fn jitter_seed(&self) -> u64 {
        self.with(Rng::random)
    }

    fn with<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        // A generator is usable after any panic of a holder: it holds no invariant.
        let mut generator = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        draw(&mut generator)
    }
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
        assert_eq!(ids(Some(7)), ids(Some(7)));
        assert_ne!(ids(Some(7)), ids(Some(8)));
        let [first, second] = ids(None);
        assert_ne!(first, second);
        assert!(uuid::Uuid::parse_str(&first).is_ok_and(|id| id.get_version_num() == 4));
    }
}
