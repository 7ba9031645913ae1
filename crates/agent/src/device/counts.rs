//! Counters of a slice server, left in a file of the worker's own folder every second or two.
//!
//! The program could write there, too: numbers that make no sense are left out, and those that lie tell wrong things of
//! the program's own job only.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tessera_api::v1::DeviceUse;

use super::word::read;

const FILE: &str = ".use";
/// Most bytes of it.
const LONGEST: u64 = 4096;
/// Longer than any worker runs, in seconds.
const MOST_SECONDS: f64 = 1e10;

/// Counters of a slice server: its work so far, and the memory and the queue that it has now.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(test, derive(Default))]
pub struct Counts {
    /// Time that its device computed.
    pub computed: Duration,
    /// Time that it waited for its turn on the device, which others have a share of, too.
    pub waited: Duration,
    /// Operations that it executed.
    pub operations: u64,
    /// Bytes that its program sent and read.
    pub bytes: u64,
    /// Bytes of commands of its program that it has not executed yet.
    pub queued_bytes: u64,
    /// Memory that its program has on the device, in bytes.
    pub memory_used_bytes: u64,
    share: f64,
    /// True if `computed` is processor time, which does not advance while the server is suspended.
    pub processor_time: bool,
}

/// As the server writes it.
#[derive(Deserialize)]
struct Written {
    share: f64,
    device_seconds: f64,
    gate_seconds: f64,
    operations: u64,
    bytes: u64,
    memory_used: u64,
    queued_bytes: u64,
    processor_time: bool,
}

impl Counts {
    /// Returns the newest counters that the server of a worker wrote; `None` if there are none, or they make no sense.
    #[must_use]
    pub fn told(work: &Path) -> Option<Self> {
        let said: Written = serde_json::from_slice(&read(&work.join(FILE), LONGEST)?).ok()?;
        let time = |seconds: f64| (0.0..MOST_SECONDS).contains(&seconds).then(|| Duration::from_secs_f64(seconds));
        Some(Self {
            computed: time(said.device_seconds)?,
            waited: time(said.gate_seconds)?,
            operations: said.operations,
            bytes: said.bytes,
            queued_bytes: said.queued_bytes,
            memory_used_bytes: said.memory_used,
            processor_time: said.processor_time,
            share: Some(said.share).filter(|share| *share > 0.0 && *share <= 1.0)?,
        })
    }

    /// The part of the device's time that it may have, above 0 and at most 1.
    #[must_use]
    pub const fn share(&self) -> f64 {
        self.share
    }

    /// Returns the use of the device since the counters `before`, which were read `passed` ago.
    #[must_use]
    pub fn since(&self, before: &Self, passed: Option<Duration>) -> DeviceUse {
        let rate = |now: u64, before: u64| per_second(now.saturating_sub(before) as f64, passed);
        DeviceUse {
            operations_per_second: rate(self.operations, before.operations),
            bytes_per_second: rate(self.bytes, before.bytes),
            gate_wait_ratio: per_second(self.waited.saturating_sub(before.waited).as_secs_f64(), passed),
            queued_bytes: self.queued_bytes,
        }
    }
}

/// Returns the rate per second of `of` over the time `passed`; zero after the first look (`None`) or in no time.
#[must_use]
pub fn per_second(of: f64, passed: Option<Duration>) -> f64 {
    match passed {
        Some(passed) if !passed.is_zero() => of / passed.as_secs_f64(),
        _ => 0.0,
    }
}
