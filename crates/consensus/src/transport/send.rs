//! Sends a snapshot: offers it, learns what the receiver has already, sends the rest.

use std::sync::Arc;

use openraft::errors::{NetworkError, StreamingError};
use openraft::raft::SnapshotResponse;
use tessera_store::{SnapshotRecord, StoreError};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use xxhash_rust::xxh3::xxh3_64;

use super::client::unreachable;
use super::links::{CallError, Lane, Links, failed};
use super::wire;
use crate::blocking::blocking;
use crate::codec::vote_to_pb;
use crate::ids::Member;
use crate::nonces::ToldWith;
use crate::pb;
use crate::snapshot::SnapshotData;
use crate::types::{TypeConfig, Vote};

/// Chunks read ahead of the connection.
const READ_AHEAD: usize = 2;

type Sent = Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>>;

fn network(what: impl ToString) -> StreamingError<TypeConfig> {
    StreamingError::Network(NetworkError::from_string(what))
}

/// Sends a stored snapshot until the receiver has installed it.
pub(super) async fn send_snapshot(links: &Arc<Links>, peer: &Member, vote: Vote, snapshot: SnapshotData) -> Sent {
    let SnapshotData::Stored(record) = snapshot else {
        return Err(network("a snapshot that is still being received cannot be sent"));
    };
    let offer = pb::OfferSnapshotRequest {
        header: Some(links.header(peer.id)),
        vote: Some(vote_to_pb(&vote)),
        head: Some(wire::head_to_pb(&record)),
    };
    let deadline = Instant::now() + links.shared.config.append_timeout;
    let offered = links.call(peer, Lane::Snapshot, deadline, offer, |mut client, request| async move {
        client.offer_snapshot(request).await
    });
    let offered = offered.await.map_err(|error| StreamingError::Unreachable(unreachable(&error)))?;
    let theirs = wire::required_vote(offered.vote).map_err(network)?;
    if theirs.partial_cmp(&vote) == Some(std::cmp::Ordering::Greater) {
        return Ok(SnapshotResponse::new(theirs));
    }
    let held = offered.chunks_held.min(record.chunks);
    tracing::info!(%peer, chunks = record.chunks, held, bytes = record.bytes, "sending a snapshot");
    transfer(links, peer, vote, record, held).await
}

async fn transfer(links: &Arc<Links>, peer: &Member, vote: Vote, record: SnapshotRecord, held: u32) -> Sent {
    let start = pb::install_snapshot_request::Part::Start(pb::InstallSnapshotStart {
        header: Some(links.header(peer.id)),
        vote: Some(vote_to_pb(&vote)),
        head: Some(wire::head_to_pb(&record)),
        nonce: links.shared.nonces.draw(peer.id, ToldWith::Snapshot),
    });
    let (parts, outgoing) = mpsc::channel(READ_AHEAD);
    let connection =
        links.connect(peer, Lane::Snapshot).map_err(|error| StreamingError::Unreachable(unreachable(&error)))?;
    let mut client = connection.client();
    let answering = client.install_snapshot(ReceiverStream::new(outgoing));
    let feeding = feed(links, parts, start, record, held);
    tokio::pin!(answering, feeding);
    // The receiver may refuse before everything is sent.
    let early = tokio::select! {
        answer = &mut answering => Some(answer),
        fed = &mut feeding => {
            fed?;
            None
        }
    };
    let answer = match early {
        Some(answer) => Ok(answer),
        None => timeout(links.shared.config.snapshot_install_timeout, answering).await,
    };
    match answer {
        Ok(Ok(answer)) => {
            let theirs = wire::required_vote(answer.into_inner().vote).map_err(network)?;
            Ok(SnapshotResponse::new(theirs))
        }
        Ok(Err(status)) => Err(StreamingError::Unreachable(unreachable(&failed(&connection, status)))),
        Err(_) => {
            connection.drop_connection();
            let error = CallError::Timeout(links.shared.config.snapshot_install_timeout);
            Err(StreamingError::Unreachable(unreachable(&error)))
        }
    }
}

/// Reads chunk after chunk and hands each to the connection, which must take it within the time an append has.
async fn feed(
    links: &Arc<Links>,
    parts: mpsc::Sender<pb::InstallSnapshotRequest>,
    start: pb::install_snapshot_request::Part,
    record: SnapshotRecord,
    held: u32,
) -> Result<(), StreamingError<TypeConfig>> {
    let patience = links.shared.config.append_timeout;
    let hand_over = |part| {
        let request = pb::InstallSnapshotRequest { part: Some(part) };
        parts.send_timeout(request, patience)
    };
    hand_over(start).await.map_err(network)?;
    for number in held..record.chunks {
        let (store, of) = (Arc::clone(&links.shared.store), record.clone());
        let data = blocking(move || store.snapshot_chunk(&of, number)).await.map_err(|error| match error {
            // A newer one took its place meanwhile: openraft asks for that one and begins again.
            StoreError::SnapshotGone => network(error),
            error => network(links.shared.store_failed(error)),
        })?;
        let chunk = pb::SnapshotChunk { number, hash: xxh3_64(&data), data };
        hand_over(pb::install_snapshot_request::Part::Chunk(chunk)).await.map_err(network)?;
    }
    Ok(())
}
