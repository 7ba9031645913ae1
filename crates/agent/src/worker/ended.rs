//! The work of a node that has ended: what is kept of it, and when that goes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::folder::WorkerFolders;
use super::id::WorkerId;
use super::settled::Settled;
use crate::boot::unix_millis;

/// The settled workers of a node. Their notes are read once: there may be very many.
#[derive(Clone, Debug)]
pub struct Ended {
    folders: WorkerFolders,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    settled: BTreeMap<WorkerId, Settled>,
    /// True once those that an earlier agent settled are among them.
    is_complete: bool,
}

impl Ended {
    #[must_use]
    pub fn new(folders: WorkerFolders) -> Self {
        Self { folders, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a worker is settled and its output is kept for a while: as long as its job says, if it does.
    ///
    /// # Errors
    /// What the file system says.
    pub fn settle(&self, worker: WorkerId, retention: Option<Duration>) -> io::Result<()> {
        if let Some(settled) = self.folders.of(worker).settle(retention)? {
            self.known().settled.insert(worker, settled);
        }
        Ok(())
    }

    /// Reads what earlier agents noted.
    fn look(&self) -> io::Result<()> {
        if self.known().is_complete {
            return Ok(());
        }
        for (worker, folder) in self.folders.all()? {
            if let Some(settled) = folder.settled() {
                self.known().settled.entry(worker).or_insert(settled);
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
        let now = unix_millis();
        let is_due = |settled: &Settled| settled.expiry(usual).is_some_and(|expiry| expiry <= now);
        let is_remembered = |settled: &Settled| settled.remembered_until() > now;
        let due: Vec<_> = {
            let known = self.known();
            let due = known.settled.iter().filter(|(_, settled)| is_due(settled));
            due.filter(|(_, settled)| !(settled.removed && is_remembered(settled))).map(|(worker, of)| (*worker, *of)).collect()
        };
        let (mut removed, mut failed) = (0, None);
        for (worker, settled) in due {
            let went = if is_remembered(&settled) { self.empty(worker, settled) } else { self.discard(worker) };
            match went {
                Ok(()) => removed += usize::from(!settled.removed),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    fn empty(&self, worker: WorkerId, settled: Settled) -> io::Result<()> {
        let emptied = self.folders.of(worker).empty(settled)?;
        self.known().settled.insert(worker, emptied);
        Ok(())
    }

    fn discard(&self, worker: WorkerId) -> io::Result<()> {
        self.folders.discard(worker)?;
        self.known().settled.remove(&worker);
        Ok(())
    }
}

#[cfg(test)]
#[path = "ended_tests.rs"]
mod tests;
