//! How a connection to another member comes about; a simulation or a test supplies its own way.

use std::io;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection: bytes both ways.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A connection of whatever kind.
pub type BoxedIo = Box<dyn Io>;

/// Opens connections to members.
pub trait Dialer: Send + Sync + 'static {
    /// Connects to `address` (`host:port`). Dropping the future gives up.
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxedIo>>;
}

/// Connects over TCP, without delaying small packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialer;

impl Dialer for TcpDialer {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxedIo>> {
        let address = address.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedIo)
        })
    }
}
