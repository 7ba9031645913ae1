//! What the parts of one member's consensus share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tessera_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::ConsensusConfig;
use crate::digest::Digests;
use crate::entropy::Entropy;
use crate::ids::{Identity, MemberId};
use crate::machine::{LogIndex, Term};
use crate::metrics::Meters;
use crate::starts::Starts;
use crate::stop::Stopper;
use crate::timekeeper::Timekeeper;

/// How far the machine is and what became visible with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppliedAt {
    pub term: Term,
    pub index: LogIndex,
}

/// Shared by the log, the state machine, the network and the handle of one member.
pub(crate) struct Shared {
    pub identity: Identity,
    pub config: ConsensusConfig,
    pub store: Arc<dyn Store>,
    pub time: Timekeeper,
    pub entropy: Entropy,
    pub stopper: Stopper,
    pub meters: Meters,
    pub digests: Digests,
    /// What this member announces that it can apply.
    pub highest_level: u32,
    /// Drawn at this start, never 0.
    pub start: u64,
    /// Starts of the other members.
    pub starts: Starts,
    /// Entries applied and published.
    pub applied: watch::Sender<AppliedAt>,
    /// Bytes appended since the newest snapshot was begun.
    pub bytes_since_snapshot: AtomicU64,
    /// One snapshot becomes the newest at a time, and never an older one after a newer one.
    pub snapshot_gate: Arc<tokio::sync::Mutex<()>>,
    admitted: AtomicBool,
    highest_member: AtomicU64,
    /// Members in the applied membership.
    members: Mutex<BTreeSet<u64>>,
    freshness: Mutex<Freshness>,
}

impl Shared {
    pub(crate) fn new(
        identity: Identity,
        config: ConsensusConfig,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Entropy,
        admitted: bool,
    ) -> Self {
        let time = Timekeeper::new(identity.member, clock, config.max_clock_offset);
        Shared {
            identity,
            config,
            store,
            time,
            entropy,
            stopper: Stopper::new(),
            meters: Meters::new(),
            digests: Digests::new(),
            highest_level: 0,
            start: 1,
            starts: Starts::default(),
            applied: watch::Sender::new(AppliedAt::default()),
            bytes_since_snapshot: AtomicU64::new(0),
            snapshot_gate: Arc::default(),
            admitted: AtomicBool::new(admitted),
            highest_member: AtomicU64::new(0),
            members: Mutex::default(),
            freshness: Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> MemberId {
        self.identity.member
    }

    /// Whether this data folder was admitted to the cluster.
    pub(crate) fn admitted(&self) -> bool {
        self.admitted.load(Ordering::Acquire)
    }

    pub(crate) fn set_admitted(&self) {
        self.admitted.store(true, Ordering::Release);
    }

    /// Highest member id in any applied membership.
    pub(crate) fn highest_member(&self) -> MemberId {
        MemberId(self.highest_member.load(Ordering::Acquire))
    }

    /// Notes the applied membership and the highest id there ever was.
    pub(crate) fn set_members(&self, members: impl Iterator<Item = u64>, highest: MemberId) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members.collect();
        self.highest_member.store(highest.0, Ordering::Release);
    }

    /// Whether the id was in use and is no more, as far as this member has applied. An id that is higher than all it
    /// knows may be that of a member it has yet to hear of.
    pub(crate) fn was_removed(&self, id: MemberId) -> bool {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        is_used_up(&members, self.highest_member(), id)
    }

    fn freshness(&self) -> MutexGuard<'_, Freshness> {
        self.freshness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When this member last knew that it had applied everything committed; `None` when it never did since it started.
    pub(crate) fn current_at(&self) -> Option<Instant> {
        self.freshness().current_at
    }

    /// Notes, on a leader that a quorum acknowledges, that what is applied now is all that is committed.
    pub(crate) fn note_current(&self) {
        self.freshness().current_at = Some(Instant::now());
    }

    pub(crate) fn leader_heard_at(&self) -> Option<Instant> {
        self.freshness().heard.map(|(at, _)| at)
    }

    /// Notes a sign of life of the leader, which has committed up to `commit`.
    pub(crate) fn note_leader(&self, commit: LogIndex) {
        let applied = self.applied.borrow().index;
        let mut freshness = self.freshness();
        freshness.heard = Some((Instant::now(), commit));
        freshness.compare(applied);
    }

    /// Notes that everything up to here is applied and visible.
    pub(crate) fn note_applied(&self, applied: AppliedAt) {
        self.applied.send_replace(applied);
        self.freshness().compare(applied.index);
    }
}

fn is_used_up(members: &BTreeSet<u64>, highest: MemberId, id: MemberId) -> bool {
    !members.is_empty() && id <= highest && !members.contains(&id.0)
}

/// How current this member's state is, as far as it can know.
#[derive(Default)]
struct Freshness {
    /// When the leader was heard last, and up to where it had committed by then.
    heard: Option<(Instant, LogIndex)>,
    /// When this member last had applied everything that was committed.
    current_at: Option<Instant>,
}

impl Freshness {
    /// What was committed when the leader was heard is applied now: the state is as current as that word.
    fn compare(&mut self, applied: LogIndex) {
        if let Some((at, commit)) = self.heard
            && applied >= commit
        {
            self.current_at = self.current_at.max(Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_ids_that_were_in_use_and_are_no_more_are_used_up() {
        let members = BTreeSet::from([1, 3]);
        let used_up: Vec<u64> = (1..=5).filter(|id| is_used_up(&members, MemberId(4), MemberId(*id))).collect();
        assert_eq!(used_up, [2, 4], "a higher one may be a member this one has yet to hear of");
        assert!(!is_used_up(&BTreeSet::new(), MemberId(0), MemberId(0)), "who knows no member refuses none");
    }

    #[test]
    fn a_member_is_as_current_as_the_word_it_has_caught_up_with() {
        let mut freshness = Freshness::default();
        freshness.compare(LogIndex(9));
        assert_eq!(freshness.current_at, None, "without a word from a leader nothing is known");
        let heard = Instant::now() - Duration::from_secs(3);
        freshness.heard = Some((heard, LogIndex(10)));
        freshness.compare(LogIndex(9));
        assert_eq!(freshness.current_at, None, "an entry is missing");
        freshness.compare(LogIndex(10));
        assert_eq!(freshness.current_at, Some(heard), "current as of then, not as of now");
    }
}
