//! The written form of the ledger: commands in the log, the whole state in snapshots, and the vocabulary that both
//! share with the API.
//!
//! * [`encode_request`] and [`decode_request`]: one command of the log (`tessera/ledger/v1/command.proto`).
//! * [`encode_snapshot`] and [`decode_snapshot`]: the state as a stream of records
//!   (`tessera/ledger/v1/snapshot.proto`). The same state gives the same bytes.
//! * [`v1`]: the messages of `tessera/v1/types.proto` and `states.proto`. Their conversions to and from the domain
//!   types exist once, here; the API uses them too.
//!
//! Whatever cannot be read is an error that says so, never skipped and never guessed (law L7): a format that this
//! release does not know, a command or a value of an enumeration from a newer release, and plain damage. What a release
//! has written is kept as golden files under `tests/golden` and read by its tests and by those of every later release.

mod card;
mod checkpoint;
mod error;
mod events;
mod field;
mod job;
mod plan;
mod pool;
mod reason;
mod record;
mod recorded;
mod request;
mod restore;
mod snapshot;
mod spec;
mod words;

pub use card::{card_from_wire, card_to_wire, slice_from_wire, slice_to_wire};
pub use error::WireError;
pub use field::{
    FieldError, FieldProblem, WireEnum, duration_from_wire, duration_if_any, duration_to_wire, enum_from_wire,
};
pub use pool::{
    attained_order_from_wire, attained_order_to_wire, capacity_from_wire, capacity_to_wire, idle_policy_from_wire,
    idle_policy_to_wire, leases_from_wire, leases_to_wire,
};
pub(crate) use recorded::hash_of_spec;
pub use request::{decode_request, encode_request};
pub use restore::decode_snapshot;
pub(crate) use snapshot::header_to_digest;
pub use snapshot::{SnapshotChunks, encode_snapshot};
pub use spec::{host_from_wire, host_to_wire, spec_from_wire, spec_to_wire};

/// Code made from `proto/`, in the shape of its packages.
#[allow(clippy::all, clippy::pedantic)]
mod generated {
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/tessera.v1.rs"));
    }
    pub mod ledger {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/tessera.ledger.v1.rs"));
        }
    }
}

use generated::ledger::v1 as stored;
/// Messages shared with the API: jobs as they are submitted, cards as they are declared, slices as they are granted,
/// and the states of things.
pub use generated::v1;

/// Format of commands and snapshots that this release writes; it reads this one and every older one.
pub const FORMAT: u32 = 1;
