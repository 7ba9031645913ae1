//! Holdings of jobs over time: the accounts of a pool, kept for longer than the ledger remembers.
//!
//! A job pays for the blocks and the card memory of its workers from the moment when all of its allocation's blocks are
//! its own until each worker's stop is confirmed, in the ledger's own time. [`books`] reads that off the ledger entry
//! by entry; [`database`] keeps it in SQLite and sums it up; [`keeper`] is the thread between the two. Every member
//! keeps accounts of its own, from the same log, and so all have the same.
//!
//! Nothing is counted twice and nothing is left out: the revision up to which a database is complete is written in the
//! transaction that makes it so, entries that are applied again after a restart are known by their revision, and a
//! snapshot of the ledger is made only once the accounts up to it are on disk. Only a member that takes over the state
//! of another by a snapshot has not seen what happened before it; it says so as a [`Gap`].

pub mod books;
pub mod database;
pub mod keeper;
pub mod query;
mod sums;

pub use books::{Books, Change, Class, Holding, JobFacts};
pub use database::{Database, UsageError};
pub use keeper::{Keeper, Settings};
pub use query::{Answer, Gap, GroupBy, Query, Row, Sums};
