//! Turns raft's metrics into [`Status`] and [`Leadership`], and notices when the core ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{Instant as _, ServerState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::error::StopReason;
use crate::freshness::Current;
use crate::ids::{Member, MemberId};
use crate::machine::{LogIndex, Term};
use crate::shared::{AppliedAt, Shared};
use crate::status::{FollowerStatus, Leadership, Refused, Role, Status, TAKES_PART};
use crate::types::{RaftMetrics, RoleMetrics, TypeConfig, index_of};

/// The interval at which the status is refreshed when nothing is applied. Raft's metrics change with every heartbeat
/// that is acknowledged, which is no reason to look: the freshness of the quorum, and how far followers are, are this
/// old.
const REFRESH: Duration = Duration::from_millis(100);

/// Pause after each look, so that under load many changes are published together. Whoever leads, and whether it may
/// act, is told at once all the same: nothing else in the status has anybody waiting for it.
const SETTLE: Duration = Duration::from_millis(10);

/// Publishes what raft says about itself.
pub(crate) struct Observer {
    pub shared: Arc<Shared>,
    pub metrics: openraft::type_config::alias::WatchReceiverOf<TypeConfig, RaftMetrics>,
    /// Changes with roles, terms, leaders and the membership only.
    pub roles: openraft::type_config::alias::WatchReceiverOf<TypeConfig, RoleMetrics>,
    pub status: watch::Sender<Status>,
    pub leadership: watch::Sender<Leadership>,
    pub end: CancellationToken,
}

impl Observer {
    pub(crate) async fn run(mut self) {
        let mut applied = self.shared.applied.subscribe();
        let end = self.end.clone();
        loop {
            applied.mark_unchanged();
            self.look();
            let changed = tokio::select! {
                () = end.cancelled() => return,
                changed = self.change(&mut applied) => changed,
            };
            if changed.is_none() {
                self.shared.stopper.stop(StopReason::Core { what: "it is gone".to_owned() });
                return;
            }
        }
    }

    /// Waits until there is reason to look again; `None` when the core is gone.
    async fn change(&mut self, applied: &mut watch::Receiver<AppliedAt>) -> Option<()> {
        // Its first entry is what an elected leader waits for before it may act.
        let elected = matches!(*self.leadership.borrow(), Leadership::Leading { ready: false, .. });
        let looked = Instant::now();
        let due = async {
            let moved = timeout_at(looked + REFRESH, applied.changed()).await;
            if moved.is_ok() && !elected {
                sleep_until(looked + SETTLE).await;
            }
        };
        tokio::select! {
            changed = self.roles.changed() => {
                changed.ok()?;
                self.until_metrics_know_roles().await
            }
            () = due => Some(()),
        }
    }

    /// The core tells of roles first, and of everything together right after.
    async fn until_metrics_know_roles(&mut self) -> Option<()> {
        loop {
            {
                let (roles, all) = (self.roles.borrow_watched(), self.metrics.borrow_watched());
                if (roles.state, roles.vote, roles.current_leader) == (all.state, all.vote, all.current_leader) {
                    return Some(());
                }
            }
            self.metrics.changed().await.ok()?;
        }
    }

    fn look(&mut self) {
        let looked = Instant::now();
        let metrics = self.metrics.borrow_watched().clone();
        // After the metrics, so that it is not behind what they call committed without reason.
        let applied = *self.shared.applied.borrow();
        self.note_end(&metrics);
        let status = self.status_of(&metrics, applied);
        let leads_in = (status.role == Role::Leader).then_some(status.term);
        self.shared.time.observe(leads_in, status.voters.iter().map(|voter| voter.id));
        if is_current(&status, applied)
            && let Some(at) = acknowledged_at(&metrics, looked)
        {
            self.shared.note_current(Current { at, index: applied.index });
        }
        let leadership = leadership_of(&status, applied);
        // In this order: whoever sees a role in the status finds no older one in the leadership.
        self.leadership.send_if_modified(|now| {
            let changed = *now != leadership;
            *now = leadership;
            changed
        });
        let before = self.status.send_replace(status);
        self.note_leader_change(&before);
    }

    /// Returns why others turn this member away, where it is of no use to anybody: one that takes part may be refused
    /// for a while by a member that does not.
    fn refused(&self, leads: bool) -> Option<Refused> {
        let now = Instant::now();
        let is_current = || self.shared.current().is_some_and(|current| now - current.at < TAKES_PART);
        if leads || is_current() { None } else { self.shared.refusals.newest(now) }
    }

    fn note_end(&self, metrics: &RaftMetrics) {
        match &metrics.running_state {
            Ok(()) => {}
            Err(Fatal::Stopped) => self.shared.stopper.stop(StopReason::Shutdown),
            Err(fatal) => self.shared.stopper.stop(StopReason::Core { what: fatal.to_string() }),
        }
    }

