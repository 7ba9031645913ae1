//! Notices that two processes speak for one member: somebody started a copy of its data folder.
//!
//! Each start of a member draws a number and says it with every message. A start that was not heard of before takes the
//! place of the one before it, as after a restart. When the earlier one is still heard a while later, both are alive.
//! Nobody can tell which of them has what was acknowledged: neither is listened to until one of them, whichever it is,
//! has been silent for a minute, and the pool goes on as with a member that is down.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use planted::Bug;
use tokio::time::Instant;

use crate::ids::MemberId;

/// For so long after a newer start was first heard, what the one before it had sent may still arrive.
const LATE: Duration = Duration::from_secs(10);
/// For so long after it was heard last, a start counts as alive.
const ALIVE: Duration = Duration::from_secs(60);
/// Starts that are remembered, of all members together: anybody can say a number or an id that nobody has.
const REMEMBERED: usize = 128;

/// Two processes speak for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "two processes speak for member {0}: a copy of its data folder was started; stop one of them for good, or, when it is not \
     certain which is the member's, stop both, remove the member and add one under a new id"
)]
pub(crate) struct Doubled(pub(crate) MemberId);

/// The starts of other members that were heard here, in the order in which they were first heard.
#[derive(Debug, Default)]
pub(crate) struct Starts(Mutex<Vec<Heard>>);

#[derive(Debug)]
struct Heard {
    member: MemberId,
    start: u64,
    first: Instant,
    last: Instant,
}

impl Starts {
    /// A message of `member`, which was started with the number `start`; 0: not said.
    pub(crate) fn hear(&self, member: MemberId, start: u64, now: Instant) -> Result<(), Doubled> {
        let mut all = self.lock();
        let before = judge(&all, member, now);
        if start == 0 {
            return before;
        }
        note(&mut all, member, start, now);
        let after = judge(&all, member, now);
        if let (Ok(()), Err(error)) = (before, after) {
            tracing::error!(%error, "a member is not listened to");
        }
        after
    }

