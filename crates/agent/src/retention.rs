//! The task that removes output whose time is over, and what saves left that never came to their end.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::checkpoints::Shelf;
use crate::worker::Ended;

/// The interval at which expired output is looked for.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time for which the output of jobs is kept that do not say.
#[derive(Debug)]
pub struct Retention {
    /// As this node's configuration says.
    pub of_node: Option<Duration>,
    /// As the pool says; `None` until a leader has said it.
    pub of_pool: watch::Receiver<Option<Duration>>,
}

impl Retention {
    /// The node's word before the pool's; `None`: nobody has said it yet, so that nothing may go.
    fn now(&mut self) -> Option<Duration> {
        let of_pool = *self.of_pool.borrow_and_update();
        self.of_node.or(of_pool)
    }
}

/// Removes them until `end`: now and then, and at once when the pool says something new.
pub async fn remove_expired(ended: Ended, shelf: Shelf, mut retention: Retention, end: CancellationToken) {
    loop {
        shelf.sweep().await;
        let (ended, usual) = (ended.clone(), retention.now());
        let removing = tokio::task::spawn_blocking(move || {
            let removed = ended.remove_expired(usual);
            ended.make_room();
            removed
        });
        match removing.await.map_err(io::Error::other).flatten() {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed output whose time was over"),
            Err(error) => tracing::warn!(%error, "old output cannot be removed"),
        }
        tokio::select! {
            () = end.cancelled() => return,
            Ok(()) = retention.of_pool.changed() => {}
            () = sleep(INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_the_node_goes_before_that_of_the_pool() {
        let (pool, of_pool) = watch::channel(None);
        let kept = |output_retention: Option<u64>| {
            let of_node = output_retention.map(Duration::from_secs);
            Retention { of_node, of_pool: of_pool.clone() }.now().map(|kept| kept.as_secs())
        };
        assert_eq!([kept(None), kept(Some(60))], [None, Some(60)]);
        pool.send_replace(Some(Duration::from_secs(3_600)));
        assert_eq!([kept(None), kept(Some(60))], [Some(3_600), Some(60)]);
    }
}
