//! Chunks in a store of earlier checkpoints of a program, and of copies and saves that did not come to their end. Much
//! of a program's data is unchanged since the last time: such chunks need neither be written nor be sent again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::published::Hash;
use crate::store::read_stored;
use crate::{CheckpointId, Error, Store, StoredChunk};

/// The number of newest checkpoints that are looked at. More than these are hardly ever kept.
const LOOKED_AT: usize = 3;

/// Chunks of one program that are in a store.
pub(crate) struct Earlier<'a> {
    store: &'a dyn Store,
    chunks: HashMap<(Hash, u64), StoredChunk>,
    /// The store does not share: it is not asked again and again.
    given_up: AtomicBool,
}

impl<'a> Earlier<'a> {
    pub fn none(store: &'a dyn Store) -> Self {
        Self { store, chunks: HashMap::new(), given_up: AtomicBool::new(false) }
    }

    /// The chunks that a checkpoint `id` of the program may share, including its own chunks that are already there.
    /// Where nobody else keeps copies there are none: what damages one checkpoint must leave the one before.
    pub async fn of(store: &'a dyn Store, id: &CheckpointId) -> Self {
        if store.is_only_copy() { Self::none(store) } else { Self::to_read(store, id).await }
    }

    /// The chunks that can be read for a checkpoint `id` of the program. A chunk that cannot be determined counts as
    /// absent: everything can be done without.
    pub async fn to_read(store: &'a dyn Store, id: &CheckpointId) -> Self {
        let mut earlier = Self::none(store);
        let mut ids = store.begun(id.job).await.unwrap_or_default();
        ids.retain(|known| known.rank == id.rank);
        for known in ids.iter().rev().take(LOOKED_AT) {
            for chunk in store.stored(known).await.unwrap_or_default() {
                earlier.chunks.entry((chunk.hash, chunk.stored_bytes)).or_insert(chunk);
            }
        }
        earlier
    }

    fn same_as(&self, chunk: &StoredChunk) -> Option<&StoredChunk> {
        self.chunks.get(&(chunk.hash, chunk.stored_bytes))
    }

    /// Keeps a chunk, if one of them has it. `bytes`: what is in it, for whoever has that at hand.
    pub async fn share(&self, chunk: &StoredChunk, bytes: Option<&Bytes>) -> bool {
        let Some(same) = self.same_as(chunk).filter(|_| !self.given_up.load(Ordering::Relaxed)) else { return false };
        let shared = self.store.share_chunk(same, &chunk.id, chunk.index, bytes).await;
        shared.unwrap_or_else(|error| self.give_up(chunk, &error))
    }

    fn give_up(&self, chunk: &StoredChunk, error: &Error) -> bool {
        self.given_up.store(true, Ordering::Relaxed);
        tracing::warn!(id = %chunk.id, %error, "what did not change since an earlier checkpoint is stored again");
        false
    }

    /// A chunk, if one of them has it and it is what it was.
    pub async fn read(&self, chunk: &StoredChunk) -> Option<Bytes> {
        read_stored(self.store, self.same_as(chunk)?).await.ok()
    }
}
