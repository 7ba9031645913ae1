//! An agent from its configuration to its end: it makes everything ready, finds what an earlier agent left, and starts
//! the tasks around the node's loop.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use futures::future::join_all;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tessera_actor::{ActorMeters, Pulse, Supervisor};
use tessera_api::v1 as wire;
use tessera_client::{BadAddress, ClientError, SessionConnector, Settings};
use tessera_connection::Inbound;
use tessera_devices::{DeviceError, HostRoot, NodeDevices};
use tessera_ledger::wire::capacity_to_wire;
use tessera_ledger::{CardKind, HostCapacity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::boot::{BootTime, boot_id};
use crate::cards::{cards_of, watch_cards};
use crate::checkpoints::{Shelf, is_due_at_the_end};
use crate::conduct::{Conduct, post};
use crate::config::{AgentConfig, CardSource, ConfigError};
use crate::criu::Criu;
use crate::data::{names_in, watch_data};
use crate::device::served::Served;
use crate::host::ProcessHost;
use crate::http::{Page, push_metrics, serve_http, show_pulse};
use crate::identity::{Identity, IdentityError, TermKeeper};
use crate::logs::serve;
use crate::metrics::Meters;
use crate::node::{Node, NodeFacts, WorkerRecord};
use crate::reach;
use crate::retention::{Retention, remove_expired};
use crate::supervisor::probe::whole_trees_end;
use crate::supervisor::status::{Phase, Status};
use crate::turns::TurnBook;
use crate::turns::table::Table;
use crate::worker::folder::{FoundWorker, WorkerFolders};
use crate::worker::launch::Launcher;
use crate::worker::socket::ask_status;
use crate::worker::spare::Spare;
use crate::worker::{
    AccountError, Accounts, Addresses, Ended, Fence, RunAs, Straggler, closed_to_others, inherited_environment,
};

/// An agent cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A member's address cannot be used.
    #[error(transparent)]
    Member(#[from] BadAddress),
    /// No client can be made.
    #[error("the members cannot be spoken to")]
    Client(#[source] ClientError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The cards cannot be had.
    #[error(transparent)]
    Devices(#[from] DeviceError),
    #[error("the data folder {} cannot be used; the agent must be able to write there", path.display())]
    DataFolder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Workers could not reach their own folders.
    #[error(
        "workers run under identities of their own and could not pass through {}; let others pass (chmod o+x), use another data folder, or set `run_as` to `agent`",
        .0.display()
    )]
    Impassable(PathBuf),
    /// An identity for workers cannot be had.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The place for checkpoints cannot be had.
    #[error("checkpoints cannot be kept: {0}; correct `[checkpoints] store`, or the data folder")]
    Checkpoints(#[from] tessera_checkpoint::Error),
    /// Another agent uses the data folder.
    #[error("another agent uses the data folder {}; one folder belongs to one agent", .0.display())]
    Taken(PathBuf),
    /// A port cannot be had.
    #[error("cannot listen on {address}; is something else there?")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// An agent that has everything and listens, and has not said hello yet.
pub struct Agent {
    config: AgentConfig,
    identity: Identity,
    devices: Arc<Mutex<NodeDevices>>,
    folders: WorkerFolders,
    connector: SessionConnector,
    logs: Inbound,
    http: Option<Inbound>,
    boot_id: String,
    accounts: Accounts,
    shelf: Shelf,
    containment: wire::Containment,
    criu: Option<Criu>,
    /// Labels that the agent sets by itself.
    labels: Vec<(String, String)>,
    pulse: Pulse,
    _lock: Flock<File>,
}

impl Agent {
    /// Makes everything ready: checks the configuration, takes the data folder, measures the cards, listens.
    ///
    /// # Errors
    /// What cannot be had, and what to do about it.
    pub async fn start(config: AgentConfig) -> Result<Self, AgentError> {
        config.validate()?;
        let unusable = |source| AgentError::DataFolder { path: config.data_dir.clone(), source };
        // Workers must be able to pass through what lies above.
        umask(Mode::from_bits_truncate(0o022));
        if let Some(above) = config.data_dir.parent() {
            std::fs::create_dir_all(above).map_err(unusable)?;
        }
        // What the agent writes is nobody else's to read, unless it says so.
        umask(Mode::from_bits_truncate(0o077));
        std::fs::create_dir_all(&config.data_dir).map_err(unusable)?;
        // Relative paths would mean something else to supervisors, which start in other folders.
        let config = AgentConfig { data_dir: config.data_dir.canonicalize().map_err(unusable)?, ..config };
        let unusable = |source| AgentError::DataFolder { path: config.data_dir.clone(), source };
        let lock = lock(&config)?;
        let mut identity = Identity::begin(&config.data_dir, &config.node_name, config.data_dir_moved)?;
        if let Some(pool) = &config.accept_pool
            && let Some(before) = identity.accept_pool(pool, &config.data_dir)?
        {
            tracing::warn!(before, pool, "by an operator's word this node belongs to another pool from now on");
        }
        let folders = WorkerFolders::open(&config.data_dir).map_err(unusable)?;
        let accounts = Accounts::new(config.run_as, &config.worker_groups)?;
        if config.run_as != RunAs::Agent
            && let Some(closed) = closed_to_others(&config.data_dir).map_err(unusable)?
        {
            return Err(AgentError::Impassable(closed));
        }
        let shelf = Shelf::open(&config.data_dir, &config.checkpoints).await?;
        let containment = find_containment().await;
        let criu = Criu::find(config.checkpoints.criu.as_deref(), &containment.missing).await;
        let labels = Criu::labels(&criu);
        let criu = criu.inspect_err(|why| tracing::info!(why, "no process can be dumped here")).ok();
        let devices = find_devices(&config).await?;
        let members = config.members.iter().map(|member| member.parse()).collect::<Result<Vec<_>, BadAddress>>()?;
        let connector = SessionConnector::new(&members, Settings::default()).map_err(AgentError::Client)?;
        let logs = listen(config.listen).await?;
        let http = match config.http_listen {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let boot_id = boot_id().map_err(unusable)?;
        Ok(Self {
            devices: Arc::new(Mutex::new(devices)),
            config,
            identity,
            folders,
            connector,
            logs,
            http,
            boot_id,
            accounts,
            shelf,
            containment,
            criu,
            labels,
            pulse: Pulse::default(),
            _lock: lock,
        })
    }

    /// Gives `pulse` a beat as long as the node's loop answers.
    #[must_use]
    pub fn with_pulse(self, pulse: Pulse) -> Self {
        Self { pulse, ..self }
    }

    /// The address at which members read logs.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn logs_address(&self) -> io::Result<SocketAddr> {
        self.logs.local_address()
    }

    /// The address at which metrics are served, if they are.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(|inbound| inbound.local_address().ok())
    }

    /// Runs until `shutdown` is cancelled. Workers go on then; the next agent on this data folder adopts them.
    ///
    /// # Errors
    /// When what earlier agents left cannot be read.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), AgentError> {
        let end = shutdown.child_token();
        let meters = ActorMeters::default();
        let tasks = Supervisor::new(meters.clone());
        let (address, inbox) = post(&meters);
        let unusable = |source| AgentError::DataFolder { path: self.config.data_dir.clone(), source };
        self.folders.remove_blank();
        let found = self.folders.search().map_err(unusable)?;
        for FoundWorker { worker, damage, .. } in found.iter().filter(|found| !found.damage.is_empty()) {
            tracing::error!(%worker, ?damage, "a worker's folder is damaged; what is left of the worker is searched for");
        }
        let facts = self.facts().map_err(unusable)?;
        let workers = self.records(found).await;
        let cards = cards_of(&self.devices);
        let folders_of_data = self.config.data_dirs.clone();
        let data = tokio::task::spawn_blocking(move || names_in(&folders_of_data)).await.unwrap_or_default();
        let Identity { highest_term, cluster_id, node_name, .. } = self.identity.clone();
        let node = Node::new(facts, cards, highest_term, cluster_id, workers.iter().cloned());
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let node = node.with_processors(processors);
        let node = node.with_data(data.clone()).read_since(BootTime::now()).named(!node_name.is_empty());
        let launcher = Launcher {
            node: self.config.node_name.clone(),
            folders: self.folders.clone(),
            devices: Arc::clone(&self.devices),
            cgroup_root: self.config.effective_cgroup_root(),
            uid: self.identity.uid.clone(),
            bounds: self.config.limits.clone(),
            supervisor: self.config.supervisor.clone(),
            spare: Spare::default(),
            accounts: self.accounts,
            shelf: self.shelf.clone(),
            served: Arc::default(),
            criu: self.criu,
            contained: self.containment.whole,
            addresses: Addresses::default(),
            inherited: inherited_environment(self.config.run_as),
        };
        if let Some(python) = self.config.device.python.clone() {
            let served = Served::new(python, &self.config);
            tasks.once("device", served.tell(Arc::clone(&launcher.served), address.clone(), end.clone()));
        }
        let ahead = launcher.clone();
        tasks.once("spare", async move { ahead.make_spare().await });
        let keeper = TermKeeper::new(self.identity, self.config.node_name.clone(), self.config.data_dir.clone());
        let (output_retention, of_pool) = watch::channel(None);
        let ended = Ended::new(self.folders.clone(), self.config.limits.ended);
        let host = ProcessHost { launcher, keeper, ended: ended.clone(), boot_id: self.boot_id, output_retention };
        let retention = Retention { of_node: self.config.limits.output_retention, of_pool };
        let turns = TurnBook::new(self.config.time_slicing);
        for table in Table::of(&self.devices, &self.folders, &turns, &address) {
            tasks.critical("turns", table.run(end.clone()));
        }
        tasks.critical("cards", watch_cards(self.devices, self.folders.clone(), turns, address.clone(), end.clone()));
        let meters = Meters { actors: meters, checkpoints: self.shelf.clone(), ended: ended.clone() };
        let page = Page { node: address.clone(), meters: meters.clone() };
        let (limits, names) = (self.config.limits.clone(), self.config.names());
        tasks.once("logs", serve(self.logs, self.folders.clone(), page, self.shelf.service(), limits, end.clone()));
        if !self.config.data_dirs.is_empty() {
            let (folders, interval) = (self.config.data_dirs, self.config.data_scan);
            tasks.critical("data", watch_data(folders, data, interval, address.clone(), end.clone()));
        }
        tasks.critical("pulse", show_pulse(self.pulse, address.clone(), end.clone()));
        tasks.once("otlp", push_metrics(address.clone(), meters.clone(), end.clone()));
        if let Some(inbound) = self.http {
            tasks.once("http", serve_http(inbound, address.clone(), meters, names, end.clone()));
        }
        tasks.once("cleaning", remove_expired(ended, self.shelf, retention, end.clone()));
        see_off_stragglers(&workers, self.config.limits.kill_confirmation, &tasks, &end);
        let conduct = Conduct { node, workers, connector: self.connector, random: StdRng::from_os_rng() };
        conduct.run(host, (address, inbox), tasks, end).await;
        Ok(())
    }

    /// Makes records of the workers that were found, with the newest status from those supervisors that are at work.
    async fn records(&self, found: Vec<FoundWorker>) -> Vec<WorkerRecord> {
        let record = async |found: FoundWorker| {
            let fence = Fence { term: self.identity.highest_term, epoch: found.worker.epoch };
            let job = found.order.as_ref().map_or(0, |order| order.job_id);
            let unknown = || Status::new(found.worker, job, fence, self.boot_id.clone());
            let kept = found.status.unwrap_or_else(unknown);
            let folder = self.folders.of(found.worker);
            let newest = if kept.is_final() { None } else { ask_status(&folder).await };
            let (mut status, saved) = (newest.unwrap_or(kept), folder.saved());
            if is_due_at_the_end(&status, found.order.as_ref(), saved.as_ref()) {
                // Its end is told once what it saved is kept: whoever follows it finds that it is over, and does so.
                status.phase = Phase::Stopping;
            }
            WorkerRecord::found(status, found.order.map(Arc::new)).with_saved(saved)
        };
        join_all(found.into_iter().map(record)).await
    }

    /// The capacity that the host offers. Memory that its processors offer as a card is not offered a second time.
    fn host_capacity(&self) -> io::Result<HostCapacity> {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let processors = devices.cards().iter().filter(|card| card.kind == CardKind::Cpu && !card.simulated);
        self.config.host.capacity(processors.map(|card| card.memory).sum())
    }

    fn facts(&self) -> io::Result<NodeFacts> {
        let listener = self.logs_address()?;
        let advertised = self.config.advertise.clone();
        Ok(NodeFacts {
            name: self.config.node_name.clone(),
            uid: self.identity.uid.clone(),
            incarnation: self.identity.incarnation,
            address: advertised.unwrap_or_else(|| reach::advertised(listener, &self.config.worker_host)),
            worker_host: self.config.worker_host.clone(),
            labels: self.config.labels.clone().into_iter().chain(self.labels.clone()).collect(),
            boot_id: self.boot_id.clone(),
            start_nonce: uuid::Uuid::new_v4().to_string(),
            containment: self.containment.clone(),
            host: Some(capacity_to_wire(self.host_capacity()?)),
        })
    }
}

fn lock(config: &AgentConfig) -> Result<Flock<File>, AgentError> {
    let unusable = |source| AgentError::DataFolder { path: config.data_dir.clone(), source };
    let file =
        OpenOptions::new().create(true).append(true).open(config.data_dir.join("agent.lock")).map_err(unusable)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::errno::Errno::EWOULDBLOCK => AgentError::Taken(config.data_dir.clone()),
        other => unusable(other.into()),
    })
}

