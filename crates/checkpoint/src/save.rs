//! Making a checkpoint of a folder.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::chunks::{Cut, Cutter};
use crate::earlier::Earlier;
use crate::limits::Limits;
use crate::measure::{Measured, measure};
use crate::pack::pack;
use crate::published::{FORMAT, Hash, LARGEST_MANIFEST};
use crate::store::lacking;
use crate::{CheckpointId, Chunk, Error, Published, Store, StoredChunk};

/// The size of the pieces into which the archive is gathered: archives are written in small ones.
const GATHERED: usize = 1 << 18;

/// Saves `folder` under `id`. When it returns, the checkpoint is complete and durable; when it fails or is dropped,
/// there is none, and what it left is removed here or by [`Store::sweep`]. Chunks that an earlier checkpoint of the
/// same program has in the store are not stored again.
///
/// # Errors
/// [`Error::Full`] before anything is stored when it would not fit; [`Error::Exists`]; [`Error::Unsuitable`] and
/// [`Error::Changed`] for what is in the folder; what the store says.
pub async fn save(store: &dyn Store, id: &CheckpointId, folder: &Path, limits: &Limits) -> Result<Published, Error> {
    let seat = Arc::new(limits.seat().await);
    match store.get_manifest(id).await {
        Ok(_) => return Err(Error::Exists { place: store.place().to_owned(), id: *id }),
        Err(Error::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    let room = measure(folder).await?.at_most();
    let _room = store.reserve(room).await?;
    let saving = Saving { store, id, folder, limits, chunk_bytes: limits.chunk_for(room), seat };
    let mut saved = saving.stream(Earlier::of(store, id).await).await;
    if let Err(Error::Damaged { .. }) = &saved {
        // What it shares may be what went: all of it is written.
        saving.clean_up().await;
        saved = saving.stream(Earlier::none(store)).await;
    }
    if let Err(error) = &saved
        && !matches!(error, Error::Exists { .. })
    {
        saving.clean_up().await;
    }
    saved
}

struct Saving<'a> {
    store: &'a dyn Store,
    id: &'a CheckpointId,
    folder: &'a Path,
    limits: &'a Limits,
    chunk_bytes: u64,
    seat: Arc<Option<OwnedSemaphorePermit>>,
}

impl Saving<'_> {
    async fn stream(&self, earlier: Earlier<'_>) -> Result<Published, Error> {
        let (sender, receiver) = channel(1);
        let (packed, chunk_bytes, seat) = (self.folder.to_owned(), self.chunk_bytes, Arc::clone(&self.seat));
        // When this future is dropped, so is the receiver, and the thread ends with the chunk that it has at hand.
        // Until then it has its seat.
        let packing = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            packed_into(&packed, chunk_bytes, sender)
        });
        let stored = self.store_all(&earlier, receiver).await;
        let packed = packing.await.map_err(|_| Error::Ended)?;
        // When the store failed, packing failed only because of that.
        let chunks = stored?;
        let (Measured { bytes, entries, .. }, hash) = packed?;
        let stored_bytes = chunks.iter().map(|chunk| chunk.stored_bytes).sum();
        let published = Published { format: FORMAT, id: *self.id, bytes, entries, stored_bytes, hash, chunks };
        self.publish(&published).await?;
        Ok(published)
    }

    async fn store_all(&self, earlier: &Earlier<'_>, mut cuts: Receiver<Cut>) -> Result<Vec<Chunk>, Error> {
        let mut chunks = Vec::new();
        while let Some(Cut { chunk, bytes }) = cuts.recv().await {
            let index = u32::try_from(chunks.len()).map_err(|_| Error::Ended)?;
            let Chunk { hash, stored_bytes, .. } = chunk;
            if !earlier.share(&StoredChunk { id: *self.id, index, hash, stored_bytes }, Some(&bytes)).await {
                self.limits.pace(stored_bytes).await;
                self.store.put_chunk(self.id, index, &hash, bytes).await?;
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    /// From here on there is a checkpoint: all of it is looked for before.
    async fn publish(&self, published: &Published) -> Result<(), Error> {
        if let [gone, ..] = &lacking(self.store, published).await?[..] {
            let problem = format!("chunk {} is gone again", gone.index);
            return Err(Error::Damaged { place: self.store.place().to_owned(), id: *self.id, problem });
        }
        let manifest = published.manifest();
        if manifest.len() > LARGEST_MANIFEST {
            let problem = "it has so many chunks that no manifest can name them";
            return Err(Error::Unsuitable { path: self.folder.to_owned(), problem });
        }
        self.store.put_manifest(self.id, manifest).await
    }

    async fn clean_up(&self) {
        if let Err(left) = self.store.delete(self.id).await {
            tracing::warn!(id = %self.id, error = %left, "what a save left that failed is removed later");
        }
    }
}

fn packed_into(folder: &Path, chunk_bytes: u64, out: Sender<Cut>) -> Result<(Measured, Hash), Error> {
    let mut cutter = BufWriter::with_capacity(GATHERED, Cutter::new(chunk_bytes, out));
    let measured = pack(folder, &mut cutter)?;
    cutter.flush().map_err(Error::io(folder))?;
    let cutter = cutter.into_inner().map_err(|failed| Error::io(folder)(failed.into_error()))?;
    let hash = cutter.finish().map_err(Error::io(folder))?;
    Ok((measured, hash))
}
