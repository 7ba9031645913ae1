//! The doors to the network: every connection that Tessera opens goes out through an [`Outbound`], every one that it
//! accepts comes in through an [`Inbound`].
//!
//! Everything above them speaks gRPC or HTTP over whatever bytes they carry. A real process stands on TCP; a simulated
//! one on a [`Dialer`] and a [`Listener`] of another making. What protects the bytes on their way is [`Transport`]'s
//! matter alone, and who is at the other end is told to services as a [`Peer`].
//!
//! What goes past them is not between processes of the control plane: programs and slice servers, which prove to each
//! other that they know the token of an allocation (`slice`); object stores and collectors of telemetry, which their
//! libraries reach by a URL with its own scheme; and sockets within one host.

/// Passes what is written into a connection around another one on to `self.$io`.
#[macro_export]
macro_rules! writes_through {
    ($connection:ty, $io:ident) => {
        impl ::tokio::io::AsyncWrite for $connection {
            fn poll_write(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                bytes: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                ::std::pin::Pin::new(&mut self.$io).poll_write(cx, bytes)
            }

            fn poll_flush(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                ::std::pin::Pin::new(&mut self.$io).poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                ::std::pin::Pin::new(&mut self.$io).poll_shutdown(cx)
            }

            fn is_write_vectored(&self) -> bool {
                self.$io.is_write_vectored()
            }

            fn poll_write_vectored(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                bytes: &[::std::io::IoSlice<'_>],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                ::std::pin::Pin::new(&mut self.$io).poll_write_vectored(cx, bytes)
            }
        }
    };
}

#[cfg(feature = "requests")]
pub mod arriving;
#[cfg(feature = "seats")]
mod gathering;
mod inbound;
#[cfg(feature = "pages")]
pub mod names;
mod outbound;
#[cfg(feature = "pages")]
pub mod pages;
#[cfg(feature = "seats")]
pub mod seated;
#[cfg(feature = "seats")]
pub mod seats;
mod transport;

use std::any::Any;
use std::io;

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub use inbound::{Accepted, Inbound, Listener};
pub use outbound::{BadAddress, ConnectError, Dialer, KeepAlive, Knock, Outbound, Terms};
pub use transport::{Peer, Transport};

/// A connection: bytes both ways.
pub trait Io: AsyncRead + AsyncWrite + Any + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Any + Send + Unpin> Io for T {}

/// A connection of whatever kind.
pub type BoxedIo = Box<dyn Io>;

impl Connection for BoxedIo {
    /// Nothing that clients of HTTP have to know: no proxy lies between, and no protocol was agreed upon.
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Has a connection driven by the runtime that this is called in, so that no other thread has to wake it there; `set`
/// sets what its socket needs. What is not TCP stays as it is.
fn here(io: BoxedIo, set: impl FnOnce(&TcpStream) -> io::Result<()>) -> io::Result<BoxedIo> {
    if !(&*io as &dyn Any).is::<TcpStream>() {
        return Ok(io);
    }
    match (io as Box<dyn Any>).downcast::<TcpStream>() {
        Ok(stream) => {
            let stream = TcpStream::from_std(stream.into_std()?)?;
            set(&stream)?;
            Ok(Box::new(stream))
        }
        Err(_) => Err(io::Error::other("a connection changed its kind")),
    }
}
