//! The one thread that writes log and meta: everything queued, one batch, one sync, then the callbacks in order.

use std::sync::Arc;
use std::time::Instant;

use super::database::Batch;
use super::queue::Group;
use super::store::Shared;
use crate::body::Whole;
use crate::codec::Family;
use crate::engine::held;
use crate::error::StoreError;
use crate::keys::{self, SnapshotId};
use crate::request::{Request, Submission, encode_committed};
use crate::store::Reserve;

/// Runs until the queue is closed and empty.
pub(crate) fn run(shared: &Shared) {
    // Whatever ends this thread, nobody may wait for ever.
    let _abandon = AbandonOnExit(shared);
    while let Some(group) = shared.queue.take() {
        write_group(shared, group);
    }
    write_last_rider(shared);
}

fn write_group(shared: &Shared, group: Group) {
    let result = match shared.failed() {
        Some(failed) => Err(failed),
        None => write(shared, &group).map_err(|error| shared.fail(error)),
    };
    let (result, dropped) = match result {
        Ok(dropped) => (Ok(()), dropped),
        Err(error) => (Err(error), Vec::new()),
    };
    for submission in group.submissions {
        submission.settle(result.clone());
    }
    if !dropped.is_empty() {
        clear_up(shared, &dropped);
    }
}

/// Writes the group; answers which keys are removed for good.
fn write(shared: &Shared, group: &Group) -> Result<Vec<Dropped>, StoreError> {
    let mut batch = shared.database.batch();
    let before = shared.core.shelf().whole().to_vec();
    let mut whole = before.clone();
    for request in group.submissions.iter().filter_map(Submission::to_write) {
        request.encode(&mut whole, &mut batch);
    }
    if let Some(committed) = group.rider {
        encode_committed(committed, &mut batch);
    }
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    write_timed(shared, batch, group.submissions.len())?;
    let mut dropped = dropped_keys(&group.submissions);
    let gone = before.iter().filter(|old| !whole.contains(old));
    dropped.extend(gone.map(|old| Dropped::Chunks(old.id)));
    publish(shared, group, whole);
    Ok(dropped)
}

fn write_timed(shared: &Shared, batch: Batch<'_>, requests: usize) -> Result<(), StoreError> {
    let begun = Instant::now();
    batch.write("writing the log", true)?;
    held(&shared.syncs).record(begun.elapsed(), requests as u64);
    Ok(())
}

/// Lets readers see what became durable.
fn publish(shared: &Shared, group: &Group, whole: Vec<Whole>) {
    shared.core.shelf().set_whole(whole);
    if let Some(last) = group.submissions.last() {
        shared.core.view().written(last.mark);
    }
}

/// Keys that are removed for good, so that whole files can go.
enum Dropped {
    EntriesUpTo(u64),
    Chunks(SnapshotId),
}

fn dropped_keys(submissions: &[Submission]) -> Vec<Dropped> {
    submissions
        .iter()
        .filter_map(|submission| match submission.to_write()? {
            Request::Purge { entries, .. } => entries.end.checked_sub(1).map(Dropped::EntriesUpTo),
            Request::Discard { id, .. } | Request::PartialBegun { replaces: Some(id), .. } => {
                Some(Dropped::Chunks(*id))
            }
            _ => None,
        })
        .collect()
}

/// Frees the room of what was removed.
fn clear_up(shared: &Shared, dropped: &[Dropped]) {
    let released = held(&shared.reserve).state() == Reserve::Released;
    for dropped in dropped {
        match dropped {
            Dropped::EntriesUpTo(index) => {
                shared.database.drop_files(Family::Log, &keys::entry(0), &keys::entry(*index));
                // On a full disk room counts for more than the time of those who wait for the next write.
                if released {
                    shared.database.compact_log(*index);
                }
            }
            Dropped::Chunks(id) => {
                let (from, to) = (keys::chunks_from(*id), keys::chunk(*id, u32::MAX));
                shared.database.drop_files(Family::Snapshot, &from, &to);
            }
        }
    }
    held(&shared.reserve).remake_if_room(&shared.folder);
}

/// At a clean end the last committed entry is written too; it is best effort, so without a sync.
fn write_last_rider(shared: &Shared) {
    let Some(committed) = shared.queue.take_rider().filter(|_| shared.failed().is_none()) else {
        return;
    };
    let mut batch = shared.database.batch();
    encode_committed(committed, &mut batch);
    if let Err(error) = batch.write("writing the last committed entry", false) {
        tracing::warn!(%error, "the last committed entry was not written; it will be learned again");
    }
}

struct AbandonOnExit<'a>(&'a Shared);

impl Drop for AbandonOnExit<'_> {
    fn drop(&mut self) {
        for submission in self.0.queue.abandon() {
            submission.settle(Err(StoreError::Closed));
        }
    }
}

pub(crate) fn spawn(shared: Arc<Shared>) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("log-writer".to_owned()).spawn(move || run(&shared))
}
