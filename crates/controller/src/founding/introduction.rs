//! Telling another process which member it is.

use tessera_api::v1;
use tessera_api::v1::cluster_service_client::ClusterServiceClient;
use tessera_consensus::{Identity, MemberId};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Endpoint;
use tonic::{Request, Status};

use crate::connections::Outbound;

/// Metadata that tells a process which member it is from now on; the cluster is in the request.
const MEMBER: &str = "tessera-member-id";

/// Why a process could not be told who it is.
#[derive(Debug, thiserror::Error)]
pub enum IntroduceError {
    /// The address is none.
    #[error("{address:?} is no host:port")]
    Address {
        /// What was given.
        address: String,
    },
    /// The process was not reached.
    #[error("{address} was not reached; start a server with an empty data folder there")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What the connection said.
        #[source]
        source: tonic::transport::Error,
    },
    /// It refused.
    #[error("{address} refused: {}", status.message())]
    Refused {
        /// Where it is.
        address: String,
        /// What it answered.
        status: Box<Status>,
    },
    /// It did not answer in time.
    #[error("{address} did not answer in time; look at its log")]
    TooLate {
        /// Where it is.
        address: String,
    },
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
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|_| IntroduceError::Address { address: named() })?;
    let asked = async {
        let channel = outbound
            .connect(&endpoint)
            .await
            .map_err(|source| IntroduceError::Unreachable { address: named(), source })?;
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

/// The highest release level that the process at `address` can apply; `None` when it does not say.
pub(crate) async fn highest_level_of(outbound: &Outbound, address: &str, deadline: Instant) -> Option<u32> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    let asked = async {
        let channel = outbound.connect(&endpoint).await.ok()?;
        let status = ClusterServiceClient::new(channel).get_cluster_status(v1::GetClusterStatusRequest {}).await;
        Some(status.ok()?.into_inner().highest_level)
    };
    timeout_at(deadline, asked).await.ok().flatten()
}

/// Opens a connection to `address` and closes it again: nobody is introduced before all founders are there.
pub(super) async fn reach(outbound: &Outbound, address: &str, deadline: Instant) -> Result<(), IntroduceError> {
    let named = || address.to_owned();
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|_| IntroduceError::Address { address: named() })?;
    match timeout_at(deadline, outbound.connect(&endpoint)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) => Err(IntroduceError::Unreachable { address: named(), source }),
        Err(_) => Err(IntroduceError::TooLate { address: named() }),
    }
}

/// The member id under which a request introduces this process, if it does.
pub(crate) fn introduced_as<T>(request: &Request<T>) -> Result<Option<MemberId>, Status> {
    let Some(member) = request.metadata().get(MEMBER) else { return Ok(None) };
    let member = member.to_str().ok().and_then(|id| id.parse().ok()).filter(|id| *id > 0);
    member
        .map(|id| Some(MemberId(id)))
        .ok_or_else(|| Status::invalid_argument(format!("{MEMBER} must be a number from 1")))
}
