//! A stream of requests on its way to the leader, and its answers on their way back.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use tessera_connection::ConnectError;
use tessera_consensus::Member;
use tokio::time::timeout_at;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use super::envelope::{is_forwarded, mark};
use super::layer::{Carrier, Leader, PAUSES, replaced};
use super::verdict::knows_no_cluster;
use crate::grpc::admit::Received;
use crate::grpc::deadline::Deadline;
use crate::services::refusal;

impl<S> Carrier<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    /// Has whoever leads answer a stream of requests. Nothing of it is read before there is a connection to the leader,
    /// so until then another leader can be looked for.
    pub(super) async fn pass_on(
        mut self,
        request: Request<Body>,
        deadline: Deadline,
    ) -> Result<Response<Body>, Status> {
        let mut pauses = PAUSES.pauses();
        loop {
            let leader = Leader::of(&self.leadership.borrow_and_update());
            if leader == Leader::This {
                let Ok(response) = self.inner.clone().oneshot(request).await;
                return Ok(response);
            }
            if is_forwarded(request.headers()) {
                return Err(self.not_leader(&leader));
            }
            if let Leader::Other(member) = &leader
                && let Some(channel) = self.connect(member, deadline).await?
            {
                return self.hand_over(member.clone(), channel, request, deadline).await;
            }
            let pause = pauses.next().unwrap_or_default();
            if !self.wait(&leader, pause, deadline).await {
                return Err(refusal::gave_up(false));
            }
        }
    }

    /// A connection to the leader; `None` when it cannot be reached, or leads no more.
    async fn connect(&self, member: &Member, deadline: Deadline) -> Result<Option<Channel>, Status> {
        tokio::select! {
            connected = timeout_at(deadline.0, self.channels.alone(&member.address)) => match connected {
                Ok(Err(ConnectError::Address(error))) => Err(refusal::leader_unreachable(&error)),
                connected => Ok(connected.ok().and_then(Result::ok)),
            },
            () = replaced(self.leadership.clone(), member.clone()) => Ok(None),
        }
    }

    async fn hand_over(
        &self,
        member: Member,
        channel: Channel,
        request: Request<Body>,
        deadline: Deadline,
    ) -> Result<Response<Body>, Status> {
        let (mut parts, body) = request.into_parts();
        mark(&mut parts.headers, self.pool.consensus().identity().member);
        let body = Body::new(Going { body, received: parts.extensions.remove() });
        let mut lost = replaced(self.leadership.clone(), member).boxed();
        let answered = channel.clone().oneshot(Request::from_parts(parts, body));
        let response = tokio::select! {
            biased;
            answered = timeout_at(deadline.0, answered) => answered.ok().and_then(Result::ok),
            () = &mut lost => None,
        };
        match response {
            // Its sender finds the leader by another member then.
            Some(response) if knows_no_cluster(&response) => Err(self.not_leader(&Leader::Unknown)),
            // It is refused as a whole.
            Some(response) if response.headers().contains_key("grpc-status") => Ok(response),
            Some(response) => Ok(response.map(|body| Body::new(Coming { body, lost, over: false, _channel: channel }))),
            None => Err(refusal::gave_up(true)),
        }
    }
}

/// The requests. What has gone on to the leader is not held here.
struct Going {
    body: Body,
    received: Option<Received>,
}

impl http_body::Body for Going {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(received)) = (&frame, &self.received) {
            received.give_back(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// The answers. Where they break off, or the leader is replaced, what was not answered is unknown: the stream says so
/// and ends.
struct Coming {
    body: Body,
    lost: BoxFuture<'static, ()>,
    over: bool,
    /// Kept open for as long as answers come over it.
    _channel: Channel,
}

impl http_body::Body for Coming {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let broke_off = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.over = frame.is_trailers();
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(_)) | None) => true,
            Poll::Pending => self.lost.poll_unpin(cx).is_ready(),
        };
        if !broke_off {
            return Poll::Pending;
        }
        self.over = true;
        let mut trailers = HeaderMap::new();
        let said = refusal::gave_up(true).add_header(&mut trailers);
        Poll::Ready(Some(said.map(|()| Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::pending;
    use futures::stream::{self, StreamExt};
    use http_body_util::{BodyExt, StreamBody};
    use tessera_api::error::reason_of;
    use tessera_api::v1::ErrorReason;
    use tessera_connection::{Outbound, Terms};

    use super::*;

    type Piece = Result<Frame<Bytes>, Status>;

    fn data() -> Piece {
        Ok(Frame::data(Bytes::from_static(b"answer")))
    }

    /// The answer that the caller receives: the data, and the status at the end.
    async fn heard(pieces: Vec<Piece>, hangs: bool, lost: BoxFuture<'static, ()>) -> (Bytes, Option<Status>) {
        let rest = if hangs { stream::pending().boxed() } else { stream::empty().boxed() };
        let body = Body::new(StreamBody::new(stream::iter(pieces).chain(rest)));
        let channel = Outbound::default().lazily("127.0.0.1:1", &Terms::default()).expect("an address");
        let coming = Body::new(Coming { body, lost, over: false, _channel: channel });
        let whole = coming.collect().await.expect("it ends in order");
        let status = whole.trailers().and_then(Status::from_header_map);
        (whole.to_bytes(), status)
    }

    #[tokio::test]
    async fn answers_that_break_off_end_with_what_is_to_be_done() {
        let lost = || pending().boxed();
        let broken = heard(vec![data(), Err(Status::internal("the connection is gone"))], false, lost()).await;
        let cut = heard(vec![data()], false, lost()).await;
        let replaced = heard(vec![data()], true, async {}.boxed()).await;
        for (bytes, status) in [broken, cut, replaced] {
            assert_eq!(bytes, "answer", "what had come is handed on");
            let status = status.expect("it says how it ended");
            assert_eq!(reason_of(&status), Some(ErrorReason::OutcomeUnknown), "{status:?}");
        }
    }

    #[tokio::test]
    async fn answers_that_end_in_order_are_handed_on_as_they_are() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("a header"));
        let pieces = vec![data(), data(), Ok(Frame::trailers(trailers))];
        let (bytes, status) = heard(pieces, true, pending().boxed()).await;
        assert_eq!((bytes.as_ref(), status.map(|status| status.code())), (&b"answeranswer"[..], Some(tonic::Code::Ok)));
    }
}
