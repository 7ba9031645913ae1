//! Why a command changed nothing. Every refusal has a code for machines and a sentence for people that says what to do.

use crate::host::HostRequest;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId};
use crate::job::JobState;
use crate::level::Level;
use crate::units::MilliTflops;

/// A refusal. New ones go to the end: at level 0 their order is part of what [`State::digest`](crate::State::digest) is
/// made of (law L8).
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    /// A field of a job, queue, card or setting is not acceptable.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// The request id was used for another request.
    #[error("this request id was already used for a request with another content; choose a new request id")]
    RequestIdReused,
    /// No such job.
    #[error("job {0} is not known; it may have ended and been removed")]
    UnknownJob(JobId),
    /// No such node.
    #[error("{0} is not known; list the nodes to see their names")]
    UnknownNode(NodeId),
    /// No such card.
    #[error("{0} is not known; list the cards to see their names")]
    UnknownCard(CardId),
    /// No such queue.
    #[error("queue {0:?} does not exist; list the queues, or make it first")]
    UnknownQueue(String),
    /// No such move.
    #[error("{0} is not in progress")]
    UnknownMove(MoveId),
    /// The job is in a state in which this cannot be done.
    #[error("job {job} is {} and cannot be {action}", state.name())]
    IllegalTransition {
        /// The job.
        job: JobId,
        /// Its state.
        state: JobState,
        /// What was asked.
        action: &'static str,
    },
    /// The demand is above what the whole pool has (P5b).
    #[error(
        "the job asks for {demand} in all, and the pool has {total} in all on cards that it accepts; ask for less or add cards"
    )]
    ExceedsPool {
        /// What it asks for.
        demand: MilliTflops,
        /// What the pool has.
        total: MilliTflops,
    },
    /// The demand for one card is above the largest card.
    #[error(
        "one virtual card on one card asks for {demand}, and the largest card that it accepts has {largest}; ask for less or allow span: node or pool"
    )]
    ExceedsCard {
        /// What it asks for.
        demand: MilliTflops,
        /// What the largest card has.
        largest: MilliTflops,
    },
    /// The memory asked for is above what the whole pool has.
    #[error(
        "the job asks for {demand_mib} MiB of card memory in all, and the pool has {total_mib} MiB in all on cards that it accepts; ask for less or add cards"
    )]
    ExceedsMemory {
        /// What it asks for.
        demand_mib: u64,
        /// What the pool has.
        total_mib: u64,
    },
    /// Too many jobs.
    #[error("the pool holds {limit} jobs that are not over, its limit; wait or raise job_limit")]
    TooManyJobs {
        /// The limit.
        limit: u64,
    },
    /// The name of the node belongs to another machine.
    #[error(
        "the node name {name:?} belongs to another machine (identity {owner}); choose another name, or forget that node if it is dead"
    )]
    NodeNameTaken {
        /// The name.
        name: String,
        /// Identity that has it.
        owner: String,
    },
    /// The node still holds workers.
    #[error("{node} still holds blocks of job {job}; drain it, or wait until it is lost")]
    NodeBusy {
        /// The node.
        node: NodeId,
        /// A job there.
        job: JobId,
    },
    /// What was judged has changed since.
    #[error("{node} has registered or returned since; judge it again")]
    NodeChanged {
        /// The node.
        node: NodeId,
    },
    /// The node takes no allocations.
    #[error("{0} takes no new work now")]
    NodeNotGrantable(NodeId),
    /// Blocks are not free.
    #[error("blocks {start} to {end} of {card} are not all free")]
    BlocksNotFree {
        /// The card.
        card: CardId,
        /// First block.
        start: u32,
        /// Block after the last.
        end: u32,
    },
    /// A card has too little memory left.
    #[error("{card} has not enough memory left")]
    MemoryNotFree {
        /// The card.
        card: CardId,
    },
    /// A host has too little processor time or memory left.
    #[error(
        "{node} has {} and {} of its host left, and the workers of job {job} ask for {} and {}; place them elsewhere",
        left.cpu, left.memory, asked.cpu, asked.memory
    )]
    HostNotFree {
        /// The node.
        node: NodeId,
        /// The job.
        job: JobId,
        /// What its workers there ask for.
        asked: HostRequest,
        /// What is left.
        left: HostRequest,
    },
    /// A card is held whole by a job that does not share its cards.
    #[error("{card} is taken whole by job {job}")]
    CardTakenWhole {
        /// The card.
        card: CardId,
        /// The job that has it.
        job: JobId,
    },
    /// An allocation does not give the job what it asked for.
    #[error("the allocation for job {job} does not fit what it asked for: {problem}")]
    GrantMismatch {
        /// The job.
        job: JobId,
        /// In what way.
        problem: String,
    },
    /// A job cannot be preempted for another.
    #[error("job {victim} cannot be preempted for job {beneficiary}: {problem}")]
    NotPreemptible {
        /// Whom it was to hit.
        victim: JobId,
        /// For whom.
        beneficiary: JobId,
        /// Why not.
        problem: &'static str,
    },
    /// A queue would exceed its maximum.
    #[error("queue {queue:?} would exceed its maximum")]
    QueueLimit {
        /// The queue.
        queue: String,
    },
    /// A queue cannot be removed.
    #[error("queue {0:?} still has jobs or queues below it")]
    QueueBusy(String),
    /// A move is at another step.
    #[error("{0} is at another step; read its state again")]
    MoveStale(MoveId),
    /// No port is left on the node of rank 0.
    #[error("{0} has no free port left for workers to meet at")]
    NoMasterPort(NodeId),
    /// Blocks of a card cannot be renumbered now.
    #[error("{0} has blocks that wait for their owner to stop; renumber it when they are given back")]
    CardPinned(CardId),
    /// The allocation is not known or of another epoch.
    #[error("{0} is not in force")]
    StaleAllocation(AllocationId),
    /// What each worker needs of its host is above what any host has.
    #[error(
        "each worker with a program asks for {} and {} of its host, and no node that could have one has both; the most \
         that any has is {} and {}; ask for less or add nodes",
        demand.cpu, demand.memory, most.cpu, most.memory
    )]
    ExceedsHost {
        /// What each worker with a program asks for.
        demand: HostRequest,
        /// The most processor time and the most memory of any such host, not always of the same.
        most: HostRequest,
    },
    /// The settings are not those that new ones were made from.
    #[error("the settings were changed since they were read; read them again and change what is there now")]
    ConfigChanged,
    /// The memory asked for on one card is above that of every card with enough compute.
    #[error(
        "{demand_mib} MiB of memory are asked for on one card, and of the cards that are accepted and fast enough the largest has {largest_mib} MiB; ask for less, or allow a virtual card to spread with span: node or pool"
    )]
    ExceedsCardMemory {
        /// What it asks for.
        demand_mib: u64,
        /// What the largest such card has.
        largest_mib: u64,
    },
    /// The cards of the pool hold fewer such virtual cards at once than the gang has, each on one card.
    #[error(
        "the gang has at least {gang} virtual cards, each on one card, and the cards that it accepts hold {most} of them when they are empty; ask for fewer or smaller ones, or allow span: node or pool"
    )]
    ExceedsGang {
        /// Virtual cards that must start together.
        gang: u32,
        /// As many as all cards hold.
        most: u64,
    },
    /// Two agents have the same identity: a data folder was copied.
    #[error(
        "another agent with the same data folder speaks for {node}; give the copy a data folder of its own, or stop it"
    )]
    NodeCloned {
        /// The node.
        node: NodeId,
    },
    /// The jobs that are not over have as many bytes as the pool holds.
    #[error(
        "the job has {bytes} bytes, and the jobs that are not over have {used} of the {limit} bytes that the pool holds; put long scripts and input into files of the nodes, wait until jobs have ended, or raise spec_bytes"
    )]
    SpecBudgetExhausted {
        /// Bytes of the job.
        bytes: u64,
        /// Bytes of those that are not over.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// Too many queues.
    #[error("the pool has {limit} queues, its limit; remove one that is not used, or raise the limit of queues")]
    TooManyQueues {
        /// The limit.
        limit: u64,
    },
    /// Too many nodes.
    #[error(
        "the pool has {limit} nodes, those that were forgotten counted, its limit; raise the limit of nodes if this one belongs to it"
    )]
    TooManyNodes {
        /// The limit.
        limit: u64,
    },
    /// Too many cards.
    #[error(
        "the node brings {added} more cards, the pool has {present} and holds {limit}; raise the limit of cards if they belong to it"
    )]
    TooManyCards {
        /// Cards that the node brings beside those that it has in the pool.
        added: u64,
        /// Cards of the pool.
        present: u64,
        /// The limit.
        limit: u64,
    },
    /// What was asked needs a release level that is not in force.
    #[error(
        "this needs release level {needs}, and {in_force} is in force; it is raised when every member runs a release that can apply it and it is not held: see `tessera cluster status`"
    )]
    LevelNotInForce {
        /// The level that it needs.
        needs: Level,
        /// The level in force.
        in_force: Level,
    },
    /// The release level is held.
    #[error("the release level is held at {in_force}; let go of it with `tessera pool config set --hold-level false`")]
    LevelHeld {
        /// The level in force.
        in_force: Level,
    },
    /// The request id may have been answered and forgotten.
    #[error(
        "ids as old as this request's are forgotten: whether it was carried out before is not known, and it was not carried out \
         now; look whether it was, and if not send it with a new id"
    )]
    RequestForgotten,
}

