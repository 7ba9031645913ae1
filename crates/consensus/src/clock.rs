//! The leader's clock, read once per proposed entry and never on apply (law L8).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::machine::LogTime;

/// Where a proposing leader reads the time that it writes into an entry. Simulations supply their own.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch. May jump; the log's time never goes back (see [`LogTime`]).
    fn now(&self) -> LogTime;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> LogTime {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LogTime(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}
