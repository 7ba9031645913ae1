//! Commands: everything that can change the ledger. Coarse and few (architecture section 3).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::allocation::{MovePhase, PlannedWorker, StopCause, WorkerExit};
use crate::card::CardDescription;
use crate::checkpoint::{PartKey, SavedPart};
use crate::config::PoolConfig;
use crate::idle::IdleStep;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, Owner, RequestKey};
use crate::level::Level;
use crate::node::{Eligibility, NodeDescription};
use crate::queue::QueueSettings;
use crate::spec::JobSpec;
use crate::units::{Epoch, LogTime, Revision};
use crate::window::WindowOf;

/// One command with the name under which it is not applied twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for this mutation; absent for commands that are idempotent by themselves.
    pub key: Option<RequestKey>,
    /// Who asks, for the history.
    pub actor: String,
    pub command: Command,
}

/// What is said of every kind of command; its fields are in [`Command`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandKind {
    /// Its name in the log's messages, in the names of golden files and in documents.
    pub name: &'static str,
    /// The level from which on it may be proposed. A field that says something may need a higher one.
    pub since: Level,
    /// What it does: its comment, line by line.
    pub comment: &'static [&'static str],
}

/// Makes [`Command`] of a table with one row for each kind: its comment, `Variant = "name" @ Level`, its fields.
macro_rules! commands {
    ($(
        $(#[doc = $comment:literal])+
        $variant:ident = $name:literal @ $since:ident $({ $($(#[$of_field:meta])* $field:ident: $type:ty,)+ })?,
    )+) => {
        /// A change of the ledger.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Command {
            $($(#[doc = $comment])+ $variant $({ $($(#[$of_field])* $field: $type,)+ })?,)+
        }

        impl Command {
            /// Every kind of command, in the order of the table.
            pub const KINDS: &[CommandKind] =
                &[$(CommandKind { name: $name, since: Level::$since, comment: &[$($comment),+] }),+];

            /// What is said of its kind.
            #[must_use]
            pub const fn kind(&self) -> CommandKind {
                match self {
                    $(Self::$variant { .. } => {
                        CommandKind { name: $name, since: Level::$since, comment: &[$($comment),+] }
                    })+
                }
            }
        }
    };
}

// The one list of all commands. Tests hold it against the messages of the log, and want a sample of each, an arbitrary
// one, and one in the golden log; `docs/commands.md` is written from it.
commands! {
    /// A node registers, or tells its news at the start of a session (P3).
    RegisterNode = "register_node" @ One {
        node: NodeDescription,
        /// Its cards in order of index.
        cards: Vec<CardDescription>,
    },
    /// Health or ratings of cards changed (law L6).
    UpdateCards = "update_cards" @ One {
        node: NodeId,
        /// The cards that changed.
        cards: Vec<CardDescription>,
    },
    /// Whether new work may go to a node.
    SetEligibility = "set_eligibility" @ One {
        node: NodeId,
        eligibility: Eligibility,
        /// Why, for people.
        reason: String,
    },
    /// A node is to be empty by some time: it takes no new work, its jobs are moved away, and what is left is suspended
    /// then.
    DrainNode = "drain_node" @ One {
        node: NodeId,
        /// Why, for people.
        reason: String,
        /// How long there is.
        within: Duration,
    },
    /// The node's lease is provably over (architecture section 5).
    NodeLost = "node_lost" @ One {
        node: NodeId,
        /// The node's epoch that the leader judged: a node that returned since is not lost.
        epoch: Epoch,
    },
    /// The node is back and runs nothing that was not granted.
    NodeReturned = "node_returned" @ One {
        node: NodeId,
        /// The incarnation of its agent that reconciled.
        incarnation: u64,
    },
    /// An operator declares the node dead: whatever ran there is over, by their word (law L2).
    ForgetNode = "forget_node" @ One {
        node: NodeId,
    },
    /// An operator declares that a worker whose stop could not be confirmed is gone (law L2).
    ConfirmStopped = "confirm_stopped" @ One {
        node: NodeId,
    },
    /// The data on a node's disks changed.
    UpdateCached = "update_cached" @ One {
        node: NodeId,
        /// Names of all data on its disks now.
        cached: BTreeSet<String>,
    },
    /// A job is submitted (P5).
    SubmitJob = "submit_job" @ One {
        spec: Arc<JobSpec>,
        /// W3C trace context; may be empty.
        traceparent: String,
        /// What nobody else knows, drawn by whoever took the job in: slice servers of one card on several nodes know
        /// one another by what is derived from it. `None`: it has no such cards.
        secret: Option<u128>,
    },
    /// A job is cancelled.
    CancelJob = "cancel_job" @ One {
        job: JobId,
    },
    /// A job ran longer than its time limit, and its agent did not stop it.
    ExpireJob = "expire_job" @ One {
        job: JobId,
        /// The allocation under which it ran so long: another attempt has its own time.
        allocation: AllocationId,
    },
    /// A time window is over, or was changed, or is known for the first time: nothing of the queue or job is granted
    /// before that time, and what runs of it is suspended if that is in the future.
    CloseUntil = "close_until" @ One {
        /// Whose window.
        whose: WindowOf,
        /// The windows that were judged: what is said of others is refused.
        windows: Vec<String>,
        /// When the next one opens; now or earlier: it is open.
        time: LogTime,
    },
    /// A gang that runs with fewer virtual cards than it would like is stopped, to be started again with more.
    GrowJob = "grow_job" @ One {
        job: JobId,
        /// The allocation under which it has too few.
        allocation: AllocationId,
    },
    /// A job that computes next to nothing has come to a step of its queue's ladder, or is busy again.
    NoteIdle = "note_idle" @ One {
        job: JobId,
        /// The attempt that was measured: what another one used counts for nothing.
        attempt: u32,
        /// Since when it is idle, as far as whoever says so has seen it.
        since: LogTime,
        /// The step; `None`: it is busy again.
        step: Option<IdleStep>,
    },
    /// A waiting job is not considered until it is released.
    HoldJob = "hold_job" @ One {
        job: JobId,
    },
    /// A held job is considered again.
    ReleaseJob = "release_job" @ One {
        job: JobId,
    },
    /// A running job gives its blocks back until a person resumes it (law L5).
    SuspendJob = "suspend_job" @ One {
        job: JobId,
    },
    /// A job that a person suspended is considered again.
    ResumeJob = "resume_job" @ One {
        job: JobId,
    },
    /// A queue is made or changed.
    SetQueue = "set_queue" @ One {
        queue: QueueSettings,
    },
    /// A queue without jobs and queues below is removed.
    RemoveQueue = "remove_queue" @ One {
        name: String,
    },
    /// The pool's settings are changed.
    SetConfig = "set_config" @ One {
        config: PoolConfig,
        /// The settings that these were made from: refused when others are in force. `None`: whatever is in force.
        expected: Option<Box<PoolConfig>>,
    },
    /// What the placement actor decided against a known revision. Each part is validated again and accepted or refused.
    CommitPlan = "commit_plan" @ One {
        plan: Plan,
    },
    /// What an agent says of workers.
    ReportWorkers = "report_workers" @ One {
        node: NodeId,
        reports: Vec<WorkerReport>,
    },
    /// What a node's disk keeps of checkpoints differs from what the ledger says.
    NoteKept = "note_kept" @ One {
        node: NodeId,
        /// Parts that it keeps now.
        kept: Vec<PartKey>,
        /// Parts that it does not keep any more.
        gone: Vec<PartKey>,
    },
    /// A move goes on to its next step, or is given up.
    AdvanceMove = "advance_move" @ One {
        id: MoveId,
        /// The step it is at; a stale one is refused.
        from: MovePhase,
        /// Whether it goes on; otherwise it is given up.
        proceed: bool,
    },
    /// Every lease that was granted under timings from before a change of them is over: nobody waits for those
    /// any more.
    SettleLeases = "settle_leases" @ One {
        /// The entry of the change; refused when they were changed again since.
        changed_at: Revision,
    },
    /// Lets time pass in the ledger: what is due for removal is removed.
    Tick = "tick" @ One,
    /// Nothing: it stands for a command that the next release brings, in tests of upgrades.
    Drill = "drill" @ Drill,
    // Proposed when every member announces the level: all of them know the command, whatever is in force.
    /// Every member can apply a release level: it is in force from here on (law L7).
    RaiseLevel = "raise_level" @ One {
        /// The level; nothing changes when it is in force already.
        to: Level,
    },
}

/// A plan of the placement actor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The revision it was made against.
    pub revision: Revision,
    /// Its parts, applied in order.
    pub parts: Vec<PlanPart>,
}

/// A part of a plan, accepted or refused whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanPart {
    /// A gang gets its virtual cards; `victims` are suspended for it. One part carries both, so that nothing is
    /// preempted unless the beneficiary then fits (law L4).
    Grant {
        job: JobId,
        /// Its workers in order of rank.
        workers: Vec<PlannedWorker>,
        /// The jobs that are suspended for it; their blocks may be among those granted.
        victims: Vec<JobId>,
    },
    /// A job leaves a node that is being drained; it resumes by itself elsewhere.
    Evict {
        job: JobId,
        /// The node that is being drained.
        node: NodeId,
    },
    /// The extents in use of a card are moved together to its front, in their order: block numbers change, the work
    /// does not notice (P7, P10).
    Renumber { card: CardId },
    /// A job is moved to other cards.
    Move {
        job: JobId,
        /// Its workers at the target, in order of rank.
        workers: Vec<PlannedWorker>,
    },
}

/// What an agent says of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Which worker of which allocation; the epoch fences older allocations.
    pub worker: Owner,
    pub observation: Observation,
}

/// Where an agent sees a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Its process runs.
    Running,
    /// It is over, and its control group is empty.
    Stopped(WorkerExit),
    /// It was killed, but is not confirmed to be gone.
    Unconfirmed {
        /// What went wrong.
        message: String,
    },
    /// It, or its agent after its end, saved its part of a checkpoint, which is whole on disk.
    Saved(SavedPart),
    /// Nothing of it was started: its part of the checkpoint that it was to go on from cannot be had.
    Unusable {
        /// Whether it never can be: it is damaged, or gone from everywhere.
        lost: bool,
        /// What went wrong.
        message: String,
    },
}

impl Observation {
    /// The cause of the stop, if it is one.
    #[must_use]
    pub const fn cause(&self) -> Option<StopCause> {
        match self {
            Self::Stopped(exit) => Some(exit.cause),
            Self::Running | Self::Unconfirmed { .. } | Self::Saved(_) | Self::Unusable { .. } => None,
        }
    }
}

/// What applying a command answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done; nothing more to say.
    Done,
    /// The job is in the ledger under this number.
    Submitted(JobId),
    /// The node has this number and, until the next registration, this epoch.
    Registered { node: NodeId, epoch: Epoch },
    /// Each part of the plan: the allocation it made, if any, or why it was refused.
    Planned(Vec<Result<Option<AllocationId>, crate::rejection::Rejection>>),
    /// The command changed nothing, for this reason.
    Rejected(crate::rejection::Rejection),
}
