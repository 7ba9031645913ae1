//! A backup of the whole ledger, read from one member as the bytes of a file.

use bytes::Bytes;
use tessera_api::v1::cluster_service_client::ClusterServiceClient;
use tessera_api::v1::{SaveSnapshotRequest, SaveSnapshotResponse};
use tonic::Streaming;

use crate::client::{Client, Hedging, Try};
use crate::error::{ApiError, ClientError};

/// A backup being read. Dropping it ends the reading.
#[derive(Debug)]
pub struct Saving {
    stream: Streaming<SaveSnapshotResponse>,
}

impl Client {
    /// Begins to read a backup, as current as a linearizable read that begins now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn save_snapshot(&self) -> Result<Saving, ClientError> {
        let limit = self.settings().max_message_bytes;
        let rpc = move |channel, request| -> Try<Streaming<SaveSnapshotResponse>> {
            Box::pin(async move {
                ClusterServiceClient::new(channel).max_decoding_message_size(limit).save_snapshot(request).await
            })
        };
        let stream = self.unary(SaveSnapshotRequest {}, None, Hedging::Never, rpc).await?;
        Ok(Saving { stream })
    }
}

impl Saving {
    /// The next bytes of the file; `None` at its end. It is whole only when it ends with its hash.
    ///
    /// # Errors
    /// [`ClientError`] when the member stops serving it: what was read is of no use.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        match self.stream.message().await {
            Ok(piece) => Ok(piece.map(|piece| piece.content)),
            Err(status) => Err(ClientError::Refused(Box::new(ApiError::from(&status)))),
        }
    }
}
