//! Changes of the membership: founding the cluster, adding, promoting and removing members, handing leadership over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, ForwardReason, InitializeError, RaftError};
use openraft::{ChangeMembers, Precondition};
use tokio::time::{Instant, timeout_at};

use crate::error::{MembershipError, ReadError, StopReason};
use crate::handle::Consensus;
use crate::heir::{furthest_voter, heir};
use crate::ids::{Member, MemberId};
use crate::machine::{LogIndex, Machine, Term};
use crate::status::{Role, Status};
use crate::transport::Admission;
use crate::types::{Place, TypeConfig, leader_of};

/// A member that lacks no more than this many entries counts as caught up.
pub(crate) const CAUGHT_UP: u64 = 64;

/// The need for a majority that answers among the voters that a change would leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Majority {
    Needed,
    /// Somebody knows that the silent ones come back: until then nothing can be written.
    Waived,
}

type Changed = Result<(), MembershipError>;

/// The turn to change the membership.
type Changing = tokio::sync::OwnedMutexGuard<()>;

fn check_founders(own: MemberId, founders: &[Member]) -> Result<(), String> {
    if !founders.iter().any(|founder| founder.id == own) {
        return Err(format!("this member, {own}, is not among them"));
    }
    let mut ids = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    for founder in founders {
        if founder.id.0 == 0 {
            return Err("0 is not a member id".to_owned());
        }
        if founder.address.is_empty() {
            return Err(format!("member {} has no address", founder.id));
        }
        if !ids.insert(founder.id) {
            return Err(format!("member id {} appears twice", founder.id));
        }
        if !addresses.insert(&founder.address) {
            return Err(format!("address {} appears twice", founder.address));
        }
    }
    Ok(())
}

impl<M: Machine> Consensus<M> {
    /// Founds the cluster with these members, this one among them, all voters, all running and with empty data folders.
    /// The others are asked to admit the membership first, so that all of them know that they are members; a founder
    /// that cannot be reached fails the founding.
    ///
    /// # Errors
    /// [`MembershipError::AlreadyInitialized`] the second time, [`MembershipError::BadFounders`],
    /// [`MembershipError::NotAdmitted`], [`MembershipError::Stopped`].
    pub async fn initialize(&self, founders: Vec<Member>, deadline: Instant) -> Changed {
        let _changing = self.one_at_a_time(deadline).await?;
        let own = self.inner.shared.id();
        check_founders(own, &founders).map_err(|why| MembershipError::BadFounders { why })?;
        if self.inner.raft.is_initialized().await.map_err(|_| self.stopped_error())? {
            return Err(MembershipError::AlreadyInitialized);
        }
        // Everybody is asked first, so that a list with one wrong member leaves no other one admitted.
        for step in [Admission::Probe, Admission::Found] {
            for founder in founders.iter().filter(|founder| founder.id != own) {
                self.admit(founder, step, deadline).await?;
            }
        }
        self.admit_self().await.map_err(|_| MembershipError::AlreadyInitialized)?;
        let members: BTreeMap<u64, Place> = founders.iter().map(|member| (member.id.0, Place::of(member))).collect();
        match self.inner.raft.initialize(members).await {
            Ok(()) => Ok(()),
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Err(MembershipError::AlreadyInitialized),
            Err(RaftError::APIError(InitializeError::NotInMembers(error))) => {
                Err(MembershipError::BadFounders { why: error.to_string() })
            }
            Err(RaftError::Fatal(_)) => Err(self.stopped_error()),
        }
    }

    /// The id for the next member: higher than every id that was ever used.
    pub fn next_member_id(&self) -> MemberId {
        MemberId(self.inner.shared.highest_member().0 + 1)
    }

    /// All members, voters and learners, as this member knows them.
    pub fn members(&self) -> Vec<Member> {
        let status = self.inner.status.borrow();
        let mut members: Vec<Member> = status.voters.iter().chain(&status.learners).cloned().collect();
        members.sort();
        members
    }

