//! A member from start to end: its store, its identity, consensus, the leader's actors, and the servers.

#[cfg(feature = "rocksdb")]
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tessera_actor::Pulse;
use tessera_connection::{Inbound, Outbound};
use tessera_consensus::{
    Clock, ClusterId, Consensus, ConsensusConfig, Environment, Identity, Leadership, MemberId, StartError,
};
#[cfg(feature = "rocksdb")]
use tessera_consensus::{SystemClock, WrongClock};
use tessera_controller::controller::{Controller, Means};
use tessera_controller::machine::{LedgerMachine, Onlooker};
use tessera_controller::metrics::Metrics;
use tessera_controller::pool::PoolHandle;
use tessera_store::Store;
#[cfg(feature = "rocksdb")]
use tessera_store::rocks::{self, RocksOptions};
use tessera_usage::{Keeper, Settings};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::ServerConfig;
#[cfg(feature = "rocksdb")]
use crate::consensus_runtime::ConsensusRuntime;
use crate::founding::{self, Named};
use crate::grpc::{self, GrpcSettings, ServeError};
use crate::http;
use crate::json_face::JsonFace;
use crate::phase::Phase;
use crate::run_error::{ADMISSION, RunError};
use crate::whereabouts;

/// The file of the accounts in the data folder.
#[cfg(feature = "rocksdb")]
const USAGE_FILE: &str = "usage.sqlite";
/// The longest time for which a leader that is shut down tries to hand leadership over; also the longest wait for the
/// end of the pages and of other tasks in the background.
const HANDOVER: Duration = Duration::from_secs(2);
/// The longest time that a part of a member may take to end.
const ENDING: Duration = Duration::from_secs(10);
/// The longest time that the loop of consensus may take to give a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// The resources and surroundings of a member. `run` takes the real ones; tests and simulations take others.
pub struct Ground {
    pub store: Arc<dyn Store>,
    /// The means of connecting to other members.
    pub outbound: Outbound,
    /// The machine's wall clock.
    pub clock: Arc<dyn Clock>,
    /// The connections on which gRPC is served.
    pub inbound: Inbound,
    /// The connections on which metrics and health are served; `None`: nowhere.
    pub http: Option<Inbound>,
    /// The runtime that consensus runs on; `None`: that of all the rest.
    pub consensus: Option<Handle>,
    /// The channel on which the process publishes what it is, and the pool that its services work with once it runs.
    pub shown: watch::Sender<Phase>,
    /// Seed of everything random in consensus.
    pub seed: u64,
    /// The observer of the log as it is applied; `None`: nobody.
    pub onlooker: Option<Arc<dyn Onlooker>>,
    /// The file of the accounts of what jobs hold; `None`: no accounts are kept.
    pub usage: Option<PathBuf>,
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Runs a member until `shutdown`, or until it must stop. When it leads at the end, it hands leadership over first.
/// `pulse` beats while it serves: as a member as long as the loop of its consensus answers, before that while it waits
/// to be made one.
///
/// # Errors
/// [`RunError`]: the process should print it with its causes and exit; a member never goes on after it.
#[cfg(feature = "rocksdb")]
pub fn run(
    config: ServerConfig,
    pulse: Pulse,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), RunError>> {
    // In a box, so that all of a member is compiled here, once, and not in every crate that runs one.
    Box::pin(run_on_disk(config, pulse, shutdown))
}

#[cfg(feature = "rocksdb")]
async fn run_on_disk(config: ServerConfig, pulse: Pulse, shutdown: CancellationToken) -> Result<(), RunError> {
    config.validate()?;
    let options = RocksOptions::new(&config.data_dir);
    let opened = tokio::task::spawn_blocking(move || rocks::open(&options)).await;
    let store = opened.expect("opening a store does not panic and is not aborted")?;
    let inbound = listen(config.listen).await?;
    let http = match config.http {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let clock: Arc<dyn Clock> = match config.clock_offset_ms {
        0 => Arc::new(SystemClock),
        ahead_ms => {
            tracing::warn!(ahead_ms, "for a drill, this member's wall clock is taken to be wrong");
            Arc::new(WrongClock { ahead_ms })
        }
    };
    let consensus = ConsensusRuntime::start().map_err(RunError::NoThread)?;
    let ground = Ground {
        store,
        outbound: Outbound::default(),
        clock,
        inbound,
        http,
        consensus: consensus.handle(),
        shown: watch::Sender::default(),
        seed: rand::random(),
        onlooker: None,
        usage: Some(config.data_dir.join(USAGE_FILE)),
    };
    Box::pin(run_here(ground, config, pulse, shutdown)).await
}

#[cfg(feature = "rocksdb")]
async fn listen(address: SocketAddr) -> Result<Inbound, RunError> {
    Inbound::bind(address).await.map_err(|source| RunError::Listen { address, source })
}

/// Runs a member on the ground given.
///
/// # Errors
/// [`RunError`]: the process should print it with its causes and exit; a member never goes on after it.
pub fn run_on(
    ground: Ground,
    config: ServerConfig,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), RunError>> {
    Box::pin(run_here(ground, config, Pulse::default(), shutdown))
}

async fn run_here(
    ground: Ground,
    config: ServerConfig,
    pulse: Pulse,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    config.validate()?;
    let Ground { store, outbound, clock, inbound, http, consensus, shown, seed, onlooker, usage } = ground;
    let metrics = Metrics::new();
    // Everything ends when this function does, however it ends.
    let end = CancellationToken::new();
    let _end_all = end.clone().drop_guard();
    let json = JsonFace::of(config.names());
    let mut pages = http.map(|inbound| {
        let (member, metrics) = (shown.subscribe(), Arc::clone(&metrics));
        tokio::spawn(http::serve(inbound, member, metrics, json.clone(), end.clone()))
    });

    let pushing = tokio::spawn(http::push(Arc::clone(&metrics), end.clone()));
    let environment = Environment { store: Arc::clone(&store), outbound: outbound.clone(), clock, seed };
    let starter = Starter { runtime: consensus, config: config.consensus.clone(), environment };
    let mut starting = founding::answer_meanwhile(inbound.clone(), &shown);
    let named = match stored_identity(&config, &starter).await? {
        Some(identity) => Named { identity, pool: None, founding: None },
        None => {
            drop(starting);
            tracing::info!(address = config.advertise, "this process is no member yet: it waits to be made one");
            let named = end.child_token();
            let _named = named.clone().drop_guard();
            tokio::spawn(pulse.clone().keep(|| std::future::ready(true), named));
            let (level, waits) = (config.highest_level, inbound.clone());
            let known_as = (config.advertise.as_str(), config.name.as_str());
            let Some(named) = founding::wait(waits, known_as, level, &outbound, &shown, &shutdown).await? else {
                return Ok(());
            };
            starting = founding::answer_meanwhile(inbound.clone(), &shown);
            named
        }
    };
    shown.send_replace(Phase::Starting);
    let network = Network { inbound, outbound, json, starting };
    let running = Running::start(named, (starter, onlooker, usage), &config, metrics, network, &end).await?;
    shown.send_replace(Phase::Member(running.pool.clone()));
    let consensus = running.pool.consensus().clone();
    let alive = move || {
        let consensus = consensus.clone();
        async move { consensus.answers(Instant::now() + SIGN_OF_LIFE).await }
    };
    let beating = tokio::spawn(pulse.keep(alive, end.clone()));
    let result = running.until_end(&shutdown, pages.as_mut()).await;
    running.finish(&end, result.is_ok()).await;
    if let Some(pages) = pages {
        drop(timeout(HANDOVER, pages).await);
    }
    drop(timeout(HANDOVER, pushing).await);
    drop(timeout(HANDOVER, beating).await);
    result
}

/// The accounts of a member. It serves without them rather than not at all: whoever asks for them is told.
fn accounts(path: PathBuf, identity: &Identity, config: &ServerConfig) -> Option<Keeper> {
    let settings = Settings { path, cluster: identity.cluster.to_string(), retention: config.usage.retention };
    match Keeper::start(settings) {
        Ok(keeper) => Some(keeper),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%error, cause, "this member keeps no usage");
            None
        }
    }
}

