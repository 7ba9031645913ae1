//! Stamps: moments of one member's monotonic clock that others give back to it.
//!
//! A follower cannot know when its leader sent a message: their clocks cannot be compared, and the message may have
//! lain unread while the follower was stopped. So it stamps its answers, and the leader gives the newest stamp back
//! that it has read: what it says with it is said no earlier than that.
//!
//! Every instant is handed in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ids::MemberId;
use crate::pb;

/// A stamp of another member.
#[derive(Clone, Copy, Debug)]
struct Read {
    stamp: pb::Stamp,
    /// The moment at which it was read here, which is no earlier than that at which it was made there.
    at: Instant,
}

/// This member's stamps, and the newest ones read from others.
pub(crate) struct Stamps {
    /// Drawn at this start.
    start: u64,
    zero: Instant,
    read: Mutex<BTreeMap<MemberId, Read>>,
}

impl Stamps {
    pub(crate) fn new(start: u64, zero: Instant) -> Self {
        Stamps { start, zero, read: Mutex::default() }
    }

    fn read(&self) -> MutexGuard<'_, BTreeMap<MemberId, Read>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp of this moment.
    pub(crate) fn stamp(&self, now: Instant) -> pb::Stamp {
        pb::Stamp { start: self.start, micros: micros(now.saturating_duration_since(self.zero)) }
    }

    /// The moment of a stamp of this member; `None` for one of another start, or one that it has yet to make.
    pub(crate) fn moment(&self, stamp: pb::Stamp, now: Instant) -> Option<Instant> {
        let moment = self.zero.checked_add(Duration::from_micros(stamp.micros))?;
        (stamp.start == self.start && moment <= now).then_some(moment)
    }

    /// Notes a stamp that was read in an answer of a member.
    pub(crate) fn note(&self, member: MemberId, stamp: pb::Stamp, now: Instant) {
        self.read().insert(member, Read { stamp, at: now });
    }

    /// Forgets the stamps of all but these members.
    pub(crate) fn keep(&self, members: &BTreeSet<u64>) {
        self.read().retain(|member, _| members.contains(&member.0));
    }

    /// A moment on a member's clock that is no later than `moment` is here; `None` when that is not known.
    pub(crate) fn no_later_than(&self, moment: Instant, member: MemberId) -> Option<pb::Stamp> {
        let Read { stamp, at } = *self.read().get(&member)?;
        let before = match at.saturating_duration_since(moment) {
            Duration::ZERO => 0,
            // What is cut off by counting in microseconds must not make it later.
            before => micros(before).saturating_add(1),
        };
        Some(pb::Stamp { micros: stamp.micros.checked_sub(before)?, ..stamp })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_a_leader_gives_back_is_never_later_than_what_it_speaks_of() {
        // Clocks that began at other times: only durations are the same.
        let (zero, elsewhere) = (Instant::now(), Instant::now() + SECOND * 7);
        let (follower, leader) = (Stamps::new(8, zero), Stamps::new(9, elsewhere));
        let member = MemberId(2);
        assert_eq!(leader.no_later_than(elsewhere, member), None, "nothing was read yet");
        let (answered, read) = (zero + SECOND * 20, zero + SECOND * 21);
        leader.note(member, follower.stamp(answered), read);
        let given_back = |moment: Instant| {
            let stamp = leader.no_later_than(moment, member)?;
            follower.moment(stamp, zero + SECOND * 60)
        };
        assert_eq!(given_back(read), Some(answered));
        assert_eq!(given_back(read + SECOND), Some(answered), "of what came later nothing is known there");
        let before = given_back(read - SECOND * 3).expect("it is known");
        assert!(before <= answered - SECOND * 3 && before > answered - SECOND * 4, "as much earlier as it speaks of");
        assert_eq!(given_back(read - SECOND * 30), None, "before that clock began");
    }

    #[test]
    fn stamps_of_another_start_and_of_the_future_say_nothing() {
        let zero = Instant::now();
        let stamps = Stamps::new(8, zero);
        let now = zero + SECOND * 5;
        let stamp = stamps.stamp(now);
        assert_eq!(stamps.moment(stamp, now), Some(now));
        assert_eq!(stamps.moment(pb::Stamp { start: 7, ..stamp }, now), None);
        for micros in [stamp.micros + 1, u64::MAX] {
            assert_eq!(stamps.moment(pb::Stamp { micros, ..stamp }, now), None);
        }
    }
}
