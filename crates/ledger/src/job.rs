//! Jobs in the ledger: where each stands, and the one table of what may follow what. What was submitted is
//! [`JobSpec`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::allocation::Allocation;
use crate::checkpoint::{CheckpointKey, Checkpoints};
use crate::idle::Idle;
use crate::ids::{AllocationId, JobId, MoveId, NodeId, Rank, RequestId};
use crate::reason::Reason;
use crate::spec::{CheckpointMode, JobSpec};
use crate::units::{BlockCount, Epoch, LogTime, Mebibytes, Revision};

/// The state of a job (architecture section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// Waits for its first or next allocation.
    Pending,
    /// Has an allocation; not all workers have confirmed that they run.
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
    Cancelled,
    /// Ran longer than its time limit.
    Timeout,
}

impl JobState {
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

    /// Returns whether no state can follow.
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

    /// Returns whether `next` may follow.
    #[must_use]
    pub fn can_become(self, next: Self) -> bool {
        self.successors().contains(&next)
    }
}

/// The ending of an attempt that is being wound up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    Completed,
    Failed,
    Cancelled,
    Timeout,
    /// A further attempt follows after the backoff; counted against the retries.
    Retry,
    /// A further attempt follows at once, not counted: the attempt did not fail by its own fault.
    Requeue,
}

/// Attempts in a row that nodes may fail to start before it is taken for the job's own fault: no job may empty a pool
/// of nodes.
pub const NODE_FAULTS_UNTIL_BLAMED: u32 = 2 * crate::node::FAULTS_UNTIL_CORDON;
/// Least number of nodes among them: fewer may be sick by themselves, and are cordoned by then.
pub const FAULTY_NODES_UNTIL_BLAMED: usize = 3;

impl Job {
    /// Returns whether one more attempt that `node` could not start is taken for the job's own fault.
    #[must_use]
    pub(crate) fn is_blamed_for(&self, node: NodeId) -> bool {
        let in_a_row = self.history.iter().rev().filter(|attempt| attempt.reason.is_some());
        let nodes: BTreeSet<NodeId> = in_a_row
            .map_while(|attempt| match attempt.reason {
                Some(Reason::NodeFault { node, .. }) => Some(node),
                _ => None,
            })
            .chain([node])
            .collect();
        // Where the parts of a card over several nodes do not find each other none of them is cordoned.
        let spread = self.spec.virtual_card.serves_across_nodes();
        let several = spread || nodes.len() >= FAULTY_NODES_UNTIL_BLAMED;
        several && self.node_faults + 1 >= NODE_FAULTS_UNTIL_BLAMED
    }

    /// The attempt that computes under `allocation`.
    pub(crate) fn attempt_under(&self, allocation: &Allocation) -> Option<&Attempt> {
        self.history.iter().rev().find(|attempt| attempt.number == allocation.attempt)
    }

    pub(crate) fn attempt_under_mut(&mut self, allocation: &Allocation) -> Option<&mut Attempt> {
        self.history.iter_mut().rev().find(|attempt| attempt.number == allocation.attempt)
    }
}

/// Attempts in a row that may fail to restore a checkpoint before it is given up for the one before. Much that stands
/// in the way of one is gone after a while (a port that another has, memory of a card), and work given up is lost.
pub const RESTORES_UNTIL_GIVEN_UP: u32 = 6;

impl Job {
    /// Attempts in a row, up to the newest, that came to nothing because a port was taken.
    #[must_use]
    pub(crate) fn ports_taken(&self) -> u32 {
        let taken = |attempt: &&Attempt| matches!(attempt.reason, Some(Reason::PortTaken { .. }));
        u32::try_from(self.history.iter().rev().take_while(taken).count()).unwrap_or(u32::MAX)
    }