/// The settings and surroundings with which consensus is started.
struct Starter {
    runtime: Option<Handle>,
    config: ConsensusConfig,
    environment: Environment,
}

impl Starter {
    /// Starts it on its runtime, so that all its tasks are there.
    async fn start(&self, identity: Identity, machine: LedgerMachine) -> Result<Consensus<LedgerMachine>, StartError> {
        let starting = Consensus::start(self.config.clone(), identity, self.environment.clone(), machine);
        match &self.runtime {
            None => starting.await,
            Some(runtime) => match runtime.spawn(starting).await {
                Ok(started) => started,
                Err(ended) => std::panic::resume_unwind(ended.into_panic()),
            },
        }
    }
}

/// The identity of the data folder's owner; `None` in a new one. Consensus alone reads the stored identity: asked to
/// start as somebody that cannot be, it refuses and says who the folder belongs to.
async fn stored_identity(config: &ServerConfig, starter: &Starter) -> Result<Option<Identity>, RunError> {
    if starter.environment.store.identity()?.is_none() {
        return Ok(None);
    }
    let cluster = ClusterId::new("-").expect("one dash is a legal cluster id");
    let nobody = Identity { cluster, member: MemberId(0) };
    let (machine, _, _) = LedgerMachine::new(config.highest_level);
    match starter.start(nobody, machine).await {
        Err(StartError::OtherIdentity { found, .. }) => Ok(Some(found)),
        Err(error) => Err(error.into()),
        Ok(consensus) => {
            let identity = consensus.identity().clone();
            consensus.shutdown().await;
            Ok(Some(identity))
        }
    }
}

