//! The ledger: what the pool is, who holds what, and the one function that changes it.
//!
//! [`State`] is the replicated state of a pool. [`State::apply`] takes the state, the position of a log entry and its
//! [`Request`]s, and answers one [`Outcome`] per request; it reads no clock, does no input or output and draws no
//! random number, so that every member that applies the same log has the same state, bit for bit (law L8).
//!
//! What the system promises is written here as laws:
//!
//! * **L1 Conservation.** Every block of every card is in exactly one [`BlockState`], and every block that is not free
//!   or offline has exactly one [`Owner`]. [`ExtentMap`] makes anything else impossible to write down.
//! * **L2 One owner at a time.** A block is granted again only after its owner confirmed its stop, or its lease is
//!   provably over, or an operator gave their word.
//! * **L3 Nothing acknowledged is lost.** A request id gives the same answer once.
//! * **L4 Preemption terminates and helps.** Only a strictly lower effective priority of the same queue is preempted,
//!   or a strictly lower precedence in one that goes by attained service ([`order`]), or what another queue holds above
//!   its guarantee for one that is within its own ([`standing`]); in the same plan part that grants its blocks, and
//!   only so often in an hour.
//! * **L5 Suspension gives blocks back** and keeps what it cost in the job's history.
//! * **L6 A re-rating, a health change, a configuration change is a command**, never an edit of live allocations.
//! * **L7 Compatibility.** Nothing new is written or done before every member can apply it ([`level`]).
//! * **L8 Determinism**, watched by [`State::digest`].
//!
//! [`laws::check`] recomputes from scratch everything that is kept incrementally, and says which law is broken where.
//!
//! Start reading at [`job::JobState::successors`] (the table of transitions), then [`command::Command`], then the
//! modules under `apply`.

pub mod affinity;
pub mod allocation;
mod apply;
pub mod capacity;
pub mod card;
pub mod checkpoint;
mod checks;
pub mod command;
pub mod config;
mod digest;
pub mod event;
pub mod extent;
pub mod host;
pub mod idle;
pub mod ids;
pub mod job;
mod kept;
pub mod laws;
pub mod lease;
pub mod level;
pub mod node;
pub mod order;
mod past_use;
mod ports;
mod program;
pub mod queue;
pub mod reason;
pub mod rejection;
mod rule;
pub mod spec;
pub mod standing;
pub mod state;
pub mod units;
mod virtual_card;
pub mod window;
pub mod wire;

pub use affinity::{Affinity, Packing, PreferredLabel};
pub use allocation::{
    Allocation, AllocationPhase, Move, MovePhase, PlannedWorker, Slice, StopCause, Worker, WorkerExit, WorkerState,
};
pub use apply::{CORDONED_ANEW, EntryPosition, NUMBERS_AHEAD, REVISIONS_AHEAD};
pub use card::{Card, CardDescription, CardHealth, CardKind, Isolation, Link, LinkKind, Precision, Ratings};
pub use checkpoint::{
    COPIES_WANTED, Checkpoint, CheckpointKey, CheckpointPart, Checkpoints, MOST_CHECKPOINTS, PartKey, SavedPart,
};
pub use checks::WINDOW_LIMIT;
pub use command::{Command, CommandKind, Observation, Outcome, Plan, PlanPart, Request, WorkerReport};
pub use config::{CompactionPolicy, PoolConfig, PoolLimits};
pub use event::{EntryEvents, Event, Touched};
pub use extent::{BlockCounts, BlockState, Extent, ExtentMap};
pub use host::{HostCapacity, HostRequest, HostUse};
pub use idle::{Idle, IdlePolicy, IdleStep, KEEP_LABEL, MOST_IDLE};
pub use ids::{AllocationId, CardId, JobId, MoveId, NodeId, Owner, REQUEST_AHEAD, Rank, RequestId, RequestKey};
pub use job::{Attempt, Ending, Job, JobState, RESTORES_UNTIL_GIVEN_UP};
pub use lease::{LeaseCeiling, LeaseTimings};
pub use level::Level;
pub use node::{AgentStart, Containment, Eligibility, FAULTS_UNTIL_CORDON, NODE_KEY, Node, NodeDescription, NodeState};
pub use order::{AttainedOrder, BAND_PATIENCE, Claim, Precedence};
pub use past_use::{FollowedUse, PastUse};
pub use queue::{DEFAULT_QUEUE, Queue, QueueAmount, QueueSettings};
pub use reason::Reason;
pub use rejection::Rejection;
pub use rule::{DRILL_QUEUE, Rule};
pub use spec::{
    CheckpointMode, CheckpointPolicy, DEFAULT_PRIORITY, JobSpec, OnDisconnect, RetryPolicy, TRANSPARENT_LABEL,
};
pub use state::{AnsweredRequest, State};
pub use units::{
    BlockCount, BlockIndex, BlockNumber, Epoch, LogTime, Mebibytes, MilliCpus, MilliTflops, Percent, Revision,
};
pub use virtual_card::{Access, DEVICE_KINDS, DEVICE_LABEL, DEVICE_VERSION_LABEL, Span, VirtualCardRequest};
pub use window::{UNKNOWN, WindowOf};
