//! The machines that work runs on: what goes on there whether or not an agent looks.
//!
//! A machine has a disk with the folders of its workers, a supervisor per worker (the real state machine, with its own
//! deadline on the machine's boot clock), and the workers' programs, which compute on blocks from their start to their
//! death and record it. All of it survives the crash of an agent, and runs on while one is stopped; only the loss of
//! the machine itself ends it.

mod losses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tessera_agent::boot::BootTime;
use tessera_agent::is_due_at_the_end;
use tessera_agent::node::{LaunchOrder, WorkerRecord};
use tessera_agent::supervisor::status::{Cause, Phase, Status};
use tessera_agent::worker::{Term, WorkerId, WorkerUse};
use tessera_api::v1 as wire;
use tessera_ledger::{CheckpointKey, JobId, PartKey, SavedPart};
use tokio::sync::mpsc;

use crate::machine::{now, wall_epoch};
use crate::process::Drift;
use crate::story::Story;
use crate::supervised::{Ground, Supervised};
use crate::world::{Share, World};

/// The data that an agent keeps about itself.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The node's identity.
    pub uid: String,
    /// Starts of its agents.
    pub incarnation: u64,
    /// Highest term kept.
    pub highest_term: Term,
    pub cluster_id: String,
}

/// The data on the disk about one worker.
struct Folder {
    order: Arc<wire::WorkerOrder>,
    /// The order outlives the loss of the machine.
    durable: bool,
    status: Option<Status>,
    settled: bool,
    /// For how long the worker and those before it had computed when it ended.
    computed: Duration,
    saved: Option<SavedPart>,
}

/// One machine. Clones are the same machine.
#[derive(Clone)]
pub struct Machine {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    name: String,
    boots: u64,
    booted: Duration,
    drift: Drift,
    random: SmallRng,
    identity: Identity,
    folders: BTreeMap<WorkerId, Folder>,
    supervised: BTreeMap<WorkerId, Supervised>,
    /// True if every process of a worker ends with its supervisor here.
    contained: bool,
    /// Workers whose supervisor was killed and whose forks compute on.
    orphans: BTreeSet<WorkerId>,
    slow_disk: Duration,
    starved: bool,
    story: Story,
    world: World,
}

/// One in so many machines cannot end what its workers forked.
const UNCONTAINED: u32 = 3;

/// The agent that started a supervisor: without its word to begin, its end is the supervisor's end.
pub struct Starter {
    machine: Machine,
    worker: WorkerId,
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.machine.inner().act(self.worker, Supervised::abandon);
    }
}

/// The statuses that a supervisor publishes of its worker.
pub type Notices = mpsc::UnboundedReceiver<Status>;

