//! Openraft's calls to another member.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RPCTypes};
use tokio::time::Instant;

use super::appends::{Appends, Kept};
use super::beats::Beats;
use super::links::{CallError, Lane, Links};
use super::{send, wire};
use crate::codec::{log_id_from_pb, log_id_to_pb, vote_from_pb, vote_to_pb};
use crate::ids::Member;
use crate::machine::Unreadable;
use crate::pb;
use crate::snapshot::SnapshotData;
use crate::types::{Place, Snapshot, TypeConfig, Vote};

pub(super) type Rpc<T> = Result<T, RPCError<TypeConfig>>;

/// Makes clients for openraft; the connections outlive them.
pub(crate) struct Network {
    links: Arc<Links>,
}

impl Network {
    pub(crate) fn new(links: Arc<Links>) -> Self {
        Network { links }
    }

    fn client(&self, target: u64, place: &Place, heartbeats: bool) -> PeerClient {
        PeerClient {
            links: Arc::clone(&self.links),
            peer: place.member(target),
            heartbeats,
            beats: Mutex::default(),
            kept: Kept::default(),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, place: &Place) -> PeerClient {
        self.client(target, place, false)
    }

    async fn new_heartbeat_client(&mut self, target: u64, place: &Place) -> PeerClient {
        self.client(target, place, true)
    }
}

/// Openraft's way to one other member.
pub(crate) struct PeerClient {
    pub links: Arc<Links>,
    pub peer: Member,
    heartbeats: bool,
    /// Never locked: openraft wants its clients to be shareable, and shares none.
    beats: Mutex<Beats>,
    /// The line that appends went over last.
    kept: Kept,
}

pub(super) fn unreachable(error: &CallError) -> Unreachable<TypeConfig> {
    Unreachable::new(error)
}

pub(super) fn unreadable(error: Unreadable) -> RPCError<TypeConfig> {
    RPCError::Network(NetworkError::new(&error))
}

impl PeerClient {
    fn rpc_error(&self, action: RPCTypes, error: CallError) -> RPCError<TypeConfig> {
        match error {
            CallError::Timeout(timeout) => RPCError::Timeout(openraft::errors::Timeout {
                action,
                id: self.links.shared.id().0,
                target: self.peer.id.0,
                timeout,
            }),
            CallError::Failed(_) | CallError::Refused(_) => RPCError::Unreachable(unreachable(&error)),
        }
    }

    async fn heartbeat(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        patience: Duration,
    ) -> Rpc<StreamAppendResult<TypeConfig>> {
        let heartbeat = pb::HeartbeatRequest {
            header: Some(self.links.header(self.peer.id)),
            vote: Some(vote_to_pb(&request.vote)),
            previous: request.prev_log_id.as_ref().map(log_id_to_pb),
            leader_commit: request.leader_commit.as_ref().map(log_id_to_pb),
            currency: Some(self.links.shared.currency_for(self.peer.id)),
        };
        let asked_at = Instant::now();
        let beats = self.beats.get_mut().unwrap_or_else(PoisonError::into_inner);
        let answer = beats.beat(&self.links, &self.peer, heartbeat, asked_at + patience).await;
        let answer = answer.map_err(|error| self.rpc_error(RPCTypes::AppendEntries, error))?;
        self.links.shared.time.heard(self.peer.id, asked_at, answer.clock_ms);
        if let Some(stamp) = answer.stamp {
            self.links.shared.stamps.note(self.peer.id, stamp, Instant::now());
        }
        wire::outcome_from_pb(answer.outcome).map_err(unreadable)
    }

    /// Opens a stream of appends: requests go in as openraft makes them, answers come out in their order.
    fn open_append<S>(&self, input: S) -> BoxStream<'static, Rpc<StreamAppendResult<TypeConfig>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        Appends::new(&self.links, &self.peer, &self.kept, input).boxed()
    }
}

impl RaftNetworkV2<TypeConfig> for PeerClient {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<TypeConfig>> {
        if request.entries.is_empty() {
            // An answer that openraft still waits for counts: up to the next heartbeat.
            return self.heartbeat(request, option.hard_ttl()).await.map(AppendEntriesResponse::from);
        }
        let mut answers = self.open_append(futures::stream::iter([request]));
        match answers.next().await {
            Some(answer) => answer.map(AppendEntriesResponse::from),
            None => Err(RPCError::Network(NetworkError::from_string("the stream ended without an answer"))),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Rpc<BoxStream<'s, Rpc<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        if self.heartbeats {
            return stream_append_sequential(self, input, option);
        }
        Box::pin(async move { Ok(self.open_append(input)) })
    }

    async fn vote(&mut self, request: VoteRequest<TypeConfig>, option: RPCOption) -> Rpc<VoteResponse<TypeConfig>> {
        let asked = pb::VoteRequest {
            header: Some(self.links.header(self.peer.id)),
            vote: Some(vote_to_pb(&request.vote)),
            last: request.last_log_id.as_ref().map(log_id_to_pb),
            leadership_transfer: request.leadership_transfer,
        };
        let asked_at = Instant::now();
        let deadline = asked_at + option.soft_ttl();
        let answer = self.links.call(&self.peer, Lane::Control, deadline, asked, |mut client, request| async move {
            client.vote(request).await
        });
        let answer = answer.await.map_err(|error| self.rpc_error(RPCTypes::Vote, error))?;
        self.links.shared.time.heard(self.peer.id, asked_at, answer.clock_ms);
        let vote: Vote = wire::required_vote(answer.vote).map_err(unreadable)?;
        Ok(VoteResponse::new(vote, answer.last.map(log_id_from_pb), answer.granted))
    }

    async fn pre_vote(&mut self, request: VoteRequest<TypeConfig>, option: RPCOption) -> Rpc<VoteResponse<TypeConfig>> {
        let asked = pb::PreVoteRequest {
            header: Some(self.links.header(self.peer.id)),
            vote: Some(vote_to_pb(&request.vote)),
            last: request.last_log_id.as_ref().map(log_id_to_pb),
        };
        let asked_at = Instant::now();
        let deadline = asked_at + option.soft_ttl();
        let answer = self.links.call(&self.peer, Lane::Control, deadline, asked, |mut client, request| async move {
            client.pre_vote(request).await
        });
        let answer = answer.await.map_err(|error| self.rpc_error(RPCTypes::Vote, error))?;
        self.links.shared.time.heard(self.peer.id, asked_at, answer.clock_ms);
        let vote = answer.vote.map(vote_from_pb).transpose().map_err(unreadable)?;
        let vote = vote.ok_or_else(|| RPCError::Network(NetworkError::from_string("an answer without a vote")))?;
        Ok(VoteResponse::new(vote, answer.last.map(log_id_from_pb), answer.granted))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let sending = send::send_snapshot(&self.links, &self.peer, vote, snapshot.snapshot);
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = sending => sent,
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<TransferLeaderResponse<TypeConfig>> {
        let asked = pb::TransferLeaderRequest {
            header: None,
            from_leader: Some(vote_to_pb(request.from_leader())),
            target: *request.to_node_id(),
            last: request.last_log_id().map(log_id_to_pb),
        };
        let handed_over = self.links.hand_over(&self.peer, Instant::now() + option.soft_ttl(), asked).await;
        handed_over.map(Ok).map_err(|error| self.rpc_error(RPCTypes::TransferLeader, error))
    }
}
