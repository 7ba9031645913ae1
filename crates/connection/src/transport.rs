//! What lies between the bytes of a connection and the network: the only place that has to know.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::BoxedIo;

/// How connections are protected. Both ends must agree.
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

    /// What becomes of a connection that was opened to `_address`, before anything is said over it.
    ///
    /// # Errors
    /// When the other end is not who it must be.
    #[expect(clippy::unused_async, reason = "a handshake waits for the other end")]
    pub(crate) async fn opened(self, _address: &str, io: BoxedIo) -> io::Result<BoxedIo> {
        match self {
            Self::Plain => Ok(io),
        }
    }

    /// What becomes of a connection that came from `address`, and who is at its other end. It does not wait for the
    /// other end, which may never say anything: a handshake belongs to the first read.
    pub(crate) fn accepted(self, address: SocketAddr, io: BoxedIo) -> (BoxedIo, Peer) {
        match self {
            Self::Plain => (io, Peer { address, identity: None }),
        }
    }
}

/// Who is at the other end of a connection. Requests carry it as an extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Where the connection comes from.
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