    /// This member's status with a membership that is committed: a quorum confirmed this leader after the call began,
    /// and it has applied everything its log held then.
    ///
    /// # Errors
    /// [`MembershipError::NotLeader`], [`MembershipError::Unavailable`] or [`MembershipError::Stopped`].
    pub async fn committed_membership(&self, deadline: Instant) -> Result<Status, MembershipError> {
        self.lead_and_know(deadline).await?;
        let seen = self.inner.status.borrow().clone();
        self.applied_here(seen.last, deadline).await.map_err(not_known)?;
        let now = self.inner.status.borrow().clone();
        // In one reign the leader's log only grows: what was seen is what was applied.
        if now.role == Role::Leader && now.term == seen.term {
            return Ok(seen);
        }
        Err(MembershipError::NotLeader { leader: now.leader })
    }

    /// Adds a member that learns the log and has no vote. Its process must run, with an empty data folder, under the
    /// new id ([`next_member_id`](Consensus::next_member_id) or higher).
    ///
    /// # Errors
    /// [`MembershipError`]; [`MembershipError::IdUsed`] for an id that is or ever was in use.
    pub async fn add_learner(&self, member: Member, deadline: Instant) -> Changed {
        let changing = self.one_at_a_time(deadline).await?;
        self.lead_and_know(deadline).await?;
        let next = self.next_member_id();
        if member.id < next {
            return Err(MembershipError::IdUsed { id: member.id, next });
        }
        if let Some(other) = self.members().into_iter().find(|other| other.address == member.address) {
            let why = format!("its address is that of {other}");
            return Err(MembershipError::NotAdmitted { member, why });
        }
        self.admit(&member, Admission::Join, deadline).await?;
        self.change(changing, ChangeMembers::AddNodes(BTreeMap::from([(member.id.0, Place::of(&member))])), deadline)
            .await
    }

    /// Gives a learner a vote, once it has caught up. Repeated for a voter, it ends a change of the voters that a
    /// leader which lost its lead left half made.
    ///
    /// # Errors
    /// [`MembershipError`]; [`MembershipError::Lagging`] when it does not catch up before the deadline,
    /// [`MembershipError::SilentMajority`].
    pub async fn promote(&self, id: MemberId, majority: Majority, deadline: Instant) -> Changed {
        let changing = self.one_at_a_time(deadline).await?;
        self.lead_and_know(deadline).await?;
        let votes = {
            let status = self.inner.status.borrow();
            let votes = status.voters.iter().any(|voter| voter.id == id);
            if votes && !status.joint {
                return Err(MembershipError::WrongRole { id, why: "has a vote already" });
            }
            if status.member(id).is_none() {
                return Err(MembershipError::NoSuchMember { id });
            }
            votes
        };
        if !votes {
            self.caught_up(id, deadline).await?;
            self.majority_answers(majority, deadline, |voters| _ = voters.insert(id)).await?;
        }
        self.change(changing, ChangeMembers::AddVoterIds(BTreeSet::from([id.0])), deadline).await
    }

    /// Removes a member, dead or alive. A leader that removes itself hands leadership over.
    ///
    /// # Errors
    /// [`MembershipError`]; [`MembershipError::LastVoter`] for the only voter, [`MembershipError::SilentMajority`].
    pub async fn remove(&self, id: MemberId, majority: Majority, deadline: Instant) -> Changed {
        let changing = self.one_at_a_time(deadline).await?;
        self.lead_and_know(deadline).await?;
        let (is_voter, voters) = {
            let status = self.inner.status.borrow();
            if status.member(id).is_none() {
                return Err(MembershipError::NoSuchMember { id });
            }
            (status.voters.iter().any(|voter| voter.id == id), status.voters.len())
        };
        let ids = BTreeSet::from([id.0]);
        if !is_voter {
            return self.change(changing, ChangeMembers::RemoveNodes(ids), deadline).await;
        }
        if voters == 1 {
            return Err(MembershipError::LastVoter { id });
        }
        self.majority_answers(majority, deadline, |voters| _ = voters.remove(&id)).await?;
        self.change(changing, ChangeMembers::RemoveVoters(ids), deadline).await
    }

