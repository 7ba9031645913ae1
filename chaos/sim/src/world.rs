//! The truth on the machines, against which the ledger is held: the programs that compute, and the fate of every
//! worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_agent::supervisor::status::{Cause, Exit};
use tessera_agent::worker::WorkerId;
use tessera_api::v1 as wire;
use tessera_ledger::{CardId, HostRequest, Mebibytes, NodeId, Rank};

use crate::machine::now;
use crate::shelf::Shelf;

/// One computation: a worker's program on its blocks, from start to death.
#[derive(Clone, Debug)]
pub struct Computation {
    pub worker: WorkerId,
    pub job: u64,
    pub machine: String,
    /// Shares that it was last told it has.
    pub shares: Vec<Share>,
    /// Host request of each worker of its job.
    pub host: HostRequest,
    pub began: Duration,
    /// For how long those before it had computed, by the checkpoint that it was started with.
    pub computed: Duration,
    /// Between which moments it computes nothing.
    pub stands_still: Option<(Duration, Duration)>,
}

/// The share of one card that a program is told it has: blocks and memory. The ledger may renumber blocks within a card
/// while it runs, and then it is told anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    pub card: CardId,
    /// First block.
    pub start: u32,
    /// Number of blocks.
    pub length: u32,
    pub memory: Mebibytes,
}

impl Share {
    /// The shares of one worker, as its order names them.
    pub fn of(order: &wire::WorkerOrder, rank: u32) -> Vec<Self> {
        let own = order.slices.iter().filter(|placed| placed.rank == rank).filter_map(|placed| placed.slice.as_ref());
        let share = |slice: &wire::Slice| Self {
            card: CardId { node: NodeId(slice.node_id), index: slice.card_index },
            start: slice.start,
            length: slice.blocks,
            memory: Mebibytes(slice.memory_mib),
        };
        own.map(share).collect()
    }
}

/// The computations on all machines, and the fates of their workers.
#[derive(Clone, Default)]
pub struct World {
    seen: Arc<Mutex<Seen>>,
    /// The checkpoints on the machines' disks.
    pub shelf: Shelf,
}

/// The true fate of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Its program was started.
    pub began: bool,
    /// Exit of its program; `None` while it runs, and when it was torn away with its supervisor or machine.
    pub exit: Option<Exit>,
    /// It ended without having been told to.
    pub by_itself: bool,
    /// Cause of its end, in the eyes of its supervisor.
    pub cause: Option<Cause>,
    /// Its supervisor was killed, its machine lost power, or its agent died before it was begun: nobody can know how it
    /// ended.
    pub torn_away: bool,
    /// Between which moments its program computed nothing.
    pub stands_still: Option<(Duration, Duration)>,
    /// Time at which its program ended, if that was seen.
    pub ended: Option<Duration>,
}

#[derive(Default)]
struct Seen {
    live: BTreeMap<(String, WorkerId), Computation>,
    fates: BTreeMap<WorkerId, Fate>,
    restarts: BTreeMap<String, Duration>,
    twice: Vec<String>,
    older_obeyed: Vec<String>,
    began: u64,
    /// Ranks of jobs that have stood still once.
    stood_still: BTreeSet<(u64, Rank)>,
    /// Workers whose checkpoint could not be had.
    without_checkpoint: BTreeSet<WorkerId>,
}

impl Seen {
    /// It computes no more.
    fn forget(&mut self, machine: &str, worker: WorkerId) {
        let Some(gone) = self.live.remove(&(machine.to_owned(), worker)) else { return };
        if gone.stands_still.is_some_and(|(begins, _)| begins < now()) {
            self.stood_still.insert((gone.job, worker.rank));
        }
    }
}

impl World {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether that rank of a job has stood still: its program does so once, also when it begins from the
    /// beginning.
    pub fn has_stood_still(&self, job: u64, rank: Rank) -> bool {
        self.seen().stood_still.contains(&(job, rank))
    }

