//! The wall clock, for comparing log time with now. Deadlines and leases never use it: they count on the monotonic clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tessera_consensus::Clock;
use tessera_ledger::LogTime;

/// The clock that leaders write into entries, as the actors read it.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Clock>);

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallClock").field(&self.now()).finish()
    }
}

impl WallClock {
    /// Reads this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }

    /// The time now, as an entry proposed now would carry it.
    #[must_use]
    pub fn now(&self) -> LogTime {
        LogTime(self.0.now().0)
    }

    /// How long it is until `time`; zero when it has passed.
    #[must_use]
    pub fn until(&self, time: LogTime) -> Duration {
        time.since(self.now())
    }

    /// The clock itself, for consensus.
    #[must_use]
    pub fn source(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0)
    }
}
