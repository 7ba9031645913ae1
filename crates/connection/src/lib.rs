//! The doors to the network: every connection that Tessera opens goes out through an [`Outbound`], every one that it
//! accepts comes in through an [`Inbound`].
//!
//! Everything above them speaks gRPC or HTTP over whatever bytes they carry. A real process stands on TCP; a simulated
//! one on a [`Dialer`] and a [`Listener`] of another making. What protects the bytes on their way is [`Transport`]'s
//! matter alone, and who is at the other end is told to services as a [`Peer`].

mod inbound;
mod outbound;
#[cfg(feature = "pages")]
pub mod pages;
mod transport;

use tokio::io::{AsyncRead, AsyncWrite};

pub use inbound::{Accepted, Inbound, Listener};
pub use outbound::{BadAddress, ConnectError, Dialer, KeepAlive, Outbound, Terms};
pub use transport::{Peer, Transport};

/// A connection: bytes both ways.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A connection of whatever kind.
pub type BoxedIo = Box<dyn Io>;