    /// Attempts in a row, up to the newest, in which the checkpoint that it was to go on from could not be restored.
    /// Those that ended for other reasons before they ran say nothing of it.
    #[must_use]
    pub(crate) fn restores_failed(&self) -> u32 {
        let from = self.history.last().and_then(|attempt| attempt.from);
        let to_the_same = |attempt: &&Attempt| attempt.from == from && attempt.started_at.is_none();
        let in_a_row = self.history.iter().rev().take_while(to_the_same);
        let failed = in_a_row.filter(|attempt| matches!(attempt.reason, Some(Reason::NotRestored { .. })));
        from.map_or(0, |_| u32::try_from(failed.count()).unwrap_or(u32::MAX))
    }

    /// The checkpoint that could not be restored time and again.
    pub(crate) fn cannot_be_restored(&self) -> Option<CheckpointKey> {
        let from = self.history.last().and_then(|attempt| attempt.from);
        from.filter(|_| self.restores_failed() >= RESTORES_UNTIL_GIVEN_UP)
    }
}

/// One try at running a job, as kept in its history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub number: u32,
    pub allocation: AllocationId,
    /// The allocation's epoch: with it and a rank, the output of a worker is found on its node long after the
    /// allocation is gone.
    pub epoch: Epoch,
    /// The node of each worker, by rank.
    pub nodes: Arc<[NodeId]>,
    pub granted_at: LogTime,
    /// The time at which all its workers were running.
    pub started_at: Option<LogTime>,
    /// The time at which its last worker had stopped.
    pub ended_at: Option<LogTime>,
    /// The worker that decided how it ended: the first that failed, was lost or could not be started before anybody
    /// told it to stop. `None`: there was none, or a level before 2 was in force.
    pub decisive: Option<Rank>,
    /// Exit code of the worker that decided how it ended; where none did, of the program of the lowest rank that
    /// failed.
    pub exit_code: Option<i32>,
    /// Signal that ended that worker.
    pub signal: Option<i32>,
    /// The reason of its end; `None` while it is in progress.
    pub reason: Option<Reason>,
    /// The checkpoint that it went on from; `None`: it began from the beginning.
    pub from: Option<CheckpointKey>,
    /// The time at which its own newest checkpoint came to count: work before that is not lost with the attempt.
    pub saved_at: Option<LogTime>,
    /// The mode of that checkpoint; `None`: the attempt saved none.
    pub saved_as: Option<CheckpointMode>,
    /// The reason why nothing was saved at its stop, in the words of the agent that tried; empty: nobody gave one.
    pub not_saved: String,
    /// The reason not to go on from the newest checkpoint that counted when it was granted. Empty: it did, or there was
    /// none.
    pub passed_over: String,
    /// Blocks that it holds, and gives back at its end.
    pub blocks: BlockCount,
    /// Memory of cards that it holds likewise.
    pub memory: Mebibytes,
    /// The cards that it was granted, in thousandths of whole ones.
    pub milli_cards: u32,
}

impl Attempt {
    /// An attempt that is granted now, under `allocation`.
    #[must_use]
    pub(crate) fn granted(allocation: &Allocation, milli_cards: u32, now: LogTime) -> Self {
        let slices = || allocation.workers.iter().flat_map(|worker| worker.slices.iter());
        Self {
            number: allocation.attempt,
            allocation: allocation.id,
            epoch: allocation.epoch,
            nodes: allocation.workers.iter().map(|worker| worker.node).collect(),
            granted_at: now,
            started_at: None,
            ended_at: None,
            decisive: None,
            exit_code: None,
            signal: None,
            reason: None,
            from: allocation.from,
            saved_at: None,
            saved_as: None,
            not_saved: String::new(),
            passed_over: String::new(),
            blocks: BlockCount(slices().map(|slice| slice.length.0).sum()),
            memory: Mebibytes(slices().map(|slice| slice.memory.0).sum()),
            milli_cards,
        }
    }

