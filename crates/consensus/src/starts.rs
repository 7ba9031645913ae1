//! Notices that two processes speak for one member: somebody started a copy of its data folder.
//!
//! Each start of a member draws a number and says it with every message. A start that was not heard of before takes the
//! place of the one before it, as after a restart. When the earlier one is still heard a while later, both are alive.
//! Nobody can tell which of them has what was acknowledged: neither is listened to until one has been silent for a
//! while, and the pool goes on as with a member that is down.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ids::MemberId;

/// For so long after a newer start was first heard, what the one before it had sent may still arrive.
const LATE: Duration = Duration::from_secs(10);
/// For so long after both were heard, neither is listened to.
const DEAF: Duration = Duration::from_secs(60);
/// Starts of a member that are remembered.
const REMEMBERED: usize = 16;

/// Two processes speak for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "two processes speak for member {0}: a copy of its data folder was started; stop one of them for good, or, when it is not \
     certain which is the member's, stop both, remove the member and add one under a new id"
)]
pub(crate) struct Doubled(pub(crate) MemberId);

/// The starts of other members that were heard here.
#[derive(Debug, Default)]
pub(crate) struct Starts(Mutex<BTreeMap<MemberId, Heard>>);

#[derive(Debug)]
struct Heard {
    newest: u64,
    since: Instant,
    earlier: VecDeque<u64>,
    doubled_at: Option<Instant>,
}

impl Starts {
    /// A message of `member`, which was started with the number `start`; 0 in releases that say none.
    pub(crate) fn hear(&self, member: MemberId, start: u64, now: Instant) -> Result<(), Doubled> {
        if start == 0 {
            return self.check(member, now);
        }
        let mut all = self.lock();
        let heard = all.entry(member).or_insert_with(|| Heard {
            newest: start,
            since: now,
            earlier: VecDeque::new(),
            doubled_at: None,
        });
        if heard.earlier.contains(&start) {
            if now.saturating_duration_since(heard.since) >= LATE {
                if !heard.is_doubled(now) {
                    tracing::error!(error = %Doubled(member), "a member is not listened to");
                }
                heard.doubled_at = Some(now);
            }
        } else if heard.newest != start {
            heard.earlier.push_back(heard.newest);
            if heard.earlier.len() > REMEMBERED {
                heard.earlier.pop_front();
            }
            (heard.newest, heard.since) = (start, now);
        }
        if heard.is_doubled(now) { Err(Doubled(member)) } else { Ok(()) }
    }

    /// Whether `member` may be listened to.
    pub(crate) fn check(&self, member: MemberId, now: Instant) -> Result<(), Doubled> {
        let doubled = self.lock().get(&member).is_some_and(|heard| heard.is_doubled(now));
        if doubled { Err(Doubled(member)) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn is_doubled(&self, now: Instant) -> bool {
        self.doubled_at.is_some_and(|at| now.saturating_duration_since(at) < DEAF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: MemberId = MemberId(1);

    fn at(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
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
        let (starts, begin) = (Starts::default(), Instant::now());
        assert_eq!(starts.hear(MEMBER, 7, begin), Ok(()));
        assert_eq!(starts.hear(MEMBER, 8, at(begin, 5)), Ok(()), "it may have been restarted");
        assert_eq!(starts.hear(MEMBER, 7, at(begin, 15)), Err(Doubled(MEMBER)), "it was not");
        assert_eq!(starts.hear(MEMBER, 8, at(begin, 16)), Err(Doubled(MEMBER)));
        assert_eq!(starts.check(MEMBER, at(begin, 16)), Err(Doubled(MEMBER)), "on a stream that was open before");
        assert_eq!(starts.hear(MemberId(2), 8, at(begin, 16)), Ok(()), "another member");
        assert_eq!(starts.hear(MEMBER, 7, at(begin, 60)), Err(Doubled(MEMBER)));
        assert_eq!(starts.hear(MEMBER, 8, at(begin, 119)), Err(Doubled(MEMBER)), "the other was heard within a minute");
        assert_eq!(starts.hear(MEMBER, 8, at(begin, 121)), Ok(()), "the other was stopped");
    }
}
