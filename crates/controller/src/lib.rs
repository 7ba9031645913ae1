//! The control plane: what a member does beside agreeing with the other members.
//!
//! A newcomer needs three words more than those of the ledger. A **member** is one of the three or five processes that
//! keep the ledger; the **reign** is the time during which this member leads in one term; a **session** is the
//! conversation between the agent of a node and the leader.
//!
//! How a member is put together ([`run_on`]):
//!
//! * [`machine`] feeds the committed log into the ledger and publishes its state: to readers through [`view`], to
//!   placement through [`feed`], which also says what was touched.
//! * [`pool`] is what services and actors hold: read the ledger, propose a command, ask placement.
//! * `leader` starts the actors of the leader when leadership is won and stops them when it is lost. They keep nothing
//!   that cannot be rebuilt from the ledger and from what agents report, so a change of leader loses nothing:
//!   [`placement_actor`] decides who gets which blocks, [`session`] talks to agents and grants leases, `lifecycle`
//!   declares nodes lost, drives moves and lets time pass.
//! * [`services`] answer people and programs, put together with the rest by [`grpc`]; [`http`] has the pages
//!   for monitoring.
//! * [`founding`] is how a process without an identity becomes a member; [`disk`] watches the room on the disk;
//!   [`past`] reads the log of a member that has stopped; [`backup`] saves the ledger and lets a pool begin anew.
//!
//! Every actor is a plain state, an enum of everything that can happen to it, and a synchronous function from the one
//! to what is to be done; its shell waits, performs and knows nothing else. Tests call the function.

pub mod backup;
mod clock;
pub mod config;
mod connections;
#[cfg(feature = "rocksdb")]
mod consensus_runtime;
pub mod disk;
pub mod feed;
#[cfg(test)]
mod fixture;
pub mod founding;
pub mod grpc;
pub mod http;
mod leader;
mod lifecycle;
pub mod limits;
pub mod machine;
pub mod member;
pub mod metrics;
mod new_pool;
#[cfg(feature = "rocksdb")]
pub mod past;
pub mod placement_actor;
pub mod pool;
mod seats;
pub mod services;
pub mod session;
pub mod telemetry;
mod trace;
mod upgrade;
pub mod view;

pub use config::ServerConfig;
#[cfg(feature = "rocksdb")]
pub use member::run;
pub use member::{RunError, run_on};
pub use pool::PoolHandle;
pub use view::LedgerView;
