//! Connections that come in, each on a seat.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use crate::gathering::Gathering;
use crate::seats::{Seat, Seats};
use crate::{Accepted, Inbound, Peer};

/// The connections that come in, as a server takes them, each as soon as it has a seat.
pub fn incoming(inbound: Inbound, seats: Seats) -> impl Stream<Item = io::Result<Seated>> {
    futures::stream::unfold((inbound, seats), |(inbound, seats)| async {
        let accepted = inbound.next().await;
        Some((Ok(Seated::new(accepted, seats.take().await)), (inbound, seats)))
    })
}

/// The other end of a connection, and its seat. Each request over it carries this.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub peer: Peer,
    pub seat: Seat,
}

/// A connection on its seat.
pub struct Seated {
    io: Accepted,
    seat: Seat,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Runs out when it must have said something.
    patience: Option<Pin<Box<Sleep>>>,
    gathering: Gathering,
}

impl Seated {
    fn new(io: Accepted, seat: Seat) -> Self {
        let closing = Box::pin(seat.closing().cancelled_owned());
        let patience = Some(Box::pin(sleep(seat.silence())));
        Self { io, seat, closing, patience, gathering: Gathering::default() }
    }

    /// Waits until something comes over the connection, and returns what comes first; `None` when nothing ever does.
    pub async fn begun(seated: io::Result<Self>) -> Option<(u8, Self)> {
        let mut this = seated.ok()?;
        let first = poll_fn(|cx| match this.poll_closing(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => this.io.poll_first_byte(cx).map(|first| first.ok().flatten()),
        });
        let first = first.await?;
        Some((first, this))
    }

    /// Returns the bare connection, its seat, and what ends when it is to be closed.
    #[must_use]
    pub fn into_parts(self) -> (Accepted, Seat, Pin<Box<WaitForCancellationFutureOwned>>) {
        (self.io, self.seat, self.closing)
    }

    /// Says that the connection is to be closed: it was silent for too long, or had to make room.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "it made room for another"));
        }
        if let Some(patience) = &mut self.patience
            && patience.as_mut().poll(cx).is_ready()
        {
            self.patience = None;
            if self.seat.is_silent() {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "no call came over it"));
            }
        }
        Poll::Pending
    }
}

impl Connected for Seated {
    type ConnectInfo = Arrival;

    fn connect_info(&self) -> Arrival {
        Arrival { peer: self.io.peer().clone(), seat: self.seat.clone() }
    }
}

impl AsyncRead for Seated {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.poll_closing(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Seated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.gathering.poll_turn(cx, || this.seat.has_calls()));
        Pin::new(&mut this.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.gathering.poll_turn(cx, || this.seat.has_calls()));
        Pin::new(&mut this.io).poll_write_vectored(cx, bytes)
    }
}