/// The inbound and outbound connections of a member.
struct Network {
    inbound: Inbound,
    outbound: Outbound,
    json: JsonFace,
    /// Answers what comes in until the member does.
    starting: DropGuard,
}

/// A member that runs.
struct Running {
    pool: PoolHandle,
    grpc: tokio::sync::Mutex<JoinHandle<Result<(), ServeError>>>,
    tasks: Vec<JoinHandle<()>>,
    identity: Identity,
    /// Ends the gRPC server, after everything that needs it.
    closing: CancellationToken,
}

impl Running {
    async fn start(
        named: Named,
        (starter, onlooker, usage): (Starter, Option<Arc<dyn Onlooker>>, Option<PathBuf>),
        config: &ServerConfig,
        metrics: Arc<Metrics>,
        Network { inbound, outbound, json, starting }: Network,
        end: &CancellationToken,
    ) -> Result<Self, RunError> {
        let Named { identity, pool: new_pool, founding } = named;
        let (machine, view, feed) = LedgerMachine::new(config.highest_level);
        let usage = usage.and_then(|path| accounts(path, &identity, config));
        let machine = machine.seen_by(onlooker).accounted_by(usage.clone());
        let store = Arc::clone(&starter.environment.store);
        let consensus = starter.start(identity.clone(), machine).await?;
        let means = Means {
            view,
            feed,
            store,
            disk_reserve_bytes: config.disk_reserve_bytes,
            outbound,
            metrics,
            config: config.controller(),
            usage,
        };
        let Controller { pool, agents, mut tasks } = Controller::start(consensus.clone(), means, end);
        if let Some(new_pool) = new_pool {
            pool.found_with(new_pool);
        }
        let closing = CancellationToken::new();
        let settings = GrpcSettings { limits: config.limits, ..GrpcSettings::default() };
        drop(starting);
        let serving = grpc::serve(inbound, pool.clone(), agents, settings, json, closing.clone());
        let grpc = tokio::sync::Mutex::new(tokio::spawn(serving));
        if let Some(founding) = founding {
            let pool = pool.clone();
            tasks.push(tokio::spawn(async move {
                let founded = founding::found(&consensus, founding.members).await;
                if founded.is_ok() {
                    pool.is_founded().await;
                    founding::in_use(&pool).await;
                }
                // Whoever asked may have given up.
                drop(founding.answer.send(founded));
            }));
        }
        let told = whereabouts::tell(pool.status(), config.advertise.clone());
        let end = end.clone();
        tasks.push(tokio::spawn(async move {
            let _ = end.run_until_cancelled(told).await;
        }));
        Ok(Self { pool, grpc, tasks, identity, closing })
    }

    /// Waits for the first reason to end.
    async fn until_end(
        &self,
        shutdown: &CancellationToken,
        pages: Option<&mut JoinHandle<()>>,
    ) -> Result<(), RunError> {
        let pages = async {
            match pages {
                // That it ends is all there is to know.
                Some(pages) => drop(pages.await),
                None => std::future::pending().await,
            }
        };
        let mut grpc = self.grpc.lock().await;
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            reason = self.pool.consensus().stopped() => Err(RunError::Stopped(reason)),
            served = &mut *grpc => match served {
                Ok(Err(error)) => Err(error.into()),
                Ok(Ok(())) | Err(_) => Ok(()),
            },
            () = self.never_admitted() => Err(RunError::NotAdmitted { identity: self.identity.clone() }),
            () = pages => Err(RunError::Pages),
        }
    }

    /// Ends when the member is not admitted in time; never when it is.
    async fn never_admitted(&self) {
        let mut status = self.pool.status();
        if timeout(ADMISSION, status.wait_for(|status| status.admitted)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }

    /// Ends everything, in an order in which each part can still use those that end later.
    async fn finish(mut self, end: &CancellationToken, orderly: bool) {
        self.pool.stops();
        let leads = matches!(*self.pool.leadership().borrow(), Leadership::Leading { .. });
        let alone = self.pool.status().borrow().voters.len() < 2;
        if orderly && leads && !alone {
            let handed = self.pool.consensus().transfer_leadership(None, Instant::now() + HANDOVER).await;
            tracing::info!(?handed, "leadership is handed over before the end");
        }
        // The leader's actors end, and with them the sessions of agents; then open calls; then consensus.
        end.cancel();
        for task in self.tasks.drain(..) {
            drop(timeout(ENDING, task).await);
        }
        self.closing.cancel();
        if !self.grpc.get_mut().is_finished() {
            drop(timeout(ENDING, self.grpc.get_mut()).await);
        }
        if timeout(ENDING, self.pool.consensus().shutdown()).await.is_err() {
            tracing::warn!("consensus did not end in time");
        }
    }
}