    /// Checks whether messages of `member` may be accepted.
    pub(crate) fn check(&self, member: MemberId, now: Instant) -> Result<(), Doubled> {
        judge(&self.lock(), member, now)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes that a start was heard, in the place of the one that has been silent longest when there are too many.
fn note(all: &mut Vec<Heard>, member: MemberId, start: u64, now: Instant) {
    if let Some(known) = all.iter_mut().find(|heard| heard.member == member && heard.start == start) {
        known.last = now;
        return;
    }
    if all.len() >= REMEMBERED
        && let Some((silent, _)) = all.iter().enumerate().min_by_key(|(_, heard)| heard.last)
    {
        all.remove(silent);
    }
    all.push(Heard { member, start, first: now, last: now });
}

/// Refuses a member of which two starts are alive that are not just the two sides of a restart.
fn judge(all: &[Heard], member: MemberId, now: Instant) -> Result<(), Doubled> {
    let is_alive =
        |heard: &Heard| now.saturating_duration_since(heard.last) < ALIVE || planted::is(Bug::DeafnessRenewed);
    let alive = all.iter().filter(|heard| heard.member == member && is_alive(heard));
    // Whoever outlived a later start outlived the next one, too: that one was first heard before.
    let mut pairs = alive.clone().zip(alive.skip(1));
    let doubled = pairs.any(|(earlier, next)| earlier.last.saturating_duration_since(next.first) >= LATE);
    if doubled { Err(Doubled(member)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: MemberId = MemberId(1);

    fn at(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    /// A member of which the start 7 has been heard, and 8 from the fifth second on; both are heard until the last one
    /// that is given, and neither is listened to.
    fn doubled_until(seconds: u64) -> (Starts, Instant) {
        let (starts, begin) = (Starts::default(), Instant::now());
        assert_eq!(starts.hear(MEMBER, 7, begin), Ok(()));
        assert_eq!(starts.hear(MEMBER, 8, at(begin, 5)), Ok(()), "it may have been restarted");
        for second in 15..=seconds {
            assert_eq!(starts.hear(MEMBER, 7, at(begin, second)), Err(Doubled(MEMBER)), "after {second} s");
            assert_eq!(starts.hear(MEMBER, 8, at(begin, second)), Err(Doubled(MEMBER)), "after {second} s");
        }
        (starts, begin)
    }

    #[test]
    fn restarts_are_listened_to_and_what_the_process_before_had_sent_too() {
        let (starts, begin) = (Starts::default(), Instant::now());
        for (start, seconds) in [(7, 0), (7, 100), (8, 101), (7, 102), (8, 200), (9, 201), (10, 202), (0, 203)] {
            assert_eq!(starts.hear(MEMBER, start, at(begin, seconds)), Ok(()), "start {start} after {seconds} s");
        }
    }

    #[test]
    fn of_two_processes_neither_is_listened_to_until_one_is_silent() {
        let (starts, begin) = doubled_until(16);
        assert_eq!(starts.check(MEMBER, at(begin, 16)), Err(Doubled(MEMBER)), "on a stream that was open before");
        assert_eq!(starts.hear(MEMBER, 0, at(begin, 16)), Err(Doubled(MEMBER)), "whether it says its start or not");
        assert_eq!(starts.hear(MemberId(2), 8, at(begin, 16)), Ok(()), "another member");
    }

    #[test]
    fn whichever_of_two_processes_is_stopped_the_other_is_listened_to_a_minute_later() {
        for (stays, goes) in [(7, 8), (8, 7)] {
            let (starts, begin) = doubled_until(30);
            for second in 31..90 {
                assert_eq!(starts.hear(MEMBER, stays, at(begin, second)), Err(Doubled(MEMBER)), "{stays}: {second} s");
            }
            for second in 90..300 {
                assert_eq!(starts.hear(MEMBER, stays, at(begin, second)), Ok(()), "{stays}: {second} s");
            }
            assert_eq!(starts.hear(MEMBER, goes, at(begin, 300)), Err(Doubled(MEMBER)), "it was not stopped for good");
            assert_eq!(starts.hear(MEMBER, stays, at(begin, 360)), Ok(()));
        }
    }

    #[test]
    fn a_follower_that_says_little_is_listened_to_after_its_copy_was_stopped() {
        // A follower says something when it misses its leader only: its first word is heard when the copy has gone.
        let (starts, begin) = (Starts::default(), Instant::now());
        assert_eq!(starts.hear(MEMBER, 7, begin), Ok(()));
        for second in 100..130 {
            assert_eq!(starts.hear(MEMBER, 8, at(begin, second)), Ok(()), "the first one is silent");
        }
        assert_eq!(starts.hear(MEMBER, 7, at(begin, 131)), Err(Doubled(MEMBER)), "both are alive");
        for second in 189..400 {
            assert_eq!(starts.hear(MEMBER, 7, at(begin, second)), Ok(()), "the copy fell silent: {second} s");
        }
    }

    #[test]
    fn what_a_stranger_says_once_costs_a_minute_at_most_and_no_memory() {
        let (starts, begin) = (Starts::default(), Instant::now());
        assert_eq!(starts.hear(MEMBER, 7, begin), Ok(()));
        for forged in 100..106 {
            assert_eq!(starts.hear(MEMBER, forged, at(begin, 1)), Ok(()));
        }
        assert_eq!(starts.hear(MEMBER, 7, at(begin, 11)), Err(Doubled(MEMBER)));
        for second in 61..200 {
            assert_eq!(starts.hear(MEMBER, 7, at(begin, second)), Ok(()), "{second} s");
        }
        for forged in 1_000..10_000 {
            // Refused or not: it may be that this is remembered of the member.
            let _ = starts.hear(MEMBER, forged, at(begin, 200));
            let _ = starts.hear(MemberId(forged), forged, at(begin, 200));
        }
        assert_eq!(starts.lock().len(), REMEMBERED);
        for second in 260..300 {
            assert_eq!(starts.hear(MEMBER, 7, at(begin, second)), Ok(()), "{second} s");
        }
    }
}
