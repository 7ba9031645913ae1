//! Log time: what the leader writes into entries, and how it goes on.
//!
//! It moves with the leader's *monotonic* clock, from the last log time that this member knows, and is steered towards
//! the time that a quorum of the members' wall clocks agree on ([`Clocks`](crate::clocks::Clocks)):
//!
//! * log time that is ahead goes at half the pace until the clocks have caught up, so that it always moves on;
//! * log time that is a little behind goes at up to twice the pace;
//! * log time that is further behind than the bound steps forward: at once when a leader reckons for the first time in
//!   its reign, since it cannot know for how long nobody led, later only when the gap has stood for [`STOOD`].
//!
//! So no minority of wall clocks moves log time, whatever they show. A pool of one has one clock only, and steps by no
//! more than [`ALONE`] in a reign; the rest it makes up at twice the pace.
//!
//! Pure: every instant and every reading is handed in.

use std::time::Duration;

use tokio::time::Instant;

use crate::machine::{LogTime, Term};

/// The time for which a gap must have stood before log time steps over it in the middle of a reign.
pub(crate) const STOOD: Duration = Duration::from_secs(10);

/// By how much a pool of one steps in a reign, all its steps together: an outage of a month is plausible, and of ten
/// years is not.
pub(crate) const ALONE: Duration = Duration::from_secs(30 * 86_400);

/// The time on which the wall clocks of the members agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The latest time that a quorum of the voters' clocks has reached, since the Unix epoch.
    pub time: Duration,
    /// True if this member is the only voter, and its clock the only one.
    pub alone: bool,
}

/// The state of steering within one reign.
#[derive(Clone, Copy, Debug)]
struct Reign {
    term: Term,
    /// True if the clocks were reckoned with in this reign.
    reckoned: bool,
    /// Since when log time has been further behind than the bound.
    behind_since: Option<Instant>,
    /// The remaining amount by which a pool of one may step.
    allowance: Duration,
}

/// A step of log time over a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// By how much.
    pub by: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LogClock {
    /// The largest lag of log time behind the clocks that is made up without a step.
    bound: Duration,
    /// Log time at the last reading, since the Unix epoch; zero when this member knows no log time yet.
    shown: Duration,
    /// The moment of the last reading.
    read_at: Instant,
    reign: Option<Reign>,
}

impl LogClock {
    /// A clock that knows no log time yet.
    pub(crate) const fn new(bound: Duration, now: Instant) -> Self {
        LogClock { bound, shown: Duration::ZERO, read_at: now, reign: None }
    }

    /// Notes whether, and in which term, this member leads: only a leader steers.
    pub(crate) fn lead(&mut self, term: Option<Term>) {
        if self.reign.map(|reign| reign.term) != term {
            let begun = |term| Reign { term, reckoned: false, behind_since: None, allowance: ALONE };
            self.reign = term.map(begun);
        }
    }

    /// Notes the time of an entry that was applied.
    pub(crate) fn note(&mut self, now: Instant, time: LogTime) {
        let time = Duration::from_millis(time.0);
        if time > self.shown + now.saturating_duration_since(self.read_at) {
            (self.shown, self.read_at) = (time, now.max(self.read_at));
        }
    }

    /// Returns whether any log time is known.
    const fn is_set(&self) -> bool {
        !self.shown.is_zero()
    }

    /// Reads the clock, and tells when it stepped. Zero while no log time is known and this member does not lead.
    pub(crate) fn read(&mut self, now: Instant, agreed: Option<Agreed>) -> (LogTime, Option<Step>) {
        let elapsed = now.saturating_duration_since(self.read_at);
        let (shown, step) = match (self.is_set(), self.reign, agreed) {
            (true, Some(_), Some(agreed)) => self.steered(now, elapsed, agreed),
            // The first log time ever.
            (false, Some(_), Some(agreed)) => (agreed.time, None),
            (true, _, _) => (self.shown + elapsed, None),
            (false, _, _) => (Duration::ZERO, None),
        };
        if let (Some(reign), Some(_)) = (&mut self.reign, agreed) {
            reign.reckoned = true;
        }
        (self.shown, self.read_at) = (shown, now.max(self.read_at));
        (millis(shown), step)
    }

    fn steered(&mut self, now: Instant, elapsed: Duration, agreed: Agreed) -> (Duration, Option<Step>) {
        let (shown, bound) = (self.shown, self.bound);
        let Some(reign) = &mut self.reign else { return (shown + elapsed, None) };
        let paced = shown + elapsed;
        let Some(gap) = agreed.time.checked_sub(paced) else {
            reign.behind_since = None;
            return ((shown + elapsed / 2).max(agreed.time), None);
        };
        let hurried = agreed.time.min(paced + elapsed);
        if gap <= bound {
            reign.behind_since = None;
            return (if reign.reckoned { hurried } else { agreed.time }, None);
        }
        let since = *reign.behind_since.get_or_insert(now);
        if reign.reckoned && now.saturating_duration_since(since) < STOOD {
            return (paced, None);
        }
        reign.behind_since = None;
        let by = if agreed.alone { gap.min(reign.allowance) } else { gap };
        if by.is_zero() {
            return (hurried, None);
        }
        reign.allowance = reign.allowance.saturating_sub(by);
        (paced + by, Some(Step { by }))
    }

    /// The longest time from the last reading until this clock shows `time`, as far as can be known.
    pub(crate) fn until(&self, agreed: Option<Agreed>, time: LogTime) -> Duration {
        let time = Duration::from_millis(time.0);
        let left = time.saturating_sub(self.shown);
        match agreed {
            // It goes at half the pace until the clocks have caught up.
            Some(agreed) if self.reign.is_some() && agreed.time < self.shown => {
                (left * 2).min(time.saturating_sub(agreed.time))
            }
            _ => left,
        }
    }
}

fn millis(time: Duration) -> LogTime {
    LogTime(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[path = "log_clock_tests.rs"]
mod tests;
