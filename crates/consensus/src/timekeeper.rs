//! Keeps one member's time: its own wall clock, what it knows of the others', and the log's clock that both steer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use planted::Bug;
use tokio::time::Instant;

use crate::clock::{Clock, ClockStatus};
use crate::clocks::{Clocks, Sight};
use crate::ids::MemberId;
use crate::log_clock::{Agreed, LogClock};
use crate::machine::{LogTime, Term};

/// See the module. The functions read the clocks under a lock, so that log time is read in the order in which it goes
/// on.
pub(crate) struct Timekeeper {
    own: MemberId,
    wall: Arc<dyn Clock>,
    max_offset: Duration,
    known: Mutex<Known>,
}

struct Known {
    clocks: Clocks,
    log: LogClock,
}

impl Timekeeper {
    pub(crate) fn new(own: MemberId, wall: Arc<dyn Clock>, max_offset: Duration) -> Self {
        let log = LogClock::new(max_offset, Instant::now());
        Timekeeper { own, wall, max_offset, known: Mutex::new(Known { clocks: Clocks::new(own), log }) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This member's wall clock, as it tells it to others.
    pub(crate) fn wall(&self) -> LogTime {
        self.wall.now()
    }

    /// A member that was asked at `asked` has just answered what its wall clock shows.
    pub(crate) fn heard(&self, member: MemberId, asked: Instant, clock_ms: u64) {
        self.known().clocks.note(member, asked, Instant::now(), LogTime(clock_ms));
    }

    /// Records the voters, and the term in which this member leads, if it does.
    pub(crate) fn observe(&self, leads_in: Option<Term>, voters: impl Iterator<Item = MemberId>) {
        let mut known = self.known();
        known.clocks.set_voters(voters);
        known.log.lead(leads_in);
    }

    /// Everything up to this log time is applied.
    pub(crate) fn applied(&self, time: LogTime) {
        self.known().log.note(Instant::now(), time);
    }

    /// The time for an entry that is proposed now; zero when there is none yet, so that the entry has that of the one
    /// before.
    pub(crate) fn stamp(&self) -> LogTime {
        self.read(&mut self.known()).0
    }

    /// Log time and what the clocks agree on, now.
    fn read(&self, known: &mut Known) -> (LogTime, Option<Agreed>) {
        if planted::is(Bug::LogTimeFromWallClock) {
            return (self.wall.now(), None);
        }
        let now = Instant::now();
        let agreed = known.clocks.agreed(now, self.wall.now());
        let (time, step) = known.log.read(now, agreed);
        if let Some(step) = step {
            tracing::warn!(
                seconds = step.by.as_secs(),
                "log time steps forward: a quorum of the members' clocks is that far ahead of it, as after an outage"
            );
        }
        (time, agreed)
    }

    /// Log time now; the wall clock while there is none.
    pub(crate) fn now(&self) -> LogTime {
        match self.stamp() {
            LogTime(0) => self.wall.now(),
            time => time,
        }
    }

    /// The time that a quorum of the clocks agree on; log time while too few are known.
    pub(crate) fn right_time(&self) -> LogTime {
        let agreed = self.known().clocks.agreed(Instant::now(), self.wall.now());
        match agreed {
            Some(agreed) => LogTime(u64::try_from(agreed.time.as_millis()).unwrap_or(u64::MAX)),
            None => self.now(),
        }
    }

    /// The longest time until log time reaches `time`.
    pub(crate) fn until(&self, time: LogTime) -> Duration {
        let mut known = self.known();
        let (now, agreed) = self.read(&mut known);
        if now == LogTime(0) {
            return Duration::from_millis(time.0.saturating_sub(self.wall.now().0));
        }
        known.log.until(agreed, time)
    }

    fn sight(&self) -> Sight {
        self.known().clocks.sight(Instant::now(), self.wall.now())
    }

    fn is_off(&self, offset_ms: i64) -> bool {
        u128::from(offset_ms.unsigned_abs()) > self.max_offset.as_millis()
    }

    /// The deviation of this member's wall clock from the time on which the voters' clocks agree.
    pub(crate) fn status(&self) -> ClockStatus {
        let offset_ms = self.sight().offsets.get(&self.own).copied();
        ClockStatus { offset_ms, off: offset_ms.is_some_and(|offset| self.is_off(offset)) }
    }

    /// The other voters whose clocks are known to be right by a margin: leadership handed to one of them is not handed
    /// back.
    pub(crate) fn right(&self) -> BTreeSet<MemberId> {
        let offsets = self.sight().offsets;
        let right = offsets
            .into_iter()
            .filter(|(member, offset)| *member != self.own && !self.is_off(offset.saturating_mul(2)));
        right.map(|(member, _)| member).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{SystemClock, WrongClock};

    #[test]
    fn a_clock_is_wrong_from_the_offset_on_that_is_set() {
        for (max_clock_offset, off) in [(10, true), (60, false)] {
            let wall = Arc::new(WrongClock { ahead_ms: 20_000 });
            let keeper = Timekeeper::new(MemberId(1), wall, Duration::from_secs(max_clock_offset));
            keeper.observe(None, (1..=3).map(MemberId));
            for other in [2, 3] {
                keeper.heard(MemberId(other), Instant::now(), SystemClock.now().0);
            }
            assert_eq!(keeper.status().off, off, "{:?}", keeper.status());
        }
    }
}
