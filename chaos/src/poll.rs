//! Waiting for a condition, with a bound.

use std::future::Future;

use anyhow::{Result, anyhow};
use tokio::time::{Duration, Instant, sleep};

/// Asks `condition` every `every` until it answers `Ok`, for at most `bound`.
///
/// # Errors
/// It did not within `bound`: what was waited for, and what it answered last.
pub async fn until<T, F>(what: &str, bound: Duration, every: Duration, mut condition: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let end = Instant::now() + bound;
    loop {
        match condition().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= end => {
                return Err(error.context(anyhow!("waited {} for {what}", humantime::format_duration(bound))));
            }
            Err(_) => sleep(every).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn says_what_it_waited_for_and_what_was_in_the_way() {
        let mut asked = 0;
        let every = Duration::from_millis(10);
        let third = until("the third", Duration::from_secs(1), every, || {
            asked += 1;
            let answer = asked;
            async move { if answer == 3 { Ok(answer) } else { bail!("not yet") } }
        });
        assert_eq!(third.await.expect("comes"), 3);

        let never: Result<()> = until("rain", Duration::from_secs(1), every, || async { bail!("dry") }).await;
        let error = format!("{:#}", never.expect_err("never comes"));
        assert!(error.contains("waited 1s for rain") && error.contains("dry"), "{error}");
    }
}
