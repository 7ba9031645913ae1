//! The watch over the room on the disk. A full disk stops a member for good, so a leader stops taking jobs, and hands
//! leadership over, while there still is a reserve.

use std::sync::Arc;
use std::time::Duration;

use tessera_consensus::{Consensus, Leadership, blocking};
use tessera_store::{Store, StoreStatus};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::machine::LedgerMachine;
use crate::metrics::Metrics;

/// The interval at which the file system is queried.
const PERIOD: Duration = Duration::from_secs(2);

/// Looks after which leadership that came back is handed over again: the others may have had no more room, or only
/// no time.
const REST: u32 = 5;

/// The time limit for a handover of leadership.
const HANDOVER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    /// At least the reserve, or the file system does not say.
    Ample,
    /// Less than the reserve.
    Short {
        free_bytes: u64,
        /// The space that must be free, in bytes.
        reserve_bytes: u64,
    },
}

/// An action that follows from a look at the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Tell everybody how much room there is.
    Publish(DiskSpace),
    /// Hand leadership over to a member that may have more room.
    StepDown,
}

/// The state of the watch over the disk.
#[derive(Debug)]
struct DiskWatch {
    reserve_bytes: u64,
    room: DiskSpace,
    /// Looks until leadership is handed over again.
    rest: u32,
}

impl DiskWatch {
    const fn new(reserve_bytes: u64) -> Self {
        Self { reserve_bytes, room: DiskSpace::Ample, rest: 0 }
    }

    /// Nobody took leadership over: it is tried again at the next look.
    const fn not_handed_over(&mut self) {
        self.rest = 0;
    }

    /// One look at the disk.
    fn on(&mut self, free_bytes: Option<u64>, leads: bool) -> Vec<Effect> {
        let Some(free_bytes) = free_bytes else { return Vec::new() };
        let reserve_bytes = self.reserve_bytes;
        // Once short, an eighth more than the reserve ends it, so that it does not flicker.
        let needed = match self.room {
            DiskSpace::Ample => reserve_bytes,
            DiskSpace::Short { .. } => reserve_bytes.saturating_add(reserve_bytes / 8),
        };
        let before = self.room;
        self.room = if free_bytes < needed { DiskSpace::Short { free_bytes, reserve_bytes } } else { DiskSpace::Ample };
        let mut effects = Vec::new();
        if self.room != before {
            effects.push(Effect::Publish(self.room));
        }
        match self.room {
            DiskSpace::Ample => self.rest = 0,
            DiskSpace::Short { .. } if leads && self.rest == 0 => {
                self.rest = REST;
                effects.push(Effect::StepDown);
            }
            DiskSpace::Short { .. } => self.rest = self.rest.saturating_sub(1),
        }
        effects
    }
}

/// Watches until `end`.
pub(crate) async fn watch_room(
    store: Arc<dyn Store>,
    reserve_bytes: u64,
    room: watch::Sender<DiskSpace>,
    consensus: Consensus<LedgerMachine>,
    metrics: Arc<Metrics>,
    end: CancellationToken,
) {
    let mut state = DiskWatch::new(reserve_bytes);
    loop {
        let asked = Arc::clone(&store);
        // Asking the file system may take long when it is in trouble, which is when it matters.
        let status: StoreStatus = blocking(move || asked.status()).await;
        metrics.disk(status.free_bytes, reserve_bytes);
        let leads = matches!(*consensus.leadership().borrow(), Leadership::Leading { .. });
        for effect in state.on(status.free_bytes, leads) {
            match effect {
                Effect::Publish(DiskSpace::Ample) => {
                    tracing::info!("the disk has room again");
                    room.send_replace(DiskSpace::Ample);
                }
                Effect::Publish(short) => {
                    tracing::error!(?short, "the disk is nearly full: no more jobs are taken here; make room");
                    room.send_replace(short);
                }
                Effect::StepDown => {
                    let handed = consensus.transfer_leadership(None, Instant::now() + HANDOVER).await;
                    tracing::warn!(?handed, "leadership is handed over because the disk is nearly full");
                    if handed.is_err() {
                        state.not_handed_over();
                    }
                }
            }
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: u64 = 800;

    fn short(free_bytes: u64) -> DiskSpace {
        DiskSpace::Short { free_bytes, reserve_bytes: RESERVE }
    }

    #[test]
    fn a_short_disk_is_told_once_and_leadership_is_handed_over_until_somebody_keeps_it() {
        let mut watch = DiskWatch::new(RESERVE);
        assert_eq!(watch.on(Some(900), true), []);
        assert_eq!(watch.on(Some(700), true), [Effect::Publish(short(700)), Effect::StepDown]);
        watch.not_handed_over();
        assert_eq!(watch.on(Some(700), true), [Effect::StepDown], "nobody took it over");
        for _ in 0..REST {
            assert_eq!(watch.on(Some(700), true), [], "leadership came back: the others may have no more room");
        }
        assert_eq!(watch.on(Some(700), true), [Effect::StepDown], "or had no time");
        assert_eq!(
            watch.on(Some(850), true),
            [Effect::Publish(short(850))],
            "it must be clearly more than the reserve"
        );
        assert_eq!(watch.on(Some(900), true), [Effect::Publish(DiskSpace::Ample)]);
        assert_eq!(watch.on(Some(700), false), [Effect::Publish(short(700))], "a follower has nothing to hand over");
        assert_eq!(watch.on(Some(700), true), [Effect::StepDown]);
    }

    #[test]
    fn a_file_system_that_does_not_say_changes_nothing() {
        let mut watch = DiskWatch::new(RESERVE);
        watch.on(Some(100), false);
        assert_eq!(watch.on(None, true), []);
        assert_eq!(watch.room, short(100));
    }
}
