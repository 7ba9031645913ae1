//! Work that waits for the disk or computes for long, away from the threads that keep heartbeats going.

use tokio::task::JoinError;

/// Runs `work` on a thread where blocking is allowed. Under simulation, where other threads would make runs differ, in
/// place.
pub async fn blocking<T, F>(work: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    match try_blocking(work).await {
        Ok(done) => done,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down; nobody waits for the answer any more.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}

/// As [`blocking`], for work whose panic must not be the caller's.
///
/// # Errors
/// When `work` panicked, or the runtime is going down.
pub async fn try_blocking<T, F>(work: F) -> Result<T, JoinError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if cfg!(feature = "simulation") {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}
