//! Making a checkpoint of a folder.

use std::io::{BufWriter, Write};
use std::path::Path;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::chunks::{Cut, Cutter};
use crate::limits::Limits;
use crate::measure::{Measured, measure};
use crate::pack::pack;
use crate::published::{FORMAT, Hash};
use crate::{CheckpointId, Chunk, Error, Published, Store};

/// What is packed is gathered to pieces of this size: archives are written in small ones.
const GATHERED: usize = 1 << 18;

/// Saves `folder` under `id`. When it returns, the checkpoint is complete and durable; when it fails or is dropped,
/// there is none, and what it left is removed here or by [`Store::sweep`].
///
/// # Errors
/// [`Error::Full`] before anything is stored when it would not fit; [`Error::Exists`]; [`Error::Unsuitable`] and
/// [`Error::Changed`] for what is in the folder; what the store says.
pub async fn save(store: &dyn Store, id: &CheckpointId, folder: &Path, limits: &Limits) -> Result<Published, Error> {
    let seat = limits.seat().await;
    match store.get_manifest(id).await {
        Ok(_) => return Err(Error::Exists { place: store.place().to_owned(), id: *id }),
        Err(Error::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    let room = measure(folder).await?.at_most();
    let _room = store.reserve(room).await?;
    let saved = stream(store, id, folder, limits, seat).await;
    if let Err(error) = &saved
        && !matches!(error, Error::Exists { .. })
        && let Err(left) = store.delete(id).await
    {
        tracing::warn!(%id, error = %left, "what a save left that failed is removed later");
    }
    saved
}

async fn stream(
    store: &dyn Store,
    id: &CheckpointId,
    folder: &Path,
    limits: &Limits,
    seat: Option<OwnedSemaphorePermit>,
) -> Result<Published, Error> {
    let (sender, receiver) = channel(1);
    let (packed, chunk_bytes) = (folder.to_owned(), limits.chunk());
    // When this future is dropped, so is the receiver, and the thread ends with the chunk that it has at hand. Until
    // then it has its seat.
    let packing = tokio::task::spawn_blocking(move || {
        let _seat = seat;
        packed_into(&packed, chunk_bytes, sender)
    });
    let stored = store_all(store, id, limits, receiver).await;
    let packed = packing.await.map_err(|_| Error::Ended)?;
    // When the store failed, packing failed only because of that.
    let chunks = stored?;
    let (Measured { bytes, entries }, hash) = packed?;
    let stored_bytes = chunks.iter().map(|chunk| chunk.stored_bytes).sum();
    let published = Published { format: FORMAT, id: *id, bytes, entries, stored_bytes, hash, chunks };
    store.put_manifest(id, published.manifest()).await?;
    Ok(published)
}

fn packed_into(folder: &Path, chunk_bytes: u64, out: Sender<Cut>) -> Result<(Measured, Hash), Error> {
    let mut cutter = BufWriter::with_capacity(GATHERED, Cutter::new(chunk_bytes, out));
    let measured = pack(folder, &mut cutter)?;
    cutter.flush().map_err(Error::io(folder))?;
    let cutter = cutter.into_inner().map_err(|failed| Error::io(folder)(failed.into_error()))?;
    let hash = cutter.finish().map_err(Error::io(folder))?;
    Ok((measured, hash))
}

async fn store_all(
    store: &dyn Store,
    id: &CheckpointId,
    limits: &Limits,
    mut cuts: Receiver<Cut>,
) -> Result<Vec<Chunk>, Error> {
    let mut chunks = Vec::new();
    while let Some(Cut { chunk, bytes }) = cuts.recv().await {
        limits.pace(chunk.stored_bytes).await;
        let index = u32::try_from(chunks.len()).map_err(|_| Error::Ended)?;
        store.put_chunk(id, index, &chunk.hash, bytes).await?;
        chunks.push(chunk);
    }
    Ok(chunks)
}
