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
use crate::machine::Unreadable;
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

/// How much of an offered snapshot is here already.
pub(super) async fn held(shared: &Shared, record: SnapshotRecord) -> Result<u32, Status> {
    let store = Arc::clone(&shared.store);
    blocking(move || begin(store.as_ref(), &record).map(|writer| writer.progress().chunks)).await
}

/// What a transfer begins with.
pub(super) struct Start {
    pub vote: Vote,
    pub record: SnapshotRecord,
}

/// Takes the missing chunks and checks the whole.
pub(super) async fn receive(
    shared: &Shared,
    start: &Start,
    parts: &mut Streaming<pb::InstallSnapshotRequest>,
) -> Result<Snapshot<SnapshotData>, Status> {
    let (store, record) = (Arc::clone(&shared.store), start.record.clone());
    let mut writer = blocking(move || begin(store.as_ref(), &record)).await?;
    while let Some(chunk) = next_chunk(shared, parts).await? {
        writer = write(writer, chunk).await?;
    }
    let progress = writer.progress();
    if progress.chunks < start.record.chunks {
        return Err(Status::aborted(format!(
            "the transfer ended after chunk {} of {}; offer the snapshot again",
            progress.chunks, start.record.chunks
        )));
    }
    check_whole(&start.record, writer, progress).await.and_then(|writer| {
        let description = Description::decode(start.record.description.clone());
        let description = description.map_err(|error| refuse(shared, error))?;
        let received = Received::new(start.record.description.clone(), writer);
        Ok(Snapshot { meta: description.meta(), snapshot: SnapshotData::Received(received) })
    })
}

/// A snapshot that cannot be read stops this member like any other unreadable part of the log (law L7).
fn refuse(shared: &Shared, error: Unreadable) -> Status {
    Status::internal(shared.unreadable(error).to_string())
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
    blocking(move || writer.discard()).await.map_err(|error| Status::internal(error.to_string()))?;
    Err(Status::data_loss("the snapshot's hash is wrong; it was discarded, send it again from the beginning"))
}

async fn next_chunk(
    shared: &Shared,
    parts: &mut Streaming<pb::InstallSnapshotRequest>,
) -> Result<Option<pb::SnapshotChunk>, Status> {
    // Twice what a sender waits for one chunk to be taken: whoever gives up first, it is not the receiver.
    let patience = shared.config.append_timeout * 2;
    let part = timeout(patience, parts.message()).await;
    let part = part.map_err(|_| Status::deadline_exceeded("the sender fell silent"))??;
    match part.map(|request| request.part) {
        None => Ok(None),
        Some(Some(pb::install_snapshot_request::Part::Chunk(chunk))) => Ok(Some(chunk)),
        Some(_) => Err(Status::invalid_argument("a snapshot transfer is one start and then chunks")),
    }
}

async fn write(
    mut writer: Box<dyn SnapshotWriter>,
    chunk: pb::SnapshotChunk,
) -> Result<Box<dyn SnapshotWriter>, Status> {
    if chunk.number != writer.progress().chunks {
        return Err(Status::aborted(format!(
            "chunk {} came instead of chunk {}; offer the snapshot again",
            chunk.number,
            writer.progress().chunks
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
pub(super) fn start_of(part: Option<pb::InstallSnapshotRequest>) -> Result<(Option<pb::Header>, Start), Status> {
    match part.and_then(|request| request.part) {
        Some(pb::install_snapshot_request::Part::Start(start)) => {
            let vote = wire::required_vote(start.vote).map_err(|error| Status::invalid_argument(error.to_string()))?;
            let record = wire::head_from_pb(start.head).map_err(|error| Status::invalid_argument(error.to_string()))?;
            Ok((start.header, Start { vote, record }))
        }
        _ => Err(Status::invalid_argument("a snapshot transfer begins with its start")),
    }
}
