//! RocksDB as this crate uses it: options, column families, errors. Nothing else in the crate calls it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode, Direction,
    ErrorKind, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions, properties,
};

use crate::codec::{self, Family, REMEDY};
use crate::engine::{Source, Visit};
use crate::error::StoreError;
use crate::keys::{self, SnapshotId};
use crate::request::Changes;

const MIB: u64 = 1 << 20;

/// An open RocksDB.
pub(crate) struct Database {
    db: DB,
    path: PathBuf,
}

/// A write batch in the words of [`Changes`].
pub(crate) struct Batch<'a> {
    database: &'a Database,
    batch: WriteBatch,
}

/// The expectation on opening: to create a database, or to find an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    Existing,
}

impl Database {
    /// Opens the database in `at`. `path` is the data folder, for messages.
    pub(crate) fn open(at: &Path, path: &Path, mode: Mode, write_buffer: usize) -> Result<Self, StoreError> {
        Self::open_with(&database_options(mode, write_buffer), at, path, write_buffer)
    }

    /// Opens an existing database without the means to change it.
    pub(crate) fn open_read_only(at: &Path, path: &Path, write_buffer: usize) -> Result<Self, StoreError> {
        let options = database_options(Mode::Existing, write_buffer);
        let cache = Cache::new_lru_cache(write_buffer);
        let families = Family::ALL
            .map(|family| ColumnFamilyDescriptor::new(family.name(), family_options(family, write_buffer, &cache)));
        let db = DB::open_cf_descriptors_read_only(&options, at, families, false)
            .map_err(|error| rocks_error(path, "opening the store to read it", error))?;
        Ok(Database { db, path: path.to_owned() })
    }

    fn open_with(options: &Options, at: &Path, path: &Path, write_buffer: usize) -> Result<Self, StoreError> {
        let cache = Cache::new_lru_cache(write_buffer);
        let families = Family::ALL
            .map(|family| ColumnFamilyDescriptor::new(family.name(), family_options(family, write_buffer, &cache)));
        let db = DB::open_cf_descriptors(options, at, families)
            .map_err(|error| rocks_error(path, "opening the store", error))?;
        Ok(Database { db, path: path.to_owned() })
    }

    /// Bytes of write-ahead log that are kept at most before a family is flushed.
    pub(crate) const fn wal_bytes(write_buffer: usize) -> u64 {
        4 * write_buffer as u64
    }

    fn family(&self, family: Family) -> &ColumnFamily {
        self.db.cf_handle(family.name()).expect("the database was opened with all families")
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch { database: self, batch: WriteBatch::default() }
    }

    /// Puts a chunk into the write buffer only; see [`Database::flush_chunks`].
    pub(crate) fn put_chunk(&self, key: &[u8], frame: &[u8]) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db
            .put_cf_opt(self.family(Family::Snapshot), key, frame, &options)
            .map_err(|error| rocks_error(&self.path, "writing a snapshot chunk", error))
    }

    /// Writes all chunks into synced table files.
    pub(crate) fn flush_chunks(&self) -> Result<(), StoreError> {
        self.db
            .flush_cf(self.family(Family::Snapshot))
            .map_err(|error| rocks_error(&self.path, "flushing a snapshot", error))
    }

    /// Removes table files that hold nothing but removed keys, which a removal of keys alone does only much later. What
    /// fails here costs space, not data.
    pub(crate) fn drop_files(&self, family: Family, from: &[u8], to: &[u8]) {
        if let Err(error) = self.db.delete_file_in_range_cf(self.family(family), from, to) {
            tracing::warn!(family = family.name(), %error, "removing old table files failed");
        }
    }

    /// Rewrites what holds the entries up to `index`, so that the room of removed ones is free at once. Slow.
    pub(crate) fn compact_log(&self, index: u64) {
        let from = keys::entry(0);
        let to = keys::entry(index);
        self.db.compact_range_cf(self.family(Family::Log), Some(from), Some(to));
    }

    /// Removes chunks of snapshots that nobody will finish: their process died.
    pub(crate) fn remove_orphans(&self, wanted: &[SnapshotId]) -> Result<(), StoreError> {
        let mut batch = self.batch();
        let mut from = keys::chunks_from(SnapshotId(0));
        while let Some(owner) = self.first_chunk_owner(&from)? {
            if !wanted.contains(&owner) {
                batch.remove_range(Family::Snapshot, &keys::chunks_from(owner), &keys::chunks_end(owner));
            }
            from = keys::chunks_end(owner);
        }
        if batch.is_empty() { Ok(()) } else { batch.write("removing unfinished snapshots", false) }
    }

    /// Returns whether all writes are held although an error was met in the background, as after a flush onto a full
    /// disk.
    pub(crate) fn holds_writes(&self) -> bool {
        let number = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        number(properties::IS_WRITE_STOPPED) > 0 && number(properties::BACKGROUND_ERRORS) > 0
    }

    /// Ends flushes and compactions for good; a write that waits for one of them fails.
    pub(crate) fn give_up_background_work(&self) {
        self.db.cancel_all_background_work(false);
    }

    fn first_chunk_owner(&self, from: &[u8]) -> Result<Option<SnapshotId>, StoreError> {
        let mode = IteratorMode::From(from, Direction::Forward);
        match self.db.iterator_cf(self.family(Family::Snapshot), mode).next() {
            None => Ok(None),
            Some(Ok((key, _))) => Ok(keys::chunk_owner(&key)),
            Some(Err(error)) => Err(rocks_error(&self.path, "reading snapshots", error)),
        }
    }
}

