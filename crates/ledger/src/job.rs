//! Jobs: what was submitted, where it stands, and the one table of what may follow what.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::card::{CardKind, Isolation, Precision};
use crate::host::HostRequest;
use crate::ids::{AllocationId, JobId, MoveId, NodeId, RequestId};
use crate::reason::Reason;
use crate::units::{Epoch, LogTime, Mebibytes, MilliTflops, Revision};

/// How far one virtual card may spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// All slices on one card.
    #[default]
    Card,
    /// Over the cards of one node.
    Node,
    /// Over the nodes of the pool.
    Pool,
}

/// What one virtual card must offer (P1, P5a).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualCardRequest {
    /// Compute at `precision`.
    pub compute: MilliTflops,
    /// Memory.
    pub memory: Mebibytes,
    /// Precision of `compute`; `None`: the pool's reference.
    pub precision: Option<Precision>,
    /// How far it may spread.
    pub span: Span,
    /// Kinds that may back it; empty: any.
    pub kinds: BTreeSet<CardKind>,
    /// Whether several kinds may back one virtual card at once (P1).
    pub mixed: bool,
    /// The weakest isolation that is acceptable.
    pub isolation: Isolation,
    /// Vendors that may back it; empty: any.
    pub vendors: BTreeSet<String>,
    /// Models that may back it; empty: any.
    pub models: BTreeSet<String>,
    /// Whether its slices take whole cards: nobody else computes on them.
    pub whole_cards: bool,
    /// The least memory on each card that it takes something of. It gets more than `memory` where it spreads over
    /// more cards.
    pub slice_memory: Mebibytes,
}

/// How virtual cards are laid over the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// Beside what runs already, so that whole cards and nodes stay free.
    #[default]
    Stack,
    /// Over cards and nodes that have the most room, so that jobs disturb each other least.
    Spread,
}

/// A node label that is better to have than not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreferredLabel {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// How much it counts beside the others, 1 to 100.
    pub weight: u32,
}

/// Where a job's workers would rather be, and must not be. The ledger keeps it for placement and does not check grants
/// against it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity {
    /// Node labels that are better to have than not.
    pub preferred: Vec<PreferredLabel>,
    /// Key of a node label of which all workers must have the same value; `node`: one node; empty: none.
    pub together: String,
    /// Key of a node label over whose values workers are spread as far as they can be; empty: none.
    pub spread: String,
    /// Labels of jobs: no worker on a node that runs another job that carries all of them; empty: none.
    pub avoid: BTreeMap<String, String>,
    /// Names of data sets, model weights and images that it will read.
    pub data: BTreeSet<String>,
}

/// Three honest ways to suspend (architecture section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckpointMode {
    /// A signal and a grace time; the program writes its checkpoint and exits.
    Cooperative,
    /// The process image is dumped.
    Transparent,
    /// Stopped, and started again from the beginning.
    #[default]
    Requeue,
}

/// How a job is suspended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointPolicy {
    /// The mode.
    pub mode: CheckpointMode,
    /// Signal that asks the program to stop.
    pub signal: String,
    /// Time until it is killed.
    pub grace: Duration,
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self { mode: CheckpointMode::Requeue, signal: "SIGTERM".to_owned(), grace: Duration::from_secs(10) }
    }
}

/// What happens to the work when its node is cut off for longer than its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnDisconnect {
    /// It is stopped and tried elsewhere.
    #[default]
    Stop,
    /// It goes on; its blocks are not granted again until the node is back or forgotten.
    Keep,
}

/// What happens after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// Retries after the first attempt.
    pub max_retries: u32,
    /// Wait before the first one; doubled for each further one.
    pub backoff: Duration,
    /// Longest wait.
    pub max_backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_retries: 0, backoff: Duration::from_secs(1), max_backoff: Duration::from_secs(300) }
    }
}

impl RetryPolicy {
    /// The wait before retry number `retry`, counted from 1.
    #[must_use]
    pub fn wait_before(&self, retry: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1u32.checked_shl(retry.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.max_backoff)
    }
}

