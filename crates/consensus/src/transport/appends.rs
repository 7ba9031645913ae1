//! Appends on a line. Openraft holds them as one stream, and polls it from the task that makes the requests: writing
//! them and reading their answers needs no other.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use tokio::time::{Instant, Sleep, sleep};

use super::client::{Rpc, unreachable, unreadable};
use super::gathered::Gathered;
use super::line::{Line, broken, unexpected};
use super::links::{CallError, Links};
use super::wire;
use crate::ids::Member;
use crate::pb;
use crate::types::TypeConfig;

/// A line between two streams: a replication that asks where the logs meet ends one and begins the next.
pub(super) type Kept = Arc<Mutex<Option<Line>>>;

/// The requests as they are sent.
type Requests = BoxStream<'static, AppendEntriesRequest<TypeConfig>>;

/// A stream of appends.
pub(super) struct Appends {
    links: Arc<Links>,
    peer: Member,
    kept: Kept,
    requests: Requests,
    /// The first request, while there is no line yet.
    first: Option<AppendEntriesRequest<TypeConfig>>,
    way: Way,
    /// True once no further request comes.
    all_made: bool,
    /// The moment at which each unanswered request was made.
    unanswered: VecDeque<Instant>,
    patience: Duration,
    /// The timer for the next check whether the oldest unanswered request is too old.
    look: Pin<Box<Sleep>>,
}

enum Way {
    /// Nothing is to be sent yet.
    None,
    Opening(BoxFuture<'static, Result<Line, CallError>>),
    Open(Line),
    /// It broke, or all is answered.
    Ended,
}

impl Appends {
    pub(super) fn new<S>(links: &Arc<Links>, peer: &Member, kept: &Kept, input: S) -> Self
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        let gathered = Gathered::new(input);
        let requests = futures::stream::unfold(gathered, |mut gathered| async move {
            let next = gathered.next().await?;
            Some((next, gathered))
        });
        let patience = links.shared.config.append_timeout;
        Appends {
            links: Arc::clone(links),
            peer: peer.clone(),
            kept: Arc::clone(kept),
            requests: requests.boxed(),
            first: None,
            way: Way::None,
            all_made: false,
            unanswered: VecDeque::new(),
            patience,
            look: Box::pin(sleep(patience / 4)),
        }
    }

    /// Openraft's wait after a failure is in front of the first request: a peer that is not there must not be dialled
    /// before it is over, and again and again.
    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(first) = ready!(self.requests.poll_next_unpin(cx)) else { return Poll::Ready(false) };
        self.first = Some(first);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        // One that broke meanwhile has something to say: its end.
        let kept = kept.and_then(|mut line| line.poll_answer(cx).is_pending().then_some(line));
        self.way = match kept {
            Some(line) => Way::Open(line),
            None => {
                let (links, peer) = (Arc::clone(&self.links), self.peer.clone());
                Way::Opening(Box::pin(async move { Line::open(&links, &peer, pb::LineUse::Append).await }))
            }
        };
        Poll::Ready(true)
    }

    /// Writes requests as they are made, and reads one answer.
    fn poll_open(
        &mut self,
        mut line: Line,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>> {
        let fail = |error| Poll::Ready(Some(Err(RPCError::Unreachable(unreachable(&broken(&error))))));
        loop {
            let made = match self.first.take() {
                Some(first) => Some(first),
                None if self.all_made || !line.takes_more() => None,
                None => match self.requests.poll_next_unpin(cx) {
                    Poll::Ready(made) => {
                        self.all_made = made.is_none();
                        made
                    }
                    Poll::Pending => None,
                },
            };
            let made_any = made.is_some();
            if let Some(request) = made {
                self.unanswered.push_back(Instant::now());
                if let Err(error) = line.push(&wire::append_to_pb(request)) {
                    return fail(error);
                }
            }
            match line.poll_flush(cx) {
                Poll::Ready(Ok(())) if made_any => {}
                Poll::Ready(Ok(())) | Poll::Pending => break,
                Poll::Ready(Err(error)) => return fail(error),
            }
        }
        match line.poll_answer(cx) {
            Poll::Ready(Ok(pb::line_answer::Answer::Append(answer))) => {
                self.unanswered.pop_front();
                let outcome = wire::outcome_from_pb(answer.outcome).map_err(unreadable);
                // After any other answer the other end closes the line.
                if matches!(outcome, Ok(Ok(_))) {
                    self.way = Way::Open(line);
                }
                Poll::Ready(Some(outcome))
            }
            Poll::Ready(Ok(other)) => Poll::Ready(Some(Err(RPCError::Unreachable(unreachable(&unexpected(other)))))),
            Poll::Ready(Err(error)) => fail(error),
            Poll::Pending if self.all_made && self.unanswered.is_empty() => {
                *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
                Poll::Ready(None)
            }
            Poll::Pending if self.is_silent(cx) => {
                let error = CallError::Timeout(self.patience);
                Poll::Ready(Some(Err(RPCError::Network(NetworkError::new(&error)))))
            }
            Poll::Pending => {
                self.way = Way::Open(line);
                Poll::Pending
            }
        }
    }

    /// Returns whether the oldest unanswered request is too old. This is checked now and then only: a timer that is set
    /// anew with each request would cost as much as the request.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        while let Some(oldest) = self.unanswered.front() {
            if self.look.as_mut().poll(cx).is_pending() {
                break;
            }
            if oldest.elapsed() >= self.patience {
                return true;
            }
            self.look.as_mut().reset(Instant::now() + self.patience / 4);
        }
        false
    }
}

impl Stream for Appends {
    type Item = Rpc<StreamAppendResult<TypeConfig>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.way, Way::Ended) {
                Way::None => match self.poll_begin(cx) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(None),
                    Poll::Pending => {
                        self.way = Way::None;
                        return Poll::Pending;
                    }
                },
                Way::Opening(mut opening) => match opening.as_mut().poll(cx) {
                    Poll::Ready(Ok(line)) => self.way = Way::Open(line),
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Some(Err(RPCError::Unreachable(unreachable(&error)))));
                    }
                    Poll::Pending => {
                        self.way = Way::Opening(opening);
                        return Poll::Pending;
                    }
                },
                Way::Open(line) => return self.poll_open(line, cx),
                Way::Ended => return Poll::Ready(None),
            }
        }
    }
}
