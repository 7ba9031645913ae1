//! Bringing a checkpoint from one store to another.

use crate::limits::Limits;
use crate::store::{read_chunk, read_published};
use crate::{CheckpointId, Error, Published, Store};

/// Copies a checkpoint, chunk by chunk; each is checked on its way. When it returns, the checkpoint is complete in
/// `to`; when it fails or is dropped, it is not there, and the chunks that were copied are not copied again the next
/// time. What is complete in `to` already stays as it is.
///
/// # Errors
/// What either store says.
pub async fn copy(from: &dyn Store, to: &dyn Store, id: &CheckpointId, limits: &Limits) -> Result<Published, Error> {
    let _seat = limits.seat().await;
    match read_published(to, id).await {
        Ok(there) => return Ok(there),
        Err(Error::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    let published = read_published(from, id).await?;
    let _room = to.reserve(published.stored_bytes).await?;
    for (index, chunk) in (0..).zip(&published.chunks) {
        if to.has_chunk(id, index, chunk).await? {
            continue;
        }
        limits.pace(chunk.stored_bytes).await;
        let bytes = read_chunk(from, &published, index).await?;
        to.put_chunk(id, index, &chunk.hash, bytes).await?;
    }
    match to.put_manifest(id, published.manifest()).await {
        // Somebody else copied it meanwhile.
        Ok(()) | Err(Error::Exists { .. }) => Ok(published),
        Err(error) => Err(error),
    }
}
