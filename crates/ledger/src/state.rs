//! The replicated state. Copying it is cheap (persistent maps share their structure), so that snapshots and readers
//! never stall applying; changing it happens in [`State::apply`] and nowhere else.

mod read;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use immutable_chunkmap::map::Map;

use crate::allocation::{Allocation, Move};
use crate::apply::guard::Unguarded;
use crate::apply::quotas::CheckpointBytes;
use crate::capacity::Capacity;
use crate::card::Card;
use crate::config::PoolConfig;
use crate::event::{EntryEvents, Event, Touched};
use crate::extent::BlockCounts;
use crate::host::HostUse;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, RequestId};
use crate::job::{Job, JobState};
use crate::kept::Kept;
use crate::lease::LeaseCeiling;
use crate::level::Level;
use crate::node::Node;
use crate::order::{AttainedOrder, Precedence};
use crate::ports::MeetingPorts;
use crate::queue::{DEFAULT_QUEUE, Queue, QueueSettings};
use crate::standing::{HEAD_START, millis};
use crate::units::{BlockNumber, LogTime, Revision};

/// A persistent ordered map; small chunks keep the copying after a snapshot small.
pub type PersistentMap<K, V> = Map<K, V, 32>;

/// Place of a waiting job among those of its queue: whoever has waited longest, where every point of priority counts as
/// [`HEAD_START`] of waiting; where the queue goes by attained service ([`order`](crate::order)), first by precedence.
/// It does not change while the job waits, unless it becomes guarded, so that the line never has to be sorted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitingKey {
    /// The precedence, so that a higher one sorts first; of no meaning where the order is not by attained service.
    pub precedence: Reverse<Precedence>,
    /// The time at which a job of the highest priority would have begun to wait for the same place, in milliseconds.
    pub place: u64,
    /// 100 minus the priority, so that a higher priority sorts first.
    pub inverse_priority: u32,
    pub job: JobId,
}

impl WaitingKey {
    #[must_use]
    pub fn of(job: &Job, order: Option<AttainedOrder>) -> Self {
        match order {
            Some(_) => {
                let precedence = Reverse(job.precedence(order, job.submitted_at));
                Self { precedence, ..Self::since(job.submitted_at, job.spec.priority, job.id) }
            }
            None => {
                let began = LogTime(job.waiting_since().0.saturating_sub(millis(job.waited)));
                Self::since(began, job.spec.priority, job.id)
            }
        }
    }

    /// The age of a job for the guard of its queue: the time of its submission, where every point of priority counts
    /// as [`HEAD_START`] earlier.
    pub(crate) fn age_of(job: &Job) -> u64 {
        Self::since(job.submitted_at, job.spec.priority, job.id).place
    }

    /// The key that a job would have if it were submitted at `now`, behind all that are known.
    #[must_use]
    pub fn of_next(priority: u32, order: Option<AttainedOrder>, now: LogTime) -> Self {
        let precedence = Reverse(order.map_or_else(Precedence::default, |_| Precedence::of_priority(priority)));
        Self { precedence, ..Self::since(now, priority, JobId(u64::MAX)) }
    }

    fn since(began: LogTime, priority: u32, job: JobId) -> Self {
        let inverse_priority = 100u32.saturating_sub(priority);
        let place = began.0.saturating_add(behind(inverse_priority));
        Self { precedence: Reverse(Precedence::default()), place, inverse_priority, job }
    }

    /// The time at which the job would have begun to wait if it had waited its whole waiting time without a break: no
    /// later than it did.
    #[must_use]
    pub fn began(&self) -> LogTime {
        LogTime(self.place.saturating_sub(behind(self.inverse_priority)))
    }
}

