//! Durable memory of one member: log, vote and snapshots.
//!
//! Consensus promises that nothing acknowledged is lost (L3); this crate is the part of that promise that has to do
//! with one disk. It knows neither the consensus protocol nor the ledger: entries, votes and identities are opaque
//! bytes with an [`EntryId`]. It has no runtime: requests take a callback, reads are plain calls.
//!
//! * [`Store`] is the contract, and its module says what is durable when, what is promised, and what may fail.
//! * [`rocks`] keeps it on a real disk: the only place of the project that opens RocksDB. One thread writes everything
//!   that is queued with one sync, so a hundred requests cost what one costs.
//! * [`memory`] keeps it on a modelled disk that knows pending from flushed data and can lose power, tear, flip and
//!   fill up, without threads or a clock, for simulation.
//!
//! The two share all logic above "write this batch" and "read this key", and the encoding: only the disk is modelled.
//! One behavioural suite (`tests/contract`) and one model (`tests/model.rs`) hold both to the same behaviour.
//!
//! # Damage
//! Every record carries a version and a CRC-32 over its content and its place. A record that does not hold, a missing
//! entry, a record of a newer release: each is an error that names the folder, the column family, the key and the
//! remedy ([`StoreError::is_damage`]). Nothing is skipped, nothing repaired by guessing (L7): the other members have
//! the data.
//!
//! # Map
//! From the outside in: `store` (contract), `engine` and `writer` (logic over any disk), `view`, `tail` and
//! `shelf` (what the store would say now), `request` (what is asked of the disk), `body`, `codec` and `keys` (how
//! it lies there), `recovery` (opening), `reader` (looking back at a stopped member's), then the two disks `rocks`
//! and `memory`.

mod body;
mod codec;
mod engine;
mod error;
mod histogram;
mod keys;
pub mod memory;
mod reader;
mod record;
mod recovery;
mod request;
mod reserve;
#[cfg(feature = "rocksdb")]
pub mod rocks;
mod shelf;
mod store;
mod tail;
mod view;
mod writer;

pub use error::{Cause, StoreError};
pub use histogram::{SYNC_BOUNDS_MICROS, SyncHistogram};
pub use memory::MemoryDisk;
pub use reader::StoreReader;
pub use record::{EntryId, LogRecord, SnapshotRecord};
pub use store::{Done, LogState, Reserve, SnapshotDone, SnapshotProgress, SnapshotWriter, Store, StoreStatus};
