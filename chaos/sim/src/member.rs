//! A member of the control plane: the real one, on a simulated machine with a modelled disk.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tessera_connection::Inbound;
use tessera_consensus::{Clock, ConsensusConfig, LogTime};
use tessera_controller::PoolHandle;
use tessera_controller::config::{MassLoss, Timings};
use tessera_controller::machine::Onlooker;
use tessera_ledger::Level;
use tessera_server::member::Ground;
use tessera_server::phase::Phase;
use tessera_server::{ServerConfig, run_on};
use tessera_store::memory::{Crash, Flushing, MemoryDisk};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::machine::{mix, now, wall_epoch};
use crate::network::{PORT, Plug};
use crate::process::{Drift, Process};
use crate::scenario::{Scenario, timings};
use crate::story::Story;

/// The wall clock of one machine, which drifts and jumps.
#[derive(Debug)]
struct WallClock {
    drift: Drift,
    jumped_ms: Arc<AtomicI64>,
}

impl Clock for WallClock {
    fn now(&self) -> LogTime {
        let shown = wall_epoch() + self.drift.shown(now());
        let shown = u64::try_from(shown.as_millis()).unwrap_or(u64::MAX / 2);
        LogTime(shown.saturating_add_signed(self.jumped_ms.load(Ordering::Relaxed)))
    }
}

/// Wait before a process that ended by itself is started again, as an init system does.
const RESTART: Duration = Duration::from_millis(700);

/// A flush that is under way.
struct Flush {
    requests: usize,
    done_at: Duration,
}

/// One member, its machine and its disk.
pub struct Member {
    /// Name of its machine.
    pub name: String,
    pub disk: MemoryDisk,
    plug: Plug,
    seed: u64,
    starts: u64,
    drift: Drift,
    jumped_ms: Arc<AtomicI64>,
    config: ServerConfig,
    process: Option<Process>,
    /// Asks the process to end in order.
    ending: CancellationToken,
    shown: watch::Receiver<Phase>,
    flush: Option<Flush>,
    random: SmallRng,
    /// Additional time of every flush at present.
    pub slow_disk: Duration,
    refuses: bool,
    has_ended: bool,
    /// Time at which a process that ended is started again.
    pub restart_at: Option<Duration>,
    story: Story,
    onlooker: Arc<dyn Onlooker>,
}

/// Draws the settings that a member reads from its own file, which nobody keeps the same on all members: how it
/// batches, how often it takes snapshots and what it keeps of the log, how often it looks, when it suspects itself, and
/// for how long it waits for a leader.
fn own_file(config: ServerConfig, seed: u64) -> ServerConfig {
    let mut random = SmallRng::seed_from_u64(seed ^ 0xf11e);
    let mut pick = |from: [u64; 3]| from[random.random_range(0..from.len())];
    let snapshot_entries = pick([40, 200, 5_000]);
    let slower = Duration::from_millis(pick([0, 0, 60]));
    let consensus = ConsensusConfig {
        snapshot_entries,
        keep_entries: snapshot_entries / 2,
        max_batch_commands: usize::try_from(pick([4, 64, 1_024])).unwrap_or(64),
        max_in_flight: pick([1, 4, 8]).try_into().unwrap_or(4),
        election_timeout_min: config.consensus.election_timeout_min + slower,
        election_timeout_max: config.consensus.election_timeout_max + slower,
        ..config.consensus
    };
    let timings = Timings {
        check: Duration::from_millis(pick([100, 250, 400])),
        tick: Duration::from_secs(pick([1, 2, 3])),
        ..config.timings
    };
    let mass_loss = MassLoss { share_percent: pick([25, 33, 50]).try_into().unwrap_or(33), ..config.mass_loss };
    let session_outbox = usize::try_from(pick([16, 64, 256])).unwrap_or(64);
    ServerConfig { consensus, timings, mass_loss, session_outbox, ..config }
}

impl Member {
    /// A machine for a member of this release, or of the next one; nothing runs on it yet.
    pub fn new(
        name: String,
        highest_level: Level,
        plug: Plug,
        scenario: &Scenario,
        story: Story,
        onlooker: Arc<dyn Onlooker>,
    ) -> Self {
        let seed = scenario.seed_for(&name);
        let config = ServerConfig {
            advertise: format!("{name}:{PORT}"),
            name: name.clone(),
            consensus: scenario.consensus.clone(),
            timings: timings(),
            disk_reserve_bytes: 64 << 10,
            highest_level,
            ..ServerConfig::new("unused", SocketAddr::from(([0, 0, 0, 0], PORT)))
        };
        let config = own_file(config, seed);
        let (_, shown) = watch::channel(Phase::default());
        Self {
            disk: MemoryDisk::new(Flushing::WhenTold),
            plug,
            seed,
            starts: 0,
            drift: scenario.drift_of(&name),
            jumped_ms: Arc::default(),
            config,
            process: None,
            ending: CancellationToken::new(),
            shown,
            flush: None,
            random: SmallRng::seed_from_u64(seed),
            slow_disk: Duration::ZERO,
            refuses: false,
            has_ended: false,
            restart_at: None,
            name,
            story,
            onlooker,
        }
    }

