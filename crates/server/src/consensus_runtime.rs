//! The thread that consensus has for itself.
//!
//! On one runtime with the API, the tasks of consensus wait for their turn behind those of clients. Each of these takes
//! a few microseconds, but thousands of watches that catch up at once make a queue of a second, and a leader that sends
//! no heartbeat for that long is replaced. On a thread of its own consensus competes with clients for the processor
//! only, and there the kernel lets a thread that mostly sleeps go first.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// The runtime of consensus. Ends, without waiting for its tasks, when it is dropped.
#[derive(Debug)]
pub(crate) struct ConsensusRuntime(Option<Runtime>);

impl ConsensusRuntime {
    /// Starts its thread.
    ///
    /// # Errors
    /// When the system gives no thread, or no descriptors to wait on.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("consensus").enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// The handle with which tasks of consensus are started.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for ConsensusRuntime {
    fn drop(&mut self) {
        // A runtime that waits for its tasks must not be dropped by one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
