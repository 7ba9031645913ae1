//! The services that other members call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest, VoteResponse};

use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::callers::doubled;
use super::vouching::Sender;
use super::{receive, wire};
use crate::codec::{Description, encode_identity, log_id_from_pb, log_id_to_pb, vote_to_pb};
use crate::config::MAX_MESSAGE_BYTES;
use crate::error::ReadError;
use crate::handle::{Consensus, Inner};
use crate::machine::{Machine, Unreadable};
use crate::pb;
use crate::pb::raft_service_server::{RaftService, RaftServiceServer};
use crate::types::{TypeConfig, Vote};

/// The raft service of one member, to be mounted in its server.
pub type RaftServer<M> = RaftServiceServer<Served<M>>;

/// The raft service of one member: mount it at the address the other members know, beside the API. Mount it
/// before the cluster is initialized or the member is added, since that calls it.
pub fn raft_service<M: Machine>(consensus: &Consensus<M>) -> RaftServer<M> {
    RaftServiceServer::new(Served { inner: Arc::clone(&consensus.inner) })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// Answers the calls of other members; see [`raft_service`].
pub struct Served<M: Machine> {
    pub(super) inner: Arc<Inner<M>>,
}

impl<M: Machine> std::fmt::Debug for Served<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Served")
    }
}

pub(super) fn gone(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this member has stopped: {error}"))
}

pub(super) fn garbled(error: Unreadable) -> Status {
    Status::invalid_argument(error.what)
}

impl<M: Machine> Served<M> {
    pub(super) fn own_vote(&self) -> Vote {
        self.inner.raft.metrics().borrow_watched().vote
    }

    fn clock_ms(&self) -> u64 {
        self.inner.shared.time.wall().0
    }

    /// Notes a sign of life that was read at a moment, unless it is that of a leader that was replaced.
    fn note_leader(&self, vote: &Vote, read: Instant) {
        if vote.partial_cmp(&self.own_vote()) != Some(std::cmp::Ordering::Less) {
            self.inner.shared.note_leader(read);
        }
    }

    async fn admit_here(&self, founding: bool, probe: bool) -> Result<(), String> {
        let shared = &self.inner.shared;
        let log = shared.store.log_state().map_err(|error| error.to_string())?;
        // What was admitted and has entries was being added when the leader was lost that did so. Whatever of them was
        // never committed, the next leader replaces.
        let is_being_added = !founding && shared.admitted();
        if log.last.is_some() && !is_being_added {
            let what = if founding { "it belongs to a cluster already" } else { "this id took part before" };
            return Err(what.to_owned());
        }
        if !probe && !shared.admitted() {
            let identity = encode_identity(&shared.identity);
            let saved = shared.durable(|done| shared.store.save_identity(identity, done)).await;
            saved.map_err(|error| error.to_string())?;
            shared.set_admitted();
            tracing::info!(identity = %shared.identity, "admitted");
        }
        Ok(())
    }
}

impl<M: Machine> Consensus<M> {
    /// Admits this member itself, as a founder.
    pub(crate) async fn admit_self(&self) -> Result<(), String> {
        Served { inner: Arc::clone(&self.inner) }.admit_here(true, false).await
    }
}

impl<M: Machine> Served<M> {
    /// An append from a member that was found to be one when it began to send.
    pub(super) async fn take_append(
        &self,
        from: Sender,
        message: pb::AppendRequest,
    ) -> Result<AppendEntriesRequest<TypeConfig>, Status> {
        let read = Instant::now();
        self.inner.shared.starts.check(from.member, read).map_err(doubled)?;
        let vote = self.plausible(wire::required_vote(message.vote).map_err(garbled)?)?;
        let request = match wire::append_from_pb(message) {
            Ok(request) => request,
            Err(error) => return Err(self.cannot_read(from, &vote, error).await),
        };
        self.note_leader(&vote, read);
        Ok(request)
    }

