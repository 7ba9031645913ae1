//! The service of the cluster: who its members are, and changing that while jobs run.
//!
//! A change of the membership is made by the leader and is idempotent by what it asks for, so its request id is only
//! checked. A process that is no member yet answers for itself: see [`crate::founding`].

mod diagnose;
mod save;
mod view;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::error::Refusal;
use tessera_api::fields::{address, line};
use tessera_api::v1;
use tessera_api::v1::ErrorReason;
use tessera_api::v1::cluster_service_server::ClusterService;
use tessera_consensus::{Consensus, Identity, Majority, Member, MemberId, MembershipError, Status as MemberStatus};
use tessera_ledger::wire::FieldError;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::{Request, Response, Status};

use super::caller::deadline_of;
use super::{Answers, Desk, mutation, readiness, refusal};
use crate::founding;
use tessera_controller::machine::LedgerMachine;
use tessera_controller::new_pool::NewPool;

/// The longest time that a process takes from its introduction until it can be admitted.
const STARTING: Duration = Duration::from_secs(20);

/// The longest time in which the founders must be given their identities, and then the pool its requested settings.
const FOUNDING: Duration = Duration::from_secs(5);

/// Answers `tessera.v1.ClusterService`.
#[derive(Clone, Debug)]
pub struct ClusterApi {
    desk: Desk,
    began: Instant,
    /// Held from the choice of a member's id until it is admitted: two of one id would turn each other away.
    adding: Arc<Mutex<()>>,
}

impl ClusterApi {
    /// The service at a desk; the member is up from now on.
    #[must_use]
    pub fn new(desk: Desk) -> Self {
        Self { desk, began: Instant::now(), adding: Arc::default() }
    }

    fn consensus(&self) -> &Consensus<LedgerMachine> {
        self.desk.pool.consensus()
    }

    fn refuse(&self, error: &MembershipError) -> Status {
        refusal::of_membership(&self.desk.pool, error)
    }

    /// This member's status once it shows a change that was made, or as it is when the deadline comes first.
    async fn settled(&self, deadline: Instant, shows: impl FnMut(&MemberStatus) -> bool) -> MemberStatus {
        let mut status = self.desk.pool.status();
        // Either way the newest status is what there is to say: the change itself is made.
        let _ = timeout_at(deadline, status.wait_for(shows)).await;
        status.borrow().clone()
    }

    /// Admits a process that has just been told who it is and may still be starting.
    async fn admit(&self, member: &Member, deadline: Instant) -> Result<(), MembershipError> {
        let starts_by = deadline.min(Instant::now() + STARTING);
        loop {
            match self.consensus().add_learner(member.clone(), deadline).await {
                Err(MembershipError::NotAdmitted { .. }) if Instant::now() + founding::PAUSE < starts_by => {
                    sleep(founding::PAUSE).await
                }
                result => return result,
            }
        }
    }

    /// Takes up a founding that was interrupted: this process knows who it is, but was never admitted.
    async fn found_again(
        &self,
        introduced: Option<MemberId>,
        request: v1::InitializeClusterRequest,
    ) -> Result<v1::InitializeClusterResponse, Status> {
        let own = self.consensus().identity();
        if request.cluster_id != own.cluster.as_str() || introduced.is_some_and(|member| member != own.member) {
            let text = format!(
                "this process was introduced as {own}, and that founding was not finished; initialize the cluster again \
                 with that cluster id, or give the process an empty data folder"
            );
            return Err(refusal::because(ErrorReason::AlreadyInitialized, text));
        }
        if let Some(pool) = request.pool.as_ref().map(NewPool::of_request).transpose().map_err(Refusal::from)? {
            self.desk.pool.found_with(pool);
        }
        if introduced.is_some() {
            return Ok(self.known_already());
        }
        // The founders are numbered in the order in which they are named: this one must stand where it stood before.
        let place = usize::try_from(own.member.0.saturating_sub(1)).unwrap_or(usize::MAX);
        let address = request.members.get(place).map(|member| member.address.clone()).unwrap_or_default();
        let mut founders = founding::founders(request, &address)?;
        founders.introduce(self.desk.pool.outbound(), Instant::now() + FOUNDING).await?;
        let own_name = || self.desk.pool.config().name.clone();
        let unnamed = founders.members.iter_mut().filter(|member| member.id == own.member);
        unnamed.for_each(|member| founding::call(member, own_name()));
        founding::found(self.consensus(), founders.members.clone()).await.map_err(|error| self.refuse(&error))?;
        self.founded_with(founders.pool).await?;
        Ok(founding::founded_by(&founders.cluster, &founders.members))
    }

