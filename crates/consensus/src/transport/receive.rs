//! Receives a snapshot. What has arrived stays in the store when a transfer breaks, and the next one goes on after it.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use tessera_store::{SnapshotProgress, SnapshotRecord, SnapshotWriter, Store, StoreError};
use tokio::time::timeout;
use tonic::{Status, Streaming};
use xxhash_rust::xxh3::xxh3_64;

use super::wire;
use crate::blocking::blocking;
use crate::codec::Description;
use crate::pb;
use crate::shared::Shared;
use crate::snapshot::{Received, SnapshotData};
use crate::types::{Snapshot, Vote};

/// Under which name a snapshot is received: the same bytes up to the same entry are the same snapshot, whoever sends
/// them.
fn name_of(record: &SnapshotRecord) -> Bytes {
    let mut name = BytesMut::with_capacity(32);
    name.put_u128(record.hash);
    let last = record.last.unwrap_or_default();
    name.put_u64(last.term);
    name.put_u64(last.index);
    name.freeze()
}

fn begin(store: &dyn Store, record: &SnapshotRecord) -> Result<Box<dyn SnapshotWriter>, Status> {
    store.begin_snapshot_named(name_of(record)).map_err(|error| match error {
        StoreError::SnapshotBusy { .. } => Status::aborted(error.to_string()),
        error => Status::internal(error.to_string()),
    })
}

/// The number of chunks of an offered snapshot that are already stored here.
pub(super) async fn held(shared: &Shared, record: SnapshotRecord) -> Result<u32, Status> {
    let store = Arc::clone(&shared.store);
    blocking(move || begin(store.as_ref(), &record).map(|writer| writer.progress().chunks)).await
}

/// The content of the first message of a transfer.
pub(super) struct Start {
    pub header: Option<pb::Header>,
    pub vote: Vote,
    pub record: SnapshotRecord,
    pub nonce: u64,
}

/// Takes the missing chunks and checks the whole.
pub(super) async fn receive(
    shared: &Shared,
    record: &SnapshotRecord,
    description: &Description,
    parts: &mut Streaming<pb::InstallSnapshotRequest>,
) -> Result<Snapshot<SnapshotData>, Status> {
    let (store, announced) = (Arc::clone(&shared.store), record.clone());
    let mut writer = blocking(move || begin(store.as_ref(), &announced)).await?;
    while let Some(chunk) = next_chunk(shared, parts).await? {
        writer = write(record, writer, chunk).await?;
    }
    let progress = writer.progress();
    if progress.chunks < record.chunks {
        return Err(Status::aborted(format!(
            "the transfer ended after chunk {} of {}; offer the snapshot again",
            progress.chunks, record.chunks
        )));
    }
    let writer = check_whole(record, writer, progress).await?;
    let received = Received::new(record.description.clone(), writer);
    Ok(Snapshot { meta: description.meta(), snapshot: SnapshotData::Received(received) })
}

async fn check_whole(
    record: &SnapshotRecord,
    writer: Box<dyn SnapshotWriter>,
    progress: SnapshotProgress,
) -> Result<Box<dyn SnapshotWriter>, Status> {
    let arrived = (progress.chunks, progress.bytes, progress.hash);
    if arrived == (record.chunks, record.bytes, record.hash) {
        return Ok(writer);
    }
    discard(writer).await?;
    Err(Status::data_loss("the snapshot's hash is wrong; it was discarded, send it again from the beginning"))
}

async fn discard(writer: Box<dyn SnapshotWriter>) -> Result<(), Status> {
    blocking(move || writer.discard()).await.map_err(|error| Status::internal(error.to_string()))
}

/// The next message of a transfer; `None` at its end.
async fn next_part(
    shared: &Shared,
    parts: &mut Streaming<pb::InstallSnapshotRequest>,
) -> Result<Option<pb::InstallSnapshotRequest>, Status> {
    // Twice what a sender waits for one chunk to be taken: whoever gives up first, it is not the receiver.
    let patience = shared.config.append_timeout * 2;
    timeout(patience, parts.message()).await.map_err(|_| Status::deadline_exceeded("the sender fell silent"))?
}

async fn next_chunk(
    shared: &Shared,
    parts: &mut Streaming<pb::InstallSnapshotRequest>,
) -> Result<Option<pb::SnapshotChunk>, Status> {
    match next_part(shared, parts).await?.map(|request| request.part) {
        None => Ok(None),
        Some(Some(pb::install_snapshot_request::Part::Chunk(chunk))) => Ok(Some(chunk)),
        Some(_) => Err(Status::invalid_argument("a snapshot transfer is one start and then chunks")),
    }
}

async fn write(
    record: &SnapshotRecord,
    mut writer: Box<dyn SnapshotWriter>,
    chunk: pb::SnapshotChunk,
) -> Result<Box<dyn SnapshotWriter>, Status> {
    let progress = writer.progress();
    if chunk.number != progress.chunks {
        return Err(Status::aborted(format!(
            "chunk {} came instead of chunk {}; offer the snapshot again",
            chunk.number, progress.chunks
        )));
    }
    let bytes = progress.bytes.saturating_add(chunk.data.len() as u64);
    if progress.chunks >= record.chunks || bytes > record.bytes {
        discard(writer).await?;
        return Err(Status::data_loss(format!(
            "more came than the {} bytes in {} chunks that were announced; the snapshot was discarded, send it again \
             from the beginning",
            record.bytes, record.chunks
        )));
    }
    if xxh3_64(&chunk.data) != chunk.hash {
        return Err(Status::data_loss(format!("chunk {} was damaged on its way", chunk.number)));
    }
    blocking(move || writer.write_chunk(chunk.data).map(|()| writer))
        .await
        .map_err(|error| Status::internal(error.to_string()))
}

/// The first message of a transfer.
pub(super) async fn start(shared: &Shared, parts: &mut Streaming<pb::InstallSnapshotRequest>) -> Result<Start, Status> {
    match next_part(shared, parts).await?.and_then(|request| request.part) {
        Some(pb::install_snapshot_request::Part::Start(start)) => {
            let vote = wire::required_vote(start.vote).map_err(|error| Status::invalid_argument(error.to_string()))?;
            let record = wire::head_from_pb(start.head).map_err(|error| Status::invalid_argument(error.to_string()))?;
            Ok(Start { header: start.header, vote, record, nonce: start.nonce })
        }
        _ => Err(Status::invalid_argument("a snapshot transfer begins with its start")),
    }
}
