//! Telling another process which member it is.

use tessera_api::v1;
use tessera_api::v1::cluster_service_client::ClusterServiceClient;
use tessera_connection::{ConnectError, Outbound, Terms};
use tessera_consensus::{Identity, MemberId};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Metadata that tells a process which member it is from now on; the cluster is in the request.
const MEMBER: &str = "tessera-member-id";

/// The reason for which a process could not be given its identity.
#[derive(Debug, thiserror::Error)]
pub enum IntroduceError {
    #[error("{address:?} is no host:port")]
    Address { address: String },
    /// The process was not reached.
    #[error("{address} was not reached; start a server with an empty data folder there")]
    Unreachable {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("{address} refused: {}", status.message())]
    Refused { address: String, status: Box<Status> },
    /// It did not answer in time.
    #[error("{address} did not answer in time; look at its log")]
    TooLate { address: String },
}

/// Tells the process at `address`, which must be nobody yet, that it is this member, and what the pool is to be if that
/// is new too.
///
/// # Errors
/// [`IntroduceError`].
pub async fn introduce(
    outbound: &Outbound,
    address: &str,
    identity: &Identity,
    pool: Option<v1::NewPool>,
    deadline: Instant,
) -> Result<(), IntroduceError> {
    let named = || address.to_owned();
    let asked = async {
        let channel = connect(outbound, address).await?;
        let mut request = Request::new(v1::InitializeClusterRequest {
            request_id: String::new(),
            cluster_id: identity.cluster.as_str().to_owned(),
            members: Vec::new(),
            pool,
        });
        request.metadata_mut().insert(MEMBER, identity.member.0.into());
        ClusterServiceClient::new(channel)
            .initialize_cluster(request)
            .await
            .map_err(|status| IntroduceError::Refused { address: named(), status: Box::new(status) })
    };
    match timeout_at(deadline, asked).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Err(IntroduceError::TooLate { address: named() }),
    }
}

/// The highest release level that the process at `address` can apply.
///
/// # Errors
/// [`IntroduceError`]: what is not known of a process that cannot be asked must not be taken for good.
pub(crate) async fn highest_level_of(
    outbound: &Outbound,
    address: &str,
    deadline: Instant,
) -> Result<u32, IntroduceError> {
    let asked = async {
        let channel = connect(outbound, address).await?;
        match ClusterServiceClient::new(channel).get_cluster_status(v1::GetClusterStatusRequest {}).await {
            Ok(status) => Ok(status.into_inner().highest_level),
            Err(status) => Err(IntroduceError::Refused { address: address.to_owned(), status: Box::new(status) }),
        }
    };
    match timeout_at(deadline, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(IntroduceError::TooLate { address: address.to_owned() }),
    }
}

/// Opens a connection to `address` and closes it again: nobody is introduced before all founders are there.
pub(super) async fn reach(outbound: &Outbound, address: &str, deadline: Instant) -> Result<(), IntroduceError> {
    match timeout_at(deadline, connect(outbound, address)).await {
        Ok(connected) => connected.map(drop),
        Err(_) => Err(IntroduceError::TooLate { address: address.to_owned() }),
    }
}

async fn connect(outbound: &Outbound, address: &str) -> Result<Channel, IntroduceError> {
    let connected = outbound.connect(address, &Terms::default()).await;
    connected.map_err(|error| match error {
        ConnectError::Address(_) => IntroduceError::Address { address: address.to_owned() },
        ConnectError::Transport(source) => IntroduceError::Unreachable { address: address.to_owned(), source },
    })
}

/// The member id under which a request introduces this process, if it does.
pub(crate) fn introduced_as<T>(request: &Request<T>) -> Result<Option<MemberId>, Status> {
    let Some(member) = request.metadata().get(MEMBER) else { return Ok(None) };
    let member = member.to_str().ok().and_then(|id| id.parse().ok()).filter(|id| *id > 0);
    member
        .map(|id| Some(MemberId(id)))
        .ok_or_else(|| Status::invalid_argument(format!("{MEMBER} must be a number from 1")))
}
