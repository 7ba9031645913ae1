//! The lease that a follower grants its leader, given up early when the leader's process has ended.
//!
//! The lease keeps elections calm, and nothing else rests on it: reads and the leases of agents ask a quorum. The raft
//! core ends it for good, until the vote changes. Evidence may be wrong, so what follows a false alarm is decided here:
//! when the leader is heard again, candidates are refused as long as a lease would have refused them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use planted::Bug;
use tokio::time::Instant;

use crate::config::ConsensusConfig;
use crate::types::Vote;

/// The newest lease that was given up.
#[derive(Debug, Default)]
pub(crate) struct LeaseWaiver(Mutex<Option<Waived>>);

#[derive(Clone, Copy, Debug)]
struct Waived {
    /// The leader's vote.
    vote: Vote,
    at: Instant,
    /// The time after a lease before this member asks for votes by itself.
    patience: Duration,
}

impl LeaseWaiver {
    fn waived(&self) -> MutexGuard<'_, Option<Waived>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the lease of the leader with this vote was given up.
    pub(crate) fn note(&self, vote: Vote, at: Instant, patience: Duration) {
        *self.waived() = Some(Waived { vote, at, patience });
    }

    /// Returns how long after the lease of the leader with this vote the raft core is to wait before it asks for votes:
    /// it has a random share for that, and passes over it once a lease was given up.
    pub(crate) fn patience(&self, vote: &Vote) -> Duration {
        self.waived().filter(|waived| waived.vote == *vote).map_or(Duration::ZERO, |waived| waived.patience)
    }

    /// Returns whether the lease of the leader with this vote was given up, the leader was `heard` since, and a lease
    /// counted from then would last.
    ///
    /// What a process sent before it ended may be read a little later: for one heartbeat it is no sign of life.
    pub(crate) fn is_honoured_again(
        &self,
        vote: &Vote,
        heard: Option<Instant>,
        config: &ConsensusConfig,
        now: Instant,
    ) -> bool {
        if planted::is(Bug::LeaseNotHonoured) {
            return false;
        }
        let waived = self.waived().filter(|waived| waived.vote == *vote);
        let (Some(waived), Some(heard)) = (waived, heard) else { return false };
        heard > waived.at + config.heartbeat && now < heard + config.election_timeout_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_given_up_is_honoured_once_its_leader_is_heard_again() {
        let (config, begun) = (ConsensusConfig::default(), Instant::now());
        let (vote, newer) = (Vote::new_committed(4, 1), Vote::new_committed(5, 2));
        let at = |ms| begun + Duration::from_millis(ms);
        let waiver = LeaseWaiver::default();
        let honoured = |vote: &Vote, heard, now| waiver.is_honoured_again(vote, Some(at(heard)), &config, at(now));
        assert!(!honoured(&vote, 100, 101), "nothing was given up: the core decides");

        assert_eq!(waiver.patience(&vote), Duration::ZERO);
        waiver.note(vote, at(100), Duration::from_millis(150));
        assert_eq!((waiver.patience(&vote), waiver.patience(&newer)), (Duration::from_millis(150), Duration::ZERO));
        assert!(!honoured(&vote, 99, 101), "it was not heard since");
        assert!(!honoured(&vote, 139, 141), "that may have been under way when the process ended");
        assert!(honoured(&vote, 141, 142));
        assert!(honoured(&vote, 141, 360), "for as long as the lease is");
        assert!(!honoured(&vote, 141, 361));
        assert!(!honoured(&newer, 141, 142), "the core has the lease of the next leader");
    }
}
