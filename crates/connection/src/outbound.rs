//! Connections to others.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::codegen::http::uri::InvalidUri;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::Service as _;
use tower::util::ServiceFn;

use crate::{BoxedIo, Transport, here};

/// Opens connections, in place of TCP.
pub trait Dialer: Send + Sync + 'static {
    /// Connects to `address` (`host:port`). Dropping the future gives up.
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxedIo>>;
}

/// On which terms a connection is opened and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Longest time for opening it; `None`: whatever the operating system takes.
    pub connect_timeout: Option<Duration>,
    /// The probes that detect that the other end is gone; `None`: no probes.
    pub keep_alive: Option<KeepAlive>,
    /// Bytes that may be under way to this side, of one call and of all together; `None`: what HTTP/2 begins with.
    pub window_bytes: Option<u32>,
}

/// The probes that detect that the other end of a silent connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The interval between probes.
    pub interval: Duration,
    /// The longest wait for the answer to a probe, before the connection is closed.
    pub timeout: Duration,
    /// Also while no call is open.
    pub while_idle: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("{address:?} is not an address of the form host:port")]
pub struct BadAddress {
    pub address: String,
    #[source]
    source: tonic::transport::Error,
}

/// The reason for which there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// Nobody took it.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
}

/// The end of a connection that was opened only to find out whether anybody takes it.
#[derive(Debug)]
pub enum Knock {
    /// Somebody took it.
    Taken,
    /// The host answers that nobody listens there: at each of its addresses, if it has several.
    Refused,
    /// Neither is known: there was no answer in time, no way to the host, or no such host.
    Unknown(io::Error),
}

impl From<io::Result<()>> for Knock {
    fn from(opened: io::Result<()>) -> Self {
        match opened {
            Ok(()) => Knock::Taken,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Knock::Refused,
            Err(error) => Knock::Unknown(error),
        }
    }
}

/// Opens connections to other processes: over TCP, or as a [`Dialer`] does. Clones do the same.
#[derive(Clone, Default)]
pub struct Outbound {
    /// `None`: TCP.
    dialer: Option<Arc<dyn Dialer>>,
    transport: Transport,
}

impl Outbound {
    #[must_use]
    pub fn new(dialer: Arc<dyn Dialer>) -> Self {
        Self { dialer: Some(dialer), transport: Transport::default() }
    }

    /// A channel to `address` (`host:port`) that opens its connection with the first call over it.
    ///
    /// # Errors
    /// [`BadAddress`].
    pub fn lazily(&self, address: &str, terms: &Terms) -> Result<Channel, BadAddress> {
        Ok(self.endpoint(address, terms)?.connect_with_connector_lazy(self.connector(address, terms)))
    }

