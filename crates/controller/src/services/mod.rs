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
use tessera_api::v1::ErrorReason;
use tessera_ledger::{Command, LogTime, State};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

pub use cluster::ClusterApi;
pub use jobs::JobApi;
pub use pool::PoolApi;
pub use queues::QueueApi;

use crate::pool::PoolHandle;
use caller::Caller;
use mutation::Made;
use reading::Reading;
use watch::{Watch, WatchMeters, WatchSettings};

/// Rehearsals that a member plays at once; each may take a core for as long as its caller waits.
const REHEARSALS: usize = 2;

/// A stream of answers.
pub(crate) type Answers<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// What all services work with. Clones work with the same.
#[derive(Clone, Debug)]
pub struct Desk {
    pool: PoolHandle,
    watch: Watch,
    streams: Arc<Semaphore>,
    rehearsals: Arc<Semaphore>,
    end: CancellationToken,
}

impl Desk {
    /// A desk at the pool of this member. Streams end when `end` is cancelled.
    #[must_use]
    pub fn new(pool: PoolHandle, settings: WatchSettings, meters: WatchMeters, end: CancellationToken) -> Self {
        let streams = Arc::new(Semaphore::new(settings.streams));
        let watch = Watch { settings, meters, states: pool.view().changes(), end: end.clone() };
        let rehearsals = Arc::new(Semaphore::new(REHEARSALS));
        Self { pool, watch, streams, rehearsals, end }
    }

    /// Plays something through on a state, away from the threads that serve calls; a few at a time, the others wait.
    async fn rehearse<R: Send + 'static>(
        &self,
        reading: &Reading,
        deadline: Instant,
        play: impl FnOnce(&State, LogTime) -> R + Send + 'static,
    ) -> Result<R, Status> {
        let permit = timeout_at(deadline, Arc::clone(&self.rehearsals).acquire_owned()).await;
        // Nobody closes the semaphore: what fails here is the deadline.
        let Ok(Ok(permit)) = permit else { return Err(refusal::too_late()) };
        let (state, now) = (Arc::clone(&reading.state), self.pool.log_time());
        let played = tessera_consensus::try_blocking(move || {
            let answer = play(&state, now);
            drop(permit);
            answer
        });
        match timeout_at(deadline, played).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let sentence = format!("what was asked could not be played through: {error}; report it");
                Err(refusal::because(ErrorReason::Internal, sentence))
            }
            Err(_) => Err(refusal::too_late()),
        }
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
