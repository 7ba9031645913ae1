//! The clock that leases are counted on, and the identity of the boot that it belongs to.
//!
//! `CLOCK_BOOTTIME` goes on while the machine sleeps; a lease that ran out during a suspend has run out.

use std::fs;
use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Milliseconds of `CLOCK_BOOTTIME`: since this machine started, sleep included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(pub u64);

impl BootTime {
    /// The present. Only the shells of actors call this.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME exists since Linux 2.6.39");
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
        Self(seconds * 1000 + nanos / 1_000_000)
    }

    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time until `later`; zero when that has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// Identity of the present boot: a boot time or a process id of another boot means nothing.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Milliseconds since the Unix epoch, for people only: nothing is decided by it.
#[must_use]
pub fn unix_millis() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME).expect("CLOCK_REALTIME always exists");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec()).unwrap_or(0) / 1_000_000
}