/// Determines whether this host ends the whole process tree of a worker by itself; if not, the reason is logged once,
/// as a warning.
async fn find_containment() -> wire::Containment {
    let tried = tokio::task::spawn_blocking(whole_trees_end).await;
    match tried.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => wire::Containment { whole: true, missing: String::new() },
        Err(missing) => {
            tracing::warn!(
                missing,
                "what workers fork may outlive their supervisors here, so that the silence of this node is never taken for a \
                 stop of its work: its blocks are granted again only when it is back, or an operator says that it is dead"
            );
            wire::Containment { whole: false, missing }
        }
    }
}

async fn find_devices(config: &AgentConfig) -> Result<NodeDevices, AgentError> {
    let host = HostRoot::new(config.node_name.clone(), config.data_dir.clone());
    let (source, device, slicing) = (config.cards.clone(), config.device.clone(), config.accelerator_slicing);
    let found = tokio::task::spawn_blocking(move || match source {
        CardSource::Local => NodeDevices::local(host),
        CardSource::Accelerators => NodeDevices::with_accelerators(host, device.interpreter(), slicing),
        CardSource::Inventory(path) => NodeDevices::declared(&path, &host),
        CardSource::None => Ok(NodeDevices::none()),
    });
    let joined = found
        .await
        .map_err(|source| AgentError::DataFolder { path: config.data_dir.clone(), source: source.into() })?;
    let mut devices = joined?;
    // What cannot be used is not offered first and taken back then.
    for report in devices.changed_health() {
        tracing::warn!(card = report.card_index, reason = report.reason, "a card cannot be used");
    }
    Ok(devices)
}

/// Sees off supervisors whose workers an earlier agent has seen end, or nobody.
fn see_off_stragglers(workers: &[WorkerRecord], patience: Duration, tasks: &Supervisor, end: &CancellationToken) {
    for over in workers.iter().map(|found| &found.status).filter(|status| status.is_final()) {
        if let Some(supervisor) = Straggler::of(over) {
            let (gone, end) = (supervisor.see_off(over.worker, patience), end.clone());
            tasks.once("supervisor", async move {
                end.run_until_cancelled(gone).await;
            });
        }
    }
}

async fn listen(address: SocketAddr) -> Result<Inbound, AgentError> {
    Inbound::bind(address).await.map_err(|source| AgentError::Listen { address, source })
}