impl Machine {
    /// A machine that boots now.
    pub fn new(name: &str, seed: u64, drift: Drift, story: Story, world: World) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let uid = format!("{name}-{:016x}", random.random::<u64>());
        let inner = Inner {
            name: name.to_owned(),
            boots: 1,
            booted: now(),
            drift,
            random,
            identity: Identity { uid, ..Identity::default() },
            folders: BTreeMap::new(),
            supervised: BTreeMap::new(),
            contained: !SmallRng::seed_from_u64(!seed).random_ratio(1, UNCONTAINED),
            orphans: BTreeSet::new(),
            slow_disk: Duration::ZERO,
            starved: false,
            story,
            world,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn boot_time(&self) -> BootTime {
        self.inner().boot_time()
    }

    pub fn boot_id(&self) -> String {
        self.inner().boot_id()
    }

    /// Describes how much of a worker ends by itself with its supervisor here.
    pub fn containment(&self) -> wire::Containment {
        let whole = self.is_contained();
        wire::Containment { whole, missing: if whole { String::new() } else { "a simulated old kernel".to_owned() } }
    }

    /// Returns whether every process of a worker ends with its supervisor here.
    pub fn is_contained(&self) -> bool {
        self.inner().contained
    }

    /// An agent starts: its identity, and what it finds.
    pub fn begin_agent(&self) -> (Identity, Vec<WorkerRecord>) {
        let mut inner = self.inner();
        inner.identity.incarnation += 1;
        inner.world.restart(&inner.name);
        let boot_id = inner.boot_id();
        let highest_term = inner.identity.highest_term;
        let mut found = Vec::new();
        for (worker, folder) in &inner.folders {
            if folder.settled {
                continue;
            }
            let fence = tessera_agent::worker::Fence { term: highest_term, epoch: worker.epoch };
            let unknown = || Status::new(*worker, folder.order.job_id, fence, boot_id.clone());
            let kept = folder.status.clone().unwrap_or_else(unknown);
            let newest = inner.supervised.get(worker).filter(|_| !kept.is_final()).map(|own| own.status().clone());
            let mut status = newest.unwrap_or(kept);
            if is_due_at_the_end(&status, Some(&folder.order), folder.saved.as_ref()) {
                // As the real one: its end is told once what it saved is kept.
                status.phase = Phase::Stopping;
            }
            let record = WorkerRecord::found(status, Some(Arc::clone(&folder.order)));
            found.push(record.with_saved(folder.saved.clone()));
        }
        (inner.identity.clone(), found)
    }

    /// Draws the time that the disk takes for a flush.
    pub fn flush_time(&self) -> Duration {
        let mut inner = self.inner();
        let slow = inner.slow_disk;
        Duration::from_micros(inner.random.random_range(500..6_000)) + slow
    }

    /// Makes every flush take that much longer.
    pub fn slow_down(&self, by: Duration) {
        self.inner().slow_disk = by;
    }

    /// The term is on disk.
    pub fn keep_term(&self, term: Term, cluster_id: &str) {
        let mut inner = self.inner();
        if term < inner.identity.highest_term {
            let what = format!("the agent of {} keeps term {term} after {}", inner.name, inner.identity.highest_term);
            inner.world.obeyed_older(what);
        }
        let identity = &mut inner.identity;
        identity.highest_term = identity.highest_term.max(term);
        cluster_id.clone_into(&mut identity.cluster_id);
    }

    /// Makes the folder of a worker.
    ///
    /// # Errors
    /// When it was there before: a worker is never started twice.
    pub fn create(&self, order: &LaunchOrder) -> Result<(), String> {
        let mut inner = self.inner();
        if inner.folders.contains_key(&order.worker) {
            return Err("the worker was started here before; it is never started twice".to_owned());
        }
        let folder = Folder {
            order: Arc::clone(&order.order),
            durable: false,
            status: None,
            settled: false,
            computed: Duration::ZERO,
            saved: None,
        };
        inner.folders.insert(order.worker, folder);
        Ok(())
    }

    /// Starts the supervisor of a worker, which waits for the word to begin.
    pub fn supervise(&self, order: &LaunchOrder, computed: Duration) -> (Starter, Notices) {
        let mut inner = self.inner();
        let boot_id = inner.boot_id();
        let mut supervised = Supervised::new(order, boot_id, computed, &mut inner.random);
        supervised.starve(inner.starved);
        let notices = supervised.listen();
        inner.supervised.insert(order.worker, supervised);
        (Starter { machine: self.clone(), worker: order.worker }, notices)
    }

    /// The order outlives the machine.
    pub fn make_durable(&self, worker: WorkerId) {
        if let Some(folder) = self.inner().folders.get_mut(&worker) {
            folder.durable = true;
        }
    }

    /// Sends a request to a worker's supervisor; false when there is none.
    pub fn ask(&self, worker: WorkerId, request: tessera_agent::supervisor::message::Request) -> bool {
        self.inner().act(worker, |supervised, ground| supervised.ask(ground, request))
    }

    /// A worker is told where its blocks are now; nobody listens where none runs.
    pub fn readdress(&self, worker: WorkerId, order: &wire::WorkerOrder) {
        let mut inner = self.inner();
        let shares = Share::of(order, worker.rank.0);
        if let Some(supervised) = inner.supervised.get_mut(&worker) {
            supervised.readdress(shares.clone());
        }
        inner.world.readdress(&inner.name, worker, shares);
    }

    /// Listens to a worker's supervisor; `None` when there is none.
    pub fn attach(&self, worker: WorkerId) -> Option<Notices> {
        self.inner().supervised.get_mut(&worker).map(Supervised::listen)
    }

    /// Declares a worker over whose supervisor is gone; answers how it stands then.
    pub fn sweep(&self, worker: WorkerId, known: Status) -> Status {
        let mut inner = self.inner();
        let boot_id = inner.boot_id();
        let Some(folder) = inner.folders.get_mut(&worker) else { return known };
        let mut status = folder.status.clone().unwrap_or(known);
        if status.is_final() {
            return status;
        }
        if inner.orphans.remove(&worker) {
            inner.world.tear_away(&inner.name, worker);
        }
        let Some(folder) = inner.folders.get_mut(&worker) else { return status };
        let reason = if status.boot_id == boot_id { "its supervisor ended" } else { "the node was restarted" };
        status.phase = Phase::Stopped;
        if status.cause.is_none() {
            status.cause = Some(Cause::Vanished);
            status.message = format!("{reason}; nothing of it is left");
        }
        folder.status = Some(status.clone());
        inner.world.conclude(worker, status.cause);
        status
    }

    /// Keeps what a worker has saved by now, which is durable at once; `None` when it is not known here.
    pub fn save(&self, worker: WorkerId, sequence: u64) -> Option<SavedPart> {
        let mut inner = self.inner();
        let running = inner.supervised.get(&worker).map(Supervised::computed);
        let (name, shelf) = (inner.name.clone(), inner.world.shelf.clone());
        let folder = inner.folders.get_mut(&worker)?;
        let checkpoint = CheckpointKey { attempt: folder.order.attempt, sequence };
        let part = PartKey { job: JobId(folder.order.job_id), checkpoint, epoch: worker.epoch, rank: worker.rank };
        let alone = folder.order.world_size <= 1;
        let saved = shelf.save(&name, part, running.unwrap_or(folder.computed), alone);
        folder.saved = Some(saved.clone());
        Some(saved)
    }

    pub fn saved(&self, worker: WorkerId) -> Option<SavedPart> {
        self.inner().folders.get(&worker)?.saved.clone()
    }

    pub fn order(&self, worker: WorkerId) -> Option<Arc<wire::WorkerOrder>> {
        self.inner().folders.get(&worker).map(|folder| Arc::clone(&folder.order))
    }

    pub fn world(&self) -> World {
        self.inner().world.clone()
    }

    /// Draws whether something happens that does once in so many times.
    pub fn happens_once_in(&self, times: u32) -> bool {
        self.inner().random.random_ratio(1, times)
    }

    /// Notes that a worker is settled.
    pub fn settle(&self, worker: WorkerId) {
        if let Some(folder) = self.inner().folders.get_mut(&worker) {
            folder.settled = true;
        }
    }

    /// Lets time pass for supervisors and programs.
    pub fn step(&self) {
        let mut inner = self.inner();
        let workers: Vec<WorkerId> = inner.supervised.keys().copied().collect();
        for worker in workers {
            inner.act(worker, Supervised::step);
        }
    }

    /// Measures the use that workers make of their cards, each since its last measurement.
    pub fn measure(&self) -> BTreeMap<WorkerId, WorkerUse> {
        let mut inner = self.inner();
        inner.supervised.iter_mut().filter_map(|(worker, own)| Some((*worker, own.measure()?))).collect()
    }

    pub fn supervisors(&self) -> usize {
        self.inner().supervised.len()
    }
}

impl Inner {
    fn boot_time(&self) -> BootTime {
        let up = self.drift.shown(now().saturating_sub(self.booted));
        BootTime(20_000 + u64::try_from(up.as_millis()).unwrap_or(u64::MAX / 2))
    }

    fn boot_id(&self) -> String {
        format!("{}-{}", self.name, self.boots)
    }

    /// Lets one supervisor do something, and keeps what it publishes.
    fn act(&mut self, worker: WorkerId, act: impl FnOnce(&mut Supervised, &Ground<'_>)) -> bool {
        let unix_ms = u64::try_from((wall_epoch() + now()).as_millis()).unwrap_or(u64::MAX);
        let ground =
            Ground { boot: self.boot_time(), unix_ms, machine: &self.name, story: &self.story, world: &self.world };
        let Some(supervised) = self.supervised.get_mut(&worker) else { return false };
        act(supervised, &ground);
        if let Some(status) = supervised.take_published()
            && let Some(folder) = self.folders.get_mut(&worker)
        {
            let over = status.is_final();
            folder.computed = supervised.computed();
            folder.status = Some(status);
            if over && supervised.is_gone() {
                self.supervised.remove(&worker);
            }
        }
        true
    }
}