    pub(super) async fn take_heartbeat(&self, request: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Status> {
        self.check_member(request.header.as_ref())?;
        let read = Instant::now();
        let currency = request.currency.ok_or_else(|| Status::invalid_argument("a heartbeat without its currency"))?;
        let heartbeat = wire::heartbeat_from_pb(request).map_err(garbled)?;
        self.plausible(heartbeat.vote)?;
        let (vote, previous) = (heartbeat.vote, heartbeat.prev_log_id);
        let answer = self.inner.raft.append_entries(heartbeat).await.map_err(gone)?;
        self.note_leader(&vote, read);
        self.inner.shared.note_currency(currency, read);
        let outcome = wire::outcome_to_pb(answer.into_stream_result(previous, previous));
        let stamp = Some(self.inner.shared.stamps.stamp(Instant::now()));
        Ok(pb::HeartbeatResponse { outcome: Some(outcome), clock_ms: self.clock_ms(), stamp })
    }
}

#[tonic::async_trait]
impl<M: Machine> RaftService for Served<M> {
    type PresenceStream = BoxStream<'static, Result<pb::PresenceResponse, Status>>;

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Result<Response<pb::VoteResponse>, Status> {
        let request = request.into_inner();
        self.check_present(request.header.as_ref())?;
        let vote = self.plausible(wire::required_vote(request.vote).map_err(garbled)?)?;
        let mut asked = VoteRequest::new(vote, request.last.map(log_id_from_pb));
        asked.leadership_transfer = request.leadership_transfer;
        let answer = self.inner.raft.vote(asked).await.map_err(gone)?;
        Ok(Response::new(pb::VoteResponse {
            vote: Some(vote_to_pb(&answer.vote)),
            granted: answer.vote_granted,
            last: answer.last_log_id.as_ref().map(log_id_to_pb),
            clock_ms: self.clock_ms(),
        }))
    }

    async fn pre_vote(&self, request: Request<pb::PreVoteRequest>) -> Result<Response<pb::PreVoteResponse>, Status> {
        let request = request.into_inner();
        self.check_present(request.header.as_ref())?;
        let vote = self.plausible(wire::required_vote(request.vote).map_err(garbled)?)?;
        let asked = VoteRequest::new(vote, request.last.map(log_id_from_pb));
        let own = self.own_vote();
        // Here only: a candidate that has others' word has burnt a term already, and to refuse it would cost another.
        let answer = if self.inner.shared.honours_leader_again(&own) {
            VoteResponse::new(own, None, false)
        } else {
            self.inner.raft.pre_vote(asked).await.map_err(gone)?
        };
        Ok(Response::new(pb::PreVoteResponse {
            vote: Some(vote_to_pb(&answer.vote)),
            granted: answer.vote_granted,
            last: answer.last_log_id.as_ref().map(log_id_to_pb),
            clock_ms: self.clock_ms(),
        }))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferLeaderRequest>,
    ) -> Result<Response<pb::TransferLeaderResponse>, Status> {
        let request = request.into_inner();
        self.check_member(request.header.as_ref())?;
        let from = self.plausible(wire::required_vote(request.from_leader).map_err(garbled)?)?;
        let asked = TransferLeaderRequest::new(from, request.target, request.last.map(log_id_from_pb));
        let taken = self.inner.raft.handle_transfer_leader(asked).await.map_err(gone)?;
        let refusal = taken.err().map(|error| error.to_string()).unwrap_or_default();
        Ok(Response::new(pb::TransferLeaderResponse { refusal }))
    }

