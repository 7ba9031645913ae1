//! Calls that only the leader can answer reach it from any member.
//!
//! A layer around the services looks at each call's path. What any member can answer goes through. The rest is carried
//! to whoever leads: to the services here, or over a pooled connection to the leader, with the caller's metadata and
//! what is left of its deadline. When leadership changes on the way, the call is carried again: every mutation has a
//! request id (one is made here when the caller gave none), so that what was already done is answered and not done
//! twice (law L3).
//!
//! A forwarded call is marked and never forwarded again: a member that does not lead refuses it with `NOT_LEADER`, and
//! the member that forwarded it looks again who leads.
//!
//! A stream of requests cannot be carried again: what has passed is gone. It is passed on to the leader, and when that
//! leader is lost, it ends, saying that what was not answered is unknown. Its sender goes on with another stream.

mod channels;
mod envelope;
mod layer;
mod passing;
mod verdict;

pub use channels::Channels;
pub use layer::{LeaderLayer, LeaderRoute};
