//! The contract between consensus and the disk.
//!
//! A [`Store`] is synchronous and knows no runtime: requests that must become durable take a callback, which is called
//! exactly once, after the data is on the disk, in the order in which the requests were made, whatever their kind.
//! Reading sees a request as soon as the call that made it has returned, durable or not. Two implementations keep this
//! contract: `RocksStore` on a real disk and [`MemoryStore`](crate::memory::MemoryStore) on a modelled one; one
//! behavioural suite runs against both.
//!
//! What is promised, and what is not:
//! * A callback with `Ok` means: the data survives the loss of power (as far as the device tells the truth
//!   about syncs).
//! * A callback with `Err` means: the data may or may not be there after opening again. After an error of the disk
//!   every further write fails with [`StoreError::Failed`] until the store is opened again; refusals that wrote nothing
//!   (`OutOfOrder`, `OutOfRange`, `IdentityTaken`) leave the store usable.
//! * A request dropped by a crash is never answered.
//! * Log and vote go through one queue, so a vote is never durable before what was appended earlier, nor the reverse.
//! * A callback runs on the store's own thread (or inside the call that flushes the modelled disk): it must be short
//!   and must not make requests of the same store, which could wait for the very thread they are made on.

use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use crate::error::StoreError;
use crate::histogram::SyncHistogram;
use crate::record::{EntryId, LogRecord, SnapshotRecord};

/// Called once, when the request is durable or has failed.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Called once, when the snapshot is whole and durable or has failed.
pub type SnapshotDone = Box<dyn FnOnce(Result<SnapshotRecord, StoreError>) + Send>;

/// The two ends of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Last entry removed by [`Store::purge_to`].
    pub last_purged: Option<EntryId>,
    /// Last entry of the log; `last_purged` when the log holds nothing.
    pub last: Option<EntryId>,
}

/// The part of a snapshot in progress that has been stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotProgress {
    /// Number of chunks stored, from the first on, without a gap.
    pub chunks: u32,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
    /// xxh3 128-bit hash over them in order: what [`SnapshotRecord::hash`] would be now.
    pub hash: u128,
}

/// The reserve: a file that is given up when the disk is full, so that a member can start and make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// None was configured.
    Off,
    /// The file is there and holds so many bytes.
    Held { bytes: u64 },
    /// The disk was full: the file was given up and will be made again when there is room. Operators must act now.
    Released,
}

/// The status that a store reports, for metrics and `cluster status`.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// Data folder.
    pub path: PathBuf,
    /// Bytes the store takes on the disk, reserve not included.
    pub disk_bytes: u64,
    /// Bytes that are free on the file system (for unprivileged writers); `None` when the system did not say.
    pub free_bytes: Option<u64>,
    pub reserve: Reserve,
    /// Durations of synced writes.
    pub syncs: SyncHistogram,
    /// Requests handed in and not yet written.
    pub queued: usize,
    /// First failure, if the store refuses writes.
    pub failed: Option<StoreError>,
}

