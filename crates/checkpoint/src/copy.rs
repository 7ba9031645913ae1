//! Bringing a checkpoint from one store to another.

use crate::earlier::Earlier;
use crate::limits::Limits;
use crate::store::{lacking, read_published, read_stored};
use crate::{CheckpointId, Error, Published, Store};

/// The number of looks for missing chunks: the last look must find that none is missing.
const ROUNDS: usize = 3;

/// Copies a checkpoint, chunk by chunk; each is checked on its way. When it returns, the checkpoint is complete in
/// `to`; when it fails or is dropped, it is not there, and the chunks that were copied are not copied again the next
/// time, nor are those that an earlier checkpoint of the same program has in `to`. What is complete in `to` already
/// stays as it is.
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
    let earlier = Earlier::of(to, id).await;
    for _ in 0..ROUNDS {
        let lacking = lacking(to, &published).await?;
        if lacking.is_empty() {
            return match to.put_manifest(id, published.manifest()).await {
                // Somebody else copied it meanwhile.
                Ok(()) | Err(Error::Exists { .. }) => Ok(published),
                Err(error) => Err(error),
            };
        }
        for stored in lacking {
            if !earlier.share(&stored, None).await {
                limits.pace(stored.stored_bytes).await;
                let bytes = read_stored(from, &stored).await?;
                to.put_chunk(id, stored.index, &stored.hash, bytes).await?;
            }
        }
    }
    let problem = "what is stored of it is gone again".to_owned();
    Err(Error::Damaged { place: to.place().to_owned(), id: *id, problem })
}