    /// Hands leadership to a voter, or to the voter that is furthest when none is named, and waits until someone
    /// else leads.
    ///
    /// # Errors
    /// [`MembershipError`].
    pub async fn transfer_leadership(&self, to: Option<MemberId>, deadline: Instant) -> Changed {
        let _changing = self.one_at_a_time(deadline).await?;
        self.lead_and_know(deadline).await?;
        let own = self.inner.shared.id();
        let target = match to {
            Some(id) => id,
            None => {
                let found = heir(&self.inner.shared, &self.inner.status.borrow());
                found.ok_or(MembershipError::LastVoter { id: own })?
            }
        };
        {
            let status = self.inner.status.borrow();
            if !status.voters.iter().any(|voter| voter.id == target) {
                return Err(match status.member(target) {
                    Some(_) => MembershipError::WrongRole { id: target, why: "has no vote and cannot lead" },
                    None => MembershipError::NoSuchMember { id: target },
                });
            }
        }
        if target == own {
            return Ok(());
        }
        self.caught_up(target, deadline).await?;
        let term = self.inner.status.borrow().term;
        self.inner.raft.trigger().transfer_leader(target.0).await.map_err(|_| self.stopped_error())?;
        let mut status = self.inner.status.clone();
        let decided = status.wait_for(|status| elected(status, own, term).is_some());
        let leader = match timeout_at(deadline, decided).await {
            Ok(Ok(status)) => elected(&status, own, term).cloned(),
            Ok(Err(_)) => return Err(self.stopped_error()),
            Err(_) => return Err(MembershipError::Lagging { id: target }),
        };
        // Whoever names nobody wants this member not to lead.
        match leader {
            Some(leader) if leader.id != own && to.is_none_or(|to| leader.id == to) => Ok(()),
            leader => Err(MembershipError::NotElected { id: target, leader }),
        }
    }

    /// The other voter that is furthest among those whose clocks are right; `None` when there is none that leadership
    /// could be handed to because of this member's clock.
    pub fn voter_with_right_clock(&self) -> Option<MemberId> {
        let right = self.inner.shared.time.right();
        furthest_voter(&self.inner.status.borrow(), self.inner.shared.id(), |id| right.contains(&id))
    }

    async fn admit(&self, member: &Member, admission: Admission, deadline: Instant) -> Changed {
        let admitted = self.inner.links.admit(member, admission, deadline).await;
        admitted.map_err(|error| MembershipError::NotAdmitted { member: member.clone(), why: error.to_string() })
    }

    fn stopped_error(&self) -> MembershipError {
        MembershipError::Stopped(self.inner.shared.stopper.reason().unwrap_or(StopReason::Shutdown))
    }

    /// Makes sure that this member leads and that its view of the membership is current.
    async fn lead_and_know(&self, deadline: Instant) -> Changed {
        let known = async {
            let upto = self.own_read_index(deadline).await?;
            self.applied_here(LogIndex(upto.index), deadline).await
        };
        known.await.map_err(not_known)
    }

    /// Waits until an entry is applied and the status, which follows, shows it.
    async fn applied_here(&self, upto: LogIndex, deadline: Instant) -> Result<(), ReadError> {
        self.wait_applied(upto, deadline).await?;
        let mut status = self.inner.status.clone();
        let current = status.wait_for(|status| status.applied >= upto);
        timeout_at(deadline, current).await.map(drop).map_err(|_| ReadError::Unavailable)
    }

    async fn caught_up(&self, id: MemberId, deadline: Instant) -> Changed {
        let mut status = self.inner.status.clone();
        let caught_up = status.wait_for(|status| {
            status.role != Role::Leader
                || status.followers.get(&id).is_some_and(|follower| follower.matched.0 > 0 && follower.lag <= CAUGHT_UP)
        });
        let role = match timeout_at(deadline, caught_up).await {
            Ok(Ok(status)) => status.role,
            Ok(Err(_)) => return Err(self.stopped_error()),
            Err(_) => return Err(MembershipError::Lagging { id }),
        };
        if role == Role::Leader {
            return Ok(());
        }
        Err(MembershipError::NotLeader { leader: self.inner.status.borrow().leader.clone() })
    }