    /// Service that it had up to `now`, or to its end: the time that it ran, times its cards.
    #[must_use]
    pub fn served(&self, now: LogTime) -> Duration {
        let ran = self.started_at.map_or(Duration::ZERO, |started| self.ended_at.unwrap_or(now).since(started));
        let millis = ran.as_millis().saturating_mul(u128::from(self.milli_cards)) / 1_000;
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// The time at which it has had so much service if it runs on; `None`: never.
    pub(crate) fn served_at(&self, service: Duration) -> Option<LogTime> {
        let millis = (service.as_millis() * 1_000).div_ceil(u128::from(self.milli_cards).max(1));
        let takes = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        self.started_at.filter(|_| self.milli_cards > 0).map(|started| started.after(takes))
    }

    /// The computing time up to `now`, or to the end of the attempt, that no checkpoint of it covers.
    #[must_use]
    pub fn unsaved(&self, now: LogTime) -> Duration {
        let until = self.ended_at.unwrap_or(now);
        self.started_at.map_or(Duration::ZERO, |started| until.since(self.saved_at.unwrap_or(started).max(started)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    pub id: JobId,
    pub spec: Arc<JobSpec>,
    pub submitter: String,
    pub request: Option<RequestId>,
    /// W3C trace context of the submission; empty when there was none.
    pub traceparent: String,
    /// The source of the secrets by which slice servers of its cards on several nodes know one another; no answer has
    /// it.
    pub secret: Option<u128>,
    pub state: JobState,
    pub reason: Reason,
    /// Held by a person: never considered until released.
    pub held: bool,
    /// Suspended by a person: never resumed until a person says so.
    pub parked: bool,
    pub submitted_at: LogTime,
    pub changed_at: LogTime,
    /// Revision of its last change.
    pub revision: Revision,
    /// Not granted before this time (backoff after a failure).
    pub not_before: LogTime,
    pub allocation: Option<AllocationId>,
    pub moving: Option<MoveId>,
    /// The ending of the attempt that is completing.
    pub ending: Option<Ending>,
    /// Attempts made so far.
    pub attempts: u32,
    /// Retries used up.
    pub retries: u32,
    /// Attempts in a row that a node could not start, for reasons of its own.
    pub node_faults: u32,
    /// The newest attempts, oldest first; bounded.
    pub history: Vec<Attempt>,
    /// The checkpoints from which it can resume; empty once it is over.
    pub checkpoints: Checkpoints,
    /// The times of its last preemption and of those in the hour before that (law L4); empty only if there was none.
    pub preempted_at: Vec<LogTime>,
    /// Since when it waits for an allocation, or did last; zero: since its state changed last.
    pub queued_at: LogTime,
    /// The total time of its waits that are over; the wait in progress, if any, is not included.
    pub waited: Duration,
    /// Service that its attempts had that are over: time of a whole card ([`order`](crate::order)).
    pub attained: Duration,
    /// It is one of the oldest of its queue, which go before all others there ([`order`](crate::order)).
    pub guarded: bool,
    /// Not granted before this time, by its own windows ([`window`](crate::window)).
    pub closed_until: LogTime,
    /// Idleness of the job, now or when it held blocks last ([`idle`](crate::idle)).
    pub idle: Option<Idle>,
    /// Hash of what was submitted, which never changes: the digest need not read a long script again at every change.
    pub(crate) spec_hash: u128,
}

impl Job {
    /// Returns whether placement should consider the job at `now`: it waits, nobody holds it, its backoff is over and
    /// its own windows are open. The windows of its queues are not considered.
    #[must_use]
    pub fn is_eligible(&self, now: LogTime) -> bool {
        self.is_waiting() && self.waits_until() <= now
    }

    /// It is not granted before this time: for its backoff, or for its own windows.
    #[must_use]
    pub fn waits_until(&self) -> LogTime {
        self.not_before.max(self.closed_until)
    }

    /// Returns whether the job waits for an allocation, now or after its backoff.
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
}
