//! Control of the raft core's clock: the periods in which it ticks.
//!
//! With each tick, one every fifth of a heartbeat, the core looks whether a heartbeat or an election is due. On an idle
//! member that was most of what it did, and both are known without looking: a leader's heartbeats have a timer of their
//! own here, and no election is due while the lease of a leader that was heard lasts. So the clock ticks only while a
//! member neither leads nor hears who does. Once it has given up its lease (`waiver`), the core waits for nothing any
//! more: then the clock stands still for the core's random share, too.

use std::sync::Arc;
use std::time::Duration;

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use planted::Bug;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::apply::Applier;
use crate::codec::vote_to_pb;
use crate::heir::heir_at_hand;
use crate::ids::Member;
use crate::machine::Machine;
use crate::pb;
use crate::shared::Shared;
use crate::status::{Leadership, Status};
use crate::transport::Links;
use crate::types::TypeConfig;

/// Sends a leader's heartbeats, and stops the core's clock while nothing can be due.
pub(crate) struct Pulse<M: Machine> {
    pub shared: Arc<Shared>,
    pub raft: openraft::Raft<TypeConfig, Applier<M>>,
    pub links: Arc<Links>,
    pub leadership: watch::Receiver<Leadership>,
    pub status: watch::Receiver<Status>,
    pub end: CancellationToken,
}

impl<M: Machine> Pulse<M> {
    pub(crate) async fn run(mut self) {
        let end = self.end.clone();
        tokio::select! {
            () = end.cancelled() => {}
            _ = self.follow_roles() => {}
        }
    }

    /// Ends with the observer, that is with the core.
    async fn follow_roles(&mut self) -> Option<()> {
        let mut leadership = self.leadership.clone();
        loop {
            let leads = matches!(*leadership.borrow_and_update(), Leadership::Leading { .. });
            tokio::select! {
                changed = leadership.changed() => changed.ok()?,
                beaten = self.beat(), if leads => beaten?,
                () = self.listen(), if !leads => {}
            }
        }
    }

    /// Sends heartbeats for as long as the core takes them. After a pause so long that the core sends none, another
    /// member is to lead at once: the others would wait for the end of a lease that the last words of this one have
    /// just renewed.
    async fn beat(&self) -> Option<()> {
        self.raft.runtime_config().tick(false);
        let mut heartbeats = interval(self.shared.config.heartbeat);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beaten = Instant::now();
        loop {
            heartbeats.tick().await;
            let stood_still = beaten.elapsed();
            beaten = Instant::now();
            if let Some(heir) = self.heir_after(stood_still) {
                self.hand_over(&heir, stood_still).await;
            }
            self.raft.trigger().heartbeat().await.ok()?;
        }
    }

    /// Returns who is to lead after this leader stood still: a voter that was at hand before, when the newest heartbeat
    /// that a quorum acknowledged is older than a lease by now.
    fn heir_after(&self, stood_still: Duration) -> Option<Member> {
        let (lease, heartbeat) = (self.shared.config.election_timeout_max, self.shared.config.heartbeat);
        if stood_still + heartbeat * 2 < lease || planted::is(Bug::SilentAfterPause) {
            return None;
        }
        let acknowledged = self.raft.metrics().borrow_watched().last_quorum_acked?;
        if acknowledged.elapsed() < lease {
            return None;
        }
        let status = self.status.borrow();
        let heir = heir_at_hand(&self.shared, &status, Instant::now().checked_sub(stood_still + lease)?)?;
        status.member(heir).cloned()
    }

    /// Asks a voter to be elected, as a leader does that hands over. Only the heir is told, and the core of this member
    /// is not: if nothing comes of it, this member leads on as far as it can.
    async fn hand_over(&self, heir: &Member, stood_still: Duration) {
        tracing::info!(?stood_still, %heir, "this leader stood still, and has another one lead");
        let (vote, last) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            (metrics.vote, metrics.last_log_index.unwrap_or_default())
        };
        let asked = pb::TransferLeaderRequest {
            header: None,
            from_leader: Some(vote_to_pb(&vote)),
            target: heir.id.0,
            last: Some(pb::LogId { term: vote.leader_id.term, index: last }),
        };
        let deadline = Instant::now() + self.shared.config.election_timeout_min;
        if let Err(error) = self.links.hand_over(heir, deadline, asked).await {
            tracing::info!(%heir, %error, "it does not take over");
        }
    }

    /// Lets the clock tick while no leader is heard.
    async fn listen(&self) {
        let (lease, pause) = (self.shared.config.election_timeout_max, self.shared.config.heartbeat);
        loop {
            let vote = self.raft.metrics().borrow_watched().vote;
            let lease = lease + self.shared.waiver.patience(&vote);
            let lease_ends = self.shared.leader_heard_at().map(|heard| heard + lease);
            let until = lease_ends.filter(|ends| *ends > Instant::now());
            self.raft.runtime_config().tick(until.is_none());
            sleep_until(until.unwrap_or_else(|| Instant::now() + pause)).await;
        }
    }
}
