//! Records of a store, in its own words: this crate knows neither openraft nor the ledger.

use bytes::Bytes;

/// Name of one log entry: the term of the leader that wrote it and its position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Term of the leader that wrote the entry.
    pub term: u64,
    /// Index of the entry; the first is 1 (consensus may use 0 for the entry that creates the cluster).
    pub index: u64,
}

/// One log entry as it lies on disk: an identity and opaque bytes (consensus' versioned protobuf).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    pub id: EntryId,
    /// Its encoded content.
    pub payload: Bytes,
}

/// The description of a snapshot, stored after its last chunk and therefore the sign that it is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Last entry the snapshot includes.
    pub last: Option<EntryId>,
    /// Consensus' own description (membership and the like), opaque here.
    pub description: Bytes,
    pub chunks: u32,
    /// Sum of the chunks' lengths in bytes.
    pub bytes: u64,
    /// xxh3 128-bit hash over all chunks in order.
    pub hash: u128,
}
