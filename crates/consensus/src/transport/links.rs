//! The connections to the other members and the calls that are not openraft's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_connection::{BoxedIo, KeepAlive, Knock, Outbound, Terms};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use super::PROTOCOL_VERSION;
use crate::codec::log_id_from_pb;
use crate::config::MAX_MESSAGE_BYTES;
use crate::ids::{Member, MemberId};
use crate::machine::LogIndex;
use crate::pb;
use crate::pb::raft_service_client::RaftServiceClient;
use crate::reads::{Confirmed, NotConfirmed};
use crate::shared::Shared;
use crate::status::Refused;

type Client = RaftServiceClient<Channel>;

/// The interval at which an idle connection is probed.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Control,
    Snapshot,
}

const LANES: usize = 2;

/// The request to a process that shall become a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// To say whether it would found a cluster; nothing is changed.
    Probe,
    /// To found a cluster.
    Found,
    /// To join one.
    Join,
}

/// The reason for which a call to another member did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Failed(String),
    #[error("refused: {0}")]
    Refused(String),
}

/// Another member's connections.
pub(crate) struct Peer {
    address: String,
    lanes: [Mutex<Option<Connection>>; LANES],
}

#[derive(Clone)]
struct Connection {
    made: u64,
    channel: Channel,
    /// The moment at which the connection last carried an answer, or was made.
    answered: Arc<Mutex<Instant>>,
}

/// Connections to all other members, dialled when first needed.
pub(crate) struct Links {
    pub shared: Arc<Shared>,
    outbound: Outbound,
    /// The runtime of consensus: the tasks that drive a connection belong there, whoever dials first.
    runtime: Handle,
    peers: Mutex<BTreeMap<MemberId, Arc<Peer>>>,
    made: std::sync::atomic::AtomicU64,
}

/// A connection in use; tell it when it turns out broken.
pub(crate) struct InUse {
    shared: Arc<Shared>,
    member: MemberId,
    peer: Arc<Peer>,
    lane: Lane,
    connection: Connection,
}

