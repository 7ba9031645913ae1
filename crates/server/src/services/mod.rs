//! The services that every member answers: jobs, pool, queues, cluster.
//!
//! A call passes three layers before it comes here: [`crate::grpc`] observes it and gives it a deadline, [`forward`]
//! brings it to the leader when only the leader can answer. Here a mutation is checked, turned into a command of the
//! ledger and proposed under its request id (`mutation`); a read is answered from a published state, as current as its
//! caller asks (`reading`); a watch follows the published states ([`watch`]). What is refused is refused in the API's
//! words (`refusal`). Nothing here keeps anything that the ledger does not know.

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
mod usage;
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
pub use usage::UsageApi;

use crate::grpc::GrpcSettings;
use crate::limits::{LimitMeters, Limited, Use};
use caller::Caller;
use mutation::Made;
use pool::Verifier;
use reading::Reading;
use tessera_controller::pool::PoolHandle;
use watch::{Pace, Watch, WatchMeters};

/// Rehearsals that a member plays at once; each may take a core for as long as its caller waits.
const REHEARSALS: usize = 2;

/// Callers that wait for their rehearsal; each is one of the calls that a member answers at once.
const REHEARSALS_WAITING: usize = 32;

/// Backups that are read from a member at once; each keeps a state of the ledger as long as its reader takes.
const SAVES: usize = 2;
/// Questions about this process that are answered at the same time; further ones wait. A profile takes no place.
const DIAGNOSES: usize = 1;

/// Leave to keep a stream, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    _permit: OwnedSemaphorePermit,
    _counted: Use,
}

/// A stream of answers.
pub(crate) type Answers<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// The resources that all services share. Clones work with the same.
#[derive(Clone, Debug)]
pub struct Desk {
    pool: PoolHandle,
    watch: Watch,
    limits: LimitMeters,
    watches: Arc<Semaphore>,
    log_streams: Arc<Semaphore>,
    verifier: Verifier,
    rehearsals: Arc<Semaphore>,
    rehearsals_waiting: Arc<Semaphore>,
    saves: Arc<Semaphore>,
    diagnoses: Arc<Semaphore>,
    end: CancellationToken,
}

impl Desk {
    /// A desk at the pool of this member. Streams end when `end` is cancelled.
    #[must_use]
    pub(crate) fn new(
        pool: PoolHandle,
        settings: &GrpcSettings,
        meters: WatchMeters,
        limits: LimitMeters,
        end: CancellationToken,
    ) -> Self {
        let most = &settings.limits;
        let [watches, log_streams] = [most.watches, most.log_streams].map(|most| Arc::new(Semaphore::new(most)));
        let verifier = Verifier::new(most, limits.clone());
        let pace = Pace::new(most, &limits);
        let watch = Watch { settings: settings.watch, meters, pace, states: pool.view().changes(), end: end.clone() };
        let [rehearsals, rehearsals_waiting, saves, diagnoses] =
            [REHEARSALS, REHEARSALS_WAITING, SAVES, DIAGNOSES].map(|most| Arc::new(Semaphore::new(most)));
        Self {
            pool,
            watch,
            limits,
            watches,
            log_streams,
            verifier,
            rehearsals,
            rehearsals_waiting,
            saves,
            diagnoses,
            end,
        }
    }

    /// Plays something through on a state, away from the threads that serve calls; a few at a time, the others wait.
    async fn rehearse<R: Send + 'static>(
        &self,
        reading: &Reading,
        deadline: Instant,
        play: impl FnOnce(&State, LogTime) -> R + Send + 'static,
    ) -> Result<R, Status> {
        let Ok(_waits) = self.rehearsals_waiting.try_acquire() else { return Err(refusal::too_many_rehearsals()) };
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

    /// Room to read one more backup, for as long as the permit is kept.
    fn save_permit(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.saves).try_acquire_owned().map_err(|_| refusal::too_many_saves())
    }

    /// Room for one more watch, for as long as the permit is kept.
    fn watch_permit(&self) -> Result<StreamPermit, Status> {
        self.permit(&self.watches, Limited::Watches)
    }

    /// Room for one more stream of output, for as long as the permit is kept.
    fn log_permit(&self) -> Result<StreamPermit, Status> {
        self.permit(&self.log_streams, Limited::LogStreams)
    }

    fn permit(&self, permits: &Arc<Semaphore>, limited: Limited) -> Result<StreamPermit, Status> {
        let permit = Arc::clone(permits).try_acquire_owned().map_err(|_| self.limits.refuse(limited))?;
        Ok(StreamPermit { _permit: permit, _counted: self.limits.one(limited) })
    }

    /// Makes the mutation that a request asks for.
    async fn make<M: Mutation>(&self, request: Request<M>, command: Command) -> Result<Made, Status> {
        let key = mutation::key_of(request.get_ref())?;
        mutation::make(&self.pool, Caller::of(&request)?, key, command).await
    }
}