    /// A program begins. One rank of a job may not run twice at once, under whatever allocations.
    pub fn begin(&self, computation: Computation) {
        let mut seen = self.seen();
        let again = |other: &&Computation| {
            let (one, two) = (other.worker, computation.worker);
            other.job == computation.job && one.rank == two.rank && one.epoch != two.epoch
        };
        if let Some(other) = seen.live.values().find(again) {
            let Computation { worker, machine, job, .. } = &computation;
            let (before, there, since) = (other.worker, &other.machine, other.began);
            let twice = format!(
                "job {job} runs twice: worker {worker} begins on {machine} while {before} computes on {there} since {since:?}"
            );
            seen.twice.push(twice);
        }
        let fate = seen.fates.entry(computation.worker).or_default();
        fate.stands_still = computation.stands_still;
        if std::mem::replace(&mut fate.began, true) {
            let Computation { worker, machine, job, .. } = &computation;
            seen.twice.push(format!("worker {worker} of job {job} is started a second time on {machine}"));
        }
        seen.began += 1;
        seen.live.insert((computation.machine.clone(), computation.worker), computation);
    }

    /// A program is told where its blocks are now.
    pub fn readdress(&self, machine: &str, worker: WorkerId, shares: Vec<Share>) {
        if let Some(computation) = self.seen().live.get_mut(&(machine.to_owned(), worker)) {
            computation.shares = shares;
        }
    }

    /// A program ended, by itself or because it was `told` to, or was killed.
    pub fn end(&self, machine: &str, worker: WorkerId, exit: Exit, told: bool) {
        let mut seen = self.seen();
        seen.forget(machine, worker);
        let fate = seen.fates.entry(worker).or_default();
        (fate.exit, fate.by_itself, fate.ended) = (Some(exit), !told, Some(now()));
    }

    /// A supervisor is gone without a word, and its program with it.
    pub fn tear_away(&self, machine: &str, worker: WorkerId) {
        let mut seen = self.seen();
        seen.forget(machine, worker);
        seen.fates.entry(worker).or_default().torn_away = true;
    }

    /// A supervisor has come to its end, and says why its worker did.
    pub fn conclude(&self, worker: WorkerId, cause: Option<Cause>) {
        self.seen().fates.entry(worker).or_default().cause = cause;
    }

    /// The true fate of a worker.
    pub fn fate(&self, worker: WorkerId) -> Fate {
        self.seen().fates.get(&worker).copied().unwrap_or_default()
    }

    /// An agent is started on a machine: the one before it is gone.
    pub fn restart(&self, machine: &str) {
        self.seen().restarts.insert(machine.to_owned(), now());
    }

    /// Time at which an agent was last started there.
    pub fn restarted_at(&self, machine: &str) -> Option<Duration> {
        self.seen().restarts.get(machine).copied()
    }

    /// The computations that run now.
    pub fn live(&self) -> Vec<Computation> {
        self.seen().live.values().cloned().collect()
    }

    /// Jobs that ran twice at once, and workers that were started twice.
    pub fn twice(&self) -> Vec<String> {
        self.seen().twice.clone()
    }

    /// Somebody obeyed a leader or an allocation that was superseded.
    pub fn obeyed_older(&self, what: String) {
        self.seen().older_obeyed.push(what);
    }

    /// Every such case.
    pub fn older_obeyed(&self) -> Vec<String> {
        self.seen().older_obeyed.clone()
    }

    /// A worker was not started: its checkpoint could not be had.
    pub fn without_checkpoint(&self, worker: WorkerId) {
        self.seen().without_checkpoint.insert(worker);
    }

    /// Returns whether a worker was not started because its checkpoint could not be had.
    pub fn is_without_checkpoint(&self, worker: WorkerId) -> bool {
        self.seen().without_checkpoint.contains(&worker)
    }

    /// The number of programs that were started.
    pub fn began(&self) -> u64 {
        self.seen().began
    }
}
