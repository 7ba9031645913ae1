//! The control plane: what a member does for the pool beside agreeing with the other members, and beside being asked.
//!
//! A newcomer needs three words more than those of the ledger. A **member** is one of the three or five processes that
//! keep the ledger; the **reign** is the time during which this member leads in one term; a **session** is the
//! conversation between the agent of a node and the leader.
//!
//! * [`machine`] feeds the committed log into the ledger and publishes its state: to readers through [`view`], to
//!   placement through [`feed`], which also says what was touched.
//! * [`pool`] is what services and actors hold: read the ledger, propose a command, ask placement.
//! * [`controller`] starts all of it for a member whose consensus runs.
//! * `leader` starts the actors of the leader when leadership is won and stops them when it is lost. They keep nothing
//!   that cannot be rebuilt from the ledger and from what agents report, so a change of leader loses nothing:
//!   [`placement_actor`] decides who gets which blocks, [`session`] talks to agents and grants leases, `lifecycle`
//!   declares nodes lost, drives moves and lets time pass.
//! * [`disk`] watches the room on the disk, `clock` the wall clock; [`past`] reads the log of a member that has
//!   stopped; [`backup`] saves the ledger and lets a pool begin anew.
//!
//! How people and programs ask all this, and how a member is put together of it, is the crate `tessera-server`.
//!
//! Every actor is a plain state, an enum of everything that can happen to it, and a synchronous function from the one
//! to what is to be done; its shell waits, performs and knows nothing else. Tests call the function.

pub mod backup;
mod clock;
pub mod config;
pub mod controller;
pub mod disk;
pub mod feed;
#[cfg(test)]
mod fixture;
mod growth;
mod idle;
pub mod job_use;
mod leader;
mod lifecycle;
pub mod machine;
pub mod metrics;
pub mod new_pool;
#[cfg(feature = "rocksdb")]
pub mod past;
pub mod placement_actor;
pub mod pool;
pub mod session;
pub mod telemetry;
pub mod trace;
mod upgrade;
pub mod view;

pub use pool::PoolHandle;
pub use view::LedgerView;
