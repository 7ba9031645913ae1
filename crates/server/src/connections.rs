//! The connections that reach a member, each on a seat.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tessera_connection::{Accepted, Inbound, Peer};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use crate::seats::{Seat, Seats};

/// The connections that come in, as a server takes them, each as soon as it has a seat.
pub(crate) fn incoming(inbound: Inbound, seats: Seats) -> impl Stream<Item = io::Result<Seated>> {
    futures::stream::unfold((inbound, seats), |(inbound, seats)| async {
        let accepted = inbound.next().await;
        Some((Ok(Seated::new(accepted, seats.take().await)), (inbound, seats)))
    })
}

/// Whose a connection is. Each request over it carries this.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Who is at the other end.
    pub peer: Peer,
    /// The seat that the connection has here.
    pub seat: Seat,
}

/// A connection on its seat.
pub(crate) struct Seated {
    io: Accepted,
    seat: Seat,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When it must have said something.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Seated {
    fn new(io: Accepted, seat: Seat) -> Self {
        let closing = Box::pin(seat.closing().cancelled_owned());
        let patience = Some(Box::pin(sleep(seat.silence())));
        Self { io, seat, closing, patience }
    }

    /// Whether the connection is to be closed: it was silent for too long, or had to make room.
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

tessera_connection::writes_through!(Seated, io);
