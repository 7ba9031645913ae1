//! Why a job stands where it stands: a machine-readable code and a sentence for people.

use crate::checkpoint::CheckpointKey;
use crate::ids::{JobId, NodeId};

/// Hands the one list of all reasons to a macro: of each its comment, `Variant { what goes with it } = "CODE"`, and its
/// sentence for people. [`Reason`] is made of it here, and in `wire::reason` how one is written down; `docs/reasons.md`
/// is made of it as well. A new one also needs a value of `ReasonKind` in `proto/tessera/ledger/v1/snapshot.proto`.
macro_rules! reasons {
    ($with:ident) => {
        $with! {
            /// It has not been considered yet.
            Submitted = "SUBMITTED" ("submitted; waits for blocks");
            /// It was submitted or put on hold.
            Held = "HELD" ("on hold; release it to have it considered");
            /// It waits for the end of its backoff after a failed attempt.
            Backoff = "BACKOFF" ("waits before the next attempt after a failure");
            /// It waits for an allocation.
            Queued = "QUEUED" ("waits for blocks");
            /// It has an allocation.
            Granted = "GRANTED" ("blocks are granted; workers are being started");
            /// Its blocks are still held by jobs that were told to stop for it.
            WaitingForPreempted = "WAITING_FOR_PREEMPTED" ("waits until preempted jobs have given their blocks back");
            /// All its workers run.
            Started = "STARTED" ("all workers run");
            /// A person suspended it.
            SuspendedByUser = "SUSPENDED_BY_USER" ("suspended by a person; resume it to have it considered");
            /// A job of higher priority needed its blocks.
            Preempted { beneficiary: JobId } = "PREEMPTED" ("preempted for job {beneficiary}; it resumes by itself");
            /// Its node is being drained.
            Drained { node: NodeId } = "DRAINED" ("{node} is being drained; it resumes elsewhere by itself");
            /// A worker's node was lost.
            NodeLost { node: NodeId } = "NODE_LOST" ("{node} was lost");
            /// A node is unreachable and the job is allowed to go on there.
            NodeDisconnected { node: NodeId } = "NODE_DISCONNECTED"
                ("{node} is unreachable; the job may go on there until the node is back or forgotten");
            /// It is being moved to other cards.
            Moving = "MOVING" ("is being moved to other cards");
            /// A move did not succeed.
            MoveFailed = "MOVE_FAILED" ("a move to other cards did not succeed; it resumes by itself");
            /// All workers ended with exit code 0.
            Exited = "EXITED" ("all workers ended with exit code 0");
            /// A worker ended with another exit code.
            NonZeroExit { code: i32 } = "NON_ZERO_EXIT" ("a worker ended with exit code {code}");
            /// A signal ended a worker.
            Signalled { signal: i32 } = "SIGNALLED" ("signal {signal} ended a worker");
            /// A worker could not be started.
            StartFailed { message: String } = "START_FAILED" ("a worker could not be started: {message}");
            /// A worker used more memory than it was granted.
            OutOfMemory = "OUT_OF_MEMORY" ("a worker used more memory than it was granted");
            /// A worker's node has no trace of it.
            WorkerVanished = "WORKER_VANISHED" ("the node has no trace of a worker that it was told to run");
            /// It ran longer than its time limit.
            TimeLimit = "TIME_LIMIT" ("ran longer than its time limit");
            /// Somebody cancelled it.
            Cancelled { by: String } = "CANCELLED" ("cancelled by {by}");
            /// A node could not start a worker, which is not the job's fault.
            NodeFault { node: NodeId, message: String } = "NODE_FAULT"
                ("{node} could not start a worker: {message}");
            /// The host of its program, which is none of its nodes, was not heard of for its lease.
            HostLost = "HOST_LOST" ("the host on which its program runs was not heard of for its lease");
            /// It is outside of its windows, or of those of a queue.
            OutsideWindow = "OUTSIDE_WINDOW" ("its time window is over; it resumes by itself in the next one");
            /// It is started again with more virtual cards.
            Growing = "GROWING" ("there is room for more of its virtual cards; it resumes with them by itself");
            /// The image of a worker's processes could not be restored; it is tried again.
            NotRestored { message: String } = "NOT_RESTORED"
                ("a worker's processes could not be restored: {message}");
            /// A port at which workers were to meet is somebody else's; it is tried again with others.
            PortTaken { node: NodeId, message: String } = "PORT_TAKEN"
                ("{node} could not start a worker, and is not to blame: {message}");
            /// It computes next to nothing, for so long that its queue wants it to be said.
            IdleNoticed = "IDLE_NOTICED" ("runs, and computes next to nothing with what it holds");
            /// It is idle for so long that others may preempt it, whatever it asked for.
            IdlePreemptible = "IDLE_PREEMPTIBLE"
                ("runs, and computes next to nothing with what it holds: it may be preempted");
            /// It was idle for so long that it was suspended.
            IdleSuspended = "IDLE_SUSPENDED"
                ("suspended because it computed next to nothing with what it held; resume it to have it considered");
            /// It was idle and suspended for so long that it was ended.
            IdleReleased = "IDLE_RELEASED"
                ("ended because it computed next to nothing, was suspended and was not resumed");
            /// The checkpoint that it was to go on from cannot be used, and was given up.
            CheckpointDamaged { checkpoint: CheckpointKey, message: String } = "CHECKPOINT_DAMAGED"
                ("checkpoint {checkpoint} cannot be used and was given up: {message}");
        }
    };
}

macro_rules! declare {
    ($(
        $(#[doc = $comment:literal])+
        $variant:ident $({ $($field:ident: $type:ty),+ })? = $code:literal ($sentence:literal);
    )+) => {
        /// The reason of a job's state.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $comment])+ $variant $({ $($field: $type),+ })?,)+
        }

        impl Reason {
            /// The machine-readable codes of all reasons.
            pub const CODES: &[&str] = &[$($code),+];

            /// The machine-readable code; documented in docs/reasons.md.
            #[must_use]
            pub const fn code(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $code,)+
                }
            }
        }

        impl std::fmt::Display for Reason {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant $({ $($field),+ })? => write!(f, $sentence),)+
                }
            }
        }
    };
}

pub(crate) use reasons;

reasons!(declare);
