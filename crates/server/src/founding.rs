//! The way in which a process without an identity becomes a member.
//!
//! A process with an empty data folder is nobody. It waits, answering nothing but this small service, until it is told
//! who it is: by `cluster init`, asked of one of the founders, which introduces the others to their ids and then founds
//! the cluster with them; or by the leader, when it is added to a cluster that exists. It then starts consensus under
//! that identity, and is admitted by the others. Its data folder belongs to that member from then on.

mod founders;
mod introduction;

use std::time::Duration;

use axum::Router;
use axum::body::{Body as AxumBody, to_bytes};
use prometheus_client::metrics::gauge::Gauge;
use tessera_api::Refusal;
use tessera_api::reasons::ReasonLayer;
use tessera_api::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use tessera_api::v1::{self, ErrorReason};
use tessera_connection::arriving::{ArrivalLayer, Punctuality};
use tessera_connection::seated::incoming;
use tessera_connection::seats::{SeatLimits, Seats};
use tessera_connection::{Inbound, Outbound};
use tessera_consensus::{ClusterId, Consensus, Identity, Member, MemberId, MembershipError, addressee};
use tessera_ledger::wire::FieldError;
use tessera_ledger::{Level, Revision};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

pub(crate) use founders::founders;
pub use introduction::{IntroduceError, introduce};
pub(crate) use introduction::{PAUSE, call, introduced_as, status_of};

use self::founders::Founders;
use crate::grpc::KEEP_ALIVE;
use crate::limits::MemberLimits;
use crate::phase::{Phase, TakenFor};
use crate::services::{Answers, refusal};
use tessera_controller::machine::LedgerMachine;
use tessera_controller::new_pool::NewPool;
use tessera_controller::pool::PoolHandle;

/// The longest time for founding a cluster.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time for which a connection may be open without a call before it is closed.
const SILENCE: Duration = Duration::from_secs(3600);
/// The longest wait for a cluster that was just founded to reach this member's release level.
const LEVEL_PATIENCE: Duration = Duration::from_secs(5);
/// Beginning of the paths of the service between members.
const OF_MEMBERS: &str = "/tessera.raft.v1.";
/// Bytes of a call of another member that are read for whom it looks for: no question is longer.
const CALL_BYTES: usize = 4 << 10;

/// The identity that the process was given, and the steps that follow.
#[derive(Debug)]
pub(crate) struct Named {
    pub identity: Identity,
    /// The settings of the pool that it founds with others, if it was told any.
    pub pool: Option<NewPool>,
    pub founding: Option<Founding>,
}

/// A cluster to be founded by this process.
#[derive(Debug)]
pub(crate) struct Founding {
    pub members: Vec<Member>,
    pub answer: oneshot::Sender<Result<(), MembershipError>>,
}

/// Waits until a cluster that was just founded has a leader that has committed something, and is at this member's
/// release level, so that whoever founded it can use everything at once. Founders of an older release keep the level
/// lower; then it is not waited for long.
pub(crate) async fn in_use(pool: &PoolHandle) {
    let mut state = pool.view().changes();
    let used = state.wait_for(|state| state.revision() > Revision(0) && state.level() >= pool.config().highest_level);
    // Either way the cluster is founded.
    drop(timeout_at(Instant::now() + LEVEL_PATIENCE, used).await);
}

/// Founds the cluster, once consensus runs and the other founders have been introduced. They may still be starting, so
/// it is tried until it succeeds or fails for good.
pub(crate) async fn found(consensus: &Consensus<LedgerMachine>, members: Vec<Member>) -> Result<(), MembershipError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match consensus.initialize(members.clone(), deadline).await {
            Err(MembershipError::NotAdmitted { member, why }) if Instant::now() + PAUSE < deadline => {
                tracing::debug!(%member, why, "a founder does not answer yet");
                sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Waits on `inbound` until this process is told who it is; `None` when `end` comes first. The member is served on the
/// same afterwards.
pub(crate) async fn wait(
    inbound: Inbound,
    (advertise, name): (&str, &str),
    highest_level: Level,
    outbound: &Outbound,
    shown: &watch::Sender<Phase>,
    end: &CancellationToken,
) -> Result<Option<Named>, tonic::transport::Error> {
    let (told, mut named) = mpsc::channel(1);
    let closing = end.child_token();
    shown.send_replace(Phase::Nobody(None));
    let (advertise, name, outbound) = (advertise.to_owned(), name.to_owned(), outbound.clone());
    let nobody = Nobody { advertise, name, highest_level, outbound, shown: shown.clone(), told };
    let service = Routes::new(ClusterServiceServer::new(nobody)).into_axum_router();
    // It goes on answering the call that named it while the member starts.
    let serving = tokio::spawn(serve(inbound, service, shown, closing.clone()));
    tokio::select! {
        () = end.cancelled() => Ok(None),
        named = named.recv() => {
            closing.cancel();
            Ok(named)
        }
        ended = serving => match ended {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Ok(None),
        },
    }
}

/// Answers every call with what the process is doing, until the guard is dropped: a member that reads its data folder
/// has nobody yet to answer, and whoever waited for that would hear of nothing but their own deadline.
pub(crate) fn answer_meanwhile(inbound: Inbound, shown: &watch::Sender<Phase>) -> DropGuard {
    let closing = CancellationToken::new();
    let serving = serve(inbound, Router::new(), shown, closing.clone());
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::warn!(%error, "nobody was told that this process is starting");
        }
    });
    closing.drop_guard()
}