    /// The answer to who introduces this process again, which goes on where an earlier try was interrupted.
    fn known_already(&self) -> v1::InitializeClusterResponse {
        let (own, name) = (self.consensus().identity(), self.desk.pool.config().name.clone());
        let member = v1::Member { id: own.member.0, name, ..v1::Member::default() };
        v1::InitializeClusterResponse { cluster_id: own.cluster.as_str().to_owned(), members: vec![member] }
    }

    /// Refuses when the pool is not what it was to be; it may be about to become that.
    async fn founded_with(&self, wanted: Option<NewPool>) -> Result<(), Status> {
        let Some(wanted) = wanted else { return Ok(()) };
        let mut states = self.desk.pool.view().changes();
        let becomes_so = states.wait_for(|state| wanted.is_that_of(state.config()));
        if matches!(timeout(FOUNDING, becomes_so).await, Ok(Ok(_))) {
            return Ok(());
        }
        let config = self.desk.pool.view().current().config().clone();
        let present = NewPool { block_size: config.block_size, reference: config.reference_precision };
        let text = format!(
            "the cluster exists with {present}, not {wanted}; `tessera pool config set --block-size` changes that while no card is \
             registered"
        );
        Err(refusal::because(ErrorReason::AlreadyInitialized, text))
    }

    /// The membership as it is committed, which only a leader that a quorum confirms can tell: what a retry may be
    /// answered from.
    async fn committed(&self, deadline: Instant) -> Result<MemberStatus, Status> {
        self.existing()?;
        self.consensus().committed_membership(deadline).await.map_err(|error| self.refuse(&error))
    }

    /// Refuses a process that cannot become the member `id`: one that belongs to a cluster, or cannot apply the release
    /// level in force, for it would stop at once.
    async fn can_join(&self, address: &str, id: MemberId, deadline: Instant) -> Result<(), Status> {
        let asked = founding::status_of(self.desk.pool.outbound(), address, deadline).await;
        let status = asked.map_err(|error| not_made_member(address, error))?;
        let (own, found) = (self.consensus().identity().cluster.as_str(), status.cluster_id.as_str());
        let anew = "give it an empty data folder and start it again to add it here";
        if !found.is_empty() && found != own {
            return Err(not_made_member(address, format!("it is a member of the cluster {found}; {anew}")));
        }
        // One that has the next id was being added when the leader was lost that did so.
        if !found.is_empty() && status.member_id != id.0 {
            let who = format!("it was introduced as member {} of this cluster already; {anew}", status.member_id);
            return Err(not_made_member(address, who));
        }
        let in_force = self.desk.pool.view().current().level();
        if status.highest_level >= in_force.number() {
            return Ok(());
        }
        let why = format!(
            "its release goes up to level {}, and level {in_force} is in force in this pool; start it with the release \
             that the other members run",
            status.highest_level
        );
        Err(not_made_member(address, why))
    }

    /// Refuses while a cluster does not exist for this member.
    fn existing(&self) -> Result<MemberStatus, Status> {
        let status = self.desk.pool.status().borrow().clone();
        if status.admitted {
            return Ok(status);
        }
        Err(refusal::because(
            ErrorReason::NotInitialized,
            "this member has not been admitted to a cluster; initialize the cluster, or add this member to one",
        ))
    }
}

fn is_learner(status: &MemberStatus, id: MemberId) -> bool {
    status.learners.iter().any(|learner| learner.id == id)
}

