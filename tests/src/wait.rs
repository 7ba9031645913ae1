//! Waiting on conditions, never on time: a bound only says when a test has failed.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;

/// The longest time that a condition may take to come true on a busy machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until the answer is there, every few milliseconds.
///
/// # Errors
/// None: the answer is a result so that callers can pass on their own.
///
/// # Panics
/// When [`PATIENCE`] is over, saying what was waited for; the processes then print the end of their logs.
pub async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Option<T>>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        assert!(tokio::time::Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
