//! Errors between a program and a slice server.

use std::io;

/// The reason why a connection could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none of the forms known.
    #[error("{0:?} is no address of a slice server; give unix:/path or tcp:host:port")]
    Address(String),
    /// The server cannot be reached, or could not listen.
    #[error("slice server at {address}: {source}")]
    Unreachable {
        /// The address of the server.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The two cannot work together: they differ in what both must agree in, or another program has begun meanwhile.
    /// That does not change by itself.
    #[error("slice server at {address} refused: {reason}")]
    Unfit {
        /// The address of the server that refused.
        address: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// The slice is another program's.
    #[error("slice server at {address} refused: {reason}")]
    Taken {
        /// The address of the server that refused.
        address: String,
        /// The state of that program: it is there, or may come again.
        reason: String,
    },
    /// One side does not want the other, and says why.
    #[error("slice server at {address} refused: {reason}")]
    Refused {
        /// The address of the server that refused.
        address: String,
        /// The reason, for a person.
        reason: String,
    },
    /// The other side ended the connection, or it broke.
    #[error("the connection to {peer} is lost ({cause})")]
    Lost {
        /// The other end of the connection.
        peer: String,
        /// The cause that was seen.
        cause: String,
    },
    /// The other side sent what the protocol does not allow.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// The side that broke it.
        peer: String,
        /// The violation.
        what: String,
    },
    /// Memory that both sides map could not be made.
    #[error("shared memory for bulk data: {0}")]
    Memory(#[source] io::Error),
}
