//! Errors between a member and its disk, worded so that an operator knows what to do next.
//!
//! Every variant can be cloned, because one failed write fails every request of its batch. Nothing here is retried by
//! the store: after a failed write it refuses all further ones until it is opened again (see [`StoreError::Failed`]).

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use crate::record::EntryId;

/// The cause underneath a [`StoreError`], shared because one failure is reported to many requests.
pub type Cause = Arc<dyn Error + Send + Sync + 'static>;

/// Everything a [`Store`](crate::Store) can answer besides what was asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// A record does not match its checksum or its place. It is never skipped and never repaired by guessing (L7).
    #[error(
        "damaged record in {}: column family {family}, key {key}: expected {expected}, found {found}; {remedy}",
        path.display()
    )]
    Damaged {
        /// Data folder of the store.
        path: PathBuf,
        /// Column family (`log`, `meta` or `snapshot`).
        family: &'static str,
        /// Index or name of the record.
        key: Box<str>,
        /// The value that an intact record would have.
        expected: Box<str>,
        found: Box<str>,
        /// The remedy for the operator.
        remedy: &'static str,
    },

    /// An entry between the first and the last of the log is not there.
    #[error("hole in the log in {}: entry {missing} is missing although entry {next} exists; {remedy}", path.display())]
    Hole {
        /// Data folder of the store.
        path: PathBuf,
        /// Index of the first missing entry.
        missing: u64,
        /// Index of the next entry that exists, or where the log should end.
        next: u64,
        /// The remedy for the operator.
        remedy: &'static str,
    },

    /// A record was written by a newer release, in a form this one cannot read (L7).
    #[error(
        "{} holds {what} in format version {found}; this release reads up to version {known}: \
         start a release at least as new as the one that wrote it",
        path.display()
    )]
    UnknownFormat {
        /// Data folder of the store.
        path: PathBuf,
        /// The name of the record, or `the store`.
        what: String,
        /// Version found.
        found: u32,
        /// Newest version this release reads.
        known: u32,
    },

    /// The file system (or the modelled disk) is full. The request was not made durable.
    #[error(
        "no space left for {} while {doing}: free space or grow the file system, then restart the member",
        path.display()
    )]
    Full {
        /// Data folder of the store.
        path: PathBuf,
        doing: &'static str,
        /// The error of the operating system or of RocksDB.
        #[source]
        source: Cause,
    },

    /// Reading or writing failed for another reason than a full disk.
    #[error("{doing} in {} failed: check the disk and the kernel log, then restart the member", path.display())]
    Io {
        /// Data folder of the store.
        path: PathBuf,
        doing: &'static str,
        /// The error of the operating system or of RocksDB.
        #[source]
        source: Cause,
    },

    /// An earlier write failed, so nothing more is written until the store is opened again: after a failed sync nobody
    /// knows which of the earlier bytes reached the disk.
    #[error("the store in {} refuses writes since an earlier one failed ({first}): restart the member", path.display())]
    Failed {
        /// Data folder of the store.
        path: PathBuf,
        first: Arc<StoreError>,
    },

    /// Another process has the data folder open.
    #[error("{} is in use by another process: a data folder belongs to one running member", path.display())]
    Locked {
        /// Data folder of the store.
        path: PathBuf,
    },

    /// The store was closed (or its modelled disk crashed) before the request became durable.
    #[error("the store is closed: the request was not made durable")]
    Closed,

    /// Appended records do not follow on the log's last entry; nothing was written.
    #[error("append out of order: the log ends at {}, the records begin at {first}", shown(last.as_ref()))]
    OutOfOrder {
        /// Last entry of the log.
        last: Option<EntryId>,
        /// First record that does not follow on it.
        first: u64,
    },

    /// A truncation or purge named an entry it cannot reach (already purged, or not in the log); nothing was written.
    #[error("cannot {what} at entry {index}: the log holds {}", shown_range(*first, *last))]
    OutOfRange {
        /// `truncate` or `purge`.
        what: &'static str,
        index: u64,
        /// First index of the log.
        first: u64,
        /// Last index of the log.
        last: Option<u64>,
    },

    /// The identity was written before and is not what is to be written now; it is written once.
    #[error(
        "this store already belongs to another member: point the member at its own data folder, or at an empty one"
    )]
    IdentityTaken,

    /// A writer for a named snapshot is still open.
    #[error("snapshot {name} is being written by another transfer: retry when it has ended")]
    SnapshotBusy {
        /// In hexadecimal.
        name: String,
    },

    /// The snapshot asked for was replaced by newer ones.
    #[error("the snapshot is gone: newer ones replaced it; ask for the newest and begin again")]
    SnapshotGone,

    /// A chunk number beyond the snapshot's end.
    #[error("the snapshot has {chunks} chunks; chunk {asked} does not exist")]
    NoSuchChunk { asked: u32, chunks: u32 },
}

impl StoreError {
    /// Returns whether the cause is a full disk, directly or as the first failure of a store that refuses writes since.
    pub fn is_full(&self) -> bool {
        match self {
            StoreError::Full { .. } => true,
            StoreError::Failed { first, .. } => first.is_full(),
            _ => false,
        }
    }

    /// Returns whether the record itself is bad: the member must stop and its data must be replaced from the others.
    pub fn is_damage(&self) -> bool {
        matches!(self, StoreError::Damaged { .. } | StoreError::Hole { .. } | StoreError::UnknownFormat { .. })
    }
}

fn shown(id: Option<&EntryId>) -> String {
    id.map_or_else(|| "nothing".to_owned(), |id| format!("entry {} of term {}", id.index, id.term))
}

fn shown_range(first: u64, last: Option<u64>) -> String {
    last.map_or_else(|| "no entry".to_owned(), |last| format!("entries {first} to {last}"))
}
