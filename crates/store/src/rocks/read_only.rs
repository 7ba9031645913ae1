//! A data folder that is only read.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use super::database::Database;
use super::folder::Folder;
use crate::codec::Family;
use crate::engine::{Source, Visit};
use crate::error::StoreError;
use crate::reader::StoreReader;

/// Bytes that RocksDB may keep of what it reads.
const CACHE_BYTES: usize = 16 << 20;

/// An open database together with the folder, so that no member starts on it meanwhile.
struct Reading {
    database: Database,
    _folder: Option<Folder>,
}

impl Source for Reading {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.database.get(family, key)
    }

    fn scan_log(&self, range: Range<u64>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.database.scan_log(range, visit)
    }
}

pub(super) fn open(dir: &Path) -> Result<StoreReader, StoreError> {
    let folder = Folder::own_existing(dir)?;
    let database = Database::open_read_only(&dir.join("db"), dir, CACHE_BYTES)?;
    StoreReader::new(Box::new(Reading { database, _folder: folder }), dir)
}
