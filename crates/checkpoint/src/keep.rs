//! Which checkpoints to go on from, and which to keep.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::read_published;
use crate::{CheckpointId, Error, Published, Store};

/// The newest checkpoint that can be gone on from, and what was met on the way to it.
#[derive(Debug)]
pub struct Newest {
    /// The checkpoint; `None`: not one is whole.
    pub published: Option<Published>,
    /// Those that are newer and cannot be used, with what is wrong with them.
    pub skipped: Vec<(CheckpointId, Error)>,
}

/// Finds the newest of the checkpoints of which everything is there. Whether each byte is right shows when it is
/// restored; one that is damaged then is left out, and the question asked again.
///
/// # Errors
/// When the store cannot be asked: then nothing is known of any checkpoint.
pub async fn newest_whole(
    store: &dyn Store,
    ids: impl IntoIterator<Item = CheckpointId> + Send,
) -> Result<Newest, Error> {
    let ids: BTreeSet<_> = ids.into_iter().collect();
    let mut skipped = Vec::new();
    for id in ids.into_iter().rev() {
        match whole(store, &id).await {
            Ok(published) => return Ok(Newest { published: Some(published), skipped }),
            Err(error @ (Error::Missing { .. } | Error::Damaged { .. })) => skipped.push((id, error)),
            Err(error) => return Err(error),
        }
    }
    Ok(Newest { published: None, skipped })
}

async fn whole(store: &dyn Store, id: &CheckpointId) -> Result<Published, Error> {
    let published = read_published(store, id).await?;
    for (index, chunk) in (0..).zip(&published.chunks) {
        if !store.has_chunk(id, index, chunk).await? {
            let problem = format!("chunk {index} is gone");
            return Err(Error::Damaged { place: store.place().to_owned(), id: *id, problem });
        }
    }
    Ok(published)
}

/// Removes the checkpoints of a job but the newest `count` of each rank that are whole, and those that are `needed`.
/// The newest whole one is always kept. Returns what was removed.
///
/// # Errors
/// What the store says; what was removed before is gone.
pub async fn retain(
    store: &dyn Store,
    job: u64,
    count: usize,
    needed: &BTreeSet<CheckpointId>,
) -> Result<Vec<CheckpointId>, Error> {
    let mut ranks = BTreeMap::<u32, Vec<CheckpointId>>::new();
    for id in store.list(Some(job)).await? {
        ranks.entry(id.rank).or_default().push(id);
    }
    let mut removed = Vec::new();
    for ids in ranks.into_values() {
        let mut kept = 0;
        for id in ids.into_iter().rev() {
            if kept >= count.max(1) {
                if !needed.contains(&id) {
                    store.delete(&id).await?;
                    removed.push(id);
                }
                continue;
            }
            match whole(store, &id).await {
                Ok(_) => kept += 1,
                Err(Error::Missing { .. } | Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    removed.sort_unstable();
    Ok(removed)
}
