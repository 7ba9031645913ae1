//! Connections from others.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tonic::transport::server::Connected;

use crate::{BoxedIo, Peer, Transport, here};

/// Pause after a connection that could not be accepted: most often the process has as many files open as it may, and
/// some must be closed first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The longest time for which written bytes may wait for the other end to read them, before the system closes the
/// connection.
const UNREAD: Duration = Duration::from_secs(30);

/// The interval at which the other end of a bare connection is probed while it is silent.
const ALIVE: Duration = Duration::from_secs(10);

/// The source of connections.
pub trait Listener: Send + Sync + 'static {
    /// Waits for the next connection, and says where it comes from. While one server follows another on the same
    /// listener, both may wait.
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxedIo, SocketAddr)>>;

    /// The address on which it listens.
    ///
    /// # Errors
    /// When the operating system does not say.
    fn local_address(&self) -> io::Result<SocketAddr>;
}

impl Listener for TcpListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxedIo, SocketAddr)>> {
        Box::pin(async {
            let (stream, from) = Self::accept(self).await?;
            // Without it only answers come later.
            let _ = stream.set_nodelay(true);
            // Without it who never reads keeps what was written for it for ever.
            let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
            Ok((Box::new(stream) as BoxedIo, from))
        })
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// Accepts connections. Clones accept from the same listener.
#[derive(Clone)]
pub struct Inbound {
    listener: Arc<dyn Listener>,
    transport: Transport,
}

impl Inbound {
    #[must_use]
    pub fn new(listener: Arc<dyn Listener>) -> Self {
        Self { listener, transport: Transport::default() }
    }

    /// Listens on TCP.
    ///
    /// # Errors
    /// When the address cannot be had, such as one that another process has.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::new(Arc::new(TcpListener::bind(address).await?)))
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
    }

    /// The next connection. What cannot be accepted is told in the log, and the next is waited for.
    pub async fn next(&self) -> Accepted {
        loop {
            match self.listener.accept().await {
                Ok((io, address)) => {
                    let (io, peer) = self.transport.accepted(address, io);
                    return Accepted { io, peer, first: None };
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// All connections, as a server takes them; they do not end.
    pub fn incoming(self) -> impl Stream<Item = io::Result<Accepted>> {
        futures::stream::unfold(self, |inbound| async { Some((Ok(inbound.next().await), inbound)) })
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// A connection that was accepted. Each request over it carries its [`Peer`].
pub struct Accepted {
    io: BoxedIo,
    peer: Peer,
    /// A byte that was looked at and not read yet.
    first: Option<u8>,
}

impl Accepted {
    /// The other end of the connection.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The first byte that comes, which says what is spoken: it is read again by whoever reads next. `None` when the
    /// other end closes without a word.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn poll_first_byte(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        if self.first.is_none() {
            let mut byte = [0];
            let mut buffer = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
            self.first = buffer.filled().first().copied();
        }
        Poll::Ready(Ok(self.first))
    }

    /// The bare connection, for what is not HTTP and has no questions of its own whether the other end lives: here the
    /// kernel asks. It is driven by the runtime that this is called in from now on. A first byte that was only looked
    /// at is gone.
    ///
    /// # Errors
    /// When the connection broke meanwhile.
    pub fn into_bare(self) -> io::Result<BoxedIo> {
        here(self.io, |stream| {
            SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(ALIVE).with_interval(ALIVE))
        })
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

writes_through!(Accepted, io);
