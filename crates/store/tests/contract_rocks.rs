//! The store on a real disk keeps the contract, with the log's tail in memory and without.

#![cfg(feature = "rocksdb")]

use std::sync::Arc;

use tempfile::TempDir;
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{Store, StoreError};

use crate::contract::Bed;

struct Folder {
    folder: TempDir,
    tail_bytes: usize,
}

impl Bed for Folder {
    fn try_open(&self) -> Result<Arc<dyn Store>, StoreError> {
        rocks::open(&RocksOptions {
            reserve_bytes: 0,
            tail_bytes: self.tail_bytes,
            ..RocksOptions::new(self.folder.path())
        })
    }
}

fn folder(tail_bytes: usize) -> Folder {
    Folder { folder: TempDir::new().expect("a temporary folder"), tail_bytes }
}

crate::contract!(tail_in_memory, folder(1 << 20));
crate::contract!(everything_on_disk, folder(0));
