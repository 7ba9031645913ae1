//! Communication between members: our own messages, the frequent ones on lines of their own, the others over gRPC.
//!
//! Appends, pipelined, and heartbeats have a connection each, without HTTP ([`line`]): nearly all that is said is that.
//! For calls each member keeps two connections to each other one, so that what is large never delays what is urgent:
//! *control* (votes, questions of readers) and *snapshot*. Every call has a deadline; a connection that breaks or falls
//! silent is dropped and dialled anew when it is needed next.

mod appends;
mod beats;
mod callers;
mod client;
mod frames;
mod gathered;
mod line;
mod lines;
mod links;
mod open_lines;
mod receive;
mod send;
mod server;
mod vouching;
mod wire;

pub use callers::addressee;
pub(crate) use client::Network;
pub(crate) use links::{Admission, Links};
pub(crate) use open_lines::OpenLines;
pub use server::{RaftServer, raft_service};

/// Version of the protocol between members that this release speaks.
const PROTOCOL_VERSION: u32 = 1;