    fn note_leader_change(&self, before: &Status) {
        let now = self.status.borrow();
        let (old, new) = (before.leader.as_ref(), now.leader.as_ref());
        if let Some(leader) = new
            && (old.map(|old| old.id) != Some(leader.id) || before.term != now.term)
        {
            tracing::info!(term = now.term.0, %leader, "a leader came to power");
            self.shared.meters.leader_changed();
        }
    }

    fn status_of(&self, metrics: &RaftMetrics, applied: AppliedAt) -> Status {
        let membership = metrics.membership_config.membership();
        let voter_ids: Vec<u64> = membership.voter_ids().collect();
        let (voters, learners): (Vec<Member>, Vec<Member>) = membership
            .nodes()
            .map(|(id, place)| place.member(*id))
            .partition(|member| voter_ids.contains(&member.id.0));
        let role = match metrics.state {
            ServerState::Leader => Role::Leader,
            ServerState::Candidate => Role::Candidate,
            ServerState::Follower => Role::Follower,
            ServerState::Learner | ServerState::Shutdown => Role::Learner,
        };
        let last = LogIndex(metrics.last_log_index.unwrap_or(0));
        let lease = self.shared.config.election_timeout_max;
        let alone = voter_ids.as_slice() == [self.shared.id().0];
        let acknowledged = metrics.last_quorum_acked.as_ref().is_some_and(|at| at.elapsed() < lease);
        let quorum_fresh = role == Role::Leader && (alone || acknowledged);
        Status {
            id: self.shared.id(),
            admitted: self.shared.admitted(),
            role,
            term: Term(metrics.current_term),
            leader: metrics.current_leader.and_then(|id| Some(membership.get_node(&id)?.member(id))),
            last,
            committed: index_of(metrics.cluster_committed.as_ref()).max(applied.index),
            applied: applied.index,
            current_at: self.shared.current().map(|current| current.at),
            snapshot: index_of(metrics.snapshot.as_ref()),
            purged: index_of(metrics.purged.as_ref()),
            voters,
            learners,
            joint: membership.get_joint_config().len() > 1,
            voters_to_be: membership.get_joint_config().last().into_iter().flatten().map(|id| MemberId(*id)).collect(),
            followers: followers_of(metrics, self.shared.id(), last),
            quorum_fresh,
            refused: self.refused(quorum_fresh),
        }
    }
}

fn followers_of(metrics: &RaftMetrics, own: MemberId, last: LogIndex) -> BTreeMap<MemberId, FollowerStatus> {
    let Some(replication) = &metrics.replication else {
        return BTreeMap::new();
    };
    let looked = Instant::now();
    let acknowledged = |id| looked.checked_sub(metrics.heartbeat.as_ref()?.get(id)?.as_ref()?.elapsed());
    let others = replication.iter().filter(|(id, _)| **id != own.0);
    others
        .map(|(id, matched)| {
            let matched = index_of(matched.as_ref());
            let lag = last.0.saturating_sub(matched.0);
            (MemberId(*id), FollowerStatus { matched, lag, acknowledged_at: acknowledged(id) })
        })
        .collect()
}

/// Returns whether everything committed is applied: true on a leader that a quorum acknowledges and that has applied
/// everything it committed, an entry of its own term included; before that entry it may not know what is committed.
fn is_current(status: &Status, applied: AppliedAt) -> bool {
    let leads = status.role == Role::Leader && status.quorum_fresh;
    leads && applied.term == status.term && applied.index >= status.committed
}

/// The moment at which the newest round was sent that a quorum acknowledged: until then nobody else can have led. A
/// quorum of one needs no round.
fn acknowledged_at(metrics: &RaftMetrics, looked: Instant) -> Option<Instant> {
    if metrics.membership_config.membership().voter_ids().eq([metrics.id]) {
        return Some(looked);
    }
    looked.checked_sub(metrics.last_quorum_acked.as_ref()?.elapsed())
}

fn leadership_of(status: &Status, applied: AppliedAt) -> Leadership {
    if status.role != Role::Leader {
        let leader = status.leader.clone().filter(|leader| leader.id != status.id);
        return Leadership::Following { leader };
    }
    // The first entry of a term is its leader's own, so one applied entry of this term means that entry was applied.
    Leadership::Leading { term: status.term, ready: applied.term == status.term }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_current_when_it_applied_everything_committed_in_its_own_term() {
        let mut status = Status::new(MemberId(1), true);
        (status.role, status.quorum_fresh) = (Role::Leader, true);
        (status.term, status.committed) = (Term(3), LogIndex(9));
        let applied = AppliedAt { term: Term(3), index: LogIndex(9) };
        assert!(is_current(&status, applied));
        assert!(!is_current(&status, AppliedAt { index: LogIndex(8), ..applied }), "an entry is missing");
        assert!(!is_current(&status, AppliedAt { term: Term(2), ..applied }), "its own first entry is missing");
        assert!(!is_current(&Status { quorum_fresh: false, ..status.clone() }, applied), "it may be deposed");
        assert!(!is_current(&Status { role: Role::Follower, ..status }, applied), "it does not lead");
    }
}
