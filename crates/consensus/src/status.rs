//! What a member says about itself: for routing, metrics, `cluster status` and the reads that may be stale.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::ids::{Member, MemberId};
use crate::machine::{LogIndex, Term};

/// What a member is doing in the current term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// It has no vote: freshly added, removed, or not admitted yet.
    #[default]
    Learner,
    /// It follows, or would follow, a leader.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It believes it leads; see [`Status::quorum_fresh`].
    Leader,
}

/// How far one follower is, as its leader knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatus {
    /// Last entry the follower is known to hold.
    pub matched: LogIndex,
    /// Entries it lacks.
    pub lag: u64,
}

/// A member's view of itself and of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub id: MemberId,
    /// Whether this data folder was admitted to the cluster; before, it neither votes nor stores entries.
    pub admitted: bool,
    pub role: Role,
    pub term: Term,
    /// The leader it knows in that term. A member that answers as leader is not always writable: see `quorum_fresh`.
    pub leader: Option<Member>,
    /// Last entry in its log.
    pub last: LogIndex,
    /// Last entry it knows to be committed.
    pub committed: LogIndex,
    /// Last entry it applied.
    pub applied: LogIndex,
    /// When it last knew that it had applied everything committed, as of the last update of this status; live in
    /// [`Consensus::staleness`](crate::Consensus::staleness). `None` when it has not known since it started.
    pub current_at: Option<Instant>,
    /// Last entry in its newest snapshot.
    pub snapshot: LogIndex,
    /// Last entry removed from its log.
    pub purged: LogIndex,
    pub voters: Vec<Member>,
    /// Members without a vote.
    pub learners: Vec<Member>,
    /// Whether voters are being changed right now.
    pub joint: bool,
    /// On the leader: how far the others are.
    pub followers: BTreeMap<MemberId, FollowerStatus>,
    /// On the leader: whether a quorum acknowledged it within its lease, as of the last update of this status.
    /// Proposals are refused while not.
    pub quorum_fresh: bool,
}

impl Status {
    pub(crate) fn new(id: MemberId, admitted: bool) -> Self {
        Status {
            id,
            admitted,
            role: Role::Learner,
            term: Term(0),
            leader: None,
            last: LogIndex(0),
            committed: LogIndex(0),
            applied: LogIndex(0),
            current_at: None,
            snapshot: LogIndex(0),
            purged: LogIndex(0),
            voters: Vec::new(),
            learners: Vec::new(),
            joint: false,
            followers: BTreeMap::new(),
            quorum_fresh: false,
        }
    }

    /// The member with this id, voter or learner.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.voters.iter().chain(&self.learners).find(|member| member.id == id)
    }
}

/// Whether this member leads and may act as leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    Leading {
        term: Term,
        /// Whether it applied everything up to its own first entry: what earlier leaders acknowledged is in its state.
        /// Actors of the leader start when this is true.
        ready: bool,
    },
    /// Someone else leads, or nobody.
    Following {
        /// Who leads, if known.
        leader: Option<Member>,
    },
}
