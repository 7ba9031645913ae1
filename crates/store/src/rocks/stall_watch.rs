//! Ends the wait of a write that RocksDB would hold for ever.
//!
//! When a flush or a compaction meets a full disk, RocksDB stops all writes and holds them, without an error, until
//! somebody frees room: a member would hang where it should say that its disk is full. No option turns this off, and
//! the binding offers no callback for it. So a thread looks: writes that stay stopped over several looks, after RocksDB
//! met an error in the background, are given up. The store refuses writes from then on, as after any write that fails.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::store::Shared;
use crate::error::StoreError;

/// Time between two looks. Each reads two numbers that RocksDB keeps in memory.
const PERIOD: Duration = Duration::from_millis(500);
/// The number of consecutive looks that must find writes held: a disk that is merely slow ends a flush meanwhile.
const LOOKS: u32 = 4;

/// The reported cause of a write that RocksDB holds.
#[derive(Debug, thiserror::Error)]
#[error("RocksDB holds all writes until there is room")]
struct HeldWrites;

/// The thread that looks. It ends when this is dropped.
pub(crate) struct StallWatch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StallWatch {
    /// Begins to look.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (end, ended) = channel();
        let shared = Arc::downgrade(shared);
        let thread =
            std::thread::Builder::new().name("stall-watch".to_owned()).spawn(move || watch(&shared, &ended))?;
        Ok(StallWatch { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        drop(self.end.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks for held writes had panicked");
        }
    }
}

fn watch(shared: &Weak<Shared>, ended: &Receiver<()>) {
    let mut held = 0;
    while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let Some(shared) = shared.upgrade() else { return };
        // The errors of long ago are counted too: with room on the disk, RocksDB gets over them by itself.
        let for_want_of_room =
            shared.database.holds_writes() && shared.folder.free_bytes().is_some_and(|free| free < shared.room);
        held = if for_want_of_room { held + 1 } else { 0 };
        if held == LOOKS {
            let (path, source) = (shared.folder.path().to_owned(), Arc::new(HeldWrites));
            // Said first: the held write fails with a word about an end, and its callers are to hear of the disk.
            shared.fail(StoreError::Full { path, doing: "flushing or compacting what was written", source });
            shared.database.give_up_background_work();
            return;
        }
    }
}
