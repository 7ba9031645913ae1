//! A member's process: what it serves to people and programs, and how it is put together ([`run_on`]).
//!
//! What a member does for the pool is the crate `tessera-controller`; here is how it is asked.
//!
//! * [`services`] answer people and programs, put together with the rest by [`grpc`], which admits, observes and limits
//!   ([`limits`]) every call; [`http`] has the pages for monitoring, the console, and questions as JSON.
//! * [`founding`] is how a process without an identity becomes a member.
//! * [`member`] starts all of it on the ground it is given and ends it in order; [`config`] has an operator's settings.

pub mod config;
mod connections;
#[cfg(feature = "rocksdb")]
mod consensus_runtime;
pub mod founding;
pub mod grpc;
pub mod http;
pub mod json_face;
pub mod limits;
pub mod member;
pub mod phase;
mod run_error;
pub mod services;
pub mod whereabouts;

pub use config::ServerConfig;
#[cfg(feature = "rocksdb")]
pub use member::run;
pub use member::run_on;
pub use run_error::RunError;