/// Milliseconds by which a job stands behind one of the highest priority that came at the same time.
const fn behind(inverse_priority: u32) -> u64 {
    HEAD_START.as_millis() as u64 * inverse_priority as u64
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnsweredRequest {
    /// Hash of its content.
    pub fingerprint: u64,
    pub at: LogTime,
    pub revision: Revision,
    /// The job that it made, if any.
    pub job: Option<JobId>,
    /// True if it was refused; without a job, every other answer was "done".
    pub refused: bool,
}

/// The whole replicated state of a pool.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) revision: Revision,
    pub(crate) time: LogTime,
    pub(crate) level: Level,
    /// The sum of the hashes of a snapshot's records, but for those that have changed of late: see [`crate::digest`].
    pub(crate) records_sum: u128,
    pub(crate) config: Arc<PoolConfig>,
    pub(crate) lease_ceiling: LeaseCeiling,
    pub(crate) nodes: Kept<NodeId, Arc<Node>>,
    pub(crate) node_names: PersistentMap<String, NodeId>,
    pub(crate) cards: Kept<CardId, Arc<Card>>,
    pub(crate) queues: Kept<String, Arc<Queue>>,
    pub(crate) jobs: Kept<JobId, Arc<Job>>,
    pub(crate) allocations: Kept<AllocationId, Arc<Allocation>>,
    pub(crate) moves: Kept<MoveId, Arc<Move>>,
    pub(crate) requests: Kept<RequestId, AnsweredRequest>,
    /// The time at which the newest forgotten request id was made.
    pub(crate) request_floor: LogTime,
    pub(crate) next_node: NodeId,
    pub(crate) next_block: BlockNumber,
    pub(crate) next_job: JobId,
    pub(crate) next_allocation: AllocationId,
    pub(crate) next_move: MoveId,
    pub(crate) history: Kept<Revision, EntryEvents>,
    /// Watches that want events of this revision or an older one must start anew.
    pub(crate) compacted: Revision,
    // What follows can be computed from the above; `crate::laws` does so and compares.
    pub(crate) waiting: PersistentMap<WaitingKey, ()>,
    /// Jobs that are not over in queues that go by attained service, and not guarded: by queue, oldest first.
    pub(crate) unguarded: Unguarded,
    /// Jobs with checkpoints.
    pub(crate) checkpointed: PersistentMap<JobId, ()>,
    /// Bytes of the checkpoints of the jobs of each queue, and of those below it; of one that is not there: none.
    pub(crate) checkpoint_bytes: PersistentMap<String, CheckpointBytes>,
    /// Jobs that are not over and have windows of their own.
    pub(crate) windowed: PersistentMap<JobId, ()>,
    /// Jobs that are not over and were told to be idle.
    pub(crate) idlers: PersistentMap<JobId, ()>,
    pub(crate) ended: PersistentMap<(LogTime, JobId), ()>,
    pub(crate) request_times: PersistentMap<(LogTime, RequestId), ()>,
    /// Not keyed by node and allocation: the map finds the beginning of a range by going through all that is before it.
    pub(crate) node_workers: PersistentMap<NodeId, Arc<BTreeSet<AllocationId>>>,
    pub(crate) ports: MeetingPorts,
    /// Nodes of whose hosts something is held or promised.
    pub(crate) host_use: PersistentMap<NodeId, HostUse>,
    pub(crate) counts: BlockCounts,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) job_counts: BTreeMap<JobState, u64>,
    pub(crate) requests_held: u64,
    /// Bytes of all jobs.
    pub(crate) spec_bytes: u64,
    /// Bytes of those that have ended.
    pub(crate) ended_spec_bytes: u64,
    /// Events of all entries in the history.
    pub(crate) events_held: u64,
    // What the entry being applied has changed so far; empty between entries.
    pub(crate) pending_events: Vec<Event>,
    pub(crate) touched: Vec<Touched>,
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// An empty pool with the queue `default`, as it is before the first entry of any log: at the lowest level.
    #[must_use]
    pub fn new() -> Self {
        let mut queues = Kept::default();
        let settings = QueueSettings::new(DEFAULT_QUEUE);
        queues.insert_cow(DEFAULT_QUEUE.to_owned(), Arc::new(Queue::new(settings)));
        let mut state = Self {
            revision: Revision(0),
            time: LogTime(0),
            level: Level::One,
            records_sum: 0,
            config: Arc::new(PoolConfig::default()),
            lease_ceiling: LeaseCeiling::of(&PoolConfig::default().leases),
            nodes: Kept::default(),
            node_names: PersistentMap::new(),
            cards: Kept::default(),
            queues,
            jobs: Kept::default(),
            allocations: Kept::default(),
            moves: Kept::default(),
            requests: Kept::default(),
            request_floor: LogTime(0),
            next_node: NodeId(0),
            next_block: BlockNumber(1),
            next_job: JobId(1),
            next_allocation: AllocationId(1),
            next_move: MoveId(1),
            history: Kept::default(),
            compacted: Revision(0),
            waiting: PersistentMap::new(),
            unguarded: PersistentMap::new(),
            checkpointed: PersistentMap::new(),
            checkpoint_bytes: PersistentMap::new(),
            windowed: PersistentMap::new(),
            idlers: PersistentMap::new(),
            ended: PersistentMap::new(),
            request_times: PersistentMap::new(),
            node_workers: PersistentMap::new(),
            ports: MeetingPorts::default(),
            host_use: PersistentMap::new(),
            counts: BlockCounts::default(),
            capacity: Arc::default(),
            job_counts: BTreeMap::new(),
            requests_held: 0,
            spec_bytes: 0,
            ended_spec_bytes: 0,
            events_held: 0,
            pending_events: Vec::new(),
            touched: Vec::new(),
        };
        state.watch_records();
        state
    }

    /// The same with a level in force: where no log is replayed and nobody asks members what they can apply.
    #[must_use]
    pub fn at(level: Level) -> Self {
        Self { level, ..Self::new() }
    }
}
