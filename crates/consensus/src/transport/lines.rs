//! Requests that other members send over lines (see [`line`](super::line)), and the answers to them. After the opening
//! all of it runs where consensus does: no thread has to wake another between the socket and the raft core.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{FutureExt, Stream, StreamExt};
use openraft::raft::AppendEntriesRequest;
use prost::Message;
use tessera_connection::{Accepted, BoxedIo};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::frames::{Arriving, Broken, Leaving, decoded};
use super::line::FIRST_BYTE;
use super::server::{Served, gone};
use super::vouching::Sender;
use super::wire;
use crate::config::MAX_MESSAGE_BYTES;
use crate::handle::Consensus;
use crate::machine::Machine;
use crate::pb;
use crate::types::TypeConfig;

/// Bytes of an opening, at most: it names a cluster and two members.
const OPENING_BYTES: usize = 4 << 10;

impl<M: Machine> Consensus<M> {
    /// Returns whether a connection that begins with the byte `first` belongs to [`serve_line`](Consensus::serve_line)
    /// rather than to an HTTP server.
    #[must_use]
    pub fn is_line(first: u8) -> bool {
        first == FIRST_BYTE
    }

    /// Answers another member on a connection that is a line, until it is closed. Give it what comes to this member's
    /// address, beside [`raft_service`](crate::raft_service). `on_opened`: done when it has shown that it is a member.
    pub fn serve_line(
        &self,
        connection: Accepted,
        on_opened: impl FnOnce() + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let served = Served { inner: Arc::clone(&self.inner) };
        async move {
            let inner = Arc::clone(&served.inner);
            // Strangers are turned away here, where clients are served, and take nothing of the time of consensus.
            let opened = match served.open_line(connection).await {
                Ok(Some(opened)) => opened,
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "a line was not opened"),
            };
            on_opened();
            let end = inner.end.clone();
            let serving = inner.shared.entropy.scope(async move {
                let ended = tokio::select! {
                    () = end.cancelled() => return,
                    ended = served.take_line(opened) => ended,
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "a line of another member ended");
                }
            });
            // What ends early is a panic, which the runtime logs.
            drop(inner.tasks.spawn_on(serving, inner.links.runtime()).await);
        }
    }
}

/// A line of another member that may say what it wants to say.
struct Opened {
    from: Sender,
    what_for: pb::LineUse,
    connection: Accepted,
    /// The bytes that have already arrived.
    arriving: Arriving,
}

/// The requests on a line.
struct Asking {
    io: ReadHalf<BoxedIo>,
    arriving: Arriving,
}

impl Asking {
    async fn next<R: Message + Default>(&mut self) -> Result<Option<R>, Broken> {
        poll_fn(|cx| self.arriving.poll_next(&mut self.io, cx)).await?.map(decoded).transpose()
    }
}

/// The answers on a line.
struct Answering<W> {
    io: W,
    leaving: Leaving,
}

type Answers = Answering<WriteHalf<BoxedIo>>;

impl<W: AsyncWrite + Unpin> Answering<W> {
    fn new(io: W) -> Self {
        Answering { io, leaving: Leaving::default() }
    }

    fn push(&mut self, answer: pb::line_answer::Answer) -> Result<(), Broken> {
        self.leaving.push(&pb::LineAnswer { answer: Some(answer) })
    }

    async fn flush(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| self.leaving.poll_flush(&mut self.io, cx)).await
    }

    /// Says why, and that nothing more comes.
    async fn refuse(mut self, status: &Status) -> Result<(), Broken> {
        let code = i32::from(status.code()).unsigned_abs();
        self.push(pb::line_answer::Answer::Refusal(pb::LineRefusal { code, message: status.message().to_owned() }))?;
        self.flush().await?;
        Ok(self.io.shutdown().await?)
    }
}

