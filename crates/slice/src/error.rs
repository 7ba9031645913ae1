//! What can go wrong between a program and a slice server.

use std::io;

/// Why a connection could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none of the forms known.
    #[error("{0:?} is no address of a slice server; give unix:/path or tcp:host:port")]
    Address(String),
    /// The server cannot be reached, or could not listen.
    #[error("slice server at {address}: {source}")]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The two cannot work together: they differ in what both must agree in, or another program has begun meanwhile.
    /// That does not change by itself.
    #[error("slice server at {address} refused: {reason}")]
    Unfit {
        /// Who refused.
        address: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The slice is another program's.
    #[error("slice server at {address} refused: {reason}")]
    Taken {
        /// Who refused.
        address: String,
        /// Whether that program is there, or may come again.
        reason: String,
    },
    /// One side does not want the other, and says why.
    #[error("slice server at {address} refused: {reason}")]
    Refused {
        /// Who refused.
        address: String,
        /// Why, for a person.
        reason: String,
    },
    /// The other side ended the connection, or it broke.
    #[error("the connection to {peer} is lost ({cause})")]
    Lost {
        /// Who was at the other end.
        peer: String,
        /// What was seen.
        cause: String,
    },
    /// The other side sent what the protocol does not allow.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Who did.
        peer: String,
        /// What it did.
        what: String,
    },
    /// Memory that both sides map could not be made.
    #[error("shared memory for bulk data: {0}")]
    Memory(#[source] io::Error),
}
