//! Wall clocks. Log time comes from those of a quorum ([`crate::log_clock`]), and is never read on apply (law L8).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::machine::LogTime;

/// A member's wall clock. Simulations supply their own.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch. May be wrong, and may jump: no clock of a minority moves log time.
    fn now(&self) -> LogTime;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> LogTime {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LogTime(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The operating system's clock, wrong by as much as is asked for: for drills.
#[derive(Clone, Copy, Debug)]
pub struct WrongClock {
    /// The milliseconds by which the clock is ahead; negative: behind.
    pub ahead_ms: i64,
}

impl Clock for WrongClock {
    fn now(&self) -> LogTime {
        LogTime(SystemClock.now().0.saturating_add_signed(self.ahead_ms))
    }
}

/// The deviation of a member's wall clock from the time on which a quorum of the members' clocks agrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStatus {
    /// The milliseconds by which the clock is ahead; negative: behind. `None` while too few clocks are known.
    pub offset_ms: Option<i64>,
    /// True if the deviation exceeds [`max_clock_offset`](crate::ConsensusConfig::max_clock_offset).
    pub off: bool,
}
