//! Lines to other members: connections that carry appends or heartbeats and nothing else.
//!
//! They are not HTTP/2. A call there passes a connection's own task and two queues on each side, and its frames carry
//! windows, settings and pings; what goes over a line is written and read by the very task that makes the requests.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message;
use tessera_connection::BoxedIo;
use tonic::{Code, Status};

use super::frames::{Arriving, Broken, Leaving, decoded};
use super::links::{CallError, Links};
use crate::config::MAX_MESSAGE_BYTES;
use crate::ids::Member;
use crate::nonces::ToldWith;
use crate::pb;

/// The first byte that a member sends on a line; no request in HTTP begins with it.
pub(super) const FIRST_BYTE: u8 = 0;

/// Bytes that may wait to be written before no further requests are taken.
const WRITES_AHEAD: usize = 256 << 10;

/// A line to another member.
pub(super) struct Line {
    io: BoxedIo,
    arriving: Arriving,
    leaving: Leaving,
}

impl Line {
    /// Opens one. Requests need not wait for the other end, which cost a new leader a round trip.
    pub(super) async fn open(links: &Links, peer: &Member, what_for: pb::LineUse) -> Result<Self, CallError> {
        let io = links.bare(peer).await?;
        let mut leaving = Leaving::default();
        leaving.push_byte(FIRST_BYTE);
        let nonce = match what_for {
            pb::LineUse::Append => links.shared.nonces.draw(peer.id, ToldWith::Line),
            pb::LineUse::Heartbeat | pb::LineUse::Unspecified => 0,
        };
        let opening = pb::LineOpening { header: Some(links.header(peer.id)), r#use: what_for.into(), nonce };
        leaving.push(&opening).map_err(|broken| CallError::Failed(broken.to_string()))?;
        Ok(Line { io, arriving: Arriving::new(MAX_MESSAGE_BYTES), leaving })
    }

    /// One over this connection, without an opening.
    #[cfg(test)]
    pub(super) fn over(io: BoxedIo) -> Self {
        Line { io, arriving: Arriving::new(MAX_MESSAGE_BYTES), leaving: Leaving::default() }
    }

    /// Returns whether there is room for another request.
    pub(super) fn takes_more(&self) -> bool {
        self.leaving.len() < WRITES_AHEAD
    }

    /// Puts a request behind those that leave.
    pub(super) fn push(&mut self, request: &impl Message) -> Result<(), Broken> {
        self.leaving.push(request)
    }

    /// Writes what waits. Ready when nothing does any more.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.leaving.poll_flush(&mut self.io, cx)
    }

    pub(super) async fn flush(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<pb::line_answer::Answer, Broken>> {
        self.arriving.poll_next(&mut self.io, cx).map(|message| answer_of(message?))
    }

    pub(super) async fn answer(&mut self) -> Result<pb::line_answer::Answer, Broken> {
        poll_fn(|cx| self.poll_answer(cx)).await
    }
}

fn answer_of(message: Option<Bytes>) -> Result<pb::line_answer::Answer, Broken> {
    let ended = || Broken::Io(std::io::ErrorKind::UnexpectedEof.into());
    let answer: pb::LineAnswer = decoded(message.ok_or_else(ended)?)?;
    answer.answer.ok_or_else(|| Broken::Io(std::io::ErrorKind::InvalidData.into()))
}

/// An answer that is not of the kind that was asked for, as an error.
pub(super) fn unexpected(answer: pb::line_answer::Answer) -> CallError {
    match answer {
        pb::line_answer::Answer::Refusal(refusal) => {
            let code = Code::from(i32::try_from(refusal.code).unwrap_or_default());
            CallError::from(&Status::new(code, refusal.message))
        }
        _ => CallError::Failed("an answer to something else".to_owned()),
    }
}

/// A line that broke, as an error.
pub(super) fn broken(broken: &Broken) -> CallError {
    let cause = std::error::Error::source(broken).map(|cause| format!(": {cause}")).unwrap_or_default();
    CallError::Failed(format!("{broken}{cause}"))
}