/// A job as an engineer submitted it; it never changes afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobSpec {
    /// A name for people.
    pub name: String,
    /// Name of the queue.
    pub queue: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment beside what Tessera sets.
    pub environment: BTreeMap<String, String>,
    /// Where the program starts; empty: a fresh folder.
    pub working_directory: String,
    /// A script that travels with the job; empty: none.
    pub script: String,
    /// Number of virtual cards that start together or not at all.
    pub gang: u32,
    /// What each of them must offer.
    pub virtual_card: VirtualCardRequest,
    /// 0 to 100; a higher one goes first.
    pub priority: u32,
    /// Whether it may be preempted.
    pub preemptible: bool,
    /// How it is suspended.
    pub checkpoint: CheckpointPolicy,
    /// What happens when its node is cut off.
    pub on_disconnect: OnDisconnect,
    /// Longest run of one attempt.
    pub time_limit: Option<Duration>,
    /// What happens after a failure.
    pub retry: RetryPolicy,
    /// Labels for people and queries.
    pub labels: BTreeMap<String, String>,
    /// Labels that a node must carry.
    pub node_labels: BTreeMap<String, String>,
    /// How long output is kept; `None`: the pool's setting.
    pub output_retention: Option<Duration>,
    /// Submitted on hold.
    pub held: bool,
    /// What each worker needs of its host beside its slices.
    pub host: HostRequest,
    /// Least number of virtual cards that it starts with; `None`: `gang`.
    pub gang_min: Option<u32>,
    /// It is not preempted before it has run so long.
    pub min_runtime: Duration,
    /// Where its workers would rather be, and must not be.
    pub affinity: Affinity,
    /// How its virtual cards are laid over the pool; `None`: as its queue or the pool says.
    pub packing: Option<Packing>,
}

impl JobSpec {
    /// Numbers of virtual cards with which it may start: `gang_min..=gang`.
    #[must_use]
    pub fn gang_sizes(&self) -> RangeInclusive<u32> {
        self.gang_min.unwrap_or(self.gang)..=self.gang
    }
}

/// Where a job stands (architecture section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// Waits for its first or next grant.
    Pending,
    /// Has a grant; not all workers have confirmed that they run.
    Starting,
    /// All workers run.
    Running,
    /// Told to stop so that it can be resumed later.
    Suspending,
    /// Holds no block and can be resumed.
    Suspended,
    /// On its way to other cards.
    Moving,
    /// Over; not all workers have confirmed that they stopped.
    Completing,
    /// Ended well.
    Completed,
    /// Ended badly, no retry left.
    Failed,
    /// Cancelled by somebody.
    Cancelled,
    /// Ran longer than its time limit.
    Timeout,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::Starting,
        Self::Running,
        Self::Suspending,
        Self::Suspended,
        Self::Moving,
        Self::Completing,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
    ];

    /// The word used in files, labels and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Moving => "moving",
            Self::Completing => "completing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }

    /// Whether nothing can follow.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        self.successors().is_empty()
    }

    /// The one table of legal transitions; everything else is refused with a reason.
    #[must_use]
    pub const fn successors(self) -> &'static [Self] {
        use JobState::{
            Cancelled, Completed, Completing, Failed, Moving, Pending, Running, Starting, Suspended, Suspending,
            Timeout,
        };
        match self {
            Pending => &[Starting, Cancelled],
            // `Pending` again when the blocks it was promised never came (a victim could not be stopped).
            Starting => &[Running, Suspending, Completing, Pending],
            Running => &[Suspending, Moving, Completing],
            Suspending => &[Suspended, Completing],
            Suspended => &[Starting, Cancelled],
            Moving => &[Running, Suspending, Suspended, Completing],
            Completing => &[Completed, Failed, Cancelled, Timeout, Pending],
            Completed | Failed | Cancelled | Timeout => &[],
        }
    }

    /// Whether `next` may follow.
    #[must_use]
    pub fn can_become(self, next: Self) -> bool {
        self.successors().contains(&next)
    }
}

/// How an attempt that is being wound up will end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The job completes.
    Completed,
    /// The job fails.
    Failed,
    /// The job was cancelled.
    Cancelled,
    /// The job ran out of time.
    Timeout,
    /// A further attempt follows after the backoff; counted against the retries.
    Retry,
    /// A further attempt follows at once, not counted: the attempt did not fail by its own fault.
    Requeue,
}

/// Attempts in a row that nodes may fail to start before it is taken for the job's own fault: no job may empty a pool
/// of nodes.
pub const NODE_FAULTS_UNTIL_BLAMED: u32 = 2 * crate::node::FAULTS_UNTIL_CORDON;
/// So many nodes must be among them: fewer may be sick by themselves, and are cordoned by then.
pub const FAULTY_NODES_UNTIL_BLAMED: usize = 3;