impl<M: Machine> Served<M> {
    /// Hears what a line is for; `None` when it is for nothing here.
    async fn open_line(&self, mut connection: Accepted) -> Result<Option<Opened>, Broken> {
        let mut arriving = Arriving::new(OPENING_BYTES);
        let opening = async {
            connection.read_u8().await?;
            poll_fn(|cx| arriving.poll_next(&mut connection, cx)).await
        };
        let Ok(opening) = timeout(self.inner.shared.config.append_timeout, opening).await else { return Ok(None) };
        let Some(opening) = opening?.map(decoded::<pb::LineOpening>).transpose()? else { return Ok(None) };
        let refusal = match (self.check_member(opening.header.as_ref()), opening.r#use()) {
            (Err(status), _) => status,
            (Ok(_), pb::LineUse::Unspecified) => {
                Status::unimplemented("a line for something that this release does not know")
            }
            (Ok(member), what_for) => {
                let from = Sender { member, nonce: opening.nonce };
                arriving.largest = MAX_MESSAGE_BYTES;
                return Ok(Some(Opened { from, what_for, connection, arriving }));
            }
        };
        Answering::new(connection).refuse(&refusal).await?;
        Ok(None)
    }

    async fn take_line(self, opened: Opened) -> Result<(), Broken> {
        let Opened { from, what_for, connection, arriving } = opened;
        let (reading, writing) = split(connection.into_bare()?);
        let (asking, answering) = (Asking { io: reading, arriving }, Answering::new(writing));
        match what_for {
            pb::LineUse::Append => self.take_appends(from, asking, answering).await,
            pb::LineUse::Heartbeat => {
                let _open = self.inner.shared.lines.open(from.member);
                self.take_heartbeats(asking, answering).await
            }
            pb::LineUse::Unspecified => Ok(()),
        }
    }

    async fn take_heartbeats(&self, mut asking: Asking, mut answering: Answers) -> Result<(), Broken> {
        while let Some(heartbeat) = asking.next().await? {
            match self.take_heartbeat(heartbeat).await {
                Ok(answer) => answering.push(pb::line_answer::Answer::Heartbeat(answer))?,
                Err(status) => return answering.refuse(&status).await,
            }
            answering.flush().await?;
        }
        Ok(())
    }

    async fn take_appends(self, from: Sender, asking: Asking, mut answering: Answers) -> Result<(), Broken> {
        let (ended, closed) = (Ended::default(), CancellationToken::new());
        // Openraft reads the requests on a task of its own, which must not outlive the line.
        let _closes = closed.clone().drop_guard();
        let raft = self.inner.raft.clone();
        let mut outcomes = raft.stream_append(requests(self, from, asking, Arc::clone(&ended), closed)).boxed().fuse();
        while let Some(first) = outcomes.next().await {
            let mut next = Some(first);
            // What is known at once leaves at once, together.
            while let Some(outcome) = next {
                match outcome {
                    Ok(outcome) => {
                        let outcome = Some(wire::outcome_to_pb(outcome));
                        answering.push(pb::line_answer::Answer::Append(pb::AppendResponse { outcome }))?;
                    }
                    Err(fatal) => return answering.refuse(&gone(fatal)).await,
                }
                next = outcomes.next().now_or_never().flatten();
            }
            answering.flush().await?;
        }
        let why = ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        match why {
            Some(status) => answering.refuse(&status).await,
            None => Ok(answering.io.shutdown().await?),
        }
    }
}

/// The status with which the requests on a line ended early.
type Ended = Arc<Mutex<Option<Status>>>;

/// The appends on a line, until one is not for us or cannot be read.
fn requests<M: Machine>(
    served: Served<M>,
    from: Sender,
    asking: Asking,
    ended: Ended,
    closed: CancellationToken,
) -> impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static {
    futures::stream::unfold((served, asking, ended, closed), move |(served, mut asking, ended, closed)| async move {
        let taking = async {
            match asking.next::<pb::AppendRequest>().await {
                Ok(None) => None,
                Ok(Some(message)) => Some(served.take_append(from, message).await),
                Err(error) => Some(Err(Status::invalid_argument(error.to_string()))),
            }
        };
        let request = tokio::select! {
            biased;
            request = taking => request?,
            () = closed.cancelled() => return None,
        };
        match request {
            Ok(request) => Some((request, (served, asking, ended, closed))),
            Err(status) => {
                *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                None
            }
        }
    })
}
