//! Where a member's connections come from and how it opens its own: the only two doors to the network.
//!
//! Everything above them speaks gRPC over whatever bytes they carry. A real member uses TCP; a simulated one stands on
//! [`Listener`] and [`Dialer`]s of another making.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tessera_consensus::{BoxedIo, Dialer, TcpDialer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Error, Uri};

use crate::seats::{Seat, Seats};

/// Where connections come from.
pub trait Listener: Send + Sync + 'static {
    /// Waits for the next connection. While one server follows another on the same listener, both may wait.
    fn accept(&self) -> BoxFuture<'_, io::Result<BoxedIo>>;
}

impl Listener for TcpListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<BoxedIo>> {
        Box::pin(async {
            let (stream, _) = TcpListener::accept(self).await?;
            // Without it only answers come later.
            let _ = stream.set_nodelay(true);
            Ok(Box::new(stream) as BoxedIo)
        })
    }
}

/// Pause after a connection that could not be accepted: most often the process has as many files open as it may, and
/// some must be closed first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The connections of a listener, as a server takes them, each on a seat. One that cannot be accepted does not end
/// the server.
pub(crate) fn incoming(listener: Arc<dyn Listener>, seats: Seats) -> impl Stream<Item = io::Result<Accepted>> {
    futures::stream::unfold((listener, seats), |(listener, seats)| async {
        loop {
            match listener.accept().await {
                Ok(io) => return Some((Ok(Accepted::new(io, seats.take().await)), (listener, seats))),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

/// A connection that was accepted.
pub(crate) struct Accepted {
    io: BoxedIo,
    seat: Seat,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When it must have said something.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Accepted {
    fn new(io: BoxedIo, seat: Seat) -> Self {
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

impl Connected for Accepted {
    type ConnectInfo = Seat;

    fn connect_info(&self) -> Seat {
        self.seat.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.poll_closing(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
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
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
    }
}

/// How a member opens connections of its own.
#[derive(Clone)]
pub struct Outbound(Arc<dyn Dialer>);

impl Outbound {
    /// Opens them with `dialer`.
    #[must_use]
    pub fn new(dialer: Arc<dyn Dialer>) -> Self {
        Self(dialer)
    }

    /// A channel that opens its connection with the first call over it.
    #[must_use]
    pub fn lazily(&self, endpoint: &Endpoint) -> Channel {
        let dialer = Arc::clone(&self.0);
        endpoint.connect_with_connector_lazy(tower::service_fn(move |uri| dial(&*dialer, &uri)))
    }

    /// A channel with an open connection.
    ///
    /// # Errors
    /// When there is nobody.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Channel, Error> {
        let dialer = Arc::clone(&self.0);
        endpoint.connect_with_connector(tower::service_fn(move |uri| dial(&*dialer, &uri))).await
    }
}

impl Default for Outbound {
    /// Over TCP.
    fn default() -> Self {
        Self::new(Arc::new(TcpDialer))
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbound")
    }
}

fn dial(dialer: &dyn Dialer, uri: &Uri) -> BoxFuture<'static, io::Result<TokioIo<BoxedIo>>> {
    let dialling = uri.authority().map(|authority| dialer.dial(authority.as_str()));
    Box::pin(async move {
        match dialling {
            Some(dialling) => dialling.await.map(TokioIo::new),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "an address needs a host and a port")),
        }
    })
}
