//! Raft behind one door: a replicated log that feeds a deterministic [`Machine`] on every member of the control plane.
//!
//! A newcomer needs five words. A **member** is one control-plane process; a majority of the voting members is a
//! **quorum**. The **leader** turns commands into **entries** of the log; an entry that a quorum has on disk is
//! **committed**, and every member applies committed entries in the same order to its [`Machine`]. [`Consensus`] is the
//! handle to all that: [`propose`](Consensus::propose) a command and get what applying it answered,
//! [`read_barrier`](Consensus::read_barrier) before a linearizable read, watch [`leadership`](Consensus::leadership),
//! change the members, shut down. [`raft_service`] is what the other members call; mount it beside the API.
//!
//! The crate is the only one that names an openraft type (a pinned alpha, see docs/decisions). Its wire and disk
//! formats are its own, versioned protobuf (`tessera.raft.v1`), and what this release cannot read stops the member (law
//! L7). States are compared across members; one that differs from a majority stops (law L8).
//!
//! How it is built: [`Consensus::start`] wires together the log on a [`Store`](tessera_store::Store) (`log`), the state
//! machine (`apply`, `snapshot`), the network (`transport`), the proposer that packs concurrent commands into one entry
//! (`propose`), the rounds that confirm leadership for many readers at once (`reads`), the observer that turns raft's
//! metrics into [`Status`] (`observe`), compaction by bytes (`compact`), the comparison of digests (`audit`), the
//! levels that members announce (`announce`), the watch over the leader's process (`presence`, and `waiver` for a lease
//! that was given up), to whom a leader hands over (`heir`), how current a member is (`freshness`, by `stamps`), why
//! others turn it away (`refusals`), and log time, which a quorum of the members' clocks steers (`clocks`, `log_clock`,
//! `timekeeper`).

mod anew;
mod announce;
mod apply;
mod audit;
mod blocking;
mod clock;
mod clocks;
mod codec;
mod compact;
mod config;
mod digest;
mod entropy;
mod error;
mod freshness;
mod handle;
mod heir;
mod history;
mod ids;
mod log;
mod log_clock;
pub mod machine;
mod many;
mod members;
mod metrics;
mod nonces;
mod observe;
mod presence;
mod propose;
mod pulse;
mod reads;
mod recent;
mod refusals;
mod shared;
mod snapshot;
mod stamps;
mod start;
mod starts;
mod status;
mod stop;
mod timekeeper;
mod transport;
mod types;
mod waiver;

/// The generated messages of `tessera.raft.v1`.
#[allow(clippy::all, clippy::pedantic)]
pub(crate) mod pb {
    tonic::include_proto!("tessera.raft.v1");
}

/// The messages of members, for a simulation in which a stranger sends some.
#[cfg(feature = "simulation")]
pub mod messages {
    pub use crate::pb::*;
}

pub use anew::{BeginError, Beginning, TERMS_AHEAD, begin_anew};
pub use blocking::{blocking, try_blocking};
pub use clock::{Clock, ClockStatus, SystemClock, WrongClock};
pub use config::{BadConfig, ConsensusConfig};
pub use error::{MembershipError, ProposeError, ReadError, StartError, StopReason};
pub use handle::{Applied, Consensus, ReadBarrier};
pub use history::{History, HistoryError, PastEntry};
pub use ids::{BadClusterId, ClusterId, Identity, Member, MemberId};
pub use machine::{EntryPosition, Frozen, LogIndex, LogTime, Machine, Term, Unreadable};
pub use members::Majority;
pub use start::Environment;
pub use status::{FollowerStatus, Leadership, Refused, Role, Status, TAKES_PART};
pub use transport::{RaftServer, addressee, raft_service};

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod golden;
