//! Keys of the three column families. Numbers are big-endian, so that byte order is number order.

/// Identity of a snapshot within one store; grows, and is not used again while chunks under it may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SnapshotId(pub(crate) u64);

/// Version of the store as a whole.
pub(crate) const FORMAT: &[u8] = b"format";
pub(crate) const VOTE: &[u8] = b"vote";
/// The last committed entry.
pub(crate) const COMMITTED: &[u8] = b"committed";
pub(crate) const IDENTITY: &[u8] = b"identity";
/// The last purged entry and the beginning of the log.
pub(crate) const START: &[u8] = b"start";
/// The whole snapshots.
pub(crate) const SNAPSHOTS: &[u8] = b"snapshots";
/// The snapshot that is being received.
pub(crate) const PARTIAL: &[u8] = b"partial";

pub(crate) fn entry(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

pub(crate) fn chunk(id: SnapshotId, n: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.0.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// First key of a snapshot, or the end of the ones before it.
pub(crate) fn chunks_from(id: SnapshotId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// The key that ends all chunks of a snapshot.
pub(crate) fn chunks_end(id: SnapshotId) -> [u8; 8] {
    id.0.saturating_add(1).to_be_bytes()
}

/// The snapshot a chunk's key belongs to; `None` if the key is none.
pub(crate) fn chunk_owner(key: &[u8]) -> Option<SnapshotId> {
    key.first_chunk().map(|id| SnapshotId(u64::from_be_bytes(*id)))
}
