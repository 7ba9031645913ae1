//! The body of a request on its way in: what has begun must go on, and its bytes may need room.
//!
//! A call whose end does not come keeps its connection, and what its method took for it. A [`Room`] says how many bytes
//! may be here; [`ArrivalLayer`] is for servers whose methods all take one message that fits anyway.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

/// Length of a message's prefix: whether it is compressed, and how long it is.
pub const PREFIX: usize = 5;

/// The room that the bytes of a request take up.
pub trait Room: Send + Sync + 'static {
    /// Takes room for so many more bytes.
    ///
    /// # Errors
    /// The refusal of the request when there is none.
    fn take(&self, bytes: usize) -> Result<(), Status>;
}

/// Room for whatever comes.
#[derive(Clone, Copy, Debug)]
pub struct Ample;

impl Room for Ample {
    fn take(&self, _: usize) -> Result<(), Status> {
        Ok(())
    }
}

/// The time within which a request has to arrive, and how one is refused that does not.
#[derive(Clone, Copy, Debug)]
pub struct Punctuality {
    pub patience: Duration,
    pub late: fn() -> Status,
}

/// Refuses requests that do not arrive whole in time.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalLayer(pub Punctuality);

impl<S> Layer<S> for ArrivalLayer {
    type Service = Arrivals<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Arrivals { inner, punctuality: self.0 }
    }
}

/// A service whose requests arrive in time.
#[derive(Clone, Debug)]
pub struct Arrivals<S> {
    inner: S,
    punctuality: Punctuality,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Arrivals<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let punctuality = self.punctuality;
        self.inner.call(request.map(|body| Body::new(Arriving::whole(body, Arc::new(Ample), punctuality))))
    }
}

/// The body of a request on its way in.
pub struct Arriving<R> {
    body: Body,
    room: Arc<R>,
    arrives: Pin<Box<Sleep>>,
    punctuality: Punctuality,
    /// The position in a stream of messages; `None` for a single request.
    messages: Option<Messages>,
    over: bool,
}

impl<R: Room> Arriving<R> {
    /// A request that must be here in time.
    pub fn whole(body: Body, room: Arc<R>, punctuality: Punctuality) -> Self {
        Self { body, room, arrives: Box::pin(sleep(punctuality.patience)), punctuality, messages: None, over: false }
    }

    /// A stream of requests. It may be silent between them for as long as it likes; within one, for as long as a
    /// request may take.
    pub fn stream(body: Body, room: Arc<R>, punctuality: Punctuality) -> Self {
        Self { messages: Some(Messages::default()), ..Self::whole(body, room, punctuality) }
    }

    /// A piece has come.
    fn take(&mut self, piece: Frame<Bytes>) -> Result<Frame<Bytes>, Status> {
        let bytes = piece.data_ref().map(Bytes::as_ref).unwrap_or_default();
        if let Some(messages) = &mut self.messages {
            messages.pass(bytes);
            self.arrives.as_mut().reset(Instant::now() + self.punctuality.patience);
        }
        self.room.take(bytes.len()).map(|()| piece)
    }
}

impl<R: Room> http_body::Body for Arriving<R> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending if self.messages.as_ref().is_some_and(Messages::is_between) => return Poll::Pending,
            Poll::Pending => {
                ready!(self.arrives.as_mut().poll(cx));
                Some(Err((self.punctuality.late)()))
            }
        };
        let frame = match frame {
            Some(Ok(piece)) => Some(self.take(piece)),
            other => other,
        };
        // Nothing follows a refusal.
        self.over = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The position of the received bytes within a stream of messages.
#[derive(Debug, Default)]
struct Messages {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix that are here.
    begun: usize,
    /// Bytes of the message that are not here yet.
    left: usize,
}

impl Messages {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let wanted = if self.left > 0 { self.left } else { PREFIX - self.begun };
            let (piece, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.left > 0 {
                self.left -= piece.len();
                continue;
            }
            self.prefix[self.begun..self.begun + piece.len()].copy_from_slice(piece);
            self.begun += piece.len();
            if self.begun == PREFIX {
                let [_, length @ ..] = self.prefix;
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.begun = 0;
            }
        }
    }

    /// Returns whether every message that has begun is whole.
    fn is_between(&self) -> bool {
        self.begun == 0 && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    fn late() -> Status {
        Status::deadline_exceeded("late")
    }

    /// Bytes that come one by one, a second between them.
    fn trickling() -> Body {
        let bytes = futures::stream::unfold((), |()| async {
            sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Status>(Frame::data(Bytes::from_static(&[0]))), ()))
        });
        Body::new(StreamBody::new(bytes))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_trickles_is_refused_when_it_should_be_here() {
        let begun = Instant::now();
        let punctuality = Punctuality { patience: Duration::from_secs(10), late };
        let collected = Arriving::whole(trickling(), Arc::new(Ample), punctuality).collect().await;
        assert_eq!(collected.expect_err("it has no end").code(), tonic::Code::DeadlineExceeded);
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
    }

    #[test]
    fn the_ends_of_messages_are_seen_however_they_are_cut() {
        // An empty message, one of three bytes, one of one.
        let stream = [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 7, 7, 7, 0, 0, 0, 0, 1, 9];
        let ends = [0, 5, 13, 19];
        for cut in 1..=stream.len() {
            let (mut messages, mut seen) = (Messages::default(), 0);
            for piece in stream.chunks(cut) {
                assert_eq!(messages.is_between(), ends.contains(&seen), "after {seen} bytes, {cut} at a time");
                messages.pass(piece);
                seen += piece.len();
            }
            assert!(messages.is_between());
        }
    }
}
