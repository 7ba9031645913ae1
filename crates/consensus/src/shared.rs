//! State shared by the parts of one member's consensus.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::ConsensusConfig;
use crate::digest::Digests;
use crate::entropy::Entropy;
use crate::freshness::{Current, Freshness};
use crate::ids::{Identity, MemberId};
use crate::machine::{LogIndex, Term};
use crate::metrics::Meters;
use crate::nonces::Nonces;
use crate::pb;
use crate::refusals::Refusals;
use crate::stamps::Stamps;
use crate::starts::Starts;
use crate::stop::Stopper;
use crate::timekeeper::Timekeeper;
use crate::transport::OpenLines;
use crate::types::Vote;
use crate::waiver::LeaseWaiver;

/// The position up to which the machine has applied the log, and made the result visible.
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
    /// The highest level that this member announces as applicable.
    pub highest_level: u32,
    /// Drawn at this start, never 0.
    pub start: u64,
    /// Moments of this start, and of the other members'.
    pub stamps: Stamps,
    /// Starts of the other members.
    pub starts: Starts,
    /// Numbers by which others find out what this member sent.
    pub nonces: Nonces,
    /// The turn to ask others for what they sent: what a stranger says makes one question at a time.
    pub questions: tokio::sync::Mutex<()>,
    /// Refusals by other members that turn this one away.
    pub refusals: Refusals,
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
    /// The last sign of life of a leader.
    leader_heard: Mutex<Option<Instant>>,
    /// The lease that this member gave up last.
    pub waiver: LeaseWaiver,
    /// Lines that other members hold open to this one.
    pub lines: OpenLines,
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
            stamps: Stamps::new(1, Instant::now()),
            starts: Starts::default(),
            nonces: Nonces::default(),
            questions: tokio::sync::Mutex::default(),
            refusals: Refusals::default(),
            applied: watch::Sender::new(AppliedAt::default()),
            bytes_since_snapshot: AtomicU64::new(0),
            snapshot_gate: Arc::default(),
            admitted: AtomicBool::new(admitted),
            highest_member: AtomicU64::new(0),
            members: Mutex::default(),
            freshness: Mutex::default(),
            leader_heard: Mutex::default(),
            waiver: LeaseWaiver::default(),
            lines: OpenLines::default(),
        }
    }

    pub(crate) fn id(&self) -> MemberId {
        self.identity.member
    }

    /// Returns whether this data folder was admitted to the cluster.
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

    /// Notes the applied membership and the highest id there ever was; what was kept of members that are gone goes.
    pub(crate) fn set_members(&self, members: impl Iterator<Item = u64>, highest: MemberId) {
        let members: BTreeSet<u64> = members.collect();
        self.meters.keep_peers(&members);
        self.stamps.keep(&members);
        let is_removed = |id: MemberId| is_used_up(&members, highest, id);
        self.nonces.forget(is_removed);
        self.refusals.forget(is_removed);
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
        self.highest_member.store(highest.0, Ordering::Release);
    }

    /// Returns whether the id was in use and no longer is, as far as this member has applied. An id that is higher than
    /// all it knows may be that of a member it has yet to hear of.
    pub(crate) fn was_removed(&self, id: MemberId) -> bool {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        is_used_up(&members, self.highest_member(), id)
    }

    fn freshness(&self) -> MutexGuard<'_, Freshness> {
        self.freshness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of how current this member's state is; `None`: nothing since it started.
    pub(crate) fn current(&self) -> Option<Current> {
        self.freshness().current()
    }

    /// Notes how current the state after an entry is.
    pub(crate) fn note_current(&self, current: Current) {
        let applied = self.applied.borrow().index;
        self.freshness().note(current, applied);
    }

    /// Returns how current a member is that has caught up with what is applied here, as far as is known here.
    pub(crate) fn currency_for(&self, member: MemberId) -> pb::Currency {
        let Some(current) = self.current() else { return pb::Currency::default() };
        pb::Currency { index: current.index.0, as_of: self.stamps.no_later_than(current.at, member) }
    }

    /// Notes what another member said, in a message that was read just now, of how current this one is.
    pub(crate) fn note_currency(&self, currency: pb::Currency, now: Instant) {
        if let Some(at) = currency.as_of.and_then(|stamp| self.stamps.moment(stamp, now)) {
            self.note_current(Current { at, index: LogIndex(currency.index) });
        }
    }

    pub(crate) fn leader_heard_at(&self) -> Option<Instant> {
        *self.leader_heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a leader whose process was taken to have ended was heard again, and nobody else shall be elected
    /// because of it; `vote` is this member's.
    pub(crate) fn honours_leader_again(&self, vote: &Vote) -> bool {
        self.waiver.is_honoured_again(vote, self.leader_heard_at(), &self.config, Instant::now())
    }

    /// Draws how long after a lease this member waits before it asks for votes by itself.
    pub(crate) fn random_share(&self) -> Duration {
        let (least, most) = (self.config.election_timeout_min, self.config.election_timeout_max);
        let span_us = u64::try_from((most - least).as_micros()).unwrap_or(u64::MAX).max(1);
        least + Duration::from_micros(self.entropy.next() % span_us)
    }

    /// Notes a sign of life of the leader.
    pub(crate) fn note_leader(&self, read: Instant) {
        let mut heard = self.leader_heard.lock().unwrap_or_else(PoisonError::into_inner);
        *heard = (*heard).max(Some(read));
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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn only_ids_that_were_in_use_and_are_no_more_are_used_up() {
        let members = BTreeSet::from([1, 3]);
        let used_up: Vec<u64> = (1..=5).filter(|id| is_used_up(&members, MemberId(4), MemberId(*id))).collect();
        assert_eq!(used_up, [2, 4], "a higher one may be a member this one has yet to hear of");
        assert!(!is_used_up(&BTreeSet::new(), MemberId(0), MemberId(0)), "who knows no member refuses none");
    }

    /// A member that has applied up to entry 10.
    fn member(id: u64) -> Shared {
        let store = tessera_store::MemoryDisk::new(tessera_store::memory::Flushing::AtOnce).open().expect("a new disk");
        let cluster = crate::ids::ClusterId::new("test").expect("a legal id");
        let identity = Identity { cluster, member: MemberId(id) };
        let clock = Arc::new(crate::clock::SystemClock);
        let mut shared = Shared::new(identity, ConsensusConfig::default(), store, clock, Entropy::new(id), true);
        shared.stamps = Stamps::new(id, Instant::now());
        shared.note_applied(AppliedAt { term: Term(1), index: LogIndex(10) });
        shared
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_that_lay_unread_is_as_old_as_it_is() {
        const PAUSE: Duration = Duration::from_secs(3);
        let (leader, follower) = (member(1), member(2));
        let age = || follower.current().map(|current| current.at.elapsed());
        let acknowledged = |index| {
            leader.note_applied(AppliedAt { term: Term(1), index: LogIndex(index) });
            leader.note_current(Current { at: Instant::now(), index: LogIndex(index) });
        };
        acknowledged(10);
        follower.note_currency(leader.currency_for(MemberId(2)), Instant::now());
        assert_eq!(age(), None, "the leader has read nothing of it yet");

        leader.stamps.note(MemberId(2), follower.stamps.stamp(Instant::now()), Instant::now());
        acknowledged(10);
        let word = leader.currency_for(MemberId(2));
        advance(PAUSE).await;
        acknowledged(11);
        follower.note_currency(word, Instant::now());
        assert_eq!(age(), Some(PAUSE), "the word lay unread, and an entry was acknowledged meanwhile");

        // The follower answers again; the leader was stopped, and says what it has not found out to be over.
        let deposed = leader.current().expect("it led");
        advance(PAUSE).await;
        leader.stamps.note(MemberId(2), follower.stamps.stamp(Instant::now()), Instant::now());
        follower.note_applied(AppliedAt { term: Term(1), index: LogIndex(11) });
        follower.note_currency(leader.currency_for(MemberId(2)), Instant::now());
        assert!(age().is_some_and(|age| age >= deposed.at.elapsed()), "no newer than the leader itself: {:?}", age());
    }
}