    async fn offer_snapshot(
        &self,
        request: Request<pb::OfferSnapshotRequest>,
    ) -> Result<Response<pb::OfferSnapshotResponse>, Status> {
        let request = request.into_inner();
        self.check_member(request.header.as_ref())?;
        let vote = self.plausible(wire::required_vote(request.vote).map_err(garbled)?)?;
        let record = wire::head_from_pb(request.head).map_err(garbled)?;
        let own = self.own_vote();
        let refused = own.partial_cmp(&vote) == Some(std::cmp::Ordering::Greater);
        let chunks_held = if refused { 0 } else { receive::held(&self.inner.shared, record).await? };
        Ok(Response::new(pb::OfferSnapshotResponse { chunks_held, vote: Some(vote_to_pb(&own)) }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::InstallSnapshotRequest>>,
    ) -> Result<Response<pb::InstallSnapshotResponse>, Status> {
        let mut parts = request.into_inner();
        let start = receive::start(&self.inner.shared, &mut parts).await?;
        let sender = Sender { member: self.check_member(start.header.as_ref())?, nonce: start.nonce };
        self.plausible(start.vote)?;
        if start.vote.leader_id.voted_for != sender.member.0 {
            return Err(Status::invalid_argument("a snapshot comes from the leader whose vote it names"));
        }
        self.check_origin(sender).await?;
        let description = Description::decode(start.record.description.clone())
            .map_err(|error| Status::internal(self.inner.shared.unreadable(error).to_string()))?;
        let snapshot = receive::receive(&self.inner.shared, &start.record, &description, &mut parts).await?;
        let installed = self.inner.raft.install_full_snapshot(start.vote, snapshot).await.map_err(gone)?;
        Ok(Response::new(pb::InstallSnapshotResponse { vote: Some(vote_to_pb(&installed.vote)) }))
    }

    async fn read_index(
        &self,
        request: Request<pb::ReadIndexRequest>,
    ) -> Result<Response<pb::ReadIndexResponse>, Status> {
        use pb::read_index_response::Result as Answer;
        let request = request.into_inner();
        self.check_member(request.header.as_ref())?;
        let deadline = Instant::now() + Duration::from_millis(request.timeout_ms.min(60_000));
        let consensus = Consensus { inner: Arc::clone(&self.inner) };
        let result = match consensus.own_read_index(deadline).await {
            Ok(index) => Answer::Index(log_id_to_pb(&index)),
            Err(ReadError::NotLeader { leader }) => Answer::NotLeader(leader.map_or(0, |leader| leader.id.0)),
            Err(ReadError::Unavailable) => Answer::NoQuorum(pb::NoQuorum {}),
            Err(ReadError::Stopped(reason)) => return Err(gone(reason)),
        };
        Ok(Response::new(pb::ReadIndexResponse { result: Some(result) }))
    }

    async fn admit(&self, request: Request<pb::AdmitRequest>) -> Result<Response<pb::AdmitResponse>, Status> {
        let request = request.into_inner();
        self.check(request.header.as_ref())?;
        let refusal = self.admit_here(request.founding, request.probe).await.err().unwrap_or_default();
        Ok(Response::new(pb::AdmitResponse { refusal }))
    }

    async fn digests(&self, request: Request<pb::DigestsRequest>) -> Result<Response<pb::DigestsResponse>, Status> {
        self.check_present(request.into_inner().header.as_ref())?;
        let digests = self.inner.shared.digests.newest().into_iter().map(|(index, digest)| pb::StateDigest {
            index: index.0,
            digest: Bytes::copy_from_slice(&digest.to_be_bytes()),
        });
        let highest_level = self.inner.shared.highest_level;
        Ok(Response::new(pb::DigestsResponse { digests: digests.collect(), clock_ms: self.clock_ms(), highest_level }))
    }

    async fn vouch(&self, request: Request<pb::VouchRequest>) -> Result<Response<pb::VouchResponse>, Status> {
        Served::vouch(self, request.get_ref()).map(Response::new)
    }

    async fn presence(&self, request: Request<pb::PresenceRequest>) -> Result<Response<Self::PresenceStream>, Status> {
        self.check(request.into_inner().header.as_ref())?;
        let end = self.inner.end.clone();
        let here = futures::stream::once(async { Ok(pb::PresenceResponse {}) });
        let leaving = futures::stream::once(async move {
            end.cancelled().await;
            Err(Status::unavailable("this member stops"))
        });
        Ok(Response::new(here.chain(leaving).boxed()))
    }
}
