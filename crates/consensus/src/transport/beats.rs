//! A leader's heartbeats to one other member: one stream for all of them.

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status, Streaming};

use super::links::{CallError, Client, InUse, Lane, Links, failed};
use crate::ids::Member;
use crate::pb;

/// The other side's half of a stream, which need not be open yet for requests to go.
pub(super) enum Answers<A> {
    Opening(BoxFuture<'static, Result<Streaming<A>, Status>>),
    Open(Box<Streaming<A>>),
}

impl<A> Answers<A> {
    pub(super) async fn next(&mut self) -> Result<Option<A>, Status> {
        loop {
            match self {
                Answers::Opening(opening) => *self = Answers::Open(Box::new(opening.await?)),
                Answers::Open(answers) => return answers.message().await,
            }
        }
    }
}

/// How heartbeats go to a member.
pub(super) enum Beats {
    /// Nothing was sent yet, or what there was failed.
    Unopened,
    Open(Stream),
    /// The member knows no streams of heartbeats: one call for each.
    Calls,
}

/// A stream whose heartbeats were all answered.
pub(super) struct Stream {
    connection: InUse,
    requests: mpsc::Sender<pb::HeartbeatsRequest>,
    answers: Answers<pb::HeartbeatsResponse>,
}

impl Stream {
    fn open(links: &Links, peer: &Member) -> Result<Self, CallError> {
        let connection = links.connect(peer, Lane::Control)?;
        let (requests, outgoing) = mpsc::channel(1);
        let mut client = connection.client();
        let opening = async move { client.heartbeats(ReceiverStream::new(outgoing)).await.map(Response::into_inner) };
        Ok(Stream { connection, requests, answers: Answers::Opening(Box::pin(opening)) })
    }

    async fn ask(&mut self, heartbeat: pb::HeartbeatRequest) -> Result<pb::HeartbeatResponse, Status> {
        // There is room: the one before was answered. A stream that ended says why below.
        let _ = self.requests.send(pb::HeartbeatsRequest { heartbeat: Some(heartbeat) }).await;
        let answer = self.answers.next().await?.and_then(|answer| answer.answer);
        answer.ok_or_else(|| Status::unavailable("the stream of heartbeats ended"))
    }
}

impl Beats {
    /// Sends one heartbeat and waits for its answer. One that is given up takes its stream along, so that no late
    /// answer is taken for that of the next.
    pub(super) async fn beat(
        &mut self,
        links: &Links,
        peer: &Member,
        heartbeat: pb::HeartbeatRequest,
        deadline: Instant,
    ) -> Result<pb::HeartbeatResponse, CallError> {
        let mut stream = match std::mem::replace(self, Beats::Unopened) {
            Beats::Open(stream) => stream,
            Beats::Unopened => Stream::open(links, peer)?,
            Beats::Calls => {
                *self = Beats::Calls;
                return call(links, peer, heartbeat, deadline).await;
            }
        };
        match timeout_at(deadline, stream.ask(heartbeat.clone())).await {
            Ok(Ok(answer)) => {
                stream.connection.note_answer();
                *self = Beats::Open(stream);
                Ok(answer)
            }
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                *self = Beats::Calls;
                call(links, peer, heartbeat, deadline).await
            }
            Ok(Err(status)) => Err(failed(&stream.connection, status)),
            Err(_) => {
                stream.connection.note_silence();
                Err(CallError::Timeout(deadline.saturating_duration_since(Instant::now())))
            }
        }
    }
}

/// A heartbeat as members of before this release understand it.
async fn call(
    links: &Links,
    peer: &Member,
    heartbeat: pb::HeartbeatRequest,
    deadline: Instant,
) -> Result<pb::HeartbeatResponse, CallError> {
    let method = |mut client: Client, request| async move { client.heartbeat(request).await };
    links.call(peer, Lane::Control, deadline, heartbeat, method).await
}
