//! The in-memory twin keeps the contract, flushed at once and flushed by a hook.

use std::sync::Arc;

use tessera_store::memory::Flushing;
use tessera_store::{MemoryDisk, Store, StoreError};

use crate::contract::Bed;

impl Bed for MemoryDisk {
    fn try_open(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.open()
    }
}

fn hooked() -> MemoryDisk {
    let disk = MemoryDisk::new(Flushing::WhenTold);
    disk.on_pending(|disk| {
        disk.flush();
    });
    disk
}

crate::contract!(at_once, MemoryDisk::new(Flushing::AtOnce));
crate::contract!(by_hook, hooked());
