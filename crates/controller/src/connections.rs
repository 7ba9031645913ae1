//! Where a member's connections come from and how it opens its own: the only two doors to the network.
//!
//! Everything above them speaks gRPC over whatever bytes they carry. A real member uses TCP; a simulated one stands on
//! [`Listener`] and [`Dialer`]s of another making.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tessera_consensus::{BoxedIo, Dialer, TcpDialer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Error, Uri};

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

/// The connections of a listener, as a server takes them.
pub(crate) fn incoming(listener: Arc<dyn Listener>) -> impl Stream<Item = io::Result<Accepted>> {
    futures::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(Accepted);
        Some((accepted, listener))
    })
}

/// A connection that was accepted.
pub(crate) struct Accepted(BoxedIo);

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bytes)
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
