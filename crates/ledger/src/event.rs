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
        /// The job.
        job: JobId,
        /// State before; `None` when it was just submitted.
        from: Option<JobState>,
        /// State now.
        to: JobState,
        /// Why.
        reason: Reason,
        /// The allocation concerned.
        allocation: Option<AllocationId>,
    },
    /// An ended job left the ledger.
    JobRemoved {
        /// The job.
        job: JobId,
    },
    /// A worker came into a state.
    Worker {
        /// Its job.
        job: JobId,
        /// Its allocation.
        allocation: AllocationId,
        /// Its rank.
        rank: Rank,
        /// Its node.
        node: NodeId,
        /// The state.
        state: WorkerState,
    },
    /// An allocation left the ledger; all its blocks are given back.
    AllocationReleased {
        /// The job.
        job: JobId,
        /// The allocation.
        allocation: AllocationId,
    },
    /// A node changed.
    Node {
        /// The node.
        node: NodeId,
        /// Its state.
        state: NodeState,
        /// Its eligibility.
        eligibility: Eligibility,
    },
    /// A card was declared, re-rated, changed health or was renumbered.
    Card {
        /// The card.
        card: CardId,
    },
    /// A queue was made, changed or removed.
    Queue {
        /// Its name.
        name: String,
    },
    /// The settings changed.
    Config,
    /// A move began, went on or ended.
    Move {
        /// The move.
        id: MoveId,
        /// The job.
        job: JobId,
        /// Whether it is still in progress.
        in_progress: bool,
    },
    /// A worker's stop could not be confirmed: its blocks are quarantined until an operator decides.
    Quarantined {
        /// Its node.
        node: NodeId,
        /// Its job.
        job: JobId,
        /// Its allocation.
        allocation: AllocationId,
        /// Its rank.
        rank: Rank,
        /// What its agent said.
        message: String,
    },
    /// A checkpoint that a job could have gone on from is of no use: it is damaged, gone from everywhere, or not whole.
    CheckpointSkipped {
        /// The job.
        job: JobId,
        /// The checkpoint.
        checkpoint: CheckpointKey,
        /// The newest one that is left; `None`: there is none, and it begins from the beginning.
        newest_left: Option<CheckpointKey>,
        /// Why.
        message: String,
    },
}

/// The events of one log entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryEvents {
    /// Index of the entry.
    pub revision: Revision,
    /// The entry's log time.
    pub time: LogTime,
    /// What it changed, in order.
    pub events: Arc<[Event]>,
}

/// Something that an applied entry changed, for those who keep an index of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touched {
    /// A card's extents, memory or description.
    Card(CardId),
    /// A node's description, state or eligibility.
    Node(NodeId),
    /// A job.
    Job(JobId),
    /// An allocation.
    Allocation(AllocationId),
    /// Some queue.
    Queues,
    /// The settings.
    Config,
}
