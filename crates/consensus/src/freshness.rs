//! The age of a member's state, as far as the member can know it.
//!
//! A leader is as current as the newest round that a quorum acknowledged was when it was *sent*: nobody else led then.
//! A follower is as current as its leader says (see [`stamps`](crate::stamps)), once it has applied what the leader
//! had.

use tokio::time::Instant;

use crate::machine::LogIndex;

/// The state after entry `index` has all that was acknowledged by `at`. True for ever, whoever leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub at: Instant,
    pub index: LogIndex,
}

/// The knowledge of one member of how current its state is.
#[derive(Default)]
pub(crate) struct Freshness {
    /// The newest moment of which its state has everything.
    current: Option<Current>,
    /// Words of a leader with which this member has yet to catch up: the first, so that a member that is always a
    /// little behind learns something, and the last.
    told: [Option<Current>; 2],
}

impl Freshness {
    pub(crate) fn current(&self) -> Option<Current> {
        self.current
    }

    /// Takes in what is true of a state, when this member has applied up to `applied`.
    pub(crate) fn note(&mut self, told: Current, applied: LogIndex) {
        let [first, last] = &mut self.told;
        *(if first.is_none() { first } else { last }) = Some(told);
        self.compare(applied);
    }

    /// Takes in that this member has applied up to here.
    pub(crate) fn compare(&mut self, applied: LogIndex) {
        for told in &mut self.told {
            if let Some(reached) = told.take_if(|told| told.index <= applied)
                && self.current.is_none_or(|current| current.at < reached.at)
            {
                self.current = Some(reached);
            }
        }
        let [first, last] = &mut self.told;
        if first.is_none() {
            *first = last.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BEAT: Duration = Duration::from_millis(40);

    #[test]
    fn a_member_is_as_current_as_what_it_was_told_and_has_caught_up_with() {
        let mut freshness = Freshness::default();
        freshness.compare(LogIndex(9));
        assert_eq!(freshness.current(), None, "without a word from a leader nothing is known");
        let told = Current { at: Instant::now() - Duration::from_secs(3), index: LogIndex(10) };
        freshness.note(told, LogIndex(9));
        assert_eq!(freshness.current(), None, "an entry is missing");
        freshness.compare(LogIndex(10));
        assert_eq!(freshness.current(), Some(told), "current as of then, not as of now");
        let earlier = Current { at: told.at - BEAT, ..told };
        freshness.note(earlier, LogIndex(10));
        assert_eq!(freshness.current(), Some(told), "what was known stays known");
    }

    #[test]
    fn a_member_that_is_always_behind_by_more_than_a_heartbeat_learns_how_far() {
        let (mut freshness, begin) = (Freshness::default(), Instant::now());
        for beat in 1..20 {
            let told = Current { at: begin + BEAT * beat, index: LogIndex(u64::from(beat)) };
            freshness.note(told, LogIndex(u64::from(beat).saturating_sub(3)));
        }
        let behind = begin + BEAT * 19 - freshness.current().expect("something was reached").at;
        assert!(behind <= BEAT * 6, "{behind:?}");
    }
}
