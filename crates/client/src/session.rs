//! The agent's end of a session: finds the leader and opens `AgentService.Session` there.
//!
//! Only the leader holds sessions. A [`SessionConnector`] remembers the members and who led last, follows NOT_LEADER
//! hints at once, and goes round the members when nobody knows a leader. One [`SessionConnector::open`] is one
//! bounded search with one hello; an agent whose session ended makes a new hello (what runs may have changed) and
//! calls it again.

use std::time::Duration;

use futures::{StreamExt, stream};
use tessera_api::v1::agent_service_client::AgentServiceClient;
use tessera_api::v1::{Hello, SessionRequest, SessionResponse, Welcome, session_request, session_response};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::address::Address;
use crate::client::Client;
use crate::entropy::unix_millis;
use crate::error::{ClientError, Incomplete};
use crate::retry::{Next, Tries};
use crate::routes::Target;
use crate::settings::Settings;

/// Messages of an agent that may wait to be sent.
const OUTGOING: usize = 256;

/// A session with the leader that has said welcome.
#[derive(Debug)]
pub struct Session {
    /// The member it is with.
    pub leader: Address,
    /// The leader's first answer.
    pub welcome: Welcome,
    /// To the leader. Dropping it ends the session.
    pub outgoing: mpsc::Sender<SessionRequest>,
    /// From the leader, after the welcome. Its error, if it ends with one, should go to [`SessionConnector::ended`].
    pub incoming: Streaming<SessionResponse>,
}

/// Opens sessions with whoever leads.
#[derive(Clone, Debug)]
pub struct SessionConnector {
    client: Client,
}

/// Opens one session with the leader, with default settings.
///
/// # Errors
/// As [`SessionConnector::open`].
pub async fn connect_session(members: &[Address], hello: Hello) -> Result<Session, ClientError> {
    let settings = Settings::default();
    let patience = settings.deadline;
    SessionConnector::new(members, settings)?.open(hello, patience).await
}

impl SessionConnector {
    /// A connector that knows `members`; it learns of further ones by their hints.
    ///
    /// # Errors
    /// [`ClientError::NoMembers`] when `members` is empty.
    pub fn new(members: &[Address], settings: Settings) -> Result<Self, ClientError> {
        Ok(Self { client: Client::new(members, settings)? })
    }

    /// Searches the leader for at most `patience`, says `hello` there, with the time at which it goes out by the clock
    /// of this host, and waits for its welcome.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the leader will not have this agent (NODE_NAME_TAKEN, NODE_FORGOTTEN,
    /// CLUSTER_MISMATCH, CARD_INVALID, PROTOCOL_VIOLATION): trying again is no use until something is changed.
    /// [`ClientError::Unavailable`] when no leader was found in time: try again with a fresh hello.
    pub async fn open(&mut self, hello: Hello, patience: Duration) -> Result<Session, ClientError> {
        let mut tries = Tries::new(&self.client, patience, None);
        loop {
            let target = self.client.routes().current();
            let status = match timeout_at(self.silence_limit(&tries), self.say_hello(&target, &hello)).await {
                Ok(Ok(session)) => {
                    self.client.routes().answered(&target.address, Instant::now());
                    return Ok(session);
                }
                Ok(Err(status)) => status,
                Err(_elapsed) => Status::unavailable("it did not answer the hello in time"),
            };
            match tries.failed(&self.client, &target.address, &status) {
                Next::Now => {}
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::GiveUp(error) => return Err(error),
            }
        }
    }

    /// Takes note of why a session ended, so that the next [`open`](Self::open) begins at the right member.
    pub fn ended(&mut self, leader: &Address, status: &Status) {
        Tries::new(&self.client, Duration::ZERO, None).failed(&self.client, leader, status);
    }

    /// A leader answers a hello after a commit at most; a member that is silent for much longer is given up
    /// for another.
    fn silence_limit(&self, tries: &Tries) -> Instant {
        let limit = Instant::now() + self.client.settings().silence();
        limit.min(tries.deadline())
    }

    async fn say_hello(&self, target: &Target, hello: &Hello) -> Result<Session, Status> {
        let (outgoing, outbox) = mpsc::channel(OUTGOING);
        let hello = hello.clone();
        // When it goes out, after the search and the connection.
        let first = stream::once(async move {
            let hello = Hello { sent_at_unix_ms: unix_millis(), ..hello };
            SessionRequest { message: Some(session_request::Message::Hello(hello)) }
        });
        let limit = self.client.settings().max_message_bytes;
        let mut stub = AgentServiceClient::new(target.channel.clone()).max_decoding_message_size(limit);
        let mut request = tonic::Request::new(first.chain(ReceiverStream::new(outbox)));
        self.client.settings().headers.add_to(request.metadata_mut());
        let mut incoming = stub.session(request).await?.into_inner();
        let message = incoming.message().await?.and_then(|response| response.message);
        match message {
            Some(session_response::Message::Welcome(welcome)) => {
                Ok(Session { leader: target.address.clone(), welcome, outgoing, incoming })
            }
            _ => Err(Incomplete("the first message of the session is no welcome").into()),
        }
    }
}
