//! Limits on the resources of a machine that saving, restoring and copying may take.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

pub(crate) const LARGEST_CHUNK: u64 = 64 << 20;

/// Files, folders, pipes and links of a checkpoint at most.
pub(crate) const MOST_ENTRIES: u64 = 1_000_000;

/// Above so many chunks they become larger.
const MANY: u64 = 25_000;

/// The limits that all work with checkpoints in a process shares. Clones share them.
///
/// A save, restore or copy keeps at most four chunks in memory, so together they keep at most four times the size of a
/// chunk times the number that may be under way.
#[derive(Clone, Debug)]
pub struct Limits {
    chunk_bytes: u64,
    seats: Arc<Semaphore>,
    rate: Option<Rate>,
}

impl Limits {
    /// Chunks of 16 MiB, two at once, as fast as they can.
    #[must_use]
    pub fn new() -> Self {
        Self { chunk_bytes: 16 << 20, seats: Arc::new(Semaphore::new(2)), rate: None }
    }

    /// Chunks of this size before compression; at most 64 MiB.
    #[must_use]
    pub fn chunk_bytes(self, chunk_bytes: NonZeroU64) -> Self {
        Self { chunk_bytes: chunk_bytes.get().min(LARGEST_CHUNK), ..self }
    }

    /// Allows `count` saves, restores and copies at once, at least one; further ones wait.
    #[must_use]
    pub fn at_once(self, count: usize) -> Self {
        Self { seats: Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS))), ..self }
    }

    /// Moves no more than this between stores and this machine, all work together.
    #[must_use]
    pub fn bytes_per_second(self, rate: NonZeroU64) -> Self {
        Self { rate: Some(Rate::new(rate)), ..self }
    }

    /// The size of chunks for something of so many bytes: a manifest names only so many.
    pub(crate) fn chunk_for(&self, bytes: u64) -> u64 {
        let mut chunk = self.chunk_bytes;
        while bytes / chunk > MANY && chunk < LARGEST_CHUNK {
            chunk = (chunk * 2).min(LARGEST_CHUNK);
        }
        chunk
    }

    /// Waits for its turn.
    pub(crate) async fn seat(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        Arc::clone(&self.seats).acquire_owned().await.ok()
    }

    /// Waits until so many bytes may move.
    pub(crate) async fn pace(&self, bytes: u64) {
        if let Some(rate) = &self.rate {
            rate.take(bytes).await;
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

/// A token bucket that holds what flows in a quarter of a second. Clones share it.
#[derive(Clone, Debug)]
struct Rate {
    bytes_per_second: NonZeroU64,
    /// The moment at which everything that was let through has flowed.
    flowed: Arc<Mutex<Option<Instant>>>,
}

impl Rate {
    const BUCKET: Duration = Duration::from_millis(250);

    fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, flowed: Arc::default() }
    }

    /// Waits until so many bytes may flow. More than the bucket holds flows too, and what comes next waits for it.
    async fn take(&self, bytes: u64) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.get() as f64);
        let now = Instant::now();
        let begins = {
            let mut flowed = self.flowed.lock().unwrap_or_else(PoisonError::into_inner);
            let begins = flowed.map_or(now, |flowed| flowed.max(now));
            *flowed = Some(begins + takes);
            begins
        };
        sleep_until(begins.checked_sub(Self::BUCKET).unwrap_or(begins)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_flows_in_any_time_than_the_rate_and_one_burst() {
        let rate = NonZeroU64::new(1000).expect("not zero");
        let limits = Limits::new().bytes_per_second(rate);
        let begin = Instant::now();
        let work = |limits: Limits| async move {
            for _ in 0..20 {
                limits.pace(100).await;
            }
        };
        // Two at once share it.
        tokio::join!(work(limits.clone()), work(limits.clone()));
        let millis = begin.elapsed().as_millis();
        assert!((3_600..=4_000).contains(&millis), "4,000 bytes went in {millis} ms");
    }
}