/// Serves on `inbound` until `closing`; what `service` does not answer hears what the process is.
fn serve(
    inbound: Inbound,
    service: Router,
    shown: &watch::Sender<Phase>,
    closing: CancellationToken,
) -> impl Future<Output = Result<(), tonic::transport::Error>> + use<> {
    // Nobody tells here whose a connection is: all may be silent for as long as this lasts.
    let limits = MemberLimits::default();
    let seats = Seats::new(SeatLimits { silence: SILENCE, ..limits.seats() }, Gauge::default());
    let shown = shown.clone();
    let others = move |request| not_initialized(shown.clone(), request);
    let punctuality = Punctuality { patience: limits.silence, late: refusal::request_came_too_slowly };
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .layer(ReasonLayer)
        .layer(ArrivalLayer(punctuality))
        .add_routes(Routes::from(service.fallback(others)))
        .serve_with_incoming_shutdown(incoming(inbound, seats), closing.cancelled_owned())
}

/// The service of a process that is nobody.
#[derive(Debug)]
struct Nobody {
    /// Under which address others know it.
    advertise: String,
    /// The name that it was started with; empty: none.
    name: String,
    /// The highest level that it can apply.
    highest_level: Level,
    outbound: Outbound,
    shown: watch::Sender<Phase>,
    told: mpsc::Sender<Named>,
}

/// The answer of every other service: a caller that knows further members is to ask them. One that takes this process
/// for a member tells it so.
async fn not_initialized(shown: watch::Sender<Phase>, request: http::Request<AxumBody>) -> http::Response<AxumBody> {
    let (head, body) = request.into_parts();
    if head.uri.path().starts_with(OF_MEMBERS)
        && let Ok(Ok(called)) = timeout(PAUSE, to_bytes(body, CALL_BYTES)).await
        && let Some(member) = addressee(&called)
    {
        shown.send_modify(|phase| note_call(phase, member));
    }
    let refusal = shown.borrow().refusal();
    Status::from(refusal).into_http()
}

/// Notes that others take this process for a member, and warns of what is new.
fn note_call(phase: &mut Phase, member: Identity) {
    let Phase::Nobody(known) = phase else { return };
    if known.as_ref().is_none_or(|known| known.member != member || !known.is_fresh()) {
        tracing::warn!("this process has an empty data folder, and others take it for {member}");
    }
    *known = Some(TakenFor { member, heard: Instant::now() });
}

impl Nobody {
    /// The refusal of whatever only a member can answer.
    fn refusal(&self) -> Status {
        self.shown.borrow().refusal().into()
    }

    /// Hands over who this process is; the second time is refused.
    fn tell(&self, named: Named) -> Result<(), Refusal> {
        let refuse =
            |_| Refusal::new(ErrorReason::AlreadyInitialized, "this process was just made a member of a cluster");
        self.told.try_send(named).map_err(refuse)
    }

    /// This process is told who it is.
    fn named(&self, member: MemberId, cluster: &str, pool: Option<&v1::NewPool>) -> Result<(), Refusal> {
        let pool = pool.map(NewPool::of_request).transpose()?;
        let cluster = ClusterId::new(cluster)
            .map_err(|error| Refusal::from(FieldError::invalid("cluster_id", error.to_string())))?;
        let identity = Identity { cluster, member };
        tracing::info!(%identity, "this process is told who it is");
        self.tell(Named { identity, pool, founding: None })
    }

