//! Why a command changed nothing. Every refusal has a code for machines and a sentence for people that says what to do.

use crate::host::HostRequest;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId};
use crate::job::JobState;
use crate::level::Level;
use crate::units::MilliTflops;

/// Makes [`Rejection`] of a table with one row for each: its comment, `Variant`, what goes with it, `= "CODE"`, and its
/// sentence for people, which may use what goes with it.
macro_rules! rejections {
    ($(
        $(#[doc = $comment:literal])+
        $variant:ident
            $({ $($(#[doc = $of_field:literal])* $field:ident: $type:ty),+ $(,)? })?
            $(($unnamed:ty))?
            = $code:literal $sentence:tt;
    )+) => {
        /// A refusal.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum Rejection {
            $(
                $(#[doc = $comment])+
                #[error $sentence]
                $variant $({ $($(#[doc = $of_field])* $field: $type),+ })? $(($unnamed))?,
            )+
        }

        impl Rejection {
            /// The machine-readable codes of all refusals; some have one code.
            pub const CODES: &[&str] = &[$($code),+];

            /// The machine-readable code; documented in docs/reasons.md.
            #[must_use]
            pub const fn code(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $code,)+
                }
            }
        }
    };
}

// The one list of all refusals; `docs/reasons.md` is made of it. Those that a caller of the API can meet have the names
// of their reasons there (`tessera_api::error`).
rejections! {
    /// A field of a job, queue, card or setting is not acceptable.
    Invalid { field: String, problem: String } = "INVALID_FIELD" ("{field}: {problem}");
    /// The request id was used for another request.
    RequestIdReused = "REQUEST_ID_REUSED"
        ("this request id was already used for a request with another content; choose a new request id");
    /// No such job.
    UnknownJob(JobId) = "JOB_UNKNOWN" ("job {0} is not known; it may have ended and been removed");
    /// No such node.
    UnknownNode(NodeId) = "NODE_UNKNOWN" ("{0} is not known; list the nodes to see their names");
    /// No such card.
    UnknownCard(CardId) = "CARD_UNKNOWN" ("{0} is not known; list the cards to see their names");
    /// No such queue.
    UnknownQueue(String) = "QUEUE_UNKNOWN" ("queue {0:?} does not exist; list the queues, or make it first");
    /// No such move.
    UnknownMove(MoveId) = "MOVE_UNKNOWN" ("{0} is not in progress");
    /// The job is in a state in which this cannot be done.
    IllegalTransition { job: JobId, state: JobState, action: &'static str } = "ILLEGAL_TRANSITION"
        ("job {job} is {} and cannot be {action}", state.name());
    /// The demand is above what the whole pool has (P5b).
    ExceedsPool { demand: MilliTflops, total: MilliTflops } = "EXCEEDS_POOL"
        ("the job asks for {demand} in all, and the pool has {total} in all on cards that it accepts; ask for less or \
         add cards");
    /// The demand for one card is above the largest card.
    ExceedsCard { demand: MilliTflops, largest: MilliTflops } = "EXCEEDS_CARD"
        ("one virtual card on one card asks for {demand}, and the largest card that it accepts has {largest}; ask for \
         less or allow span: node or pool");
    /// The memory asked for is above what the whole pool has.
    ExceedsMemory { demand_mib: u64, total_mib: u64 } = "EXCEEDS_MEMORY"
        ("the job asks for {demand_mib} MiB of card memory in all, and the pool has {total_mib} MiB in all on cards \
         that it accepts; ask for less or add cards");
    /// Too many jobs.
    TooManyJobs { limit: u64 } = "TOO_MANY_JOBS"
        ("the pool holds {limit} jobs that are not over, its limit; wait or raise job_limit");
    /// The name of the node belongs to another machine.
    NodeNameTaken { name: String, owner: String } = "NODE_NAME_TAKEN"
        ("the node name {name:?} belongs to another machine (identity {owner}); choose another name, or forget that \
         node if it is dead");
    /// The node still holds workers.
    NodeBusy { node: NodeId, job: JobId } = "NODE_BUSY"
        ("{node} still holds blocks of job {job}; drain it, or wait until it is lost");
    /// What was judged has changed since.
    NodeChanged { node: NodeId } = "NODE_CHANGED" ("{node} has registered or returned since; judge it again");
    /// The node takes no allocations.
    NodeNotGrantable(NodeId) = "NODE_NOT_GRANTABLE" ("{0} takes no new work now");
    /// Blocks are not free.
    BlocksNotFree {
        card: CardId,
        start: u32,
        /// Block after the last.
        end: u32,
    } = "BLOCKS_NOT_FREE" ("blocks {start} to {end} of {card} are not all free");
    /// A card has too little memory left.
    MemoryNotFree { card: CardId } = "MEMORY_NOT_FREE" ("{card} has not enough memory left");
    /// A host has too little processor time or memory left.
    HostNotFree { node: NodeId, job: JobId, asked: HostRequest, left: HostRequest } = "HOST_NOT_FREE"
        ("{node} has {} and {} of its host left, and the workers of job {job} ask for {} and {}; place them elsewhere",
         left.cpu, left.memory, asked.cpu, asked.memory);
    /// A card is held whole by a job that does not share its cards.
    CardTakenWhole { card: CardId, job: JobId } = "CARD_TAKEN_WHOLE" ("{card} is taken whole by job {job}");
    /// An allocation does not give the job what it asked for.
    GrantMismatch { job: JobId, problem: String } = "GRANT_MISMATCH"
        ("the allocation for job {job} does not fit what it asked for: {problem}");
    /// A job cannot be preempted for another.
    NotPreemptible { victim: JobId, beneficiary: JobId, problem: &'static str } = "NOT_PREEMPTIBLE"
        ("job {victim} cannot be preempted for job {beneficiary}: {problem}");
    /// A queue would exceed its maximum.
    QueueLimit { queue: String } = "QUEUE_LIMIT" ("queue {queue:?} would exceed its maximum");
    /// A queue cannot be removed.
    QueueBusy(String) = "QUEUE_BUSY" ("queue {0:?} still has jobs or queues below it");
    /// A move is at another step.
    MoveStale(MoveId) = "MOVE_STALE" ("{0} is at another step; read its state again");
    /// No port is left on the node of rank 0.
    NoMasterPort(NodeId) = "NO_MASTER_PORT" ("{0} has no free port left for workers to meet at");
    /// Blocks of a card cannot be renumbered now.
    CardPinned(CardId) = "CARD_PINNED"
        ("{0} has blocks that wait for their owner to stop; renumber it when they are given back");
    /// The allocation is not known or of another epoch.
    StaleAllocation(AllocationId) = "STALE_ALLOCATION" ("{0} is not in force");
    /// What each worker needs of its host is above what any host has.
    ExceedsHost {
        /// What each worker with a program asks for.
        demand: HostRequest,
        /// The most processor time and the most memory of any such host, not always of the same.
        most: HostRequest,
    } = "EXCEEDS_HOST"
        ("each worker with a program asks for {} and {} of its host, and no node that could have one has both; the \
         most that any has is {} and {}; ask for less or add nodes", demand.cpu, demand.memory, most.cpu, most.memory);
    /// The settings are not those that new ones were made from.
    ConfigChanged = "CONFIG_CHANGED"
        ("the settings were changed since they were read; read them again and change what is there now");
    /// The memory asked for on one card is above that of every card with enough compute.
    ExceedsCardMemory { demand_mib: u64, largest_mib: u64 } = "EXCEEDS_CARD"
        ("{demand_mib} MiB of memory are asked for on one card, and of the cards that are accepted and fast enough the \
         largest has {largest_mib} MiB; ask for less, or allow a virtual card to spread with span: node or pool");
    /// The cards of the pool hold fewer such virtual cards at once than the gang has, each on one card.
    ExceedsGang { gang: u32, most: u64 } = "EXCEEDS_POOL"
        ("the gang has at least {gang} virtual cards, each on one card, and the cards that it accepts hold {most} of \
         them when they are empty; ask for fewer or smaller ones, or allow span: node or pool");
    /// Two agents have the same identity: a data folder was copied.
    NodeCloned { node: NodeId } = "NODE_CLONED"
        ("another agent with the same data folder speaks for {node}; give the copy a data folder of its own, or stop \
         it");
    /// The jobs that are not over have as many bytes as the pool holds.
    SpecBudgetExhausted {
        bytes: u64,
        /// Bytes of those that are not over.
        used: u64,
        limit: u64,
    } = "SPEC_BUDGET_EXHAUSTED"
        ("the job has {bytes} bytes, and the jobs that are not over have {used} of the {limit} bytes that the pool \
         holds; put long scripts and input into files of the nodes, wait until jobs have ended, or raise spec_bytes");
    /// Too many queues.
    TooManyQueues { limit: u64 } = "TOO_MANY_QUEUES"
        ("the pool has {limit} queues, its limit; remove one that is not used, or raise the limit of queues");
    /// Too many nodes.
    TooManyNodes { limit: u64 } = "TOO_MANY_NODES"
        ("the pool has {limit} nodes, those that were forgotten counted, its limit; raise the limit of nodes if this \
         one belongs to it");
    /// Too many cards.
    TooManyCards {
        /// Cards that the node brings beside those that it has in the pool.
        added: u64,
        present: u64,
        limit: u64,
    } = "TOO_MANY_CARDS"
        ("the node brings {added} more cards, the pool has {present} and holds {limit}; raise the limit of cards if \
         they belong to it");
    /// What was asked needs a release level that is not in force.
    LevelNotInForce { needs: Level, in_force: Level } = "LEVEL_NOT_IN_FORCE"
        ("this needs release level {needs}, and {in_force} is in force; it is raised when every member runs a release \
         that can apply it and it is not held: see `tessera cluster status`");
    /// The release level is held.
    LevelHeld { in_force: Level } = "LEVEL_HELD"
        ("the release level is held at {in_force}; let go of it with `tessera pool config set --hold-level false`");
    /// The request was refused under its id before, and would not be refused now.
    RequestRefused = "REQUEST_REFUSED"
        ("it was refused under this request id before, and stays refused; send it with a new id");
    /// The request id may have been answered and forgotten.
    RequestForgotten = "REQUEST_TOO_OLD"
        ("ids as old as this request's are forgotten: whether it was carried out before is not known, and it was not \
         carried out now; look whether it was, and if not send it with a new id");
}

impl Rejection {
    /// A field that is not acceptable.
    #[must_use]
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }
}
