//! Notices at once when the leader's process ends, and starts an election as soon as that is allowed.
//!
//! Every follower keeps one call to the leader open. When the leader is killed its kernel closes the connection, and
//! the call ends: a hint, not a proof. What follows is harmless if it is wrong, because a pre-vote changes nothing and
//! whoever still hears the leader refuses it; leases are never shortened.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::apply::Applier;
use crate::ids::Member;
use crate::machine::{Machine, Term};
use crate::shared::Shared;
use crate::status::Status;
use crate::transport::Links;
use crate::types::TypeConfig;

/// Pause before the call is opened again.
const REOPEN: Duration = Duration::from_millis(100);

/// How often an election is attempted before it is left to the ordinary timeout.
const ATTEMPTS: u32 = 4;

/// Watches over the leader's process.
pub(crate) struct Presence<M: Machine> {
    pub shared: Arc<Shared>,
    pub raft: openraft::Raft<TypeConfig, Applier<M>>,
    pub links: Arc<Links>,
    pub status: watch::Receiver<Status>,
    pub end: CancellationToken,
}

impl<M: Machine> Presence<M> {
    pub(crate) async fn run(mut self) {
        let end = self.end.clone();
        tokio::select! {
            () = end.cancelled() => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&mut self) {
        let own = self.shared.id();
        loop {
            let followed = self.status.wait_for(|status| status.leader.as_ref().is_some_and(|leader| leader.id != own));
            let (leader, term) = match followed.await {
                Ok(status) => match status.leader.clone() {
                    Some(leader) => (leader, status.term),
                    None => continue,
                },
                Err(_) => return,
            };
            if self.ends(&leader, term).await {
                self.elect(&leader, term).await;
            }
            sleep(REOPEN).await;
        }
    }

    fn reigns(status: &Status, leader: &Member, term: Term) -> bool {
        status.term == term && status.leader.as_ref() == Some(leader)
    }

    /// Waits for the end of the leader's process; false when the reign ended otherwise or nothing could be watched.
    async fn ends(&mut self, leader: &Member, term: Term) -> bool {
        let deadline = Instant::now() + self.shared.config.append_timeout;
        let Ok(mut presence) = self.links.presence(leader, deadline).await else {
            return false;
        };
        if !matches!(presence.message().await, Ok(Some(_))) {
            return false;
        }
        let mut status = self.status.clone();
        tokio::select! {
            ended = presence.message() => {
                tracing::info!(%leader, ?ended, "the leader's process seems to have ended");
                true
            }
            _ = status.wait_for(|status| !Self::reigns(status, leader, term)) => false,
        }
    }

    /// Asks for pre-votes once the lease is over, the followers one after the other so that votes do not split.
    async fn elect(&mut self, leader: &Member, term: Term) {
        let (rank, electors) = {
            let status = self.status.borrow();
            let mut ids: Vec<_> = status.voters.iter().map(|voter| voter.id).filter(|id| *id != leader.id).collect();
            ids.sort_unstable();
            match ids.iter().position(|id| *id == self.shared.id()) {
                Some(rank) => (rank as u32, ids.len() as u32),
                None => return,
            }
        };
        // One whose clock is wrong would hand leadership over: it lets the others go first.
        if self.shared.time.status().off {
            return;
        }
        let config = &self.shared.config;
        let heard = self.shared.leader_heard_at().unwrap_or_else(Instant::now);
        // A little later than the own lease, since the others may have heard the leader a little later.
        let mut at = heard + config.election_timeout_max + config.stagger / 4 + config.stagger * rank;
        for _ in 0..ATTEMPTS {
            sleep_until(at).await;
            if !Self::reigns(&self.status.borrow(), leader, term) {
                return;
            }
            // An error means that the core has ended.
            if self.raft.trigger().elect(true).await.is_err() {
                return;
            }
            at += config.stagger * electors;
        }
    }
}
