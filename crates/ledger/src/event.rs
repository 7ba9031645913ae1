//! Events: what each applied entry changed, in order. Watches and the incremental indexes of placement live on them.

use std::sync::Arc;

use crate::allocation::WorkerState;
use crate::checkpoint::CheckpointKey;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, Rank};
use crate::job::JobState;
use crate::node::{Eligibility, NodeState};
use crate::reason::Reason;
use crate::units::{LogTime, Revision};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A job came into a state, or its reason changed.
    Job {
        job: JobId,
        /// State before; `None` when it was just submitted.
        from: Option<JobState>,
        to: JobState,
        reason: Reason,
        allocation: Option<AllocationId>,
    },
    /// An ended job left the ledger.
    JobRemoved {
        job: JobId,
    },
    /// A worker came into a state.
    Worker {
        job: JobId,
        allocation: AllocationId,
        rank: Rank,
        node: NodeId,
        state: WorkerState,
    },
    /// An allocation left the ledger; all its blocks are given back.
    AllocationReleased {
        job: JobId,
        allocation: AllocationId,
    },
    Node {
        node: NodeId,
        state: NodeState,
        eligibility: Eligibility,
    },
    /// A card was declared, re-rated, changed health or was renumbered.
    Card {
        card: CardId,
    },
    /// A queue was made, changed or removed.
    Queue {
        name: String,
    },
    Config,
    /// A move began, went on or ended.
    Move {
        id: MoveId,
        job: JobId,
        in_progress: bool,
    },
    /// A worker's stop could not be confirmed: its blocks are quarantined until an operator decides.
    Quarantined {
        node: NodeId,
        job: JobId,
        allocation: AllocationId,
        rank: Rank,
        /// The message of its agent.
        message: String,
    },
    /// A checkpoint that a job could have gone on from is passed over. It is damaged or not whole, and given up; or
    /// nobody has all of it now; or another number of workers saved it.
    CheckpointSkipped {
        job: JobId,
        checkpoint: CheckpointKey,
        /// The newest one that can be gone on from; `None`: there is none, and it begins from the beginning.
        newest_left: Option<CheckpointKey>,
        message: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryEvents {
    /// Index of the entry.
    pub revision: Revision,
    pub time: LogTime,
    /// The changes that the entry made, in order.
    pub events: Arc<[Event]>,
}

/// Something that an applied entry changed, for those who keep an index of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touched {
    /// A card's extents, memory or description.
    Card(CardId),
    /// A node's description, state or eligibility.
    Node(NodeId),
    Job(JobId),
    Allocation(AllocationId),
    /// Some queue.
    Queues,
    Config,
}