    /// This process is asked to found a cluster.
    async fn found(&self, request: v1::InitializeClusterRequest) -> Result<v1::InitializeClusterResponse, Refusal> {
        let mut founders = founders(request, &self.advertise)?;
        let deadline = Instant::now() + PATIENCE;
        founders.introduce(&self.outbound, deadline).await?;
        let Founders { cluster, own, mut members, pool } = founders;
        members.iter_mut().filter(|member| member.id == own).for_each(|member| call(member, self.name.clone()));
        let (answer, founded) = oneshot::channel();
        let founding = Founding { members: members.clone(), answer };
        let identity = Identity { cluster: cluster.clone(), member: own };
        self.tell(Named { identity, pool, founding: Some(founding) })?;
        match timeout_at(deadline + PATIENCE, founded).await {
            Ok(Ok(Ok(()))) => Ok(founded_by(&cluster, &members)),
            Ok(Ok(Err(error))) => Err(Refusal::new(ErrorReason::MembershipRefused, error.to_string())),
            Ok(Err(_)) | Err(_) => {
                let text = "the cluster was not founded in time; look at the logs of its members and start them again";
                Err(Refusal::new(ErrorReason::OutcomeUnknown, text))
            }
        }
    }
}

pub(crate) fn founded_by(cluster: &ClusterId, members: &[Member]) -> v1::InitializeClusterResponse {
    let members = members.iter().map(|member| v1::Member {
        id: member.id.0,
        name: member.name.clone(),
        address: member.address.clone(),
        voter: true,
        ..v1::Member::default()
    });
    v1::InitializeClusterResponse { cluster_id: cluster.as_str().to_owned(), members: members.collect() }
}

#[tonic::async_trait]
impl ClusterService for Nobody {
    async fn initialize_cluster(
        &self,
        request: Request<v1::InitializeClusterRequest>,
    ) -> Result<Response<v1::InitializeClusterResponse>, Status> {
        let member = introduced_as(&request)?;
        let request = request.into_inner();
        let Some(member) = member else {
            return Ok(Response::new(self.found(request).await?));
        };
        self.named(member, &request.cluster_id, request.pool.as_ref())?;
        let own = v1::Member { id: member.0, name: self.name.clone(), ..v1::Member::default() };
        Ok(Response::new(v1::InitializeClusterResponse { cluster_id: request.cluster_id, members: vec![own] }))
    }

    async fn get_cluster_status(
        &self,
        _: Request<v1::GetClusterStatusRequest>,
    ) -> Result<Response<v1::GetClusterStatusResponse>, Status> {
        Ok(Response::new(v1::GetClusterStatusResponse {
            role: v1::MemberRole::Learner.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            highest_level: self.highest_level.number(),
            refused: self.shown.borrow().lost_folder().map(|lost| lost.to_string()).unwrap_or_default(),
            ..v1::GetClusterStatusResponse::default()
        }))
    }

    async fn list_members(
        &self,
        _: Request<v1::ListMembersRequest>,
    ) -> Result<Response<v1::ListMembersResponse>, Status> {
        Err(self.refusal())
    }

    async fn add_member(&self, _: Request<v1::AddMemberRequest>) -> Result<Response<v1::AddMemberResponse>, Status> {
        Err(self.refusal())
    }

    async fn promote_member(
        &self,
        _: Request<v1::PromoteMemberRequest>,
    ) -> Result<Response<v1::PromoteMemberResponse>, Status> {
        Err(self.refusal())
    }

