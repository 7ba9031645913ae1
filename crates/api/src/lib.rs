//! The wire of Tessera: the code made from `proto/tessera/v1`, and the one place where what comes over it is checked
//! and turned into the ledger's own types and back.
//!
//! * [`v1`]: messages, clients and servers.
//! * In: [`job_spec`] (jobs), [`job_file`] (jobs as people write them), [`job_filter`], [`queue_view`],
//!   [`pool_view`] (settings), [`agent`] (sessions), [`request_id`], [`page`] and [`resume`] (tokens). [`limits`]
//!   says what is too much.
//! * Out: [`job_view`], [`pool_view`], [`queue_view`], [`event_view`].
//! * By its descriptors: [`reflect`], for whoever shows messages without naming each field.
//! * Errors: [`error`], all of them.
//!
//! Conversions of what the log and the API have in common (job specs, cards, slices, the words of enumerations) live in
//! [`tessera_ledger::wire`], once.

pub mod agent;
pub mod error;
pub mod event_view;
pub mod fields;
pub mod job_file;
pub mod job_filter;
pub mod job_spec;
pub mod job_view;
pub mod limits;
pub mod metadata;
pub mod page;
pub mod pool_view;
pub mod queue_view;
pub mod reasons;
pub mod reflect;
pub mod request_id;
pub mod resume;
pub mod time;
mod token;

pub use error::Refusal;

/// The messages, clients and servers of package `tessera.v1`.
///
/// What the ledger shares with the API (`types.proto` and `states.proto`) is made in the ledger's crate and named
/// here too.
#[allow(clippy::all, clippy::pedantic)]
pub mod v1 {
    pub use tessera_ledger::wire::v1::*;

    include!(concat!(env!("OUT_DIR"), "/tessera.v1.rs"));
}

/// Descriptors of all messages and services, for `grpc.reflection.v1`: an encoded `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.binpb"));
