//! The interface of every checkpoint store.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::published::Hash;
use crate::{CheckpointId, Error, Published, Reservation};

/// Keeps checkpoints: chunks, and manifests that say which chunks belong together.
///
/// A store does not look into what it keeps; [`read_published`] and [`read_chunk`] check what comes out of it.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// The name of the store in errors, such as its URL.
    fn place(&self) -> &str;

    /// Sets room aside for a checkpoint that is about to come, until the reservation is dropped.
    ///
    /// # Errors
    /// [`Error::Full`] when it would not fit.
    async fn reserve(&self, bytes: u64) -> Result<Reservation, Error>;

    /// Stores a chunk: all of it, or none.
    ///
    /// # Errors
    /// What stands against it; then it is not there.
    async fn put_chunk(&self, id: &CheckpointId, index: u32, hash: &Hash, bytes: Bytes) -> Result<(), Error>;

    /// The checkpoints of a job of which anything is there, complete or not, the oldest first.
    ///
    /// # Errors
    /// When it cannot be found out.
    async fn begun(&self, job: u64) -> Result<Vec<CheckpointId>, Error>;

    /// The chunks that are there of a checkpoint, complete or not.
    ///
    /// # Errors
    /// When it cannot be found out.
    async fn stored(&self, id: &CheckpointId) -> Result<Vec<StoredChunk>, Error>;

    /// Keeps a chunk that is there under another name too, without moving it: as `index` of `id`. Either can be removed
    /// without the other. Answers `false` when it is not there any more, or is not what it was: `bytes`, for whoever
    /// has that at hand.
    ///
    /// # Errors
    /// What stands against it; then it is not there under that name.
    async fn share_chunk(
        &self,
        from: &StoredChunk,
        id: &CheckpointId,
        index: u32,
        bytes: Option<&Bytes>,
    ) -> Result<bool, Error>;

    /// Returns whether nobody else keeps copies of this store's content: then checkpoints had better not lie in the
    /// same files.
    fn is_only_copy(&self) -> bool;

    /// Returns the stored bytes of a chunk.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is not there, though the manifest names it.
    async fn get_chunk(&self, chunk: &StoredChunk) -> Result<Bytes, Error>;

    /// Stores the manifest. From then on there is a checkpoint.
    ///
    /// # Errors
    /// [`Error::Exists`] when there is one of that name; else what stands against it.
    async fn put_manifest(&self, id: &CheckpointId, manifest: Bytes) -> Result<(), Error>;

    /// The manifest.
    ///
    /// # Errors
    /// [`Error::Missing`].
    async fn get_manifest(&self, id: &CheckpointId) -> Result<Bytes, Error>;

    /// The checkpoints that have a manifest, of a job or of all, the oldest first.
    ///
    /// # Errors
    /// When it cannot be found out.
    async fn list(&self, job: Option<u64>) -> Result<Vec<CheckpointId>, Error>;

    /// Removes a checkpoint, its manifest first, or what a save that failed left of it. It is no error when there is
    /// none.
    ///
    /// # Errors
    /// When something of it may be left.
    async fn delete(&self, id: &CheckpointId) -> Result<(), Error>;

    /// Removes what saves left that ended before they were done, when nothing was added to it for so long. Returns
    /// what was removed.
    ///
    /// # Errors
    /// When something of it may be left.
    async fn sweep(&self, older_than: Duration) -> Result<Vec<CheckpointId>, Error>;
}

/// A chunk that is there, as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredChunk {
    pub id: CheckpointId,
    pub index: u32,
    /// The hash of its bytes.
    pub hash: Hash,
    pub stored_bytes: u64,
}

/// Chunks of a checkpoint that are not in a store in which they should be.
///
/// # Errors
/// When it cannot be found out.
pub(crate) async fn lacking(store: &dyn Store, published: &Published) -> Result<Vec<StoredChunk>, Error> {
    let there: HashSet<StoredChunk> = store.stored(&published.id).await?.into_iter().collect();
    Ok(published.all_stored().filter(|chunk| !there.contains(chunk)).collect())
}

/// Reads and checks the description of a complete checkpoint.
///
/// # Errors
/// [`Error::Missing`] when it is not complete, [`Error::Damaged`] when its manifest is not what was written.
pub async fn read_published(store: &dyn Store, id: &CheckpointId) -> Result<Published, Error> {
    let manifest = store.get_manifest(id).await?;
    Published::from_manifest(&manifest, id).map_err(Error::manifest(store.place(), id))
}

/// A chunk as it was stored.
///
/// # Errors
/// [`Error::Damaged`] when it is not what was stored.
pub async fn read_chunk(store: &dyn Store, published: &Published, index: u32) -> Result<Bytes, Error> {
    let damaged = |problem| Error::Damaged { place: store.place().to_owned(), id: published.id, problem };
    let stored = published.stored(index).ok_or_else(|| damaged(format!("it has no chunk {index}")))?;
    read_stored(store, &stored).await
}

/// As [`read_chunk`], of a chunk of any checkpoint.
pub(crate) async fn read_stored(store: &dyn Store, stored: &StoredChunk) -> Result<Bytes, Error> {
    let bytes = store.get_chunk(stored).await?;
    if bytes.len() as u64 == stored.stored_bytes && hash_of(bytes.clone()).await? == stored.hash {
        return Ok(bytes);
    }
    let problem = format!("chunk {} is not what was stored", stored.index);
    Err(Error::Damaged { place: store.place().to_owned(), id: stored.id, problem })
}

/// Hashing megabytes would hold up what else the thread has to do.
async fn hash_of(bytes: Bytes) -> Result<Hash, Error> {
    tokio::task::spawn_blocking(move || Hash::of(&bytes)).await.map_err(|_| Error::Ended)
}
