//! The joint pace of all watches of a member: a few at a time look through the history or build a list, in small steps;
//! large messages that wait for their watchers share a bounded room.
//!
//! Without it thousands of watches that begin with the oldest event would keep the threads of the member busy for
//! longer than the other members wait for its heartbeat.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::limits::{LimitMeters, Limited, MemberLimits};

/// Watches that take a step at the same time.
const STEPS: usize = 2;
/// Messages up to this size are bounded by their number alone.
const SMALL: usize = 4 << 10;
/// Bytes that one permit stands for.
const UNIT: usize = 1 << 10;

/// The pace of all watches of a member. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    steps: Arc<Semaphore>,
    room: Arc<Semaphore>,
    units: usize,
    used: Gauge,
}

impl Pace {
    pub(crate) fn new(limits: &MemberLimits, meters: &LimitMeters) -> Self {
        let units = (limits.watch_bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        let (steps, room) = (Arc::new(Semaphore::new(STEPS)), Arc::new(Semaphore::new(units)));
        Self { steps, room, units, used: meters.used(Limited::WatchBytes) }
    }

    /// Waits for the turn to take a step, which is over when what is answered is dropped.
    pub(super) async fn step(&self) -> Option<SemaphorePermit<'_>> {
        // Nobody closes the semaphore.
        self.steps.acquire().await.ok()
    }

    /// The size of a message that needs room.
    pub(super) fn is_large(&self, bytes: usize) -> Option<usize> {
        (bytes > SMALL).then_some(bytes)
    }

    /// Waits for room for a large message.
    pub(super) async fn room(&self, bytes: usize) -> Option<MessageRoom> {
        let units = bytes.div_ceil(UNIT).min(self.units);
        let permit = Arc::clone(&self.room).acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()?;
        let bytes = i64::try_from(units * UNIT).unwrap_or(i64::MAX);
        self.used.inc_by(bytes);
        Some(MessageRoom { _permit: permit, used: self.used.clone(), bytes })
    }
}

/// Room that a large message takes until its watcher has read it.
#[derive(Debug)]
pub(super) struct MessageRoom {
    _permit: OwnedSemaphorePermit,
    used: Gauge,
    bytes: i64,
}

impl Drop for MessageRoom {
    fn drop(&mut self) {
        self.used.dec_by(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn pace(watch_bytes: usize) -> Pace {
        let limits = MemberLimits { watch_bytes, ..MemberLimits::default() };
        Pace::new(&limits, &LimitMeters::new(limits))
    }

    #[test]
    fn large_messages_share_a_bounded_room_and_small_ones_need_none() {
        let pace = pace(64 << 10);
        let first = pace.room(60 << 10).now_or_never().expect("there is room");
        assert!(pace.room(8 << 10).now_or_never().is_none(), "there is not enough left");
        assert_eq!((pace.is_large(SMALL), pace.is_large(SMALL + 1)), (None, Some(SMALL + 1)), "small ones need none");
        drop(first);
        let all = pace.room(1 << 20).now_or_never().expect("one that is larger than the room has it alone");
        assert!(all.is_some() && pace.room(8 << 10).now_or_never().is_none());
    }

    #[test]
    fn a_few_take_steps_at_a_time() {
        let pace = pace(64 << 10);
        let taken: Vec<_> = (0..STEPS).map(|_| pace.step().now_or_never().expect("free")).collect();
        assert!(pace.step().now_or_never().is_none());
        drop(taken);
        assert!(pace.step().now_or_never().is_some());
    }
}
