//! The whole ledger as a backup file.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use tessera_api::v1;
use tessera_consensus::blocking;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::services::{Answers, Desk, refusal};
use tessera_controller::backup::Encoder;

/// Bytes of a message at most: what any client takes.
const PIECE: usize = 256 << 10;

/// A backup that is being read.
struct Reading {
    encoder: Encoder,
    /// Bytes that were encoded and not yet handed out.
    rest: Bytes,
    end: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// Begins a backup of the state as it is now. Its pieces are made one at a time, as they are read.
pub(super) async fn open(desk: &Desk, deadline: Instant) -> Result<Answers<v1::SaveSnapshotResponse>, Status> {
    let permit = desk.save_permit()?;
    let read = desk.read(v1::Consistency::Linearizable.into(), deadline).await?;
    let encoder = Encoder::of(Arc::clone(&read.state), &desk.pool);
    let reading = Reading { encoder, rest: Bytes::new(), end: desk.end.clone(), _permit: permit };
    Ok(Box::pin(stream::unfold(Some(reading), |reading| async {
        let mut reading = reading?;
        if reading.end.is_cancelled() {
            return Some((Err(refusal::member_stopping().into()), None));
        }
        if reading.rest.is_empty() {
            reading = blocking(move || {
                reading.rest = reading.encoder.next().unwrap_or_default();
                reading
            })
            .await;
        }
        let piece = reading.rest.split_to(reading.rest.len().min(PIECE));
        let answer = v1::SaveSnapshotResponse { content: piece.clone() };
        (!piece.is_empty()).then_some((Ok(answer), Some(reading)))
    })))
}
