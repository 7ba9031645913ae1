//! The store's logic above a disk: what is the same on a real disk and on a modelled one.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::body;
use crate::codec::{Family, Fault, REMEDY};
use crate::error::StoreError;
use crate::keys::{self, SnapshotId};
use crate::record::{EntryId, LogRecord, SnapshotRecord};
use crate::request::{Answer, Request, Submission};
use crate::shelf::Shelf;
use crate::store::{Done, LogState, SnapshotWriter, Store, StoreStatus};
use crate::view::View;
use crate::writer::ChunkWriter;

/// State of an open store that both kinds share.
pub(crate) struct Core {
    pub(crate) path: PathBuf,
    /// Held while a request is accepted and queued, so that the queue has the order of the calls.
    order: Mutex<()>,
    view: Mutex<View>,
    shelf: Mutex<Shelf>,
}

impl Core {
    pub(crate) fn new(path: PathBuf, view: View, shelf: Shelf) -> Self {
        Core { path, order: Mutex::new(()), view: Mutex::new(view), shelf: Mutex::new(shelf) }
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        held(&self.view)
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        held(&self.shelf)
    }
}

/// Locks; a panic elsewhere does not make the state wrong, for every change under these locks is a plain assignment.
pub(crate) fn held<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The callback of a scan, called with each entry's index and frame; `false` ends the scan.
pub(crate) type Visit<'a> = dyn FnMut(u64, Bytes) -> Result<bool, StoreError> + 'a;

/// A value by key, and the log in order: all that opening a store and reading it need.
pub(crate) trait Source {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Calls `visit` with each log entry of `range` that exists, ascending, until it says `false`.
    fn scan_log(&self, range: Range<u64>, visit: &mut Visit<'_>) -> Result<(), StoreError>;
}

/// A disk, real or modelled.
pub(crate) trait Disk: Source + Send + Sync + 'static {
    fn core(&self) -> &Core;
    /// Fails when nothing can be read any more.
    fn readable(&self) -> Result<(), StoreError>;
    /// Fails when nothing can be written any more.
    fn writable(&self) -> Result<(), StoreError>;
    /// Queues a request; may wait while the queue is full. Must not call back: what cannot be queued any more is
    /// handed back.
    fn queue(&self, submission: Submission) -> Option<Submission>;
    /// The queue has something new. May call back.
    fn kick(&self);
    /// Remembers the last committed entry until something is written.
    fn ride(&self, committed: Option<EntryId>);
    /// Stores a chunk; durable only after [`Disk::settle_chunks`].
    fn put_chunk(&self, id: SnapshotId, n: u32, chunk: Bytes) -> Result<(), StoreError>;
    /// The frame of a chunk, durable or not.
    fn chunk(&self, id: SnapshotId, n: u32) -> Result<Option<Bytes>, StoreError>;
    /// Makes the chunks so far durable, or durable before anything that is queued later.
    fn settle_chunks(&self) -> Result<(), StoreError>;
    fn status(&self) -> StoreStatus;
}

/// A store over a disk.
pub(crate) struct Engine<D> {
    disk: Arc<D>,
}

/// Accepts a request and queues it, in one step.
pub(crate) fn submit<D: Disk>(
    disk: &D,
    answer: Answer,
    accept: impl FnOnce(&mut View) -> Result<Option<Request>, StoreError>,
) {
    let core = disk.core();
    let order = held(&core.order);
    // Asked before the view is locked: a disk may lock the view while it holds its own state.
    let writable = disk.writable();
    let submission = {
        let mut view = core.view();
        let request = writable.and_then(|()| accept(&mut view));
        Submission { request, answer, mark: view.mark() }
    };
    let closed = disk.queue(submission);
    drop(order);
    match closed {
        Some(submission) => submission.settle(Err(StoreError::Closed)),
        None => disk.kick(),
    }
}

impl<D: Disk> Engine<D> {
    pub(crate) fn new(disk: Arc<D>) -> Self {
        Engine { disk }
    }

    fn path(&self) -> &Path {
        &self.disk.core().path
    }

    fn view(&self) -> Result<MutexGuard<'_, View>, StoreError> {
        self.disk.readable()?;
        Ok(self.disk.core().view())
    }
}

/// Entries of `range` from a disk, as many as fit into `max_bytes`, but at least one. All of them must be there.
pub(crate) fn read_entries(
    source: &dyn Source,
    path: &Path,
    range: Range<u64>,
    max_bytes: u64,
) -> Result<DiskRead, StoreError> {
    let mut read = DiskRead { records: Vec::new(), bytes: 0, full: false };
    let mut expected = range.start;
    source.scan_log(range.clone(), &mut |index, frame| {
        if index != expected {
            return Err(hole(path, expected, index));
        }
        let record =
            body::unseal_entry(index, &frame).map_err(|fault| fault.at(path, Family::Log, &keys::entry(index)))?;
        expected += 1;
        Ok(read.add(record, max_bytes))
    })?;
    if expected < range.end && !read.full {
        return Err(hole(path, expected, range.end));
    }
    Ok(read)
}