impl Source for Database {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.db
            .get_cf(self.family(family), key)
            .map(|value| value.map(Bytes::from))
            .map_err(|error| rocks_error(&self.path, "reading a record", error))
    }

    fn scan_log(&self, range: Range<u64>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(keys::entry(range.end));
        // Entries are read once or twice; they would only push others out of the cache.
        options.fill_cache(false);
        let from = keys::entry(range.start);
        let mode = IteratorMode::From(&from, Direction::Forward);
        for item in self.db.iterator_cf_opt(self.family(Family::Log), options, mode) {
            let (key, frame) = item.map_err(|error| rocks_error(&self.path, "reading the log", error))?;
            if !visit(codec::index_of(&key, &self.path)?, Bytes::from(frame))? {
                break;
            }
        }
        Ok(())
    }
}

impl Batch<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Writes the batch, whole or not at all.
    pub(crate) fn write(self, doing: &'static str, sync: bool) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.database.db.write_opt(self.batch, &options).map_err(|error| rocks_error(&self.database.path, doing, error))
    }
}

impl Changes for Batch<'_> {
    fn put(&mut self, family: Family, key: &[u8], frame: Vec<u8>) {
        self.batch.put_cf(self.database.family(family), key, frame);
    }

    fn remove(&mut self, family: Family, key: &[u8]) {
        self.batch.delete_cf(self.database.family(family), key);
    }

    fn remove_range(&mut self, family: Family, from: &[u8], to: &[u8]) {
        self.batch.delete_range_cf(self.database.family(family), from, to);
    }
}

fn database_options(mode: Mode, write_buffer: usize) -> Options {
    let mut options = Options::default();
    options.create_if_missing(mode == Mode::Create);
    options.create_missing_column_families(mode == Mode::Create);
    options.set_paranoid_checks(true);
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // Recycled files would make a torn tail look like damage in the middle.
    options.set_recycle_log_file_num(0);
    options.set_track_and_verify_wals_in_manifest(true);
    // A quiet family keeps old files of the write-ahead log alive; so many bytes of them make it flush.
    options.set_max_total_wal_size(Database::wal_bytes(write_buffer));
    options.set_max_background_jobs(2);
    options.set_max_open_files(256);
    // Large files are written back steadily rather than all at their final sync, which an append would have to
    // wait for.
    options.set_bytes_per_sync(MIB);
    options.set_manifest_preallocation_size(64 << 10);
    options.set_max_manifest_file_size(16 << 20);
    options.set_keep_log_file_num(4);
    options.set_max_log_file_size(4 << 20);
    options.set_stats_dump_period_sec(0);
    options
}

fn family_options(family: Family, write_buffer: usize, cache: &Cache) -> Options {
    /// The vote and its like fit into next to nothing.
    const META_BUFFER: usize = 1 << 20;
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_target_file_size_base(write_buffer as u64);
    match family {
        // Entries are gone before compressing them would pay.
        Family::Log => {
            options.set_compression_type(DBCompressionType::None);
            options.set_write_buffer_size(write_buffer);
        }
        Family::Meta => {
            options.set_compression_type(DBCompressionType::None);
            options.set_write_buffer_size(write_buffer.min(META_BUFFER));
        }
        Family::Snapshot => {
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_write_buffer_size(write_buffer);
        }
    }
    options
}

/// Turns RocksDB's error into ours: a full disk and damaged files are told apart.
fn rocks_error(path: &Path, doing: &'static str, error: rocksdb::Error) -> StoreError {
    let path = path.to_owned();
    let text = error.as_ref();
    if text.contains("No space left on device") || text.contains("Disk quota exceeded") {
        return StoreError::Full { path, doing, source: Arc::new(error) };
    }
    if error.kind() == ErrorKind::Corruption {
        return StoreError::Damaged {
            path,
            family: "all",
            key: format!("met while {doing}").into(),
            expected: "intact RocksDB files".into(),
            found: error.into_string().into(),
            remedy: REMEDY,
        };
    }
    StoreError::Io { path, doing, source: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use rocksdb::statistics::Ticker;
    use tempfile::TempDir;

    use super::*;

    /// Killing a process does not tell a synced write from one that the page cache still holds; RocksDB's own
    /// count does.
    #[test]
    fn a_synced_write_syncs_the_write_ahead_log() {
        let folder = TempDir::new().expect("a temporary folder");
        let mut options = database_options(Mode::Create, 1 << 20);
        options.enable_statistics();
        let database = Database::open_with(&options, &folder.path().join("db"), folder.path(), 1 << 20);
        let database = database.expect("a new database opens");
        for (sync, synced) in [(false, 0), (true, 1), (true, 2), (false, 2)] {
            let mut batch = database.batch();
            batch.put(Family::Meta, keys::VOTE, vec![1]);
            batch.write("testing", sync).expect("written");
            assert_eq!(options.get_ticker_count(Ticker::WalFileSynced), synced);
        }
    }
}
