//! How members talk: our own messages over gRPC.
//!
//! Each member keeps three connections to each other one, so that what is large never delays what is urgent: *control*
//! (votes, heartbeats, questions of readers), *bulk* (appends, pipelined on one stream) and *snapshot*. Every call has
//! a deadline; a connection that breaks or falls silent is dropped and dialled anew by the next call.

mod beats;
mod client;
mod gathered;
mod links;
mod receive;
mod send;
mod server;
mod wire;

pub(crate) use client::Network;
pub(crate) use links::{Admission, Lane, Links};
pub use server::{RaftServer, raft_service};

/// Version of the protocol between members that this release speaks.
const PROTOCOL_VERSION: u32 = 1;