impl InUse {
    pub(super) fn client(&self) -> Client {
        RaftServiceClient::new(self.connection.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn answered(&self) -> MutexGuard<'_, Instant> {
        self.connection.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that it works.
    fn note_answer(&self) {
        *self.answered() = Instant::now();
    }

    /// A call went unanswered. A busy peer answers late, a dead connection never: it is given up after two leases of
    /// silence, and not before, because dialling anew makes a busy peer busier.
    fn note_silence(&self) {
        if self.answered().elapsed() >= self.shared.config.silence() {
            self.drop_connection();
        }
    }

    /// Drops the connection so that the next call dials anew; a peer that restarted must not wait for a dead one.
    pub(super) fn drop_connection(&self) {
        let mut slot = self.peer.lane(self.lane);
        if slot.as_ref().is_some_and(|now| now.made == self.connection.made) {
            *slot = None;
        }
    }
}

impl Peer {
    fn at(address: String) -> Self {
        Peer { address, lanes: Default::default() }
    }

    fn lane(&self, lane: Lane) -> MutexGuard<'_, Option<Connection>> {
        self.lanes[lane as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Links {
    /// Inside the runtime that consensus runs on.
    pub(crate) fn new(shared: Arc<Shared>, outbound: Outbound) -> Self {
        let made = std::sync::atomic::AtomicU64::new(0);
        Links { shared, outbound, runtime: Handle::current(), peers: Mutex::default(), made }
    }

    fn peer(&self, member: &Member) -> Arc<Peer> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        match peers.get(&member.id) {
            Some(peer) if peer.address == member.address => Arc::clone(peer),
            _ => {
                let peer = Arc::new(Peer::at(member.address.clone()));
                peers.retain(|id, _| !self.shared.was_removed(*id));
                peers.insert(member.id, Arc::clone(&peer));
                peer
            }
        }
    }

    pub(super) fn connect(&self, member: &Member, lane: Lane) -> Result<InUse, CallError> {
        let peer = self.peer(member);
        let connection = {
            let mut slot = peer.lane(lane);
            match slot.as_ref() {
                Some(connection) => connection.clone(),
                None => {
                    let made = self.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let channel = self.dial(&member.address, lane)?;
                    let answered = Arc::new(Mutex::new(Instant::now()));
                    let connection = Connection { made, channel, answered };
                    *slot = Some(connection.clone());
                    connection
                }
            }
        };
        Ok(InUse { shared: Arc::clone(&self.shared), member: member.id, peer, lane, connection })
    }

    fn terms(&self) -> Terms {
        let patience = self.shared.config.append_timeout;
        Terms {
            connect_timeout: Some(patience),
            keep_alive: Some(KeepAlive { interval: KEEP_ALIVE, timeout: patience, while_idle: true }),
            window_bytes: None,
        }
    }

    fn dial(&self, address: &str, lane: Lane) -> Result<Channel, CallError> {
        let window = if lane == Lane::Control { 1 << 16 } else { 4 << 20 };
        let terms = Terms { window_bytes: Some(window), ..self.terms() };
        let _driven_there = self.runtime.enter();
        self.outbound.lazily(address, &terms).map_err(|error| CallError::Failed(error.to_string()))
    }

    /// A connection for a line.
    pub(super) async fn bare(&self, member: &Member) -> Result<BoxedIo, CallError> {
        let opened = self.outbound.bare(&member.address, &self.terms()).await;
        opened.map_err(|error| CallError::Failed(format!("no connection: {error}")))
    }

    /// The runtime on which consensus runs.
    pub(super) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The header of every message: the sender and the receiver, among others.
    pub(super) fn header(&self, to: MemberId) -> pb::Header {
        pb::Header {
            version: PROTOCOL_VERSION,
            cluster_id: self.shared.identity.cluster.as_str().to_owned(),
            from: self.shared.id().0,
            to: to.0,
            start: self.shared.start,
        }
    }

    /// Makes a call with a deadline; a connection that failed, or is silent for too long, is dropped.
    pub(super) async fn call<Q, A, F>(
        &self,
        member: &Member,
        lane: Lane,
        deadline: Instant,
        request: Q,
        method: impl FnOnce(Client, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let patience = deadline.saturating_duration_since(Instant::now());
        let connection = self.connect(member, lane)?;
        // The other side needs no deadline of its own: what is given up here is reset there.
        match timeout_at(deadline, method(connection.client(), Request::new(request))).await {
            Ok(Ok(answer)) => {
                connection.note_answer();
                Ok(answer.into_inner())
            }
            Ok(Err(status)) => Err(failed(&connection, status)),
            Err(_) => {
                connection.note_silence();
                Err(CallError::Timeout(patience))
            }
        }
    }

    /// Asks a leader up to where a reader must wait.
    pub(crate) async fn read_index(&self, leader: &Member, deadline: Instant) -> Result<Confirmed, CallError> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let request = pb::ReadIndexRequest {
            header: Some(self.header(leader.id)),
            timeout_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        };
        let answer = self.call(leader, Lane::Control, deadline, request, |mut client, request| async move {
            client.read_index(request).await
        });
        match answer.await?.result {
            Some(pb::read_index_response::Result::Index(index)) => Ok(Ok(log_id_from_pb(index))),
            Some(pb::read_index_response::Result::NotLeader(_)) => Ok(Err(NotConfirmed::NotLeader(None))),
            Some(pb::read_index_response::Result::NoQuorum(_)) => Ok(Err(NotConfirmed::NoQuorum)),
            None => Err(CallError::Failed("an answer of an unknown kind".to_owned())),
        }
    }

    /// Asks a process to become a member under its id.
    pub(crate) async fn admit(
        &self,
        member: &Member,
        admission: Admission,
        deadline: Instant,
    ) -> Result<(), CallError> {
        let (founding, probe) = match admission {
            Admission::Probe => (true, true),
            Admission::Found => (true, false),
            Admission::Join => (false, false),
        };
        let request = pb::AdmitRequest { header: Some(self.header(member.id)), founding, probe };
        let answer = self.call(member, Lane::Control, deadline, request, |mut client, request| async move {
            client.admit(request).await
        });
        match answer.await?.refusal {
            refusal if refusal.is_empty() => Ok(()),
            refusal => Err(CallError::Refused(refusal)),
        }
    }

    /// Another member's newest digests.
    pub(crate) async fn digests(&self, member: &Member, deadline: Instant) -> Result<Vec<(LogIndex, u128)>, CallError> {
        let answer = self.ask_digests(member, deadline).await?;
        let digests = answer.digests.into_iter().map(|digest| {
            let bytes = <[u8; 16]>::try_from(digest.digest.as_ref());
            let value = bytes.map_err(|_| CallError::Failed("a digest that is not 16 bytes long".to_owned()))?;
            Ok((LogIndex(digest.index), u128::from_be_bytes(value)))
        });
        digests.collect()
    }

    /// The highest level that another member can apply.
    pub(crate) async fn announced(&self, member: &Member, deadline: Instant) -> Result<u32, CallError> {
        self.ask_digests(member, deadline).await.map(|answer| answer.highest_level)
    }

    /// Requests the digests and the announced level of a member, and its clock with them.
    async fn ask_digests(&self, member: &Member, deadline: Instant) -> Result<pb::DigestsResponse, CallError> {
        let request = pb::DigestsRequest { header: Some(self.header(member.id)) };
        let asked_at = Instant::now();
        let answer = self.call(member, Lane::Control, deadline, request, |mut client, request| async move {
            client.digests(request).await
        });
        let answer = answer.await?;
        if !self.shared.was_removed(member.id) {
            self.shared.meters.answered(member.id, asked_at.elapsed());
        }
        self.shared.time.heard(member.id, asked_at, answer.clock_ms);
        Ok(answer)
    }

    /// Tells a member that leadership is handed over, to it or to another one.
    pub(crate) async fn hand_over(
        &self,
        member: &Member,
        deadline: Instant,
        asked: pb::TransferLeaderRequest,
    ) -> Result<(), CallError> {
        let asked = pb::TransferLeaderRequest { header: Some(self.header(member.id)), ..asked };
        let method = |mut client: Client, request| async move { client.transfer_leader(request).await };
        let answer = self.call(member, Lane::Control, deadline, asked, method).await?;
        if answer.refusal.is_empty() { Ok(()) } else { Err(CallError::Refused(answer.refusal)) }
    }

    /// Finds out whether anybody listens at another member's address. Without an answer that comes as fast as a vote
    /// has to, nothing is known.
    pub(crate) async fn knock(&self, member: &Member) -> Knock {
        self.outbound.knock(&member.address, self.shared.config.election_timeout_min).await
    }

    /// Opens a stream that ends with the other member's process.
    pub(crate) async fn presence(
        &self,
        member: &Member,
        deadline: Instant,
    ) -> Result<Streaming<pb::PresenceResponse>, CallError> {
        let connection = self.connect(member, Lane::Control)?;
        let request = pb::PresenceRequest { header: Some(self.header(member.id)) };
        let mut client = connection.client();
        match timeout_at(deadline, client.presence(request)).await {
            Ok(Ok(stream)) => Ok(stream.into_inner()),
            Ok(Err(status)) => Err(failed(&connection, status)),
            Err(_) => {
                connection.drop_connection();
                Err(CallError::Timeout(self.shared.config.append_timeout))
            }
        }
    }
}

impl From<&Status> for CallError {
    fn from(status: &Status) -> Self {
        match status.code() {
            Code::FailedPrecondition | Code::PermissionDenied => CallError::Refused(status.message().to_owned()),
            code => CallError::Failed(format!("{code}: {}", status.message())),
        }
    }
}

/// Converts a failed call into its error. By its status it also notes a refusal or silence, or drops the connection.
pub(super) fn failed(connection: &InUse, status: Status) -> CallError {
    let note = |refused| connection.shared.refusals.note(connection.member, refused, Instant::now());
    let (member, why) = (connection.member, status.message().to_owned());
    match status.code() {
        Code::FailedPrecondition => note(Refused::Misplaced { member, why }),
        Code::PermissionDenied => note(Refused::TurnedAway { by: member, why }),
        // The peer's own clock ran out, or ours on the way: silence, not a broken connection.
        Code::Cancelled | Code::DeadlineExceeded => connection.note_silence(),
        _ => connection.drop_connection(),
    }
    CallError::from(&status)
}
