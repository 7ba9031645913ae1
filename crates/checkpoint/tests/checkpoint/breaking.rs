//! A store that stops working at a chosen step.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tessera_checkpoint::{CheckpointId, Error, Hash, Reservation, Store, StoredChunk};
use tokio::sync::Notify;

/// The event at the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It fails, and everything after it.
    Fails,
    /// It is done, and nobody learns of it; everything after it fails.
    DoneUntold,
    /// There is no room, for this or anything else.
    Full,
    /// It never answers.
    Hangs,
    /// The stored data of the checkpoint is gone, once.
    Forgets,
}

/// Works for so many steps.
#[derive(Debug)]
pub struct Breaking<'a> {
    store: &'a dyn Store,
    left: AtomicI64,
    how: How,
    /// Told when it hangs.
    pub hanging: Notify,
}

impl<'a> Breaking<'a> {
    pub fn after(steps: i64, how: How, store: &'a dyn Store) -> Self {
        Self { store, left: AtomicI64::new(steps), how, hanging: Notify::new() }
    }

    /// Returns whether the step was reached.
    pub fn broke(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    async fn step<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let place = || self.store.place().to_owned();
        let unreachable = || Error::Unreachable { place: place(), source: "it broke".into() };
        match (self.left.fetch_sub(1, Ordering::SeqCst), self.how) {
            (1.., _) => work.await,
            (0, How::DoneUntold) => {
                work.await?;
                Err(unreachable())
            }
            (0, How::Forgets) => {
                let done = work.await?;
                self.store.sweep(Duration::ZERO).await?;
                Ok(done)
            }
            (_, How::Forgets) => work.await,
            (_, How::Full) => Err(Error::Full { place: place(), needed_bytes: 0, free_bytes: 0 }),
            (_, How::Hangs) => {
                self.hanging.notify_one();
                std::future::pending().await
            }
            _ => Err(unreachable()),
        }
    }
}

#[async_trait]
impl Store for Breaking<'_> {
    fn place(&self) -> &str {
        self.store.place()
    }

    async fn reserve(&self, bytes: u64) -> Result<Reservation, Error> {
        self.step(self.store.reserve(bytes)).await
    }

    async fn put_chunk(&self, id: &CheckpointId, index: u32, hash: &Hash, bytes: Bytes) -> Result<(), Error> {
        self.step(self.store.put_chunk(id, index, hash, bytes)).await
    }

    async fn begun(&self, job: u64) -> Result<Vec<CheckpointId>, Error> {
        self.step(self.store.begun(job)).await
    }

    async fn stored(&self, id: &CheckpointId) -> Result<Vec<StoredChunk>, Error> {
        self.step(self.store.stored(id)).await
    }

    async fn share_chunk(
        &self,
        from: &StoredChunk,
        id: &CheckpointId,
        index: u32,
        bytes: Option<&Bytes>,
    ) -> Result<bool, Error> {
        self.step(self.store.share_chunk(from, id, index, bytes)).await
    }

    fn is_only_copy(&self) -> bool {
        self.store.is_only_copy()
    }

    async fn get_chunk(&self, chunk: &StoredChunk) -> Result<Bytes, Error> {
        self.step(self.store.get_chunk(chunk)).await
    }

    async fn put_manifest(&self, id: &CheckpointId, manifest: Bytes) -> Result<(), Error> {
        self.step(self.store.put_manifest(id, manifest)).await
    }

    async fn get_manifest(&self, id: &CheckpointId) -> Result<Bytes, Error> {
        self.step(self.store.get_manifest(id)).await
    }

    async fn list(&self, job: Option<u64>) -> Result<Vec<CheckpointId>, Error> {
        self.step(self.store.list(job)).await
    }

    async fn delete(&self, id: &CheckpointId) -> Result<(), Error> {
        // What cannot even be removed must do no harm.
        match self.how {
            How::Full => self.store.delete(id).await,
            _ => self.step(self.store.delete(id)).await,
        }
    }

    async fn sweep(&self, older_than: Duration) -> Result<Vec<CheckpointId>, Error> {
        self.step(self.store.sweep(older_than)).await
    }
}
