//! Notices at once when the leader's process ends, and starts an election as soon as that is allowed.
//!
//! Every follower keeps one call to the leader open. When the leader is killed its kernel closes the connection, and
//! the call ends. That alone may also be a broken connection. But when the leader's host then refuses a new connection,
//! the line over which its heartbeats came is closed, and another member takes a connection, the leader's process has
//! ended, and the follower gives up its own lease. It asks for pre-votes, which only those grant that saw the same. So
//! a follower that is wrong costs nothing: whoever still hears the leader refuses, and so does the leader. No answer is
//! no evidence, nor is a connection that anybody takes: then the lease runs out.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use planted::Bug;
use tessera_connection::Knock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::apply::Applier;
use crate::ids::Member;
use crate::machine::{Machine, Term};
use crate::shared::Shared;
use crate::status::Status;
use crate::transport::Links;
use crate::types::{TypeConfig, Vote};

/// Pause before the call is opened again.
const REOPEN: Duration = Duration::from_millis(100);

/// The number of elections that are attempted before the ordinary timeout takes over.
const ATTEMPTS: u32 = 4;

/// Further questions to a host that takes a connection: it closes what a process had open one after the other.
const KNOCKS: u32 = 3;

/// Pause before it is asked again.
const CLOSING: Duration = Duration::from_millis(5);

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
                self.replace(&leader, term).await;
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

    /// Sees to it that another member leads: at once if the leader's process has ended, else when its lease is over.
    async fn replace(&mut self, leader: &Member, term: Term) {
        let others: Vec<Member> = {
            let status = self.status.borrow();
            status.voters.iter().filter(|voter| voter.id != leader.id).cloned().collect()
        };
        let (own, ids) = (self.shared.id(), others.iter().map(|voter| voter.id).collect::<BTreeSet<_>>());
        let Some(rank) = ids.iter().position(|id| *id == own) else { return };
        let turns = Turns { rank: rank as u32, electors: ids.len() as u32 };
        let lease_ends = self.lease_ends();
        let evidence = timeout_at(lease_ends, self.has_ended(leader, &others)).await.unwrap_or(false);
        let given_up = evidence && self.give_up_lease(leader).await;
        // One whose clock is wrong would hand leadership over: it lets the others go first.
        if self.shared.time.status().off {
            return;
        }
        if given_up && self.elect(leader, term, Instant::now(), &turns, Some(lease_ends)).await.is_break() {
            return;
        }
        // An error, and the end of a reign, have no other consequence than that somebody else saw to it.
        let _ = self.elect(leader, term, self.lease_ends(), &turns, None).await;
    }

    fn lease_ends(&self) -> Instant {
        self.shared.leader_heard_at().unwrap_or_else(Instant::now) + self.shared.config.election_timeout_max
    }

    /// Waits until the leader is known to have ended: its host refuses connections, nothing that it opened to this
    /// member is open, and it is not something in between that refuses, for another voter takes a connection. False
    /// when one of these is known not to be so.
    async fn has_ended(&self, leader: &Member, others: &[Member]) -> bool {
        let mut knocks = KNOCKS;
        let refused = loop {
            match self.links.knock(leader).await {
                Knock::Refused => break true,
                Knock::Unknown(error) => {
                    tracing::info!(%leader, %error, "whether its process has ended is not known");
                    break planted::is(Bug::SilenceIsEvidence);
                }
                Knock::Taken if knocks == 0 => break false,
                Knock::Taken => knocks -= 1,
            }
            sleep(CLOSING).await;
        };
        if !refused {
            return false;
        }
        while !self.shared.lines.is_closed(leader.id) {
            sleep(CLOSING).await;
        }
        let own = self.shared.id();
        let knocks = others.iter().filter(|voter| voter.id != own).map(|voter| self.links.knock(voter));
        knocks.collect::<FuturesUnordered<_>>().any(async |knock| matches!(knock, Knock::Taken)).await
    }

    fn own_vote(&self) -> Vote {
        self.raft.metrics().borrow_watched().vote
    }

    /// Gives up this member's own lease in the raft core; false when it follows somebody else by now.
    async fn give_up_lease(&self, leader: &Member) -> bool {
        let vote = self.own_vote();
        if !vote.committed || vote.leader_id.voted_for != leader.id.0 {
            return false;
        }
        tracing::info!(%leader, "its process has ended: nobody listens at its address");
        self.shared.waiver.note(vote, Instant::now(), self.shared.random_share());
        self.shared.meters.lease_given_up();
        // What a leader sends when it hands over to somebody else does just this.
        let handover = TransferLeaderRequest::new(vote, leader.id.0, None);
        matches!(self.raft.handle_transfer_leader(handover).await, Ok(Ok(())))
    }

    /// Asks for pre-votes from one moment on, at most until another. Breaks when there is no reason any more.
    async fn elect(
        &self,
        leader: &Member,
        term: Term,
        from: Instant,
        turns: &Turns,
        until: Option<Instant>,
    ) -> ControlFlow<()> {
        let stagger = self.shared.config.stagger;
        // A little later, since the others may have heard of it a little later.
        let mut at = from + stagger / 4 + stagger * turns.rank;
        for _ in 0..ATTEMPTS {
            if until.is_some_and(|until| at >= until) {
                break;
            }
            sleep_until(at).await;
            if !Self::reigns(&self.status.borrow(), leader, term) {
                return ControlFlow::Break(());
            }
            if self.shared.honours_leader_again(&self.own_vote()) {
                break;
            }
            // An error means that the core has ended.
            if self.raft.trigger().elect(true).await.is_err() {
                return ControlFlow::Break(());
            }
            at += stagger * turns.electors;
        }
        ControlFlow::Continue(())
    }
}

/// The order in which followers ask for pre-votes: one after the other, so that votes do not split.
struct Turns {
    /// The followers that go before this member.
    rank: u32,
    electors: u32,
}
