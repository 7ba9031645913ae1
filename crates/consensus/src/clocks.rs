//! Readings of the members' wall clocks, and the time on which a quorum of them agrees.
//!
//! Members tell their wall clock with answers that they give anyway: to requests for votes, so that whoever is elected
//! knows the clocks of a quorum before it proposes anything, to heartbeats, and to the questions of the auditor, by
//! which every member, also one that follows, learns the clocks of all others every few seconds.
//!
//! The time agreed on is the latest one that a quorum of the voters' clocks has reached: the median when all of them
//! are known. A minority of clocks that are ahead cannot move it; clocks that are behind can at worst hold it back,
//! which [`LogClock`](crate::log_clock::LogClock) does not mind.
//!
//! Pure: every instant and every reading is handed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::ids::MemberId;
use crate::log_clock::Agreed;
use crate::machine::LogTime;

/// An answer that took longer says too little about when the clock was read.
const SLOW: Duration = Duration::from_millis(2_500);

/// The time for which a reading counts.
const FRESH: Duration = Duration::from_secs(15);

/// One reading of a member's clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    shown: Duration,
    at: Instant,
}

impl Reading {
    /// Extrapolates the reading to `now`, assuming that the clock runs at the normal rate.
    fn by(self, now: Instant) -> Duration {
        self.shown + now.saturating_duration_since(self.at)
    }
}

/// The clocks of all voters, as one member knows them.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    own: MemberId,
    voters: BTreeSet<MemberId>,
    others: BTreeMap<MemberId, Reading>,
}

/// The time on which the voters' clocks agree and their deviations from it, as one member knows them at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The time on which the clocks agree; `None` when too few are known.
    pub agreed: Option<Agreed>,
    /// The deviation of each clock from the agreed time, in milliseconds; positive: ahead.
    pub offsets: BTreeMap<MemberId, i64>,
}

impl Clocks {
    /// Nothing is known yet.
    pub(crate) const fn new(own: MemberId) -> Self {
        Clocks { own, voters: BTreeSet::new(), others: BTreeMap::new() }
    }

    pub(crate) fn set_voters(&mut self, voters: impl Iterator<Item = MemberId>) {
        self.voters = voters.collect();
    }

    /// A member, asked at `asked`, answered at `now` that its clock shows this. Readings may come before it is known
    /// who votes.
    pub(crate) fn note(&mut self, member: MemberId, asked: Instant, now: Instant, shown: LogTime) {
        if shown.0 > 0 && now.saturating_duration_since(asked) <= SLOW {
            self.others.retain(|_, reading| now.saturating_duration_since(reading.at) <= FRESH);
            self.others.insert(member, Reading { shown: Duration::from_millis(shown.0), at: now });
        }
    }

    /// The times that the voters' clocks show at `now`, as far as they are known, when this member's own clock shows
    /// `wall`.
    fn known(&self, now: Instant, wall: LogTime) -> impl Iterator<Item = (MemberId, Duration)> {
        self.voters.iter().filter_map(move |voter| {
            if *voter == self.own {
                return Some((*voter, Duration::from_millis(wall.0)));
            }
            let reading = self.others.get(voter)?;
            (now.saturating_duration_since(reading.at) <= FRESH).then(|| (*voter, reading.by(now)))
        })
    }

    /// Returns the time on which the clocks agree; `None` when too few are known. Called for every call that changes
    /// something.
    pub(crate) fn agreed(&self, now: Instant, wall: LogTime) -> Option<Agreed> {
        let mut shown: SmallVec<[Duration; 8]> = self.known(now, wall).map(|(_, time)| time).collect();
        shown.sort_unstable_by_key(|time| std::cmp::Reverse(*time));
        let alone = self.voters.len() == 1;
        shown.get(self.voters.len() / 2).map(|time| Agreed { time: *time, alone })
    }

