//! The behaviour of an agent: plain state, one enumeration of everything that can happen, and a synchronous
//! [`Node::on`] that answers with what is to be done. No clock, no I/O; the shell in [`crate::Agent`] performs
//! the effects.
//!
//! The rules, each with its test beside it:
//! * what an older term orders is refused, and the session that brought it is ended;
//! * a higher term is kept on disk before anything of it is obeyed;
//! * a worker is started at most once per (allocation, epoch, rank), only under a valid lease, and only when no older
//!   allocation of the same rank is left alive here (law L2);
//! * so many workers start at a time, the first of a small job before the rest of a large gang; stops wait for none;
//! * reconciliation goes both ways: what complete orders do not name is stopped and reported; what they name and is not
//!   there any more is reported, never started again;
//! * a report is sent again until it is acknowledged; a stopped worker is forgotten only after that;
//! * a lease counts from when *this* agent sent the heartbeat, by its own record of that, not by what comes back.

mod event;
mod launches;
mod orders;
mod readings;
mod record;
mod reports;
mod session;
mod state;

pub use event::{CheckpointNews, Effect, Event, LaunchOrder, PoolTerms};
pub use readings::{HeldSlice, Readings, WorkerView};
pub use record::{Stage, WorkerRecord, cause_of, from_ref, policy_of, to_ref};
pub use state::{CardUse, Node, NodeFacts};
