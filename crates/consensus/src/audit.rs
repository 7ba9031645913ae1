//! Compares this member's state with the others' (law L8): every few seconds, by digests taken at the same indices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::digest::{Verdict, compare};
use crate::error::StopReason;
use crate::ids::{Member, MemberId};
use crate::machine::LogIndex;
use crate::shared::Shared;
use crate::status::Status;
use crate::transport::Links;

/// The longest time for which one comparison waits for the answers of the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the voters for their digests and judges.
pub(crate) struct Auditor {
    pub shared: Arc<Shared>,
    pub links: Arc<Links>,
    pub status: watch::Receiver<Status>,
    pub end: CancellationToken,
}

impl Auditor {
    pub(crate) async fn run(self) {
        let mut counted = LogIndex(0);
        // It also keeps the connection open that a new leader needs.
        loop {
            tokio::select! {
                () = self.end.cancelled() => return,
                () = tokio::time::sleep(self.shared.config.digest_period) => {}
            }
            let voters = self.status.borrow().voters.clone();
            let others = self.ask(&voters).await;
            self.judge(&others, voters.len() / 2 + 1, &mut counted);
        }
    }

    async fn ask(&self, voters: &[Member]) -> BTreeMap<MemberId, Vec<(LogIndex, u128)>> {
        let deadline = Instant::now() + PATIENCE.min(self.shared.config.digest_period);
        let asked = voters.iter().filter(|voter| voter.id != self.shared.id()).map(|voter| async move {
            let digests = self.links.digests(voter, deadline).await.ok()?;
            Some((voter.id, digests))
        });
        futures::future::join_all(asked).await.into_iter().flatten().collect()
    }

    fn judge(&self, others: &BTreeMap<MemberId, Vec<(LogIndex, u128)>>, quorum: usize, counted: &mut LogIndex) {
        let (at, verdict) = match compare(&self.shared.digests.newest(), others, quorum) {
            Verdict::Agreed => return,
            Verdict::Differs { at, from } => (at, Err(from)),
            Verdict::Wrong { at, against } => (at, Ok(StopReason::Diverged { at, against })),
        };
        if at > *counted {
            *counted = at;
            self.shared.meters.hash_mismatch();
        }
        match verdict {
            Ok(reason) => self.shared.stopper.stop(reason),
            Err(from) => tracing::error!(
                at = at.0,
                members = ?from,
                "members computed different states from the same log; the one that a majority contradicts will stop"
            ),
        }
    }
}