    /// Returns all that is known at `now`, when this member's own clock shows `wall`.
    pub(crate) fn sight(&self, now: Instant, wall: LogTime) -> Sight {
        let agreed = self.agreed(now, wall);
        // A member without a vote has a clock too; it does not count, and may still be off.
        let own = (self.own, Duration::from_millis(wall.0));
        let offset = |agreed: Agreed, time: Duration| signed_millis(time).saturating_sub(signed_millis(agreed.time));
        let offsets = agreed.map(|agreed| {
            self.known(now, wall).chain([own]).map(|(member, time)| (member, offset(agreed, time))).collect()
        });
        Sight { agreed, offsets: offsets.unwrap_or_default() }
    }
}

fn signed_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_790_000_000_000;
    const YEARS: u64 = 10 * 365 * 86_400_000;

    fn clocks(voters: u64, shown: &[(u64, u64)], now: Instant) -> Clocks {
        let mut clocks = Clocks::new(MemberId(1));
        clocks.set_voters((1..=voters).map(MemberId));
        for (member, shown) in shown {
            clocks.note(MemberId(*member), now, now, LogTime(*shown));
        }
        clocks
    }

    fn agreed(voters: u64, own: u64, others: &[(u64, u64)]) -> Option<u64> {
        let now = Instant::now();
        let sight = clocks(voters, others, now).sight(now, LogTime(own));
        sight.agreed.map(|agreed| u64::try_from(agreed.time.as_millis()).expect("small"))
    }

    #[test]
    fn a_minority_of_clocks_that_are_ahead_does_not_count() {
        let (right, ahead) = (NOON, NOON + YEARS);
        assert_eq!(agreed(3, ahead, &[(2, right)]), Some(right), "a bare quorum, the own clock ahead");
        assert_eq!(agreed(3, right, &[(2, ahead)]), Some(right));
        assert_eq!(agreed(3, ahead, &[(2, right), (3, right + 5)]), Some(right + 5), "the median");
        assert_eq!(agreed(5, ahead, &[(2, ahead), (3, right)]), Some(right));
        assert_eq!(agreed(4, ahead, &[(2, right), (3, right)]), Some(right), "three of four are a quorum");
        assert_eq!(agreed(2, ahead, &[(2, right)]), Some(right));
        assert_eq!(agreed(1, ahead, &[]), Some(ahead), "a pool of one has no other clock");
    }

    #[test]
    fn without_a_quorum_nothing_is_agreed() {
        assert_eq!(agreed(3, NOON, &[]), None);
        assert_eq!(agreed(5, NOON, &[(2, NOON)]), None);
        assert_eq!(agreed(3, NOON, &[(7, NOON)]), None, "who has no vote does not count");
        assert_eq!(agreed(3, NOON, &[(2, 0)]), None, "a member that does not say");
        let (asked, late) = (Instant::now(), Instant::now() + SLOW * 2);
        let mut slow = clocks(3, &[], asked);
        slow.note(MemberId(2), asked, late, LogTime(NOON));
        assert_eq!(slow.sight(late, LogTime(NOON)).agreed, None, "an answer that took too long says nothing");
    }

    #[test]
    fn a_reading_goes_on_with_time_and_is_forgotten() {
        let now = Instant::now();
        let clocks = clocks(3, &[(2, NOON)], now);
        let later = now + Duration::from_secs(10);
        let sight = clocks.sight(later, LogTime(NOON + 70_000));
        assert_eq!(sight.agreed.map(|agreed| agreed.time), Some(Duration::from_millis(NOON + 10_000)));
        assert_eq!(sight.offsets, BTreeMap::from([(MemberId(1), 60_000), (MemberId(2), 0)]));
        assert_eq!(clocks.sight(now + FRESH * 2, LogTime(NOON)).agreed, None);
    }

    #[test]
    fn among_clocks_that_all_differ_one_is_always_right() {
        let now = Instant::now();
        let wild = clocks(3, &[(2, NOON / 2), (3, NOON + YEARS)], now).sight(now, LogTime(NOON));
        assert_eq!(wild.offsets.values().filter(|offset| **offset == 0).count(), 1, "{wild:?}");
    }
}
