//! Why a job stands where it stands: a machine-readable code and a sentence for people.

use crate::checkpoint::CheckpointKey;
use crate::ids::{JobId, NodeId};

/// The reason of a job's state. New ones go to the end: at level 0 their order is part of what
/// [`State::digest`](crate::State::digest) is made of (law L8).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It has not been considered yet.
    Submitted,
    /// It was submitted or put on hold.
    Held,
    /// It waits for the end of its backoff after a failed attempt.
    Backoff,
    /// It waits for an allocation.
    Queued,
    /// It has an allocation.
    Granted,
    /// Its blocks are still held by jobs that were told to stop for it.
    WaitingForPreempted,
    /// All its workers run.
    Started,
    /// A person suspended it.
    SuspendedByUser,
    /// A job of higher priority needed its blocks.
    Preempted {
        /// For whom.
        beneficiary: JobId,
    },
    /// Its node is being drained.
    Drained {
        /// Which node.
        node: NodeId,
    },
    /// A worker's node was lost.
    NodeLost {
        /// Which node.
        node: NodeId,
    },
    /// A node is unreachable and the job is allowed to go on there.
    NodeDisconnected {
        /// Which node.
        node: NodeId,
    },
    /// It is being moved to other cards.
    Moving,
    /// A move did not succeed.
    MoveFailed,
    /// All workers ended with exit code 0.
    Exited,
    /// A worker ended with another exit code.
    NonZeroExit {
        /// The code.
        code: i32,
    },
    /// A signal ended a worker.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// A worker could not be started.
    StartFailed {
        /// What its agent said.
        message: String,
    },
    /// A worker used more memory than it was granted.
    OutOfMemory,
    /// A worker's node has no trace of it.
    WorkerVanished,
    /// It ran longer than its time limit.
    TimeLimit,
    /// Somebody cancelled it.
    Cancelled {
        /// Who.
        by: String,
    },
    /// A node could not start a worker, which is not the job's fault.
    NodeFault {
        /// Which node.
        node: NodeId,
        /// What its agent said.
        message: String,
    },
    /// The host of its program, which is none of its nodes, was not heard of for its lease.
    HostLost,
    /// It is outside of its windows, or of those of a queue.
    OutsideWindow,
    /// It is started again with more virtual cards.
    Growing,
    /// The image of a worker's processes could not be restored; it is tried again.
    NotRestored {
        /// What its agent said.
        message: String,
    },
    /// It computes next to nothing, for so long that its queue wants it to be said.
    IdleNoticed,
    /// It is idle for so long that others may preempt it, whatever it asked for.
    IdlePreemptible,
    /// It was idle for so long that it was suspended.
    IdleSuspended,
    /// It was idle and suspended for so long that it was ended.
    IdleReleased,
    /// The checkpoint that it was to go on from cannot be used, and was given up.
    CheckpointDamaged {
        /// Which.
        checkpoint: CheckpointKey,
        /// What its agent said.
        message: String,
    },
}

