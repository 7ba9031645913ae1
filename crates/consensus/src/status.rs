//! The status that a member reports: for routing, metrics, `cluster status` and the reads that may be stale.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::ids::{Member, MemberId};
use crate::machine::{LogIndex, Term};

/// A member that knew so lately that it was current takes part; one that did not lags.
pub const TAKES_PART: Duration = Duration::from_secs(2);

/// The role of a member in the current term.
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

/// The progress of one follower, as its leader knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerStatus {
    /// Last entry the follower is known to hold.
    pub matched: LogIndex,
    /// Entries it lacks.
    pub lag: u64,
    /// The moment at which what it acknowledged last was sent; `None`: nothing yet under this leader.
    pub acknowledged_at: Option<Instant>,
}

/// A member's view of itself and of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub id: MemberId,
    /// True if this data folder was admitted to the cluster; before, it neither votes nor stores entries.
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
    /// The last moment at which the member knew that it had applied everything committed, as of the last update of this
    /// status; live in [`Consensus::staleness`](crate::Consensus::staleness). `None` when it has not known since it
    /// started.
    pub current_at: Option<Instant>,
    /// Last entry in its newest snapshot.
    pub snapshot: LogIndex,
    /// Last entry removed from its log.
    pub purged: LogIndex,
    pub voters: Vec<Member>,
    /// Members without a vote.
    pub learners: Vec<Member>,
    /// True while voters are being changed.
    pub joint: bool,
    /// The voters once no change is half made: what the next change of them begins with.
    pub voters_to_be: BTreeSet<MemberId>,
    /// On the leader: how far the others are.
    pub followers: BTreeMap<MemberId, FollowerStatus>,
    /// On the leader: whether a quorum acknowledged it within its lease, as of the last update of this status.
    /// Proposals are refused while not.
    pub quorum_fresh: bool,
    /// The reason for which this member takes no part, in the words of who answered it.
    pub refused: Option<Refused>,
}

/// An answer from which a member that takes no part knows why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another member turns this one away: it was removed, or its data folder was copied.
    #[error("member {by} refuses it: {why}")]
    TurnedAway {
        /// The member that does.
        by: MemberId,
        /// Its sentence.
        why: String,
    },
    /// Somebody else answers at the address of another member: folders or addresses were exchanged, or that member
    /// lost its folder.
    #[error("where it looks for member {member}, somebody else answers: {why}")]
    Misplaced {
        /// The member that was looked for.
        member: MemberId,
        /// The sentence of whoever answered.
        why: String,
    },
}

impl Status {
    /// The status of a member that has heard nothing yet.
    #[must_use]
    pub fn new(id: MemberId, admitted: bool) -> Self {
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
            voters_to_be: BTreeSet::new(),
            followers: BTreeMap::new(),
            quorum_fresh: false,
            refused: None,
        }
    }

    /// Returns those of `voters` that acknowledged nothing to this leader that was sent at `since` or later; none when
    /// the others are a majority. This leader itself is never silent.
    pub(crate) fn silent_majority(&self, voters: &BTreeSet<MemberId>, since: Instant) -> Vec<MemberId> {
        let answers = |id: &MemberId| {
            let acknowledged = || self.followers.get(id).and_then(|follower| follower.acknowledged_at);
            *id == self.id || acknowledged().is_some_and(|at| at >= since)
        };
        let silent: Vec<MemberId> = voters.iter().copied().filter(|id| !answers(id)).collect();
        if silent.len() * 2 < voters.len() { Vec::new() } else { silent }
    }

    /// The member with this id, voter or learner.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.voters.iter().chain(&self.learners).find(|member| member.id == id)
    }
}

/// The leadership of this member: whether it leads and may act as leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    Leading {
        term: Term,
        /// True once it applied everything up to its own first entry: what earlier leaders acknowledged is in its
        /// state. Actors of the leader start when this is true.
        ready: bool,
    },
    /// Someone else leads, or nobody.
    Following {
        /// The current leader, if known.
        leader: Option<Member>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_without_a_majority_that_answers_are_named() {
        let now = Instant::now() + Duration::from_secs(60);
        let (fresh, old) = (now, now - Duration::from_secs(9));
        let mut status = Status::new(MemberId(1), true);
        for (id, acknowledged_at) in [(2, Some(old)), (3, Some(fresh)), (4, None)] {
            status.followers.insert(MemberId(id), FollowerStatus { acknowledged_at, ..FollowerStatus::default() });
        }
        let silent = |voters: &[u64]| {
            let voters = voters.iter().copied().map(MemberId).collect();
            status.silent_majority(&voters, now - Duration::from_secs(1)).iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(silent(&[1, 2, 3]), [0; 0], "two of three answer");
        assert_eq!(silent(&[1, 2]), [2], "one of two is no majority");
        assert_eq!(silent(&[1, 3]), [0; 0]);
        assert_eq!(silent(&[1, 2, 3, 4]), [2, 4]);
        assert_eq!(silent(&[2, 3]), [2], "a leader that goes is not counted");
        assert_eq!(silent(&[9]), [9], "one that it does not know");
    }
}