    /// Refuses voters, as they would be after `change`, of whom no majority answers: once the change is begun nothing
    /// could be written, not even the change back. They have a moment to answer a sign of life from now on.
    async fn majority_answers(
        &self,
        majority: Majority,
        deadline: Instant,
        change: impl Fn(&mut BTreeSet<MemberId>),
    ) -> Changed {
        if majority == Majority::Waived {
            return Ok(());
        }
        let asked = Instant::now();
        let silent = |status: &Status| {
            let mut voters = status.voters_to_be.clone();
            change(&mut voters);
            (status.silent_majority(&voters, asked), voters.len())
        };
        let mut status = self.inner.status.clone();
        let answers = status.wait_for(|status| status.role != Role::Leader || silent(status).0.is_empty());
        // Who lost the lead meanwhile is told so by the change itself.
        let patience = self.inner.shared.config.append_timeout;
        if timeout_at(deadline.min(asked + patience), answers).await.is_ok() {
            return Ok(());
        }
        if deadline < asked + patience {
            return Err(MembershipError::Unavailable);
        }
        let status = self.inner.status.borrow();
        let (silent, voters) = silent(&status);
        let silent = silent.iter().filter_map(|id| status.member(*id).cloned()).collect();
        Err(MembershipError::SilentMajority { silent, voters })
    }

    /// Waits for the end of the change that is under way.
    async fn one_at_a_time(&self, deadline: Instant) -> Result<Changing, MembershipError> {
        let turn = Arc::clone(&self.inner.changing).lock_owned();
        timeout_at(deadline, turn).await.map_err(|_| MembershipError::InProgress)
    }

    /// Makes one change, if the membership is still the one that was looked at. A change of the voters takes two
    /// entries; it is made on a task of its own, so that a caller that goes away or gives up does not leave it
    /// half made.
    async fn change(&self, changing: Changing, change: ChangeMembers<u64, Place>, deadline: Instant) -> Changed {
        let last_membership_log_id = *self.inner.raft.metrics().borrow_watched().membership_config.log_id();
        let unchanged = [Precondition::LastMembershipLogId { last_membership_log_id }];
        let (raft, end) = (self.inner.raft.clone(), self.inner.end.clone());
        let made = self.inner.tasks.spawn(self.inner.shared.entropy.scope(async move {
            let _changing = changing;
            tokio::select! {
                () = end.cancelled() => None,
                made = raft.change_membership_if(change, false, unchanged) => Some(made),
            }
        }));
        match timeout_at(deadline, made).await {
            Ok(Ok(Some(Ok(_)))) => Ok(()),
            Ok(Ok(Some(Err(RaftError::APIError(error))))) => Err(self.change_error(error)),
            Ok(Ok(Some(Err(RaftError::Fatal(_))) | None) | Err(_)) => Err(self.stopped_error()),
            Err(_) => Err(MembershipError::OutcomeUnknown),
        }
    }

    fn change_error(&self, error: ClientWriteError<TypeConfig>) -> MembershipError {
        match error {
            ClientWriteError::ForwardToLeader(forward) => match forward.reason {
                ForwardReason::LeaseExpired => MembershipError::Unavailable,
                ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
                    MembershipError::NotLeader { leader: leader_of(&forward) }
                }
            },
            ClientWriteError::LogEntryDiscarded(_) => MembershipError::OutcomeUnknown,
            ClientWriteError::PreconditionFailed(_) => MembershipError::InProgress,
            ClientWriteError::ChangeMembershipError(error) => match error {
                ChangeMembershipError::EmptyMembership(_) => MembershipError::LastVoter { id: self.inner.shared.id() },
                ChangeMembershipError::LearnerNotFound(missing) => {
                    MembershipError::NoSuchMember { id: MemberId(missing.node_id) }
                }
                other => {
                    tracing::info!(error = %other, "a change of the membership was refused");
                    MembershipError::InProgress
                }
            },
        }
    }
}

fn not_known(error: ReadError) -> MembershipError {
    match error {
        ReadError::NotLeader { leader } => MembershipError::NotLeader { leader },
        ReadError::Unavailable => MembershipError::Unavailable,
        ReadError::Stopped(reason) => MembershipError::Stopped(reason),
    }
}

/// Returns the leader that was elected after leadership was to be handed over in `term`; `None` while that is open. A
/// member that leads again in a later term has tried in vain: whoever waits for more holds up every other change of the
/// membership.
fn elected(status: &Status, own: MemberId, term: Term) -> Option<&Member> {
    let is_new = |leader: &Member| if status.role == Role::Leader { status.term > term } else { leader.id != own };
    status.leader.as_ref().filter(|leader| is_new(leader))
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
