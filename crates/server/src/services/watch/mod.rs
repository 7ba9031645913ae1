//! Watches: changes of the ledger, streamed as they are applied.
//!
//! Every member keeps the same bounded history of events, made by applying the same log (law L8). A watch is a place in
//! that history: it may move from member to member, and a change of leader does not concern it. One task per stream
//! follows the published states; it holds a place and a filter, never a copy of what it watches. A few at a time go
//! through the history, in small steps, and large messages that nobody reads take their room from one another (`Pace`).
//! A watcher that is alone hears of everything at once; the more there are, the longer each rests between two looks, so
//! that a busy pool does not wake all of them for every entry.
//!
//! What a watcher can rely on: events come in the order of the log, none is left out and none comes twice within a
//! stream or when it goes on after a resume token, unless it asked for nothing but progress; `PROGRESS` says that the
//! watch is alive and where it is; a watcher that reads too slowly is cut with `WATCH_TOO_SLOW` and can go on; one
//! whose place is not remembered any more gets
//! `WATCH_COMPACTED` and lists anew.

mod cursor;
mod follower;
mod jobs;
mod meter;
mod pace;
mod pool;
mod start;
mod stream;

pub(crate) use jobs::JobTopic;
pub use meter::WatchMeters;
pub(crate) use pace::Pace;
pub(crate) use pool::PoolTopic;
pub(crate) use stream::Watch;
pub use stream::WatchStream;

use std::time::Duration;

/// The behaviour of watches; tests make them impatient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// The longest time for which a watcher may keep a full buffer before it is cut.
    pub patience: Duration,
    /// The interval at which a watcher is told where the watch is.
    pub progress: Duration,
    /// The shortest time between two messages to a watcher that is told nothing but where the watch is.
    pub rest: Duration,
    /// Pause after a watcher was told what happened, for each other one: what happens meanwhile is told together.
    pub gather: Duration,
    /// The longest such pause.
    pub gather_at_most: Duration,
    /// Messages that wait for a watcher at most.
    pub buffer: usize,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(10),
            progress: Duration::from_secs(3),
            rest: Duration::from_secs(1),
            gather: Duration::from_micros(500),
            gather_at_most: Duration::from_millis(100),
            buffer: 64,
        }
    }
}
