//! The open store: what the callers' threads and the log-writer thread share.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use bytes::Bytes;

use super::RocksOptions;
use super::database::{Database, Mode};
use super::folder::{Folder, io_error};
use super::log_writer;
use super::queue::Queue;
use super::reserve_file::ReserveFile;
use super::stall_watch::StallWatch;
use crate::body;
use crate::codec::Family;
use crate::engine::{Core, Disk, Source, Visit, held};
use crate::error::StoreError;
use crate::histogram::SyncHistogram;
use crate::keys::{self, SnapshotId};
use crate::record::EntryId;
use crate::recovery;
use crate::request::{Changes, Submission};
use crate::store::StoreStatus;

/// Everything both sides need. Fields are dropped in order: the folder is given free last.
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) database: Database,
    pub(crate) queue: Queue,
    pub(crate) syncs: Mutex<SyncHistogram>,
    pub(crate) reserve: Mutex<ReserveFile>,
    failed: OnceLock<Arc<StoreError>>,
    /// Bytes that must be free for a flush to go through for certain.
    pub(crate) room: u64,
    pub(crate) folder: Folder,
}

/// A store that is open on a real disk.
pub(crate) struct RocksDisk {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    /// Outlives the writer, which it may have to free.
    _stall_watch: StallWatch,
}

impl Shared {
    /// The error of a store that refuses writes.
    pub(crate) fn failed(&self) -> Option<StoreError> {
        let first = self.failed.get()?.clone();
        Some(StoreError::Failed { path: self.folder.path().to_owned(), first })
    }

    /// Refuses writes from now on; answers why, as it was first said.
    pub(crate) fn fail(&self, error: StoreError) -> StoreError {
        let first = self.failed.get_or_init(|| {
            let cause: &(dyn std::error::Error + 'static) = &error;
            tracing::error!(error = cause, "a write failed; the store refuses writes until it is opened again");
            Arc::new(error)
        });
        StoreError::clone(first)
    }
}

impl RocksDisk {
    /// Opens or creates the store.
    pub(crate) fn open(options: &RocksOptions) -> Result<Self, StoreError> {
        let folder = Folder::own(&options.dir)?;
        let mut reserve = ReserveFile::find(&folder, options.reserve_bytes)?;
        reserve.release_if_full(&folder)?;
        let database = match open_database(&folder, options) {
            Err(error) if error.is_full() && reserve.release(&folder)? => open_database(&folder, options),
            other => other,
        }?;
        if !recovery::check_format(&database, folder.path())? {
            return Err(recovery::no_format(folder.path()));
        }
        let (view, shelf) = recovery::recover(&database, folder.path(), options.tail_bytes)?;
        database.remove_orphans(&shelf.wanted())?;
        reserve.remake_if_room(&folder);
        let shared = Arc::new(Shared {
            core: Core::new(folder.path().to_owned(), view, shelf),
            database,
            queue: Queue::new(options.queue_requests, options.queue_bytes),
            syncs: Mutex::new(SyncHistogram::default()),
            reserve: Mutex::new(reserve),
            failed: OnceLock::new(),
            room: Database::wal_bytes(options.write_buffer_bytes),
            folder,
        });
        let stall_watch =
            StallWatch::start(&shared).map_err(io_error(&options.dir, "starting the stall-watch thread"))?;
        let writer =
            log_writer::spawn(shared.clone()).map_err(io_error(&options.dir, "starting the log-writer thread"))?;
        Ok(RocksDisk { shared, writer: Some(writer), _stall_watch: stall_watch })
    }
}

fn open_database(folder: &Folder, options: &RocksOptions) -> Result<Database, StoreError> {
    let doing = "looking for the store";
    if !folder.database().try_exists().map_err(io_error(folder.path(), doing))? {
        create_database(folder, options)?;
    }
    Database::open(&folder.database(), folder.path(), Mode::Existing, options.write_buffer_bytes)
}

/// Creates the database beside its place; what an earlier attempt left there is no store and goes.
fn create_database(folder: &Folder, options: &RocksOptions) -> Result<(), StoreError> {
    let nascent = folder.nascent();
    match std::fs::remove_dir_all(&nascent) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io_error(folder.path(), "removing a half-created store")(error));
        }
        _ => {}
    }
    let database = Database::open(&nascent, folder.path(), Mode::Create, options.write_buffer_bytes)?;
    let mut batch = database.batch();
    batch.put(Family::Meta, keys::FORMAT, body::seal_format());
    batch.write("creating the store", true)?;
    drop(database);
    folder.adopt_nascent()
}

impl Source for RocksDisk {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.shared.database.get(family, key)
    }

    fn scan_log(&self, range: Range<u64>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.shared.database.scan_log(range, visit)
    }
}

impl Disk for RocksDisk {
    fn core(&self) -> &Core {
        &self.shared.core
    }

    fn readable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.shared.failed().map_or(Ok(()), Err)
    }

    fn queue(&self, submission: Submission) -> Option<Submission> {
        self.shared.queue.push(submission)
    }

    fn kick(&self) {}

    fn ride(&self, committed: Option<EntryId>) {
        self.shared.queue.ride(committed);
    }

    fn put_chunk(&self, id: SnapshotId, n: u32, chunk: Bytes) -> Result<(), StoreError> {
        let put = self.shared.database.put_chunk(&keys::chunk(id, n), &body::seal_chunk(id, n, &chunk));
        put.map_err(|error| self.shared.failed().unwrap_or(error))
    }

    fn chunk(&self, id: SnapshotId, n: u32) -> Result<Option<Bytes>, StoreError> {
        self.shared.database.get(Family::Snapshot, &keys::chunk(id, n))
    }

    fn settle_chunks(&self) -> Result<(), StoreError> {
        self.writable()?;
        self.shared.database.flush_chunks().map_err(|error| self.shared.failed().unwrap_or(error))
    }

    fn status(&self) -> StoreStatus {
        let shared = &self.shared;
        StoreStatus {
            path: shared.folder.path().to_owned(),
            disk_bytes: shared.folder.database_bytes(),
            free_bytes: shared.folder.free_bytes(),
            reserve: held(&shared.reserve).state(),
            syncs: *held(&shared.syncs),
            queued: shared.queue.len(),
            failed: shared.failed(),
        }
    }
}

impl Drop for RocksDisk {
    /// Closes the store after all accepted requests are written and answered.
    fn drop(&mut self) {
        self.shared.queue.close();
        let Some(writer) = self.writer.take() else {
            return;
        };
        // A callback that held the last handle drops it on the writer thread itself, which ends by itself then.
        if writer.thread().id() != thread::current().id() && writer.join().is_err() {
            tracing::error!("the log-writer thread had panicked");
        }
    }
}
