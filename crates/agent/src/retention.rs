//! The task that removes output whose time is over, and what saves left that never came to their end.

use std::io;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::checkpoints::Shelf;
use crate::worker::folder::WorkerFolders;

/// How often expired output is looked for.
const INTERVAL: Duration = Duration::from_secs(60);

/// Removes them until `end`.
pub async fn remove_expired(folders: WorkerFolders, shelf: Shelf, end: CancellationToken) {
    loop {
        shelf.sweep().await;
        let own = folders.clone();
        match tokio::task::spawn_blocking(move || own.remove_expired()).await.map_err(io::Error::other).flatten() {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed output whose time was over"),
            Err(error) => tracing::warn!(%error, "old output cannot be removed"),
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = sleep(INTERVAL) => {}
        }
    }
}
