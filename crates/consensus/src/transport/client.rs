//! Openraft's calls to another member.

use std::collections::VecDeque;
use std::pin::Pin;
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
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Response;

use super::appends::{Appends, Kept};
use super::beats::{Answers, Beats};
use super::gathered::Gathered;
use super::links::{CallError, InUse, Lane, Links, failed};
use super::{send, wire};
use crate::codec::{log_id_from_pb, log_id_to_pb, vote_from_pb, vote_to_pb};
use crate::ids::Member;
use crate::machine::Unreadable;
use crate::pb;
use crate::snapshot::SnapshotData;
use crate::types::{Place, Snapshot, TypeConfig, Vote};

/// Requests on their way to the connection; the window of what is unanswered is openraft's.
const PUMP_DEPTH: usize = 16;

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
            beats: Mutex::new(Beats::Unopened),
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
    fn open_append<S>(&self, input: S) -> Rpc<BoxStream<'static, Rpc<StreamAppendResult<TypeConfig>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        if self.links.has_lines(&self.peer) {
            return Ok(Appends::new(&self.links, &self.peer, &self.kept, input).boxed());
        }
        self.call_append(input)
    }

    /// The same as a call, for a member that knows no lines. Requests do not wait for the other side to open its half,
    /// which would cost a new leader a round trip.
    fn call_append<S>(&self, input: S) -> Rpc<BoxStream<'static, Rpc<StreamAppendResult<TypeConfig>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        let connection = self
            .links
            .connect(&self.peer, Lane::Bulk)
            .map_err(|error| self.rpc_error(RPCTypes::AppendEntries, error))?;
        let (requests, mut outgoing) = mpsc::channel(PUMP_DEPTH);
        let mut client = connection.client();
        let opening = async move {
            // openraft's wait after a failure is in front of the first request: a peer that is not there must not be
            // dialled before it is over, and again and again.
            let first = outgoing.recv().await;
            let requests = futures::stream::iter(first).chain(ReceiverStream::new(outgoing));
            client.append(requests).await.map(Response::into_inner)
        };
        let exchange = Exchange {
            unanswered: Arc::default(),
            patience: self.links.shared.config.append_timeout,
            connection,
            answers: Answers::Opening(Box::pin(opening)),
        };
        let header = self.links.header(self.peer.id);
        let pump = pump(input, requests, header, Arc::clone(&exchange.unanswered));
        // The end of the answers is the end of the stream, whatever is still to be sent.
        let answers = exchange.answers().map(Some).chain(futures::stream::once(async { None }));
        let until_the_end = futures::stream::select(pump, answers).take_while(|answer| {
            let goes_on = answer.is_some();
            async move { goes_on }
        });
        Ok(until_the_end.filter_map(|answer| async { answer }).boxed())
    }
}

/// The moment at which each unanswered request was sent.
type Unanswered = Arc<Mutex<VecDeque<Instant>>>;

/// Moves requests into the connection and yields nothing. It is part of the stream that openraft holds, so that the
/// requests (and the locks their making holds) are gone the moment openraft drops the stream, whatever the connection
/// does.
fn pump<S, T>(
    input: S,
    requests: mpsc::Sender<pb::AppendRequest>,
    header: pb::Header,
    unanswered: Unanswered,
) -> Pin<Box<dyn Stream<Item = T> + Send>>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    T: Send + 'static,
{
    let moved = async move {
        let (mut input, mut header) = (Gathered::new(input), Some(header));
        while let Some(request) = input.next().await {
            unanswered.lock().unwrap_or_else(PoisonError::into_inner).push_back(Instant::now());
            if requests.send(wire::append_to_pb(header.take(), request)).await.is_err() {
                break;
            }
        }
    };
    futures::stream::once(moved).filter_map(|()| async { None::<T> }).boxed()
}

/// The answering half of a stream of appends.
struct Exchange {
    unanswered: Unanswered,
    patience: Duration,
    connection: InUse,
    answers: Answers<pb::AppendResponse>,
}

impl Exchange {
    fn answers(self) -> impl Stream<Item = Rpc<StreamAppendResult<TypeConfig>>> + Send {
        futures::stream::unfold(Some(self), |exchange| async move {
            let mut exchange = exchange?;
            let answer = exchange.next().await?;
            let goes_on = answer.is_ok().then_some(exchange);
            Some((answer, goes_on))
        })
    }

    async fn next(&mut self) -> Option<Rpc<StreamAppendResult<TypeConfig>>> {
        loop {
            match timeout(self.patience / 4, self.answers.next()).await {
                Ok(Ok(Some(answer))) => {
                    self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    return Some(wire::outcome_from_pb(answer.outcome).map_err(unreadable));
                }
                Ok(Ok(None)) => return None,
                Ok(Err(status)) => {
                    let error = failed(&self.connection, status);
                    return Some(Err(RPCError::Unreachable(unreachable(&error))));
                }
                Err(_) if self.silent() => {
                    self.connection.drop_connection();
                    let error = CallError::Timeout(self.patience);
                    return Some(Err(RPCError::Network(NetworkError::new(&error))));
                }
                Err(_) => {}
            }
        }
    }

    /// Returns whether the oldest unanswered request is too old.
    fn silent(&self) -> bool {
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        unanswered.front().is_some_and(|sent| sent.elapsed() >= self.patience)
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
        let mut answers = self.open_append(futures::stream::iter([request]))?;
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
        Box::pin(async move { self.open_append(input) })
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
