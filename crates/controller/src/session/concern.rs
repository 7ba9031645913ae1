//! The extent of a change of the ledger on a node, so that a session compares a few orders and not all of them: a node
//! may run a thousand workers, and each of them changes several times.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tessera_ledger::{AllocationId, Epoch, Owner, Rank};
use tokio::sync::Notify;

/// The orders to compare with the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    Everything,
    Allocations(BTreeSet<AllocationId>),
}

impl Default for Concern {
    fn default() -> Self {
        Self::Allocations(BTreeSet::new())
    }
}

impl Concern {
    pub fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Everything, _) => {}
            (Self::Allocations(known), Self::Allocations(more)) => known.extend(more),
            (Self::Allocations(_), Self::Everything) => *self = Self::Everything,
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Allocations(known) if known.is_empty())
    }

    /// The workers of a set that the concern covers.
    pub fn among(&self, owners: impl OrderedOwners) -> Vec<Owner> {
        match self {
            Self::Everything => owners.all(),
            Self::Allocations(known) => known.iter().flat_map(|id| owners.of(*id)).collect(),
        }
    }
}

impl FromIterator<AllocationId> for Concern {
    fn from_iter<T: IntoIterator<Item = AllocationId>>(ids: T) -> Self {
        Self::Allocations(ids.into_iter().collect())
    }
}

/// Workers in their order, in which those of one allocation are neighbours.
pub(crate) trait OrderedOwners {
    fn all(&self) -> Vec<Owner>;
    fn of(&self, allocation: AllocationId) -> Vec<Owner>;
}

/// The range of all workers of one allocation.
fn range(allocation: AllocationId) -> std::ops::RangeInclusive<Owner> {
    let owner = |epoch, rank| Owner { allocation, epoch: Epoch(epoch), rank: Rank(rank) };
    owner(0, 0)..=owner(u64::MAX, u32::MAX)
}

impl OrderedOwners for &BTreeSet<Owner> {
    fn all(&self) -> Vec<Owner> {
        self.iter().copied().collect()
    }

    fn of(&self, allocation: AllocationId) -> Vec<Owner> {
        self.range(range(allocation)).copied().collect()
    }
}

impl<V> OrderedOwners for &std::collections::BTreeMap<Owner, V> {
    fn all(&self) -> Vec<Owner> {
        self.keys().copied().collect()
    }

    fn of(&self, allocation: AllocationId) -> Vec<Owner> {
        self.range(range(allocation)).map(|(owner, _)| *owner).collect()
    }
}

/// Wakes a session. Concerns add up until the session takes them: nothing queues up behind a slow one.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    concern: Mutex<Concern>,
    added: Notify,
}

impl Wake {
    /// Wakes the session for this.
    pub fn add(&self, concern: Concern) {
        self.concern.lock().unwrap_or_else(PoisonError::into_inner).add(concern);
        self.added.notify_one();
    }

    /// Takes what has added up.
    fn take(&self) -> Concern {
        std::mem::take(&mut *self.concern.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until there is something. Dropping the future loses nothing.
    pub async fn concerned(&self) -> Concern {
        loop {
            let added = self.added.notified();
            let concern = self.take();
            if !concern.is_nothing() {
                return concern;
            }
            added.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn owner(allocation: u64, rank: u32) -> Owner {
        Owner { allocation: AllocationId(allocation), epoch: Epoch(7), rank: Rank(rank) }
    }

    #[test]
    fn a_concern_finds_the_workers_of_its_allocations_only() {
        let owners: BTreeSet<Owner> = [owner(1, 0), owner(2, 0), owner(2, 1), owner(3, 0)].into();
        let concern: Concern = [AllocationId(2), AllocationId(9)].into_iter().collect();
        assert_eq!(concern.among(&owners), [owner(2, 0), owner(2, 1)]);
        assert_eq!(Concern::Everything.among(&owners).len(), 4);
    }

    #[test]
    fn concerns_add_up_until_they_are_taken_once() {
        let wake = Wake::default();
        assert_eq!(wake.concerned().now_or_never(), None);
        wake.add([AllocationId(1)].into_iter().collect());
        wake.add([AllocationId(2)].into_iter().collect());
        let both = [AllocationId(1), AllocationId(2)].into_iter().collect();
        assert_eq!(wake.concerned().now_or_never(), Some(both));
        assert_eq!(wake.concerned().now_or_never(), None);
        wake.add(Concern::Everything);
        wake.add([AllocationId(2)].into_iter().collect());
        assert_eq!(wake.concerned().now_or_never(), Some(Concern::Everything));
    }
}
