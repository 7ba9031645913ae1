//! Errors of reading commands and snapshots.

use super::FORMAT;
use super::field::{FieldError, FieldProblem};
use crate::level::Level;

/// The reason why a command or a snapshot cannot be read. The member that meets it stops (law L7).
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// It was written in a format that this release does not know.
    #[error(
        "{what} is in format {found}, and this release reads formats up to {FORMAT}; it was written by a newer release of \
         Tessera: start that release or a newer one"
    )]
    UnknownFormat { what: &'static str, found: u32 },
    #[error(
        "{what} holds something that this release does not know; it was written by a newer release of Tessera: start that \
         release or a newer one"
    )]
    UnknownContent { what: &'static str },
    #[error(
        "{what} holds a value that this release does not know; it was written by a newer release of Tessera: start that \
         release or a newer one"
    )]
    UnknownValue {
        what: &'static str,
        #[source]
        field: FieldError,
    },
    /// The pool is at a release level that this release does not know.
    #[error(
        "the pool is at release level {number}, and this release goes up to {newest}: start the release that brought that level \
         or a newer one",
        newest = Level::NEWEST
    )]
    UnknownLevel { number: u32 },
    #[error(
        "the state that was read from the snapshot is not the one that it was made from: their digests are {read:032x} and \
         {written:032x}; replace this member by an empty one, which fetches a snapshot from the others"
    )]
    OtherState {
        /// Digest of what was read.
        read: u128,
        /// Digest of what was written.
        written: u128,
    },
    /// A field contradicts the others, or what any release writes.
    #[error("{what} is damaged, although its checksum may be right: restore the member from a snapshot or a backup")]
    Damaged {
        what: &'static str,
        #[source]
        field: FieldError,
    },
    /// The bytes are no protobuf message of that kind.
    #[error("{what} is damaged: restore the member from a snapshot or a backup")]
    Malformed {
        what: &'static str,
        #[source]
        source: prost::DecodeError,
    },
    /// A snapshot ends before its last record, or its records are not those that it announces.
    #[error("the snapshot is not whole: {problem}; fetch it again")]
    NotWhole {
        /// The part that is missing or out of order.
        problem: String,
    },
}

impl WireError {
    pub(super) fn of(what: &'static str, field: FieldError) -> Self {
        match field.problem {
            FieldProblem::UnknownLevel { number } => Self::UnknownLevel { number },
            FieldProblem::UnknownValue { .. } => Self::UnknownValue { what, field },
            FieldProblem::Missing | FieldProblem::Invalid(_) => Self::Damaged { what, field },
        }
    }
}
