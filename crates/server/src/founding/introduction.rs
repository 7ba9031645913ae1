//! Telling another process which member it is.

use std::error::Error as _;
use std::time::Duration;

use tessera_api::error::reason_of;
use tessera_api::limits;
use tessera_api::v1::cluster_service_client::ClusterServiceClient;
use tessera_api::v1::{self, ErrorReason};
use tessera_connection::{ConnectError, Outbound, Terms};
use tessera_consensus::{Identity, Member, MemberId};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// Metadata that tells a process which member it is from now on; the cluster is in the request.
const MEMBER: &str = "tessera-member-id";
/// The longest time for a connection to a process, and for its answer: both come at once from a process that waits for
/// this. A host that is switched off, or another program, never answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause before a process that is starting is asked again.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

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
    /// Another program listens there.
    #[error(
        "what listens at {address} is no server of Tessera, but an agent or another program; name the address of a \
         server with an empty data folder"
    )]
    Stranger { address: String },
    /// The connection broke, or what came over it was no answer.
    #[error("{address} gave no answer of a server: it has ended meanwhile, or is another program; see what runs there")]
    NoAnswer { address: String },
    /// It did not answer in time.
    #[error("{address} did not answer in time; see whether a server runs there, and look at its log")]
    TooLate { address: String },
}

impl IntroduceError {
    /// The error that the answer of a process stands for. A status with a source was made on this side: what came was
    /// no answer of gRPC.
    fn of(address: &str, status: Status) -> Self {
        let address = address.to_owned();
        match status.code() {
            Code::Unimplemented => Self::Stranger { address },
            _ if status.source().is_some() => Self::NoAnswer { address },
            _ => Self::Refused { address, status: Box::new(status) },
        }
    }
}

/// Tells the process at `address`, which must be nobody yet or was told so before, that it is this member, and what the
/// pool is to be if that is new too. Returns the name that the process was started with; empty: none.
///
/// # Errors
/// [`IntroduceError`].
pub async fn introduce(
    outbound: &Outbound,
    address: &str,
    identity: &Identity,
    pool: Option<v1::NewPool>,
    deadline: Instant,
) -> Result<String, IntroduceError> {
    let message = v1::InitializeClusterRequest {
        request_id: String::new(),
        cluster_id: identity.cluster.as_str().to_owned(),
        members: Vec::new(),
        pool,
    };
    let member = identity.member.0;
    let asked = move |mut client: ClusterServiceClient<Channel>| {
        let mut request = Request::new(message.clone());
        request.metadata_mut().insert(MEMBER, member.into());
        async move { client.initialize_cluster(request).await }
    };
    let own = ask(outbound, address, deadline, asked).await?.members.pop();
    Ok(own.map(|member| member.name).unwrap_or_default())
}

/// Gives a member the name that its process was started with, unless whoever made it a member named it.
pub(crate) fn call(member: &mut Member, name: String) {
    if member.name.is_empty() && name.len() <= limits::NAME {
        member.name = name;
    }
}

/// Asks the process at `address` for its status.
///
/// # Errors
/// [`IntroduceError`]: what is not known of a process that cannot be asked must not be taken for good.
pub(crate) async fn status_of(
    outbound: &Outbound,
    address: &str,
    deadline: Instant,
) -> Result<v1::GetClusterStatusResponse, IntroduceError> {
    let asked = |mut client: ClusterServiceClient<Channel>| async move {
        client.get_cluster_status(v1::GetClusterStatusRequest {}).await
    };
    ask(outbound, address, deadline, asked).await
}

/// Asks the process at `address`, again while it is only starting.
async fn ask<T, Answer: Future<Output = Result<Response<T>, Status>>>(
    outbound: &Outbound,
    address: &str,
    deadline: Instant,
    question: impl Fn(ClusterServiceClient<Channel>) -> Answer,
) -> Result<T, IntroduceError> {
    let asked = async {
        let client = ClusterServiceClient::new(connect(outbound, address).await?);
        loop {
            match question(client.clone()).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) if reason_of(&status) == Some(ErrorReason::MemberStarting) => sleep(PAUSE).await,
                Err(status) => return Err(IntroduceError::of(address, status)),
            }
        }
    };
    in_time(address, deadline, asked).await
}

/// Opens a connection to `address` and closes it again: nobody is introduced before all founders are there.
pub(super) async fn reach(outbound: &Outbound, address: &str, deadline: Instant) -> Result<(), IntroduceError> {
    in_time(address, deadline, connect(outbound, address)).await.map(drop)
}

/// Waits for something of the process at `address`, for as long as one that is there takes.
async fn in_time<T>(
    address: &str,
    deadline: Instant,
    awaited: impl Future<Output = Result<T, IntroduceError>>,
) -> Result<T, IntroduceError> {
    let deadline = deadline.min(Instant::now() + PATIENCE);
    timeout_at(deadline, awaited).await.unwrap_or_else(|_| Err(IntroduceError::TooLate { address: address.to_owned() }))
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