impl Job {
    /// Whether one more attempt that `node` could not start is taken for the job's own fault.
    #[must_use]
    pub(crate) fn is_blamed_for(&self, node: NodeId, takes_several_nodes: bool) -> bool {
        let in_a_row = self.history.iter().rev().filter(|attempt| attempt.reason.is_some());
        let nodes: BTreeSet<NodeId> = in_a_row
            .map_while(|attempt| match attempt.reason {
                Some(Reason::NodeFault { node, .. }) => Some(node),
                _ => None,
            })
            .chain([node])
            .collect();
        let several = !takes_several_nodes || nodes.len() >= FAULTY_NODES_UNTIL_BLAMED;
        several && self.node_faults + 1 >= NODE_FAULTS_UNTIL_BLAMED
    }
}

/// One try at running a job, as kept in its history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// Which try, from 1.
    pub number: u32,
    /// Its grant.
    pub allocation: AllocationId,
    /// The grant's epoch: with it and a rank, the output of a worker is found on its node long after the grant is gone.
    pub epoch: Epoch,
    /// The node of each worker, by rank.
    pub nodes: Arc<[NodeId]>,
    /// When it was granted.
    pub granted_at: LogTime,
    /// When all its workers ran.
    pub started_at: Option<LogTime>,
    /// When its last worker had stopped.
    pub ended_at: Option<LogTime>,
    /// Exit code of the worker that decided how it ended.
    pub exit_code: Option<i32>,
    /// Signal that ended that worker.
    pub signal: Option<i32>,
    /// How it ended; `None` while it goes on.
    pub reason: Option<Reason>,
}

/// A job in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// What was submitted.
    pub spec: Arc<JobSpec>,
    /// Who submitted it.
    pub submitter: String,
    /// The request that submitted it.
    pub request: Option<RequestId>,
    /// W3C trace context of the submission; empty when there was none.
    pub traceparent: String,
    /// Where it stands.
    pub state: JobState,
    /// Why it stands there.
    pub reason: Reason,
    /// Held by a person: never considered until released.
    pub held: bool,
    /// Suspended by a person: never resumed until a person says so.
    pub parked: bool,
    /// When it was submitted.
    pub submitted_at: LogTime,
    /// When its state changed last.
    pub changed_at: LogTime,
    /// Revision of its last change.
    pub revision: Revision,
    /// Not granted before this time (backoff after a failure).
    pub not_before: LogTime,
    /// The present grant.
    pub allocation: Option<AllocationId>,
    /// A move in progress.
    pub moving: Option<MoveId>,
    /// How the attempt that is completing will end.
    pub ending: Option<Ending>,
    /// Attempts made so far.
    pub attempts: u32,
    /// Retries used up.
    pub retries: u32,
    /// Attempts in a row that a node could not start, for reasons of its own.
    pub node_faults: u32,
    /// The newest attempts, oldest first; bounded.
    pub history: Vec<Attempt>,
    /// When it was preempted last, and within the hour before that (law L4); empty only if it never was.
    pub preempted_at: Vec<LogTime>,
    /// Since when it waits for a grant, or did last; zero: since its state changed last.
    pub queued_at: LogTime,
    /// How long it had waited before that, in all.
    pub waited: Duration,
    /// Hash of what was submitted, which never changes: the digest need not read a long script again at every change.
    pub(crate) spec_hash: u128,
}

impl Job {
    /// Whether placement should consider it at `now`: it waits, nobody holds it, and its backoff is over.
    #[must_use]
    pub fn is_eligible(&self, now: LogTime) -> bool {
        self.is_waiting() && self.not_before <= now
    }

    /// Whether it waits for a grant, now or after its backoff.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        match self.state {
            JobState::Pending => !self.held,
            JobState::Suspended => !self.held && !self.parked,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_but_the_ends_can_reach_an_end() {
        for state in JobState::ALL {
            let mut seen = vec![state];
            let mut next = 0;
            while next < seen.len() {
                for follower in seen[next].successors() {
                    if !seen.contains(follower) {
                        seen.push(*follower);
                    }
                }
                next += 1;
            }
            assert!(seen.iter().any(|state| state.is_terminal()), "{state:?} leads nowhere");
        }
    }

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        let policy = RetryPolicy { max_retries: 9, ..RetryPolicy::default() };
        assert_eq!(policy.wait_before(1), Duration::from_secs(1));
        assert_eq!(policy.wait_before(4), Duration::from_secs(8));
        assert_eq!(policy.wait_before(200), Duration::from_secs(300));
    }
}