/// The content of a chunk out of its frame.
pub(crate) fn unseal_found(path: &Path, id: SnapshotId, n: u32, frame: Option<Bytes>) -> Result<Bytes, StoreError> {
    frame
        .ok_or(Fault::Missing)
        .and_then(|frame| body::unseal_chunk(id, n, &frame))
        .map_err(|fault| fault.at(path, Family::Snapshot, &keys::chunk(id, n)))
}

/// The error of a missing entry.
pub(crate) fn hole(path: &Path, missing: u64, next: u64) -> StoreError {
    StoreError::Hole { path: path.to_owned(), missing, next, remedy: REMEDY }
}

/// The records read from a range on the disk.
pub(crate) struct DiskRead {
    pub(crate) records: Vec<LogRecord>,
    bytes: u64,
    /// No more fits.
    full: bool,
}

impl DiskRead {
    /// Takes the record if it fits; says whether to go on.
    fn add(&mut self, record: LogRecord, max_bytes: u64) -> bool {
        let bytes = self.bytes + record.payload.len() as u64;
        self.full = bytes > max_bytes && !self.records.is_empty();
        if !self.full {
            self.bytes = bytes;
            self.records.push(record);
        }
        !self.full
    }
}

impl<D: Disk> Store for Engine<D> {
    fn append(&self, records: Vec<LogRecord>, done: Done) {
        submit(&*self.disk, Answer::Done(done), |view| view.append(records));
    }

    fn save_vote(&self, vote: Bytes, done: Done) {
        submit(&*self.disk, Answer::Done(done), |view| Ok(view.save_vote(vote)));
    }

    fn vote(&self) -> Result<Option<Bytes>, StoreError> {
        Ok(self.view()?.vote.clone())
    }

    fn save_committed(&self, committed: Option<EntryId>) {
        let _order = held(&self.disk.core().order);
        self.disk.core().view().committed = committed;
        self.disk.ride(committed);
    }

    fn committed(&self) -> Result<Option<EntryId>, StoreError> {
        Ok(self.view()?.committed)
    }

    fn truncate_after(&self, last_kept: Option<EntryId>, done: Done) {
        submit(&*self.disk, Answer::Done(done), |view| view.truncate(last_kept));
    }

    fn purge_to(&self, last_purged: EntryId, done: Done) {
        submit(&*self.disk, Answer::Done(done), |view| view.purge(last_purged));
    }

    fn log_state(&self) -> Result<LogState, StoreError> {
        Ok(self.view()?.log_state())
    }

    fn read(&self, range: Range<u64>, max_bytes: u64) -> Result<Vec<LogRecord>, StoreError> {
        loop {
            let plan = self.view()?.plan_read(range.clone(), max_bytes);
            if plan.disk.is_empty() {
                return Ok(plan.memory);
            }
            let read = read_entries(&*self.disk, self.path(), plan.disk, max_bytes);
            // Entries that went away while the disk was read without the lock are no damage: look again.
            if self.view()?.removals() != plan.removals {
                continue;
            }
            let mut read = read?;
            let mut memory = VecDeque::from(plan.memory);
            while !read.full
                && let Some(record) = memory.pop_front()
            {
                read.add(record, max_bytes);
            }
            return Ok(read.records);
        }
    }

    fn identity(&self) -> Result<Option<Bytes>, StoreError> {
        Ok(self.view()?.identity.clone())
    }

    fn save_identity(&self, identity: Bytes, done: Done) {
        submit(&*self.disk, Answer::Done(done), |view| view.save_identity(identity));
    }

    fn begin_snapshot(&self) -> Result<Box<dyn SnapshotWriter>, StoreError> {
        Ok(Box::new(ChunkWriter::own(&self.disk)?))
    }

    fn begin_snapshot_named(&self, name: Bytes) -> Result<Box<dyn SnapshotWriter>, StoreError> {
        Ok(Box::new(ChunkWriter::named(&self.disk, &name)?))
    }

    fn snapshot(&self) -> Result<Option<SnapshotRecord>, StoreError> {
        self.disk.readable()?;
        Ok(self.disk.core().shelf().newest())
    }

    fn snapshot_chunk(&self, record: &SnapshotRecord, n: u32) -> Result<Bytes, StoreError> {
        self.disk.readable()?;
        let find = || self.disk.core().shelf().find(record).ok_or(StoreError::SnapshotGone);
        let id = find()?;
        if n >= record.chunks {
            return Err(StoreError::NoSuchChunk { asked: n, chunks: record.chunks });
        }
        let frame = self.disk.chunk(id, n)?;
        // A newer snapshot may have pushed this one out meanwhile: then a missing chunk is no damage.
        find()?;
        unseal_found(self.path(), id, n, frame)
    }

    fn status(&self) -> StoreStatus {
        self.disk.status()
    }
}