impl Rejection {
    /// The machine-readable code; documented in docs/reasons.md.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID_FIELD",
            Self::RequestIdReused => "REQUEST_ID_REUSED",
            Self::UnknownJob(_) => "JOB_UNKNOWN",
            Self::UnknownNode(_) => "NODE_UNKNOWN",
            Self::UnknownCard(_) => "CARD_UNKNOWN",
            Self::UnknownQueue(_) => "QUEUE_UNKNOWN",
            Self::UnknownMove(_) => "MOVE_UNKNOWN",
            Self::IllegalTransition { .. } => "ILLEGAL_TRANSITION",
            Self::ExceedsGang { .. } | Self::ExceedsPool { .. } => "EXCEEDS_POOL",
            Self::ExceedsCardMemory { .. } | Self::ExceedsCard { .. } => "EXCEEDS_CARD",
            Self::ExceedsMemory { .. } => "EXCEEDS_MEMORY",
            Self::ExceedsHost { .. } => "EXCEEDS_HOST",
            Self::TooManyJobs { .. } => "TOO_MANY_JOBS",
            Self::NodeNameTaken { .. } => "NODE_NAME_TAKEN",
            Self::NodeBusy { .. } => "NODE_BUSY",
            Self::NodeChanged { .. } => "NODE_CHANGED",
            Self::NodeCloned { .. } => "NODE_CLONED",
            Self::NodeNotGrantable(_) => "NODE_NOT_GRANTABLE",
            Self::BlocksNotFree { .. } => "BLOCKS_NOT_FREE",
            Self::MemoryNotFree { .. } => "MEMORY_NOT_FREE",
            Self::HostNotFree { .. } => "HOST_NOT_FREE",
            Self::CardTakenWhole { .. } => "CARD_TAKEN_WHOLE",
            Self::GrantMismatch { .. } => "GRANT_MISMATCH",
            Self::NotPreemptible { .. } => "NOT_PREEMPTIBLE",
            Self::QueueLimit { .. } => "QUEUE_LIMIT",
            Self::ConfigChanged => "CONFIG_CHANGED",
            Self::QueueBusy(_) => "QUEUE_BUSY",
            Self::MoveStale(_) => "MOVE_STALE",
            Self::NoMasterPort(_) => "NO_MASTER_PORT",
            Self::CardPinned(_) => "CARD_PINNED",
            Self::StaleAllocation(_) => "STALE_ALLOCATION",
            Self::SpecBudgetExhausted { .. } => "SPEC_BUDGET_EXHAUSTED",
            Self::TooManyQueues { .. } => "TOO_MANY_QUEUES",
            Self::TooManyNodes { .. } => "TOO_MANY_NODES",
            Self::TooManyCards { .. } => "TOO_MANY_CARDS",
            Self::LevelNotInForce { .. } => "LEVEL_NOT_IN_FORCE",
            Self::LevelHeld { .. } => "LEVEL_HELD",
            Self::RequestForgotten => "REQUEST_TOO_OLD",
        }
    }

    /// A field that is not acceptable.
    #[must_use]
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }
}