/// Durable memory of one member. Used as `Arc<dyn Store>`.
pub trait Store: Send + Sync + 'static {
    /// Appends records that follow on the last entry of the log without a gap; readable at once, `done` when durable.
    ///
    /// The first record of a log that never held anything may have any index. Blocks only while the queue is full.
    ///
    /// # Errors (through `done`)
    /// [`StoreError::OutOfOrder`] when they do not follow; the errors of a failed write otherwise.
    fn append(&self, records: Vec<LogRecord>, done: Done);

    /// Replaces the vote (opaque bytes of consensus); readable at once, `done` when durable.
    fn save_vote(&self, vote: Bytes, done: Done);

    /// The newest vote.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after a crash of the modelled disk.
    fn vote(&self) -> Result<Option<Bytes>, StoreError>;

    /// Remembers the last committed entry: readable at once, written with the next request that is synced. Best effort:
    /// it is never ahead of the durable log, and may be behind after a crash.
    fn save_committed(&self, committed: Option<EntryId>);

    /// The last committed entry as far as it was remembered.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after a crash of the modelled disk.
    fn committed(&self) -> Result<Option<EntryId>, StoreError>;

    /// Removes every entry after `last_kept` (`None`: every entry that was not purged).
    ///
    /// # Errors (through `done`)
    /// [`StoreError::OutOfRange`] when `last_kept` lies before what was purged; removing nothing is no error.
    fn truncate_after(&self, last_kept: Option<EntryId>, done: Done);

    /// Removes every entry up to and including `last_purged`. It may lie beyond the log's end (a snapshot was
    /// installed): then the log is empty and goes on after it. Purging what is purged already is no error.
    fn purge_to(&self, last_purged: EntryId, done: Done);

    /// The two ends of the log.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after a crash of the modelled disk.
    fn log_state(&self) -> Result<LogState, StoreError>;

    /// Entries of `range`, from its first on, as many as fit into `max_bytes` of payload, but at least one if there is
    /// one. What lies beyond the log's end is simply not there; a range that begins with a purged entry is answered
    /// with nothing, for what follows would not be a prefix of it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Hole`], [`StoreError::UnknownFormat`], [`StoreError::Io`]. A hole is
    /// never answered as "no entry".
    fn read(&self, range: Range<u64>, max_bytes: u64) -> Result<Vec<LogRecord>, StoreError>;

    /// The cluster and the member that this store belongs to (opaque bytes of consensus); `None` in a new store. A
    /// member that is known under its id and finds `None` has lost its data and must be refused by whoever reads this.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after a crash of the modelled disk.
    fn identity(&self) -> Result<Option<Bytes>, StoreError>;

    /// Writes the identity, once. Writing the same again is no error.
    ///
    /// # Errors (through `done`)
    /// [`StoreError::IdentityTaken`] when another one is there.
    fn save_identity(&self, identity: Bytes, done: Done);

    /// Begins a snapshot of this member's own making. Dropping the writer removes what was written.
    ///
    /// # Errors
    /// [`StoreError::Closed`], [`StoreError::Failed`].
    fn begin_snapshot(&self) -> Result<Box<dyn SnapshotWriter>, StoreError>;

    /// Begins or goes on with a snapshot that is received from elsewhere. `name` tells one transfer from another (such
    /// as the sender's [`SnapshotRecord::hash`]); [`SnapshotWriter::progress`] says what is there already. Dropping the
    /// writer keeps what has arrived, over restarts too; beginning under another name removes it.
    ///
    /// # Errors
    /// [`StoreError::SnapshotBusy`] while a named writer is open, [`StoreError::Closed`], [`StoreError::Failed`].
    fn begin_snapshot_named(&self, name: Bytes) -> Result<Box<dyn SnapshotWriter>, StoreError>;

    /// The newest whole snapshot.
    ///
    /// # Errors
    /// [`StoreError::Closed`] after a crash of the modelled disk.
    fn snapshot(&self) -> Result<Option<SnapshotRecord>, StoreError>;

    /// Chunk `n` (from 0) of a snapshot. The newest snapshot and the one before it can be read, so that a transfer that
    /// is under way survives one newer snapshot.
    ///
    /// # Errors
    /// [`StoreError::SnapshotGone`], [`StoreError::NoSuchChunk`], [`StoreError::Damaged`], [`StoreError::Io`].
    fn snapshot_chunk(&self, record: &SnapshotRecord, n: u32) -> Result<Bytes, StoreError>;

    /// Returns the status of the store; asks the file system, so not for hot paths.
    fn status(&self) -> StoreStatus;
}

/// A snapshot that is being written, chunk by chunk. Its calls may wait for the disk: make them where waiting
/// is allowed.
pub trait SnapshotWriter: Send {
    /// The part stored so far; after [`Store::begin_snapshot_named`] including chunks of an earlier transfer.
    fn progress(&self) -> SnapshotProgress;

    /// Stores the next chunk.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Io`], [`StoreError::Failed`], [`StoreError::Closed`].
    fn write_chunk(&mut self, chunk: Bytes) -> Result<(), StoreError>;

    /// Makes the snapshot whole: it becomes the newest, and `done` is called once that is durable, in the same order as
    /// the callbacks of [`Store`]. Compare [`SnapshotProgress::hash`] with the sender's before. `last` is the last
    /// entry included, `description` is opaque.
    fn finish(self: Box<Self>, last: Option<EntryId>, description: Bytes, done: SnapshotDone);

    /// Removes what was written, also of a named snapshot (whose hash turned out wrong).
    ///
    /// # Errors
    /// As [`SnapshotWriter::write_chunk`].
    fn discard(self: Box<Self>) -> Result<(), StoreError>;
}
