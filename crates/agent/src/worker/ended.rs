//! The work of a node that has ended: what is kept of it, when that goes, and what goes before its time where there is
//! no room for all of it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::statvfs::statvfs;

use super::folder::WorkerFolders;
use super::id::WorkerId;
use super::known::Known;
use super::settled::Settled;
use crate::boot::{BootTime, unix_millis};

/// The room on a node's disk for work that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most bytes that it takes.
    pub bytes: u64,
    /// The share of the file system, in percent, that is to be free, 10 GiB at most: while less is, ended work goes.
    pub least_free: u8,
}

/// The bytes of a file system, and those of them that are free.
#[derive(Clone, Copy, Debug)]
struct Space {
    all: u64,
    free: u64,
}

/// Free bytes that are enough on a disk of any size: a share of a very large one would be more than all that ended work
/// may take.
const ENOUGH_FREE: u64 = 10 << 30;
/// The part of the budget, as a divisor, that ended work keeps on a disk that others fill.
const OF_BUDGET: u64 = 100;

impl Space {
    fn has_free(self, percent: u8) -> bool {
        self.free >= (self.all / 100 * u64::from(percent)).min(ENOUGH_FREE)
    }
}

/// Reads the space of the file system of a node's workers.
type Reader = Box<dyn Fn() -> io::Result<Space> + Send + Sync>;
/// Reads the clock on which ages are counted.
type Clock = Box<dyn Fn() -> BootTime + Send + Sync>;

/// The settled workers of a node. Their notes are read once: there may be very many.
#[derive(Clone)]
pub struct Ended(Arc<Inner>);

struct Inner {
    folders: WorkerFolders,
    budget: Budget,
    space: Reader,
    clock: Clock,
    known: Mutex<Known>,
    /// Held while room is made.
    making: Mutex<()>,
    /// Workers whose output went before its time.
    removed_early: AtomicU64,
}

impl Ended {
    #[must_use]
    pub fn new(folders: WorkerFolders, budget: Budget) -> Self {
        let place = folders.path().to_owned();
        let space = move || {
            let system = statvfs(&place)?;
            let bytes = |blocks: u64| blocks.saturating_mul(system.fragment_size());
            Ok(Space { all: bytes(system.blocks()), free: bytes(system.blocks_available()) })
        };
        Self::with(folders, budget, Box::new(space), Box::new(BootTime::now))
    }

    fn with(folders: WorkerFolders, budget: Budget, space: Reader, clock: Clock) -> Self {
        let (known, making, removed_early) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Inner { folders, budget, space, clock, known, making, removed_early }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> BootTime {
        (self.0.clock)()
    }

    /// The bytes that all of it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.known().bytes()
    }

    /// The number of workers whose output went before its time.
    #[must_use]
    pub fn removed_early(&self) -> u64 {
        self.0.removed_early.load(Ordering::Relaxed)
    }

    /// Notes that a worker is settled and its output is kept for a while: as long as its job says, if it does, and as
    /// there is room.
    ///
    /// # Errors
    /// What the file system says.
    pub fn settle(&self, worker: WorkerId, retention: Option<Duration>) -> io::Result<()> {
        if let Some(settled) = self.0.folders.of(worker).settle(retention)? {
            self.known().put(worker, settled, Duration::ZERO, self.now());
            self.make_room();
        }
        Ok(())
    }

    /// Reads what earlier agents noted.
    fn look(&self) -> io::Result<()> {
        if self.known().is_complete {
            return Ok(());
        }
        for (worker, folder) in self.0.folders.all()? {
            if let Some(settled) = folder.settled() {
                let ago = Duration::from_millis(unix_millis().saturating_sub(settled.settled_unix_ms));
                self.known().put(worker, settled, ago, self.now());
            }
        }
        self.known().is_complete = true;
        Ok(())
    }

    /// Removes output whose time is over, and the folders of workers that need not be remembered any more; answers of
    /// how many workers output went. `usual`: how long the output of jobs is kept that do not say; `None`: that is not
    /// known yet, and theirs stays.
    ///
    /// # Errors
    /// When folders cannot be read, or one of them cannot be removed; the others are.
    pub fn remove_expired(&self, usual: Option<Duration>) -> io::Result<usize> {
        self.look()?;
        let due = self.known().due(usual, self.now());
        let (mut removed, mut failed) = (0, None);
        for (worker, settled, is_forgotten) in due {
            let went = if is_forgotten { self.discard(worker) } else { self.empty(worker, settled) };
            match went {
                Ok(()) => removed += usize::from(!settled.removed),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Removes the oldest of it until what is left keeps to the budget. Nothing waits for whoever is doing that
    /// already, nor for the first look at what earlier agents left.
    pub fn make_room(&self) {
        let Ok(_making) = self.0.making.try_lock() else { return };
        if !self.known().is_complete {
            return;
        }
        loop {
            let is_short = !self.keeps_to(self.0.budget);
            let next = self.known().next_to_go(is_short, self.0.budget.bytes, self.now());
            let Some((worker, settled)) = next else { break };
            let went = if settled.removed { self.discard(worker) } else { self.remove_early(worker, settled) };
            if let Err(error) = went {
                // Not looked at again before the next start of the agent: others behind it may go.
                self.known().forget(worker);
                tracing::warn!(%worker, %error, "what ended work has left cannot be removed; it is left where it is");
            }
        }
        let Budget { bytes, least_free } = self.0.budget;
        // A little more than is needed, so that what is told is not told again with each worker.
        if self.keeps_to(Budget { bytes: bytes / 10 * 9, least_free: least_free + 1 }) {
            self.known().is_short = false;
        }
    }

    /// Returns whether what is known keeps to a budget. A file system that does not say how it stands counts as one
    /// with room.
    fn keeps_to(&self, budget: Budget) -> bool {
        let bytes = self.bytes();
        // Where others fill the disk, the little that ended work takes makes no room.
        let is_little = bytes <= budget.bytes / OF_BUDGET;
        bytes <= budget.bytes && (is_little || (self.0.space)().map_or(true, |space| space.has_free(budget.least_free)))
    }

    fn remove_early(&self, worker: WorkerId, settled: Settled) -> io::Result<()> {
        if !std::mem::replace(&mut self.known().is_short, true) {
            let Budget { bytes: budget, least_free } = self.0.budget;
            tracing::warn!(
                bytes = self.bytes(),
                budget,
                least_free,
                "there is no room for all that ended work has left here: the oldest goes before its time; give it more \
                 with `ended_disk`, or the file system"
            );
        }
        self.empty(worker, Settled { for_room: true, ..settled })?;
        self.0.removed_early.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn empty(&self, worker: WorkerId, settled: Settled) -> io::Result<()> {
        let emptied = self.0.folders.of(worker).empty(settled)?;
        self.known().change(worker, emptied);
        Ok(())
    }

    fn discard(&self, worker: WorkerId) -> io::Result<()> {
        self.0.folders.discard(worker)?;
        self.known().forget(worker);
        Ok(())
    }
}

#[cfg(test)]
#[path = "ended_tests.rs"]
mod tests;
