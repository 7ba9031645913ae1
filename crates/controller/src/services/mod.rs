//! The services that every member answers: jobs, pool, queues, cluster.
//!
//! A call passes three layers before it comes here: [`crate::grpc`] observes it and gives it a deadline, [`forward`] brings
//! it to the leader when only the leader can answer. Here a mutation is checked, turned into a command of the ledger and
//! proposed under its request id (`mutation`); a read is answered from a published state, as current as its caller asks
//! (`reading`); a watch follows the published states ([`watch`]). What is refused is refused in the API's words
//! (`refusal`). Nothing here keeps anything that the ledger does not know.

mod caller;
mod cluster;
pub mod forward;
mod jobs;
mod logs;
mod mutation;
mod pool;
mod queues;
pub mod readiness;
mod reading;
pub(crate) mod refusal;
mod scan;
pub mod watch;

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use tessera_api::request_id::Mutation;
use tessera_consensus::SystemClock;
use tessera_ledger::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

pub use cluster::ClusterApi;
pub use jobs::JobApi;
pub use pool::PoolApi;
pub use queues::QueueApi;

use crate::clock::WallClock;
use crate::pool::PoolHandle;
use caller::Caller;
use mutation::Made;
use reading::Reading;
use watch::{Watch, WatchMeters, WatchSettings};

/// A stream of answers.
pub(crate) type Answers<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// What all services work with. Clones work with the same.
#[derive(Clone, Debug)]
pub struct Desk {
    pool: PoolHandle,
    watch: Watch,
    clock: WallClock,
    streams: Arc<Semaphore>,
    end: CancellationToken,
}

impl Desk {
    /// A desk at the pool of this member. Streams end when `end` is cancelled.
    #[must_use]
    pub fn new(pool: PoolHandle, settings: WatchSettings, meters: WatchMeters, end: CancellationToken) -> Self {
        let streams = Arc::new(Semaphore::new(settings.streams));
        let watch = Watch { settings, meters, states: pool.view().changes(), end: end.clone() };
        Self { pool, watch, clock: WallClock::new(Arc::new(SystemClock)), streams, end }
    }

    async fn read(&self, consistency: i32, deadline: Instant) -> Result<Reading, Status> {
        reading::read(&self.pool, consistency, deadline).await
    }

    /// Room for one more stream, for as long as the permit is kept.
    fn stream(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| refusal::too_many_streams())
    }

    /// Makes the mutation that a request asks for.
    async fn make<M: Mutation>(&self, request: Request<M>, command: Command) -> Result<Made, Status> {
        let key = mutation::key_of(request.get_ref())?;
        mutation::make(&self.pool, Caller::of(&request), key, command).await
    }
}
