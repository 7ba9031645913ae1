//! The digest of the state (law L8).
//!
//! It is a hash of what a snapshot of the state would hold: of the header, and of the sum of the hashes of all other
//! records. So it depends on the state alone and not on how that was reached, covers everything that is kept and no
//! sentence for people (of a refusal it is kept that it was one, not why), and can be computed again from a snapshot
//! that was read.
//! Since what means the same as its absence is not written, a release that adds to the state computes the same digest
//! of a state that does not use it.
//!
//! The sum is kept up to date by hashing again what has changed: [`Kept`](crate::kept::Kept) notes that. What was
//! submitted with a job never changes: it counts with a hash that is taken once, so that the length of a script costs
//! nothing afterwards.

use xxhash_rust::xxh3::xxh3_128;

use crate::state::State;
use crate::wire::header_to_digest;

/// Changes that are noted before they are counted: a card that is changed by each of a hundred entries is hashed once.
const COUNTED_TOGETHER: usize = 256;

/// Does the same with every map that snapshots keep. Taken apart field by field in `wire::snapshot`.
macro_rules! kept_maps {
    ($state:expr, $with:ident) => {
        [
            $state.nodes.$with(),
            $state.cards.$with(),
            $state.queues.$with(),
            $state.jobs.$with(),
            $state.allocations.$with(),
            $state.moves.$with(),
            $state.requests.$with(),
            $state.history.$with(),
        ]
    };
}

fn sum(parts: [u128; 8]) -> u128 {
    parts.into_iter().fold(0, u128::wrapping_add)
}

impl State {
    /// A hash of the state: equal logs give equal digests on every member (law L8).
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.digest_with(self.records_sum.wrapping_add(sum(kept_maps!(self, added))))
    }

    fn digest_with(&self, records_sum: u128) -> u128 {
        let mut bytes = header_to_digest(self);
        bytes.extend_from_slice(&records_sum.to_be_bytes());
        xxh3_128(&bytes)
    }

    pub(crate) fn digest_from_scratch(&self) -> u128 {
        let mut copy = self.clone();
        copy.watch_records();
        copy.digest()
    }

    /// Counts every record, and notes every change from now on.
    pub(crate) fn watch_records(&mut self) {
        self.records_sum = sum(kept_maps!(self, watch));
    }

    /// Counts what has changed, when that is much.
    pub(crate) fn settle_much(&mut self) {
        if kept_maps!(self, changes).into_iter().sum::<usize>() >= COUNTED_TOGETHER {
            self.settle();
        }
    }

    /// Counts what has changed.
    pub(crate) fn settle(&mut self) {
        let added = sum(kept_maps!(self, settle));
        self.records_sum = self.records_sum.wrapping_add(added);
    }
}
