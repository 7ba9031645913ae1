//! Reading what a stopped member has on its disk, without the means to change it: for looking back.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::codec::Family;
use crate::engine::{Source, read_entries, unseal_found};
use crate::error::StoreError;
use crate::keys;
use crate::record::{EntryId, LogRecord, SnapshotRecord};
use crate::recovery;
use crate::shelf::Shelf;
use crate::store::LogState;
use crate::view::View;

/// A store that can only be read. Opening it checks the whole log, as opening it for a member does.
pub struct StoreReader {
    source: Box<dyn Source + Send>,
    path: PathBuf,
    view: View,
    shelf: Shelf,
}

impl StoreReader {
    /// Reads and checks everything but snapshot chunks.
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code, reason = "only a real disk is looked back at"))]
    pub(crate) fn new(source: Box<dyn Source + Send>, path: &Path) -> Result<Self, StoreError> {
        if !recovery::check_format(&*source, path)? {
            return Err(recovery::no_format(path));
        }
        // Nothing is kept in memory: what is read, is read from the disk.
        let (view, shelf) = recovery::recover(&*source, path, 0)?;
        Ok(Self { source, path: path.to_owned(), view, shelf })
    }

    /// The cluster and the member that the store belongs to (opaque bytes of consensus).
    #[must_use]
    pub fn identity(&self) -> Option<Bytes> {
        self.view.identity.clone()
    }

    /// The newest vote (opaque bytes of consensus).
    #[must_use]
    pub fn vote(&self) -> Option<Bytes> {
        self.view.vote.clone()
    }

    /// The last committed entry as far as it was remembered; there may be later ones that were committed.
    #[must_use]
    pub fn committed(&self) -> Option<EntryId> {
        self.view.committed
    }

    /// The two ends of the log.
    #[must_use]
    pub fn log_state(&self) -> LogState {
        self.view.log_state()
    }

    /// The newest whole snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Option<SnapshotRecord> {
        self.shelf.newest()
    }

    /// Entries of `range`, as many as fit into `max_bytes` of payload, but at least one if there is one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Hole`], [`StoreError::Io`].
    pub fn read(&self, range: Range<u64>, max_bytes: u64) -> Result<Vec<LogRecord>, StoreError> {
        let LogState { last_purged, last } = self.log_state();
        let first = last_purged.map_or(0, |purged| purged.index.saturating_add(1));
        let end = last.filter(|last| last.index >= first).map_or(first, |last| last.index.saturating_add(1));
        let range = range.start.max(first)..range.end.min(end);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        // The first record of a log may have any index.
        let range = if last_purged.is_none() { range.start.max(self.view.first())..range.end } else { range };
        read_entries(&*self.source, &self.path, range, max_bytes).map(|read| read.records)
    }

    /// Chunk `n` (from 0) of a snapshot.
    ///
    /// # Errors
    /// [`StoreError::SnapshotGone`], [`StoreError::NoSuchChunk`], [`StoreError::Damaged`], [`StoreError::Io`].
    pub fn snapshot_chunk(&self, record: &SnapshotRecord, n: u32) -> Result<Bytes, StoreError> {
        let id = self.shelf.find(record).ok_or(StoreError::SnapshotGone)?;
        if n >= record.chunks {
            return Err(StoreError::NoSuchChunk { asked: n, chunks: record.chunks });
        }
        let frame = self.source.get(Family::Snapshot, &keys::chunk(id, n))?;
        unseal_found(&self.path, id, n, frame)
    }
}
