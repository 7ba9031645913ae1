//! Retries of saves that fail now and may succeed later: a store that is away comes back, and a full disk is emptied.

use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use tessera_checkpoint::Error;
use tokio::time::Instant;

/// The longest time for which the agent retries to keep the last save of a worker that is over. The worker's blocks are
/// held meanwhile.
const KEEP_PATIENCE: Duration = Duration::from_secs(600);
/// Wait before that is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Tries again and again for as long as it may go better.
pub(super) async fn patiently<T, F: Future<Output = Result<T, Error>>>(attempt: impl FnMut() -> F) -> Result<T, Error> {
    let until = Instant::now() + KEEP_PATIENCE;
    let told = |error: &Error, _| {
        tracing::warn!(%error, "what a worker saved at its end cannot be kept now; it is tried again");
    };
    attempt
        .retry(ConstantBuilder::new().with_delay(AGAIN).without_max_times())
        .when(|error| error.is_passing() && Instant::now() < until)
        .notify(told)
        .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::PathBuf;

    use super::*;

    fn full() -> Error {
        Error::Full { place: "here".to_owned(), needed_bytes: 2, free_bytes: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_dumped_is_kept_once_there_is_room() {
        let tries = Cell::new(0);
        let attempt = || {
            tries.set(tries.get() + 1);
            std::future::ready(if tries.get() < 4 { Err(full()) } else { Ok(()) })
        };
        patiently(attempt).await.expect("it is kept");
        assert_eq!(tries.get(), 4);
        let never = patiently(|| std::future::ready(Err::<(), _>(full()))).await;
        assert!(matches!(never, Err(Error::Full { .. })), "its blocks are not held for ever: {never:?}");
        let since = Instant::now();
        let refused = || Error::Unsuitable { path: PathBuf::new(), problem: "it is a device" };
        let unsuitable = || std::future::ready(Err::<(), _>(refused()));
        patiently(unsuitable).await.expect_err("that does not pass");
        assert_eq!(since.elapsed(), Duration::ZERO, "nobody waits for it");
    }
}