    /// Starts the process, as an init system would.
    pub fn start(&mut self) {
        self.restart_at = None;
        self.refuses = false;
        self.starts += 1;
        let store = match self.disk.open() {
            Ok(store) => store,
            Err(error) => {
                self.refuses = true;
                self.restart_at = Some(now() + RESTART);
                self.story.tell(&self.name, format!("the disk cannot be opened: {error}"));
                return;
            }
        };
        let shown = watch::Sender::default();
        self.shown = shown.subscribe();
        let ground = Ground {
            store,
            outbound: self.plug.outbound(),
            clock: Arc::new(WallClock { drift: self.drift, jumped_ms: Arc::clone(&self.jumped_ms) }),
            inbound: Inbound::new(Arc::new(self.plug.listen(PORT))),
            http: None,
            consensus: None,
            shown,
            seed: mix(self.seed ^ self.starts),
            onlooker: Some(Arc::clone(&self.onlooker)),
            usage: None,
        };
        let (config, seed) = (self.config.clone(), mix(self.seed ^ self.starts) ^ 1);
        let ending = CancellationToken::new();
        self.ending = ending.clone();
        self.story.tell(&self.name, "starts");
        self.process = Some(Process::start(seed, self.drift, async move {
            match Box::pin(run_on(ground, config, ending)).await {
                Ok(()) => "in order".to_owned(),
                Err(error) => {
                    let mut text = error.to_string();
                    let mut cause = error.source();
                    while let Some(next) = cause {
                        text = format!("{text}: {next}");
                        cause = next.source();
                    }
                    text
                }
            }
        }));
    }

    /// Lets the member and its disk run until the present.
    pub fn step(&mut self) {
        self.flush();
        if self.restart_at.is_some_and(|at| at <= now()) {
            self.start();
        }
        let Some(ended) = self.process.as_mut().and_then(Process::tick) else { return };
        self.refuses = !self.ending.is_cancelled();
        self.has_ended |= self.refuses;
        self.restart_at = Some(now() + RESTART);
        self.process = None;
        self.lose_pending();
        self.story.tell(&self.name, format!("ended: {ended}"));
    }

    /// One flush at a time makes everything durable that was pending when it began, as the writer of the real store
    /// does.
    fn flush(&mut self) {
        if let Some(flush) = self.flush.take_if(|flush| flush.done_at <= now()) {
            self.disk.flush_first(flush.requests);
        }
        let requests = self.disk.pending();
        if self.flush.is_none() && requests > 0 {
            let takes = Duration::from_micros(self.random.random_range(300..4_000)) + self.slow_disk;
            self.flush = Some(Flush { requests, done_at: now() + takes });
        }
    }

    fn lose_pending(&mut self) {
        self.flush = None;
        let kept = self.random.random_range(0..=self.disk.pending());
        self.disk.crash(if kept == 0 { Crash::LosePending } else { Crash::KeepFirst(kept) });
    }

    /// Kills the process at once; what was not flushed is lost, or a part of it.
    pub fn kill(&mut self) {
        self.restart_at = None;
        if let Some(mut process) = self.process.take() {
            process.kill();
            let (_, nobody) = watch::channel(Phase::default());
            self.shown = nobody;
            self.lose_pending();
        }
    }

    /// Asks the process to end in order, as an init system does before an upgrade; it is started again afterwards, as
    /// the next release.
    pub fn upgrade(&mut self) {
        self.config.highest_level = Level::Drill;
        self.ending.cancel();
    }

    /// Returns whether its process ended by itself, or could not start, since it was started last.
    pub fn refuses(&self) -> bool {
        self.refuses
    }

    /// Becomes a copy of another member: its data folder as it is now, and its configuration.
    pub fn copy(&mut self, original: &Self) {
        self.disk = original.disk.copy();
        self.config = original.config.clone();
    }

    /// Returns whether its process has ever ended by itself.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// A new, empty disk, and the next release on it: whoever sets a machine up anew takes the newest.
    pub fn replace_disk(&mut self) {
        self.config.highest_level = Level::Drill;
        self.disk = MemoryDisk::new(Flushing::WhenTold);
        self.flush = None;
    }

    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    pub fn is_there(&self) -> bool {
        self.process.is_some()
    }

    /// The handle that the member's services work with, once it runs.
    pub fn pool(&self) -> Option<PoolHandle> {
        self.process.as_ref()?;
        self.shown.borrow().pool().cloned()
    }

    /// The term in which it believes that it leads; `None` when it does not.
    pub fn leads(&self) -> Option<u64> {
        let pool = self.pool()?;
        match *pool.leadership().borrow() {
            tessera_consensus::Leadership::Leading { term, .. } => Some(term.0),
            tessera_consensus::Leadership::Following { .. } => None,
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_stopped)
    }

    /// Moves the wall clock.
    pub fn jump(&self, by_ms: i64) {
        self.jumped_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}
