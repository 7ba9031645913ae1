//! The client of Tessera's API, used by the command line, agents and tests.
//!
//! A [`Client`] knows some members of the control plane; one that answers is enough. It finds the leader by asking: any
//! member forwards what only the leader can do, a member that cannot answer may name the leader, and otherwise the next
//! member is asked (`routes`). A call is tried again, with the same request id, until it is answered, refused for good
//! or its deadline has passed (`retry`); a member that falls silent is given company after 80 ms, so that neither a
//! dead member nor a dead leader costs more than that beyond the election itself. What remains is one typed error
//! ([`ClientError`]): refused, with the reason, or unavailable, with whether a mutation may have been made.
//!
//! Streams go on by themselves: [`Watch`] by resume token, [`LogReader`] by offset, [`Submissions`] by request ids.
//! [`session`] is the agent's door.

mod address;
mod calls;
mod client;
mod entropy;
mod error;
mod logs;
pub mod reach;
mod retry;
mod routes;
mod saving;
pub mod session;
mod settings;
mod submissions;
pub mod watch;

pub use address::{Address, BadAddress};
pub use client::Client;
pub use error::{ApiError, ClientError, Connection, FieldViolation, Trouble, Unavailable};
pub use logs::{LogChunk, LogReader};
pub use saving::Saving;
pub use session::{Session, SessionConnector, connect_session};
pub use settings::{Headers, Settings};
pub use submissions::{Submission, Submissions};
pub use watch::Watch;
