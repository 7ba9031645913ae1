//! Allocations: the virtual cards that an attempt holds, and the moves of jobs between cards.

use std::sync::Arc;

use crate::card::Isolation;
use crate::checkpoint::CheckpointKey;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, Owner, Rank};
use crate::units::{BlockCount, BlockIndex, Epoch, LogTime, Mebibytes};

/// The part of one card that an allocation holds: an extent, memory and an isolation class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    pub card: CardId,
    pub start: BlockIndex,
    pub length: BlockCount,
    pub memory: Mebibytes,
    pub isolation: Isolation,
}

/// A worker as a plan names it: a process group on one node. A virtual card that spans nodes has one on each of them,
/// and its program may have one of its own on another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlannedWorker {
    /// Index of the virtual card of the gang that the worker backs, from 0.
    pub virtual_card: u32,
    pub node: NodeId,
    /// Its slices, all on that node; none: it runs the program of its virtual card, and nothing else.
    pub slices: Vec<Slice>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerState {
    /// Granted; not confirmed to run.
    Held,
    /// Confirmed to run.
    Running,
    /// Told to stop.
    Draining,
    /// Its node is unreachable, or its stop could not be confirmed (law L2).
    Lost,
    /// Confirmed to be over; it holds nothing.
    Stopped,
}

/// The cause of a worker's stop, as its agent reported it or as inferred from the end of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopCause {
    /// It ended by itself.
    Exited,
    /// It could not be started, for a reason that lies in the job.
    StartFailed,
    Ordered,
    LeaseExpired,
    /// It ran longer than its time limit.
    TimeLimit,
    /// Its agent found it running without an allocation.
    NotGranted,
    /// It used more memory than it was granted.
    OutOfMemory,
    /// Its node has no trace of it.
    Vanished,
    /// It could not be started, for a reason that lies in its node.
    NodeFault,
    /// It served a program on another host, which was not heard of for its lease.
    HostLost,
    /// Its processes could not be restored from their image.
    NotRestored,
    /// A port that it was given to meet others at is somebody else's on its node.
    PortTaken,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerExit {
    pub cause: StopCause,
    /// Exit code, when it exited.
    pub code: Option<i32>,
    /// Signal, when one ended it.
    pub signal: Option<i32>,
    /// True if the worker wrote a checkpoint as it stopped.
    pub checkpointed: bool,
    /// One sentence for people.
    pub message: String,
    /// The reason why nothing of the worker was saved, where its job is to be saved and something prevented that;
    /// empty: nothing did.
    pub not_saved: String,
    /// The time at which its program had ended, as near as the leader knows it; zero: not known.
    pub ended_at: LogTime,
}

impl WorkerExit {
    /// The end of a worker that did not report it itself.
    pub(crate) fn without_word(cause: StopCause, message: &str) -> Self {
        Self {
            cause,
            code: None,
            signal: None,
            checkpointed: false,
            message: message.to_owned(),
            not_saved: String::new(),
            ended_at: LogTime(0),
        }
    }

    /// Returns whether the program itself reported success.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.cause == StopCause::Exited && self.code == Some(0)
    }
}

/// A worker of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    /// Its place among the allocation's workers.
    pub rank: Rank,
    /// Index of the virtual card of the gang that the worker backs.
    pub virtual_card: u32,
    pub node: NodeId,
    /// Its slices, all on that node; none: it runs the program of its virtual card, and nothing else.
    pub slices: Vec<Slice>,
    pub state: WorkerState,
    /// The end of the worker, once it has ended.
    pub exit: Option<WorkerExit>,
    /// Port on its node where the slice servers of its virtual card meet; 0: they meet elsewhere, or have no need to.
    /// Unique, as [`Allocation::master_port`] is.
    pub card_port: u16,
    /// Port on its node where its first slice server is reached by the program of its virtual card, which is on a node
    /// without slices of that; 0: it is not. Unique, too.
    pub program_port: u16,
}

/// The phase of an allocation: in force, not yet in force, or ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AllocationPhase {
    /// Some of its blocks are still held by workers that were told to stop for it; nothing is started yet.
    Waiting,
    /// Its workers run or are to be started.
    Active,
    /// The target of a move: its blocks are reserved, nothing is started until the source has stopped.
    Reserved,
    /// Its workers are told to stop.
    Ending,
}

/// Virtual cards granted to an attempt, with the epoch that fences older allocations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocation {
    pub id: AllocationId,
    /// Index of the log entry that made it.
    pub epoch: Epoch,
    pub job: JobId,
    pub attempt: u32,
    pub phase: AllocationPhase,
    /// Its workers, by rank.
    pub workers: Arc<Vec<Worker>>,
    /// Port on the node of rank 0 where the programs meet (MASTER_PORT); unique among all that meet there.
    pub master_port: u16,
    pub granted_at: LogTime,
    /// The time at which all its workers were running.
    pub started_at: Option<LogTime>,
    /// The checkpoint that its workers go on from; `None`: they begin from the beginning.
    pub from: Option<CheckpointKey>,
}

impl Allocation {
    #[must_use]
    pub fn virtual_cards(&self) -> u32 {
        self.workers.last().map_or(0, |worker| worker.virtual_card.saturating_add(1))
    }

    /// The name under which a worker holds blocks.
    #[must_use]
    pub const fn owner(&self, rank: Rank) -> Owner {
        Owner { allocation: self.id, epoch: self.epoch, rank }
    }

    #[must_use]
    pub fn worker(&self, rank: Rank) -> Option<&Worker> {
        self.workers.get(usize::try_from(rank.0).ok()?)
    }

    /// The node and port of each rendezvous: of its programs, of the slice servers of each of its virtual cards that
    /// lies on several nodes, and of such a server with its program.
    pub fn meetings(&self) -> impl Iterator<Item = (NodeId, u16)> {
        let programs = self.workers.first().map(|first| (first.node, self.master_port));
        let of_cards = |worker: &Worker| [(worker.node, worker.card_port), (worker.node, worker.program_port)];
        let cards = self.workers.iter().flat_map(of_cards).filter(|(_, port)| *port > 0);
        programs.into_iter().chain(cards)
    }

    /// Returns whether no worker of the allocation holds anything any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(|worker| worker.state == WorkerState::Stopped)
    }
}

/// The steps of a move (architecture section 6). Each is a log entry, so that any new leader carries it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MovePhase {
    /// The target's blocks are reserved; the source runs.
    Reserved,
    /// The source is told to stop.
    Suspending,
    /// The source has stopped; its checkpoint is being brought to the target.
    Transferring,
    /// The target is being started.
    Resuming,
}

/// A move of a job to other cards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    pub id: MoveId,
    pub job: JobId,
    pub source: AllocationId,
    pub target: AllocationId,
    pub phase: MovePhase,
    pub started_at: LogTime,
}
