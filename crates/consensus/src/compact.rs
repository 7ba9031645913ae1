//! Compaction by bytes, beside openraft's own by count: entries may be a hundred bytes or a megabyte.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::apply::Applier;
use crate::log::Log;
use crate::machine::{LogIndex, Machine};
use crate::shared::Shared;
use crate::status::Status;
use crate::types::TypeConfig;

/// Asks for snapshots and purges when bytes pile up.
pub(crate) struct Compactor<M: Machine> {
    pub shared: Arc<Shared>,
    pub raft: openraft::Raft<TypeConfig, Applier<M>>,
    pub log: Log,
    pub status: watch::Receiver<Status>,
    pub end: CancellationToken,
}

impl<M: Machine> Compactor<M> {
    pub(crate) async fn run(mut self) {
        // Bytes at the last request for a snapshot: it resets the count when it begins, which takes a moment.
        let mut asked_at = None;
        let mut purged_for = LogIndex(0);
        loop {
            tokio::select! {
                () = self.end.cancelled() => return,
                changed = self.status.changed() => if changed.is_err() {
                    return;
                },
            }
            self.snapshot_by_bytes(&mut asked_at).await;
            self.purge_by_bytes(&mut purged_for).await;
        }
    }

    async fn snapshot_by_bytes(&self, asked_at: &mut Option<u64>) {
        let threshold = self.shared.config.snapshot_bytes;
        let bytes = self.shared.bytes_since_snapshot.load(Ordering::Relaxed);
        if asked_at.is_some_and(|at| bytes < at) {
            *asked_at = None;
        }
        if bytes >= threshold && asked_at.is_none_or(|at| bytes >= at + threshold) {
            *asked_at = Some(bytes);
            // An error means that the core has ended.
            let _ = self.raft.trigger().snapshot().await;
        }
    }

    /// Once per snapshot: looking for the place walks over the sizes of the entries.
    async fn purge_by_bytes(&self, purged_for: &mut LogIndex) {
        let (snapshot, purged) = {
            let status = self.status.borrow();
            (status.snapshot, status.purged)
        };
        if snapshot == *purged_for {
            return;
        }
        *purged_for = snapshot;
        if let Some(upto) = self.log.purgeable(snapshot, self.shared.config.keep_bytes)
            && upto > purged
        {
            // As above.
            let _ = self.raft.trigger().purge_log(upto.0).await;
        }
    }
}
