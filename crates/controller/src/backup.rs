//! Backups: the whole ledger at one revision in one file, from which a pool can begin anew when its control plane is
//! lost.
//!
//! A backup is a file of its own format, read without any control plane. Its first line says that it is one and in
//! which version, its second what is in it, as JSON ([`Header`]). Then come the chunks of a snapshot of the ledger,
//! each after its length as four bytes, big end first; a length of zero ends them. The last 32 bytes are the SHA-256 of
//! all bytes before them. A file that lacks them is not whole, and nothing of it is taken.
//!
//! [`Encoder`] makes the bytes, a piece at a time; [`Partial`] is a file that appears under its name only when it is
//! whole; [`Backup`] reads one and trusts nothing in it before its hash is right; [`restore`] makes the data folder of
//! a new cluster of it, and [`recover`] of what a stopped member has on its disk; `schedule` is the leader's actor that
//! saves backups every so often ([`BackupPlan`]), and [`kept`] says which there are. What begins anew is said in
//! `State::begin_anew` of the ledger and `begin_anew` of consensus.

mod encode;
#[cfg(feature = "rocksdb")]
mod found;
mod kept;
mod partial;
mod read;
#[cfg(feature = "rocksdb")]
mod recover;
pub(crate) mod schedule;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use encode::Encoder;
#[cfg(feature = "rocksdb")]
pub use found::{Begun, FoundError, Founder, restore};
pub use kept::{Kept, kept};
pub use partial::Partial;
pub use read::{Backup, BackupError, Verified};
#[cfg(feature = "rocksdb")]
pub use recover::{RecoverError, Survivor, recover};
pub use schedule::BackupPlan;

/// Version of the files that this release writes, and the newest it reads.
pub const FORMAT: u32 = 1;
/// The beginning of the first line; the version follows.
const MAGIC: &str = "tessera backup ";
/// Length of the hash at the end.
const HASH_BYTES: usize = 32;

/// The header of a backup: its origin and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The cluster it was taken from.
    pub cluster_id: String,
    /// The release that wrote it.
    pub release: String,
    /// Release level in force: what a member must be able to apply to take it up.
    pub level: u32,
    /// Revision of the ledger.
    pub revision: u64,
    /// Raft term in which it was taken.
    pub term: u64,
    /// Log time of that revision, in milliseconds since the Unix epoch.
    pub log_time_ms: u64,
    /// Time at which it was taken, in milliseconds since the Unix epoch, by the clocks of a quorum.
    pub taken_at_ms: u64,
    pub counts: Counts,
}

/// Numbers of the objects in a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Nodes, forgotten ones included.
    pub nodes: u64,
    pub cards: u64,
    pub queues: u64,
    /// Allocations that hold blocks.
    pub allocations: u64,
    /// Jobs by state; states without a job are left out.
    pub jobs: BTreeMap<String, u64>,
}
