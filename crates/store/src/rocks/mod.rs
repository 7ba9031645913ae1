//! The store on a real disk, on RocksDB.
//!
//! # Layout of the data folder
//! `lock` (held by the one process that has the folder open), `reserve` (see [`crate::Reserve`]), `db/` (RocksDB).
//! RocksDB is created beside its place and moved there whole, so a crash during creation leaves nothing that looks like
//! a store. It is never created where something is: a folder that has lost its files is an error, not an empty store.
//!
//! # What is durable when
//! Three column families: `log`, `meta` and `snapshot`. **One thread** writes log and meta. It takes everything that is
//! queued, makes one write batch of it, in the order of the calls, writes it with one sync, and then runs the callbacks
//! in the same order. While it waits for the disk the queue fills again: the slower the disk, the larger the groups.
//! RocksDB applies a batch whole or not at all, also over a crash.
//!
//! Chunks of snapshots go past that thread, without the write-ahead log, so that a snapshot of gigabytes never makes an
//! append wait for its sync. Before the record that makes a snapshot whole is queued, its chunks are flushed into
//! (synced) table files. The record is therefore the sign that all chunks are there.
//!
//! # Recovery
//! The write-ahead log is replayed in the mode `TolerateCorruptedTailRecords`: a record cut off at the very end is what
//! a crash in the middle of an unanswered write leaves, and is dropped; any other damage refuses to open. RocksDB's
//! default (`PointInTime`) would silently drop everything after the damage, answered writes included;
//! `AbsoluteConsistency` would refuse to start after every power cut. Replayed writes are flushed to table files before
//! the store is served, so nothing is promised that only the page cache knows.
//!
//! # A full disk
//! A failed write fails every request of its batch and all later ones ([`crate::StoreError::Failed`]) until the store
//! is opened again. At opening, the reserve is given up when the disk is full, so that the member can start, take a
//! snapshot and purge; it is made again when there is room for twice its size. Writes that RocksDB itself holds because
//! a flush found no room fail too, after two seconds.

mod database;
mod folder;
mod log_writer;
mod queue;
mod read_only;
mod reserve_file;
mod stall_watch;
mod store;

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::StoreError;
use crate::store::Store;

/// The data folder of a store and the bounds on its reserve, memory and queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RocksOptions {
    /// Data folder; made if it is not there.
    pub dir: PathBuf,
    /// Size of the reserve file in bytes; 0 for none. 64 MiB unless set.
    pub reserve_bytes: u64,
    /// Bytes of the newest entries kept in memory (entries that are not durable yet are kept beyond it). 64 MiB unless
    /// set.
    pub tail_bytes: usize,
    /// Requests that may wait for the writer thread before callers wait. 4096 unless set.
    pub queue_requests: usize,
    /// Bytes that may wait for the writer thread before callers wait. 16 MiB unless set.
    pub queue_bytes: usize,
    /// Size of RocksDB's write buffers in bytes, and of its table files. 16 MiB unless set.
    pub write_buffer_bytes: usize,
}

impl RocksOptions {
    /// The defaults, for a data folder.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        const MIB: usize = 1 << 20;
        RocksOptions {
            dir: dir.into(),
            reserve_bytes: 64 << 20,
            tail_bytes: 64 * MIB,
            queue_requests: 4096,
            queue_bytes: 16 * MIB,
            write_buffer_bytes: 16 * MIB,
        }
    }
}

/// Opens the store in a data folder, or creates it where there is none. Reads and checks the whole log.
///
/// # Errors
/// [`StoreError::Locked`] when another process has it open; [`StoreError::Damaged`], [`StoreError::Hole`] and
/// [`StoreError::UnknownFormat`] as found; [`StoreError::Full`] when not even the reserve made enough room;
/// [`StoreError::Io`] otherwise.
pub fn open(options: &RocksOptions) -> Result<Arc<dyn Store>, StoreError> {
    let disk = store::RocksDisk::open(options)?;
    Ok(Arc::new(Engine::new(Arc::new(disk))))
}

/// Opens the store of a stopped member, or a copy of its data folder, to look back. Nothing is made or changed.
///
/// # Errors
/// [`StoreError::Locked`] while a process has it open; [`StoreError::Damaged`], [`StoreError::Hole`] and
/// [`StoreError::UnknownFormat`] as found; [`StoreError::Io`] when there is no store.
pub fn open_to_read(dir: &std::path::Path) -> Result<crate::StoreReader, StoreError> {
    read_only::open(dir)
}