    /// A channel to `address` (`host:port`) with an open connection.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, address: &str, terms: &Terms) -> Result<Channel, ConnectError> {
        let endpoint = self.endpoint(address, terms)?;
        Ok(endpoint.connect_with_connector(self.connector(address, terms)).await?)
    }

    /// A connection to `address` (`host:port`) without HTTP on it. The kernel asks whether the other end lives, and
    /// gives up what it does not acknowledge for as long as an answer may take.
    ///
    /// # Errors
    /// When nobody takes it, or it takes too long.
    pub async fn bare(&self, address: &str, terms: &Terms) -> io::Result<BoxedIo> {
        let uri = self.transport.uri(address).parse().map_err(io::Error::other)?;
        let opening = self.connector(address, terms).call(uri);
        let opened = match terms.connect_timeout {
            Some(patience) => timeout(patience, opening).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?,
            None => opening.await,
        };
        here(opened?.into_inner(), |stream| {
            let Some(KeepAlive { interval, timeout, .. }) = terms.keep_alive else { return Ok(()) };
            let socket = SockRef::from(stream);
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(interval).with_interval(interval))?;
            socket.set_tcp_user_timeout(Some(timeout))
        })
    }

    /// Opens a connection to `address` (`host:port`), closes it, and returns what became of it within `patience`.
    pub async fn knock(&self, address: &str, patience: Duration) -> Knock {
        let knocked = async {
            match &self.dialer {
                Some(dialer) => dialer.dial(address).await.map(drop).into(),
                None => knock_over_tcp(address).await,
            }
        };
        timeout(patience, knocked).await.unwrap_or_else(|_| Knock::Unknown(io::ErrorKind::TimedOut.into()))
    }

    fn endpoint(&self, address: &str, terms: &Terms) -> Result<Endpoint, BadAddress> {
        let bad = |source| BadAddress { address: address.to_owned(), source };
        let mut endpoint = Endpoint::from_shared(self.transport.uri(address)).map_err(bad)?;
        if let Some(timeout) = terms.connect_timeout {
            endpoint = endpoint.connect_timeout(timeout);
        }
        if let Some(KeepAlive { interval, timeout, while_idle }) = terms.keep_alive {
            endpoint = endpoint
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(timeout)
                .keep_alive_while_idle(while_idle);
        }
        Ok(endpoint.initial_stream_window_size(terms.window_bytes).initial_connection_window_size(terms.window_bytes))
    }

    /// The URI of a page of the process at `address` (`host:port`).
    ///
    /// # Errors
    /// When the address or the path cannot be one.
    pub fn page(&self, address: &str, path: &str) -> Result<Uri, InvalidUri> {
        format!("{}{path}", self.transport.uri(address)).parse()
    }

    /// Returns a service that opens connections to `address` (`host:port`) for a client of HTTP that is not a
    /// [`Channel`].
    #[must_use]
    pub fn connector(
        &self,
        address: &str,
        terms: &Terms,
    ) -> ServiceFn<impl FnMut(Uri) -> BoxFuture<'static, io::Result<TokioIo<BoxedIo>>> + Clone + use<>> {
        let (address, dialer, transport) = (Arc::<str>::from(address), self.dialer.clone(), self.transport);
        let connect_timeout = terms.connect_timeout;
        tower::service_fn(move |uri: Uri| -> BoxFuture<'static, io::Result<TokioIo<BoxedIo>>> {
            let address = Arc::clone(&address);
            let opening = match &dialer {
                Some(dialer) => dialer.dial(&address),
                None => over_tcp(uri, connect_timeout),
            };
            Box::pin(async move { transport.opened(&address, opening.await?).await.map(TokioIo::new) })
        })
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// Connects over TCP, without delaying small packets: to whichever of the host's addresses answers first.
fn over_tcp(uri: Uri, connect_timeout: Option<Duration>) -> BoxFuture<'static, io::Result<BoxedIo>> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(connect_timeout);
    Box::pin(async move {
        let stream = connector.call(uri).await.map_err(io::Error::other)?;
        Ok(Box::new(stream.into_inner()) as BoxedIo)
    })
}

/// Knocks at each address of the host until one takes it. Those that this host has no way to are not how anybody
/// reaches it, and tell nothing.
async fn knock_over_tcp(address: &str) -> Knock {
    let sockets = match lookup_host(address).await {
        Ok(sockets) => sockets,
        Err(error) => return Knock::Unknown(error),
    };
    let mut least = Knock::Unknown(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    for socket in sockets {
        let knock = TcpStream::connect(socket).await.map(drop).into();
        match (&knock, &least) {
            (Knock::Taken, _) => return Knock::Taken,
            (Knock::Unknown(error), Knock::Refused) if has_no_way(error) => {}
            (Knock::Refused, Knock::Unknown(error)) if !has_no_way(error) => {}
            _ => least = knock,
        }
    }
    least
}

/// Returns whether this host has no address or no route of that family, or the name has no address.
fn has_no_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable | io::ErrorKind::NotFound
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_address_is_refused_before_anything_is_opened() {
        for text in ["not an address", "", "a:b:c"] {
            let refused = Outbound::default().lazily(text, &Terms::default());
            assert!(refused.is_err_and(|refused| refused.to_string().contains("host:port")), "{text:?}");
        }
        assert!(Outbound::default().lazily("[::1]:7400", &Terms::default()).is_ok());
    }

    #[tokio::test]
    async fn why_nobody_took_a_connection_is_told() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a port").to_string();
        let refused = Outbound::default().connect(&address, &Terms::default()).await.expect_err("nobody is there");
        let mut causes = std::iter::successors(std::error::Error::source(&refused), |cause| cause.source());
        assert!(causes.any(|cause| cause.to_string().contains("refused")), "{refused:?}");
    }

    /// A network in which nobody answers.
    struct Silent;

    impl Dialer for Silent {
        fn dial(&self, _address: &str) -> BoxFuture<'static, io::Result<BoxedIo>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn only_a_host_that_answers_can_refuse() {
        let (outbound, patience) = (Outbound::default(), Duration::from_secs(5));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        assert!(matches!(outbound.knock(&address, patience).await, Knock::Taken));
        drop(listener);
        assert!(matches!(outbound.knock(&address, patience).await, Knock::Refused));
        let silent = Outbound::new(Arc::new(Silent)).knock(&address, Duration::from_millis(1)).await;
        assert!(matches!(silent, Knock::Unknown(_)), "{silent:?}");
        assert!(matches!(outbound.knock("no address", patience).await, Knock::Unknown(_)));
    }
}