    async fn remove_member(
        &self,
        _: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::RemoveMemberResponse>, Status> {
        Err(self.refusal())
    }

    async fn transfer_leadership(
        &self,
        _: Request<v1::TransferLeadershipRequest>,
    ) -> Result<Response<v1::TransferLeadershipResponse>, Status> {
        Err(self.refusal())
    }

    async fn diagnose(&self, _: Request<v1::DiagnoseRequest>) -> Result<Response<v1::DiagnoseResponse>, Status> {
        Err(self.refusal())
    }

    type SaveSnapshotStream = Answers<v1::SaveSnapshotResponse>;

    async fn save_snapshot(
        &self,
        _: Request<v1::SaveSnapshotRequest>,
    ) -> Result<Response<Self::SaveSnapshotStream>, Status> {
        Err(self.refusal())
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::error::reason_of;
    use tessera_api::reflect::descriptors;
    use tessera_api::v1::job_service_client::JobServiceClient;
    use tessera_connection::Terms;
    use tokio::task::JoinHandle;
    use tonic::Code;
    use tower::ServiceExt;

    use super::*;
    use crate::services::readiness::NotReady;

    type Waiting = JoinHandle<Result<Option<Named>, tonic::transport::Error>>;

    /// A process that waits at an address, until it is told who it is or ended.
    async fn nobody_waits() -> (String, CancellationToken, Waiting) {
        let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("loopback has a free port");
        let address = inbound.local_address().expect("it is bound").to_string();
        let end = CancellationToken::new();
        let waiting = tokio::spawn({
            let (address, end) = (address.clone(), end.clone());
            let shown = watch::Sender::default();
            async move { wait(inbound, (&address, "four"), Level::NEWEST, &Outbound::default(), &shown, &end).await }
        });
        (address, end, waiting)
    }

    #[tokio::test]
    async fn a_call_to_a_member_that_is_starting_is_answered_at_once_and_may_be_repeated() {
        let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("loopback has a free port");
        let address = inbound.local_address().expect("it is bound").to_string();
        let shown = watch::Sender::default();
        let starting = answer_meanwhile(inbound.clone(), &shown);
        let channel = Outbound::default().connect(&address, &Terms::default()).await.expect("it listens");
        let mut jobs = JobServiceClient::new(channel);
        let status = jobs.get_job(v1::GetJobRequest::default()).await.expect_err("nobody has jobs");
        assert_eq!((status.code(), reason_of(&status)), (Code::Unavailable, Some(ErrorReason::MemberStarting)));
        let says = NotReady::Starting.to_string();
        assert!(status.message().starts_with(&says), "{status:?} does not say as the pages do: {says}");
        drop(starting);
        let (end, shown) = (CancellationToken::new(), watch::Sender::default());
        let waiting = tokio::spawn({
            let end = end.clone();
            async move { wait(inbound, (&address, ""), Level::NEWEST, &Outbound::default(), &shown, &end).await }
        });
        // The same channel finds whoever serves the address now.
        while reason_of(&jobs.get_job(v1::GetJobRequest::default()).await.expect_err("nobody has jobs"))
            != Some(ErrorReason::NotInitialized)
        {
            sleep(PAUSE).await;
        }
        end.cancel();
        waiting.await.expect("no panic").expect("the server did not fail");
    }

    #[tokio::test]
    async fn every_call_hears_that_there_is_no_member_yet() {
        let (address, end, waiting) = nobody_waits().await;
        let channel = Outbound::default().connect(&address, &Terms::default()).await.expect("it listens");
        let asked = JobServiceClient::new(channel).get_job(v1::GetJobRequest::default()).await;
        let status = asked.expect_err("nobody has jobs");
        assert_eq!(reason_of(&status), Some(ErrorReason::NotInitialized), "{status:?}");
        end.cancel();
        let named = waiting.await.expect("waiting does not panic").expect("the server did not fail");
        assert_eq!(named.map(|named| named.identity), None);
    }

    #[tokio::test]
    async fn bytes_that_are_no_message_are_no_defect_of_a_process_that_is_no_member_yet() {
        let (address, end, waiting) = nobody_waits().await;
        let channel = Outbound::default().connect(&address, &Terms::default()).await.expect("it listens");
        let services = descriptors().expect("they were compiled in").services();
        for method in services.flat_map(|service| service.methods().collect::<Vec<_>>()) {
            let path = format!("{}/{}", method.parent_service().full_name(), method.name());
            let served = method.parent_service().name() == "ClusterService";
            let reason = if served { ErrorReason::ProtocolViolation } else { ErrorReason::NotInitialized };
            let request = http::Request::post(format!("http://{address}/{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(tonic::body::Body::new(axum::body::Body::from(&b"\0\0\0\0\x03\xff\xff\xff"[..])))
                .expect("a request");
            let response = channel.clone().oneshot(request).await.expect("an answer");
            let status = Status::from_header_map(response.headers()).expect("a refusal");
            assert_eq!(reason_of(&status), Some(reason), "{path}: {status:?}");
        }
        end.cancel();
        drop(waiting.await.expect("waiting does not panic").expect("the server did not fail"));
    }

    #[tokio::test]
    async fn a_process_is_told_once_who_it_is() {
        let (address, _end, waiting) = nobody_waits().await;
        let cluster = ClusterId::new("prod").expect("a legal name");
        let identity = Identity { cluster, member: MemberId(4) };
        let deadline = Instant::now() + PATIENCE;
        let name = introduce(&Outbound::default(), &address, &identity, None, deadline).await;
        assert_eq!(name.expect("it waits for this"), "four");
        let named = waiting.await.expect("waiting does not panic").expect("the server did not fail");
        assert_eq!(named.map(|named| named.identity), Some(identity.clone()));
        assert!(
            introduce(&Outbound::default(), &address, &identity, None, deadline).await.is_err(),
            "it waits no more"
        );
    }
}
