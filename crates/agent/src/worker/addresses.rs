//! The newest addresses of workers' blocks, which may come before the folder of their worker is made.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tessera_api::v1::WorkerOrder;

use super::id::WorkerId;

/// The newest order of each worker, with its number.
type Newest = BTreeMap<WorkerId, (u64, Arc<WorkerOrder>)>;

/// Orders that gave blocks other addresses, of the workers that are here.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// Locked while a file is written: a worker that is launched meanwhile, and an older order that was slow, do not
    /// write over it.
    newest: Arc<Mutex<Newest>>,
    /// The workers that a task stays with: of others nothing is kept, because nobody would forget it. Never locked for
    /// long.
    here: Arc<Mutex<BTreeSet<WorkerId>>>,
}

impl Addresses {
    /// Notes that a task stays with a worker from now on.
    pub fn stay_with(&self, worker: WorkerId) {
        lock(&self.here).insert(worker);
    }

    /// Notes that the worker is over.
    pub fn forget(&self, worker: WorkerId) {
        lock(&self.here).remove(&worker);
        lock(&self.newest).remove(&worker);
    }

    /// Stores the addresses of an order, unless newer ones came or the worker is over. Its folder may not be there yet.
    ///
    /// # Errors
    /// Those of `store`.
    pub fn bring(
        &self,
        worker: WorkerId,
        (number, order): (u64, Arc<WorkerOrder>),
        store: impl FnOnce(&WorkerOrder) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut newest = lock(&self.newest);
        let is_late = newest.get(&worker).is_some_and(|(newest, _)| *newest > number);
        if is_late || !lock(&self.here).contains(&worker) {
            return Ok(());
        }
        newest.insert(worker, (number, Arc::clone(&order)));
        match store(&order) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            stored => stored,
        }
    }

    /// Stores the addresses of a worker whose folder is there now: those that came meanwhile, or those of its order.
    ///
    /// # Errors
    /// Those of `store`.
    pub fn begin(
        &self,
        worker: WorkerId,
        order: &WorkerOrder,
        store: impl FnOnce(&WorkerOrder) -> io::Result<()>,
    ) -> io::Result<()> {
        let newest = lock(&self.newest);
        store(newest.get(&worker).map_or(order, |(_, order)| order))
    }
}

/// Every change is a single insertion or removal, so that a panic of another holder leaves none half made.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{AllocationId, Epoch, Rank};

    use super::*;

    #[test]
    fn the_newest_addresses_are_kept_until_the_worker_is_over_and_none_after_that() {
        let addresses = Addresses::default();
        let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(10), rank: Rank(0) };
        let order = |job_id| WorkerOrder { job_id, ..WorkerOrder::default() };
        let not_there = |_: &WorkerOrder| Err(io::Error::from(io::ErrorKind::NotFound));
        let bring = |number: u64| addresses.bring(worker, (number, Arc::new(order(number))), not_there);
        let begun = || {
            let mut stored = 0;
            let begun = addresses.begin(worker, &order(100), |order| {
                stored = order.job_id;
                Ok(())
            });
            begun.map(|()| stored).expect("it is stored")
        };
        addresses.stay_with(worker);
        assert_eq!(begun(), 100);
        bring(2).expect("its folder may come");
        bring(1).expect("it is late");
        assert_eq!(begun(), 2);
        addresses.forget(worker);
        bring(3).expect("nobody needs it");
        assert_eq!(begun(), 100);
        assert!(lock(&addresses.newest).is_empty() && lock(&addresses.here).is_empty());
    }
}
