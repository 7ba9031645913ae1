//! The layer between the bytes of a connection and the network: the only place that has to know.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::BoxedIo;

/// The protection of connections. Both ends must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Not at all: whoever reaches the network reads it, and nobody proves who they are.
    #[default]
    Plain,
}

impl Transport {
    /// The URI under which a process at `address` (`host:port`) is spoken to.
    pub(crate) fn uri(self, address: &str) -> String {
        match self {
            Self::Plain => format!("http://{address}"),
        }
    }

    /// Protects a connection that was opened to `_address`, before anything is sent over it.
    ///
    /// # Errors
    /// When the other end is not who it must be.
    #[expect(clippy::unused_async, reason = "a handshake waits for the other end")]
    pub(crate) async fn opened(self, _address: &str, io: BoxedIo) -> io::Result<BoxedIo> {
        match self {
            Self::Plain => Ok(io),
        }
    }

    /// Protects a connection that came from `address`, and identifies its other end. It does not wait for the other
    /// end, which may never say anything: a handshake belongs to the first read.
    pub(crate) fn accepted(self, address: SocketAddr, io: BoxedIo) -> (BoxedIo, Peer) {
        match self {
            Self::Plain => (io, Peer { address, identity: None }),
        }
    }
}

/// The other end of a connection. Requests carry it as an extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The address from which the connection comes.
    pub address: SocketAddr,
    /// The name that its certificate proves; `None` where the transport proves none.
    pub identity: Option<Arc<str>>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Some(name) => write!(f, "{name} at {}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}