impl Reason {
    /// The machine-readable code; documented in docs/reasons.md.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Submitted => "SUBMITTED",
            Self::Held => "HELD",
            Self::Backoff => "BACKOFF",
            Self::Queued => "QUEUED",
            Self::Granted => "GRANTED",
            Self::WaitingForPreempted => "WAITING_FOR_PREEMPTED",
            Self::Started => "STARTED",
            Self::SuspendedByUser => "SUSPENDED_BY_USER",
            Self::Preempted { .. } => "PREEMPTED",
            Self::Drained { .. } => "DRAINED",
            Self::NodeLost { .. } => "NODE_LOST",
            Self::NodeDisconnected { .. } => "NODE_DISCONNECTED",
            Self::Moving => "MOVING",
            Self::MoveFailed => "MOVE_FAILED",
            Self::Exited => "EXITED",
            Self::NonZeroExit { .. } => "NON_ZERO_EXIT",
            Self::Signalled { .. } => "SIGNALLED",
            Self::StartFailed { .. } => "START_FAILED",
            Self::NodeFault { .. } => "NODE_FAULT",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::WorkerVanished => "WORKER_VANISHED",
            Self::TimeLimit => "TIME_LIMIT",
            Self::Cancelled { .. } => "CANCELLED",
            Self::HostLost => "HOST_LOST",
            Self::OutsideWindow => "OUTSIDE_WINDOW",
            Self::Growing => "GROWING",
            Self::NotRestored { .. } => "NOT_RESTORED",
            Self::IdleNoticed => "IDLE_NOTICED",
            Self::IdlePreemptible => "IDLE_PREEMPTIBLE",
            Self::IdleSuspended => "IDLE_SUSPENDED",
            Self::IdleReleased => "IDLE_RELEASED",
            Self::CheckpointDamaged { .. } => "CHECKPOINT_DAMAGED",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Submitted => write!(f, "submitted; not considered yet"),
            Self::Held => write!(f, "on hold; release it to have it considered"),
            Self::Backoff => write!(f, "waits before the next attempt after a failure"),
            Self::Queued => write!(f, "waits for blocks"),
            Self::Granted => write!(f, "blocks are granted; workers are being started"),
            Self::WaitingForPreempted => write!(f, "waits until preempted jobs have given their blocks back"),
            Self::Started => write!(f, "all workers run"),
            Self::SuspendedByUser => write!(f, "suspended by a person; resume it to have it considered"),
            Self::Preempted { beneficiary } => write!(f, "preempted for job {beneficiary}; it resumes by itself"),
            Self::Drained { node } => write!(f, "{node} is being drained; it resumes elsewhere by itself"),
            Self::NodeLost { node } => write!(f, "{node} was lost; another attempt follows"),
            Self::NodeDisconnected { node } => {
                write!(f, "{node} is unreachable; the job may go on there until the node is back or forgotten")
            }
            Self::Moving => write!(f, "is being moved to other cards"),
            Self::MoveFailed => write!(f, "a move to other cards did not succeed; it resumes by itself"),
            Self::Exited => write!(f, "all workers ended with exit code 0"),
            Self::NonZeroExit { code } => write!(f, "a worker ended with exit code {code}"),
            Self::Signalled { signal } => write!(f, "signal {signal} ended a worker"),
            Self::StartFailed { message } => write!(f, "a worker could not be started: {message}"),
            Self::NodeFault { node, message } => {
                write!(f, "{node} could not start a worker, and another attempt follows: {message}")
            }
            Self::OutOfMemory => write!(f, "a worker used more memory than it was granted"),
            Self::WorkerVanished => write!(f, "the node has no trace of a worker that it was told to run"),
            Self::TimeLimit => write!(f, "ran longer than its time limit"),
            Self::Cancelled { by } => write!(f, "cancelled by {by}"),
            Self::HostLost => write!(f, "the host on which its program runs was not heard of for its lease"),
            Self::OutsideWindow => write!(f, "its time window is over; it resumes by itself in the next one"),
            Self::Growing => write!(f, "there is room for more of its virtual cards; it resumes with them by itself"),
            Self::NotRestored { message } => {
                write!(f, "a worker's processes could not be restored, and another attempt follows: {message}")
            }
            Self::IdleNoticed => write!(f, "runs, and computes next to nothing with what it holds"),
            Self::IdlePreemptible => {
                write!(f, "runs, and computes next to nothing with what it holds: it may be preempted")
            }
            Self::IdleSuspended => {
                write!(
                    f,
                    "suspended because it computed next to nothing with what it held; resume it to have it considered"
                )
            }
            Self::IdleReleased => {
                write!(f, "ended because it computed next to nothing, was suspended and was not resumed")
            }
            Self::CheckpointDamaged { checkpoint, message } => {
                write!(f, "checkpoint {checkpoint} cannot be used and was given up: {message}")
            }
        }
    }
}