#[tonic::async_trait]
impl ClusterService for ClusterApi {
    async fn initialize_cluster(
        &self,
        request: Request<v1::InitializeClusterRequest>,
    ) -> Result<Response<v1::InitializeClusterResponse>, Status> {
        let introduced = founding::introduced_as(&request)?;
        let request = request.into_inner();
        let own = self.consensus().identity();
        let status = self.desk.pool.status().borrow().clone();
        if !status.admitted {
            return self.found_again(introduced, request).await.map(Response::new);
        }
        if introduced == Some(own.member) && request.cluster_id == own.cluster.as_str() {
            return Ok(Response::new(self.known_already()));
        }
        // A retry carries the id that the first try chose; another call is another founding, and refused.
        let members = view::members(&status);
        let asked: BTreeSet<&str> = request.members.iter().map(|new| new.address.as_str()).collect();
        let same_members = asked == members.iter().map(|member| member.address.as_str()).collect();
        if request.cluster_id == own.cluster.as_str() && same_members && introduced.is_none() {
            self.founded_with(request.pool.as_ref().map(NewPool::of_request).transpose().map_err(Refusal::from)?)
                .await?;
            return Ok(Response::new(v1::InitializeClusterResponse { cluster_id: request.cluster_id, members }));
        }
        Err(self.refuse(&MembershipError::AlreadyInitialized))
    }

    async fn get_cluster_status(
        &self,
        _: Request<v1::GetClusterStatusRequest>,
    ) -> Result<Response<v1::GetClusterStatusResponse>, Status> {
        let consensus = self.consensus();
        let status = self.desk.pool.status().borrow().clone();
        let cluster = consensus.identity().cluster.as_str();
        let uptime = self.began.elapsed();
        let state = self.desk.pool.view().current();
        let levels = view::Levels {
            in_force: state.level(),
            highest: self.desk.pool.config().highest_level,
            held: state.config().hold_level,
        };
        let refused = readiness::why_it_takes_no_part(&self.desk.pool).unwrap_or_default();
        let (age, clock) = (consensus.staleness(), consensus.clock());
        Ok(Response::new(view::status(&status, cluster, age, uptime, clock, levels, refused)))
    }

    async fn list_members(
        &self,
        _: Request<v1::ListMembersRequest>,
    ) -> Result<Response<v1::ListMembersResponse>, Status> {
        let members = view::members(&self.existing()?);
        Ok(Response::new(v1::ListMembersResponse { members }))
    }

    async fn add_member(
        &self,
        request: Request<v1::AddMemberRequest>,
    ) -> Result<Response<v1::AddMemberResponse>, Status> {
        mutation::key_of(request.get_ref())?;
        let deadline = deadline_of(&request);
        let new = new_member(request.into_inner().member)?;
        let turn = timeout_at(deadline, self.adding.lock()).await;
        let _adding = turn.map_err(|_elapsed| self.refuse(&MembershipError::InProgress))?;
        let status = self.committed(deadline).await?;
        let known = view::members(&status).into_iter().find(|member| member.address == new.address);
        // While voters change, one of them may be on its way out.
        let stays = |known: &v1::Member| !status.joint || is_learner(&status, MemberId(known.id));
        if let Some(known) = known.filter(stays) {
            return Ok(Response::new(v1::AddMemberResponse { member: Some(known) }));
        }
        let identity = Identity {
            cluster: self.consensus().identity().cluster.clone(),
            member: self.consensus().next_member_id(),
        };
        let mut member = Member { id: identity.member, name: new.name, address: new.address };
        self.can_join(&member.address, identity.member, deadline).await?;
        let introduced =
            founding::introduce(self.desk.pool.outbound(), &member.address, &identity, None, deadline).await;
        let name = introduced.map_err(|error| not_made_member(&member.address, error))?;
        founding::call(&mut member, name);
        self.admit(&member, deadline).await.map_err(|error| self.refuse(&error))?;
        let status = self.settled(deadline, |status| status.member(member.id).is_some()).await;
        Ok(Response::new(v1::AddMemberResponse { member: Some(view::member(&status, &member)) }))
    }

