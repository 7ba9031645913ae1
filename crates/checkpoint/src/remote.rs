//! Checkpoints on the disk of another agent.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use tessera_connection::{KeepAlive, Outbound, Terms};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

use crate::published::{Hash, LARGEST_MANIFEST};
use crate::wire::checkpoint_service_client::CheckpointServiceClient;
use crate::wire::{
    ListCheckpointsRequest, ReadChunkRequest, ReadChunkResponse, ReadManifestRequest, ReadManifestResponse,
};
use crate::{CheckpointId, Error, Reservation, Store, StoredChunk};

/// The longest time to wait for an answer, or for the next piece of one.
const SILENCE: Duration = Duration::from_secs(30);

const TERMS: Terms = Terms {
    connect_timeout: Some(Duration::from_secs(5)),
    keep_alive: Some(KeepAlive {
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(10),
        while_idle: false,
    }),
    window_bytes: Some(2 << 20),
};

/// The checkpoints of another agent. They are read, not changed.
#[derive(Clone, Debug)]
pub struct Remote {
    place: String,
    ticket: String,
    client: CheckpointServiceClient<Channel>,
}

impl Remote {
    /// The checkpoints of the agent at `address` (`host:port`), which gives them to a holder of this ticket. A
    /// connection is opened with the first request.
    ///
    /// # Errors
    /// [`Error::BadAddress`] when that is no address.
    pub fn new(outbound: &Outbound, address: &str, ticket: impl Into<String>) -> Result<Self, Error> {
        let bad = |problem: String| Error::BadAddress { address: address.to_owned(), problem };
        let channel = outbound.lazily(address, &TERMS).map_err(|error| bad(error.to_string()))?;
        let place = format!("agent {address}");
        Ok(Self { place, ticket: ticket.into(), client: CheckpointServiceClient::new(channel) })
    }

    fn error(&self, id: Option<&CheckpointId>, status: Status) -> Error {
        let place = self.place.clone();
        match (status.code(), id) {
            (Code::NotFound, Some(id)) => Error::Missing { place, id: *id },
            (Code::DataLoss | Code::OutOfRange, Some(id)) => {
                Error::Damaged { place, id: *id, problem: status.message().to_owned() }
            }
            (Code::PermissionDenied, Some(id)) => Error::NotGiven { place, id: *id },
            (Code::PermissionDenied | Code::Unauthenticated, _) => Error::Refused { place, source: Box::new(status) },
            _ => Error::Unreachable { place, source: Box::new(status) },
        }
    }

    /// Gathers an answer that comes in pieces, if it is no longer than `most` bytes.
    async fn gather<T>(
        &self,
        id: &CheckpointId,
        mut pieces: Streaming<T>,
        data: fn(T) -> Bytes,
        most: usize,
    ) -> Result<Bytes, Error> {
        let mut gathered = BytesMut::new();
        loop {
            let silent = |_| Status::deadline_exceeded("nothing came for too long");
            let next = timeout(SILENCE, pieces.message()).await.map_err(silent).and_then(|next| next);
            let Some(piece) = next.map_err(|status| self.error(Some(id), status))? else {
                return Ok(gathered.freeze());
            };
            let piece = data(piece);
            if gathered.len() + piece.len() > most {
                let problem = format!("more than {most} bytes came for what has so many");
                return Err(Error::Damaged { place: self.place.clone(), id: *id, problem });
            }
            gathered.extend_from_slice(&piece);
        }
    }

    /// The answer to a call, if it comes in time.
    async fn answer<T>(
        &self,
        id: Option<&CheckpointId>,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        let silent = |_| Status::deadline_exceeded("no answer came for too long");
        let answer = timeout(SILENCE, call).await.map_err(silent).and_then(|answer| answer);
        answer.map(Response::into_inner).map_err(|status| self.error(id, status))
    }

    fn read_only(&self) -> Error {
        Error::ReadOnly { place: self.place.clone() }
    }
}

#[async_trait]
impl Store for Remote {
    fn place(&self) -> &str {
        &self.place
    }

    async fn reserve(&self, _bytes: u64) -> Result<Reservation, Error> {
        Err(self.read_only())
    }

    async fn put_chunk(&self, _id: &CheckpointId, _index: u32, _hash: &Hash, _bytes: Bytes) -> Result<(), Error> {
        Err(self.read_only())
    }

    async fn begun(&self, _job: u64) -> Result<Vec<CheckpointId>, Error> {
        Err(self.read_only())
    }

    async fn stored(&self, _id: &CheckpointId) -> Result<Vec<StoredChunk>, Error> {
        Err(self.read_only())
    }

    async fn share_chunk(
        &self,
        _from: &StoredChunk,
        _id: &CheckpointId,
        _index: u32,
        _bytes: Option<&Bytes>,
    ) -> Result<bool, Error> {
        Err(self.read_only())
    }

    fn is_only_copy(&self) -> bool {
        false
    }

    async fn get_chunk(&self, chunk: &StoredChunk) -> Result<Bytes, Error> {
        let StoredChunk { id, index, stored_bytes, .. } = *chunk;
        let asked = ReadChunkRequest { checkpoint: id.to_string(), index, ticket: self.ticket.clone() };
        let mut client = self.client.clone();
        let pieces = self.answer(Some(&id), client.read_chunk(asked)).await?;
        let most = usize::try_from(stored_bytes).unwrap_or(usize::MAX);
        self.gather(&id, pieces, |piece: ReadChunkResponse| piece.data, most).await
    }

    async fn put_manifest(&self, _id: &CheckpointId, _manifest: Bytes) -> Result<(), Error> {
        Err(self.read_only())
    }

    async fn get_manifest(&self, id: &CheckpointId) -> Result<Bytes, Error> {
        let asked = ReadManifestRequest { checkpoint: id.to_string(), ticket: self.ticket.clone() };
        let mut client = self.client.clone();
        let pieces = self.answer(Some(id), client.read_manifest(asked)).await?;
        self.gather(id, pieces, |piece: ReadManifestResponse| piece.data, LARGEST_MANIFEST).await
    }

    /// The checkpoints of one job only: the ticket is for one.
    async fn list(&self, job: Option<u64>) -> Result<Vec<CheckpointId>, Error> {
        let Some(job) = job else { return Err(self.read_only()) };
        let asked = ListCheckpointsRequest { job, ticket: self.ticket.clone() };
        let mut client = self.client.clone();
        let names = self.answer(None, client.list_checkpoints(asked)).await?.checkpoints;
        let mut ids: Vec<CheckpointId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    async fn delete(&self, _id: &CheckpointId) -> Result<(), Error> {
        Err(self.read_only())
    }

    async fn sweep(&self, _older_than: Duration) -> Result<Vec<CheckpointId>, Error> {
        Err(self.read_only())
    }
}
