//! The one place where a member's randomness comes from.
//!
//! Outside simulation openraft draws its election timeouts from the thread's generator. Under simulation it draws them
//! from the seed of the task scope it runs in, and a task that others start on our behalf (the server's) has none: here
//! it gets one, derived from the seed the member was started with.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of seeds.
pub(crate) struct Entropy(AtomicU64);

impl Entropy {
    pub(crate) fn new(seed: u64) -> Self {
        Entropy(AtomicU64::new(seed))
    }

    /// The next seed; a permutation of a counter (SplitMix64), so that neighbours have nothing in common.
    pub(crate) fn next(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Runs `work` where openraft may draw randomness.
    #[cfg(feature = "simulation")]
    pub(crate) fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        crate::types::Runtime::scope(self.next(), work)
    }

    /// Runs `work` where openraft may draw randomness.
    #[cfg(not(feature = "simulation"))]
    pub(crate) fn scope<F: Future>(&self, work: F) -> F {
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_row_and_another_seed_another() {
        let row = |seed| {
            let entropy = Entropy::new(seed);
            [entropy.next(), entropy.next(), entropy.next()]
        };
        assert_eq!(row(7), row(7));
        assert_ne!(row(7), row(8));
        assert_ne!(row(7)[0], row(7)[1]);
    }
}