    async fn promote_member(
        &self,
        request: Request<v1::PromoteMemberRequest>,
    ) -> Result<Response<v1::PromoteMemberResponse>, Status> {
        mutation::key_of(request.get_ref())?;
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let (id, majority) = (MemberId(request.member_id), majority(request.without_majority));
        let votes = |status: &MemberStatus| status.voters.iter().any(|voter| voter.id == id);
        let status = self.committed(deadline).await?;
        if status.joint || !votes(&status) {
            self.consensus().promote(id, majority, deadline).await.map_err(|error| self.refuse(&error))?;
        }
        let members = view::members(&self.settled(deadline, |status| votes(status) && !status.joint).await);
        Ok(Response::new(v1::PromoteMemberResponse { members }))
    }

    async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::RemoveMemberResponse>, Status> {
        mutation::key_of(request.get_ref())?;
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let (id, majority) = (MemberId(request.member_id), majority(request.without_majority));
        // A voter stays a member until its removal is whole: one that is none in a committed membership is gone.
        let is_gone =
            self.committed(deadline).await?.member(id).is_none() && id.0 != 0 && id < self.consensus().next_member_id();
        if !is_gone {
            self.consensus().remove(id, majority, deadline).await.map_err(|error| self.refuse(&error))?;
        }
        let members = view::members(&self.settled(deadline, |status| status.member(id).is_none()).await);
        Ok(Response::new(v1::RemoveMemberResponse { members }))
    }

    async fn transfer_leadership(
        &self,
        request: Request<v1::TransferLeadershipRequest>,
    ) -> Result<Response<v1::TransferLeadershipResponse>, Status> {
        mutation::key_of(request.get_ref())?;
        let deadline = deadline_of(&request);
        let id = request.into_inner().member_id;
        let to = (id != 0).then_some(MemberId(id));
        self.consensus().transfer_leadership(to, deadline).await.map_err(|error| self.refuse(&error))?;
        let status = self.settled(deadline, |status| status.leader.is_some()).await;
        let leader = status.leader.as_ref().map(|leader| view::member(&status, leader));
        Ok(Response::new(v1::TransferLeadershipResponse { leader, term: status.term.0 }))
    }

    async fn diagnose(&self, request: Request<v1::DiagnoseRequest>) -> Result<Response<v1::DiagnoseResponse>, Status> {
        let deadline = deadline_of(&request);
        diagnose::answer(&self.desk, deadline, request.into_inner()).await.map(Response::new)
    }

    type SaveSnapshotStream = Answers<v1::SaveSnapshotResponse>;

    async fn save_snapshot(
        &self,
        request: Request<v1::SaveSnapshotRequest>,
    ) -> Result<Response<Self::SaveSnapshotStream>, Status> {
        Ok(Response::new(save::open(&self.desk, deadline_of(&request)).await?))
    }
}

const fn majority(waived: bool) -> Majority {
    if waived { Majority::Waived } else { Majority::Needed }
}

fn not_made_member(address: &str, why: impl Display) -> Status {
    let sentence = format!("the process at {address} was not made a member: {why}");
    refusal::because(ErrorReason::MembershipRefused, sentence)
}

/// The process that a request names.
fn new_member(member: Option<v1::NewMember>) -> Result<v1::NewMember, Refusal> {
    let member = member.ok_or_else(|| FieldError::missing("member"))?;
    line("member.name", &member.name)?;
    address("member.address", &member.address)?;
    Ok(member)
}

#[cfg(test)]
mod tests {
    use tessera_api::limits;

    use super::*;

    #[test]
    fn the_name_and_address_of_a_member_are_bounded() {
        let member = |name: usize, host: usize| {
            let (name, address) = ("n".repeat(name), format!("{}:7400", "h".repeat(host)));
            let taken = new_member(Some(v1::NewMember { name, address }));
            taken.map(drop).map_err(|refused| refused.fields()[0].field.clone())
        };
        assert_eq!(member(limits::NAME, limits::NAME - 5), Ok(()));
        assert_eq!(member(limits::NAME + 1, 9), Err("member.name".to_owned()));
        assert_eq!(member(0, limits::NAME), Err("member.address".to_owned()));
        let named = |name: &str| {
            let (name, address) = (name.to_owned(), "a:1".to_owned());
            new_member(Some(v1::NewMember { name, address }))
        };
        assert!(named("m 1").is_ok() && named("m\n1").is_err());
    }
}
