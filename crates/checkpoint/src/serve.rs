//! Handing out checkpoints to other agents.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::mpsc::channel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use crate::limits::Limits;
use crate::store::{read_chunk, read_published};
use crate::wire::checkpoint_service_server::{CheckpointService, CheckpointServiceServer};
use crate::wire::{
    ListCheckpointsRequest, ListCheckpointsResponse, ReadChunkRequest, ReadChunkResponse, ReadManifestRequest,
    ReadManifestResponse,
};
use crate::{CheckpointId, Error, Store};

/// Bytes of one piece: between two of them other streams of the connection have their turn.
const PIECE: usize = 256 << 10;
/// Pieces that wait for the network.
const WAITING: usize = 4;

/// Chunks that are handed out at once. Their seats are not those of saves and copies: two agents that copy from each
/// other would wait for each other.
const AT_ONCE: usize = 4;
/// The longest time for which a piece may wait for the requester to read.
const UNREAD: Duration = Duration::from_secs(30);

/// Decides who may have what.
pub trait Guard: Send + Sync + 'static {
    /// Returns whether whoever shows this ticket may have the checkpoints of a job.
    fn permits(&self, ticket: &str, job: u64) -> bool;
}

/// The service with which an agent hands out what is in `store`, to whom `guard` permits it, at the rate of `limits`.
/// It is put on the agent's gRPC server.
pub fn serve(
    store: Arc<dyn Store>,
    guard: Arc<dyn Guard>,
    limits: Limits,
) -> CheckpointServiceServer<impl CheckpointService> {
    let seats = Arc::new(Semaphore::new(AT_ONCE));
    CheckpointServiceServer::new(Service { store, guard, limits, seats })
}

struct Service {
    store: Arc<dyn Store>,
    guard: Arc<dyn Guard>,
    limits: Limits,
    seats: Arc<Semaphore>,
}

type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    fn check(&self, ticket: &str, job: u64) -> Result<(), Status> {
        match self.guard.permits(ticket, job) {
            true => Ok(()),
            false => Err(Status::permission_denied(format!("the ticket is not one for the checkpoints of job {job}"))),
        }
    }

    /// Sends what was read, as fast as the limits let it. The seat is free when all was sent, or nobody reads.
    fn pieces<T: Send + 'static>(
        &self,
        mut bytes: Bytes,
        seat: OwnedSemaphorePermit,
        piece: fn(Bytes) -> T,
    ) -> Response<Pieces<T>> {
        let (sender, receiver) = channel(WAITING);
        let limits = self.limits.clone();
        tokio::spawn(async move {
            let _seat = seat;
            while !bytes.is_empty() {
                let next = bytes.split_to(bytes.len().min(PIECE));
                limits.pace(next.len() as u64).await;
                if !matches!(timeout(UNREAD, sender.send(Ok(next))).await, Ok(Ok(()))) {
                    return;
                }
            }
        });
        Response::new(Box::pin(ReceiverStream::new(receiver).map(move |bytes| bytes.map(piece))))
    }

    /// Waits until what is asked for may be in memory.
    async fn seat(&self) -> Result<OwnedSemaphorePermit, Status> {
        let seat = Arc::clone(&self.seats).acquire_owned().await;
        seat.map_err(|_| Status::unavailable("the agent ends"))
    }
}

#[tonic::async_trait]
impl CheckpointService for Service {
    type ReadManifestStream = Pieces<ReadManifestResponse>;
    type ReadChunkStream = Pieces<ReadChunkResponse>;

    async fn list_checkpoints(
        &self,
        request: Request<ListCheckpointsRequest>,
    ) -> Result<Response<ListCheckpointsResponse>, Status> {
        let asked = request.get_ref();
        self.check(&asked.ticket, asked.job)?;
        let ids = self.store.list(Some(asked.job)).await.map_err(|error| status(&error))?;
        let checkpoints = ids.iter().map(CheckpointId::to_string).collect();
        Ok(Response::new(ListCheckpointsResponse { checkpoints }))
    }

    async fn read_manifest(
        &self,
        request: Request<ReadManifestRequest>,
    ) -> Result<Response<Self::ReadManifestStream>, Status> {
        let asked = request.get_ref();
        let id = id_of(&asked.checkpoint)?;
        self.check(&asked.ticket, id.job)?;
        let seat = self.seat().await?;
        let manifest = self.store.get_manifest(&id).await.map_err(|error| status(&error))?;
        Ok(self.pieces(manifest, seat, |data| ReadManifestResponse { data }))
    }

    async fn read_chunk(&self, request: Request<ReadChunkRequest>) -> Result<Response<Self::ReadChunkStream>, Status> {
        let asked = request.get_ref();
        let id = id_of(&asked.checkpoint)?;
        self.check(&asked.ticket, id.job)?;
        let seat = self.seat().await?;
        let published = read_published(self.store.as_ref(), &id).await.map_err(|error| status(&error))?;
        if asked.index as usize >= published.chunks.len() {
            return Err(Status::out_of_range(format!("{id} has {} chunks", published.chunks.len())));
        }
        let chunk = read_chunk(self.store.as_ref(), &published, asked.index).await;
        Ok(self.pieces(chunk.map_err(|error| status(&error))?, seat, |data| ReadChunkResponse { data }))
    }
}

fn id_of(text: &str) -> Result<CheckpointId, Status> {
    text.parse().map_err(|bad: crate::BadCheckpointId| Status::invalid_argument(bad.to_string()))
}

fn status(error: &Error) -> Status {
    let code = match error {
        Error::Missing { .. } => Code::NotFound,
        Error::Damaged { .. } => Code::DataLoss,
        error if error.is_passing() => Code::Unavailable,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}
