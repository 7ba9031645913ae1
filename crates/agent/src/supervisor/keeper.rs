//! Keeps the newest status on disk without making anyone wait: a thread with room for one status, the newest.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use tessera_diagnostics::remark;

use super::status::Status;

const STACK: usize = 128 * 1024;

#[derive(Debug, Default)]
struct Slot {
    newest: Option<Status>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    slot: Mutex<Slot>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // A slot holds no half-made state that a panic elsewhere could have left.
        self.slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The thread that writes the status file.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts the thread for a worker's folder.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(folder: PathBuf) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("status".to_owned())
            .stack_size(STACK)
            .spawn(move || write_newest(&own, &folder))?;
        Ok(Self { shared, thread })
    }

    /// Leaves a status to be written; one that was not yet written is replaced.
    pub fn keep(&self, status: Status) {
        self.shared.lock().newest = Some(status);
        self.shared.changed.notify_one();
    }

    /// Waits until everything is written that was left before.
    pub fn finish(self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        // A panic of the thread has been printed; the caller writes the last status itself.
        let _ = self.thread.join();
    }
}

fn write_newest(shared: &Shared, folder: &std::path::Path) {
    loop {
        let mut slot = shared.lock();
        while slot.newest.is_none() && !slot.closed {
            slot = shared.changed.wait(slot).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        let Some(status) = slot.newest.take() else { return };
        drop(slot);
        if let Err(error) = status.store(folder) {
            remark!("the status of the worker cannot be kept: {error}");
        }
    }
}
