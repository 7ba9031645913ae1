//! The body of a request on its way in: its bytes count as held, and what has begun must go on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::admit::Held;
use crate::services::refusal;

/// Length of a message's prefix: whether it is compressed, and how long it is.
pub(crate) const PREFIX: usize = 5;

/// The body of a request on its way in.
pub(super) struct Arriving {
    body: Body,
    held: Arc<Held>,
    arrives: Pin<Box<Sleep>>,
    patience: Duration,
    /// The position in a stream of messages; `None` for a single request.
    messages: Option<Messages>,
    over: bool,
}

impl Arriving {
    /// A request that must be here within `patience`.
    pub(super) fn whole(body: Body, held: Arc<Held>, patience: Duration) -> Self {
        Self { body, held, arrives: Box::pin(sleep(patience)), patience, messages: None, over: false }
    }

    /// A stream of requests. It may be silent between them for as long as it likes; within one, for as long as
    /// `patience`.
    pub(super) fn stream(body: Body, held: Arc<Held>, patience: Duration) -> Self {
        Self { messages: Some(Messages::default()), ..Self::whole(body, held, patience) }
    }

    /// A piece has come.
    fn take(&mut self, piece: Frame<Bytes>) -> Result<Frame<Bytes>, Status> {
        let bytes = piece.data_ref().map(Bytes::as_ref).unwrap_or_default();
        if let Some(messages) = &mut self.messages {
            messages.pass(bytes);
            self.arrives.as_mut().reset(Instant::now() + self.patience);
        }
        self.held.take(bytes.len()).map(|()| piece)
    }
}

impl http_body::Body for Arriving {
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
                Some(Err(refusal::request_came_too_slowly()))
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
    use super::*;

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
