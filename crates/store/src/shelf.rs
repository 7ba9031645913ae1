//! The snapshots of a store: the whole ones, the one that is being received, and ids for new ones.

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::body::Whole;
use crate::codec::hex;
use crate::error::StoreError;
use crate::keys::SnapshotId;
use crate::record::SnapshotRecord;
use crate::store::SnapshotProgress;

/// Chunks counted and hashed so far.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    chunks: u32,
    bytes: u64,
    hash: Xxh3,
}

impl Tally {
    /// Counts the next chunk.
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        self.chunks += 1;
        self.bytes += chunk.len() as u64;
        self.hash.update(chunk);
    }

    /// Number of the next chunk.
    pub(crate) fn next(&self) -> u32 {
        self.chunks
    }

    pub(crate) fn progress(&self) -> SnapshotProgress {
        SnapshotProgress { chunks: self.chunks, bytes: self.bytes, hash: self.hash.digest128() }
    }
}

/// A snapshot that is being received.
struct Partial {
    id: SnapshotId,
    name: Bytes,
    /// A writer is at it.
    writing: bool,
}

/// The snapshots of a store.
pub(crate) struct Shelf {
    next: SnapshotId,
    whole: Vec<Whole>,
    partial: Option<Partial>,
}

/// The id to use for a named snapshot, and its beginning.
pub(crate) struct Resumed {
    pub(crate) id: SnapshotId,
    pub(crate) begun: Begun,
}

/// The beginning of a named snapshot: an earlier transfer, or now.
pub(crate) enum Begun {
    /// It was there; the disk knows how much of it.
    Before,
    /// It is new, and another one ends by that.
    Now { replaces: Option<SnapshotId> },
}

impl Shelf {
    /// The shelf as it was found on the disk.
    pub(crate) fn new(whole: Vec<Whole>, partial: Option<(SnapshotId, Bytes)>) -> Self {
        let used = whole.iter().map(|whole| whole.id).chain(partial.iter().map(|(id, _)| *id)).max();
        let partial = partial.map(|(id, name)| Partial { id, name, writing: false });
        Shelf { next: used.map_or(SnapshotId(1), after), whole, partial }
    }

    /// Ids whose chunks are wanted, ascending.
    pub(crate) fn wanted(&self) -> Vec<SnapshotId> {
        let mut ids: Vec<_> = self.whole.iter().map(|whole| whole.id).collect();
        ids.extend(self.partial.as_ref().map(|partial| partial.id));
        ids.sort_unstable();
        ids
    }

    /// The whole snapshots, newest first.
    pub(crate) fn whole(&self) -> &[Whole] {
        &self.whole
    }

    /// The whole snapshots changed on the disk.
    pub(crate) fn set_whole(&mut self, whole: Vec<Whole>) {
        self.whole = whole;
    }

    /// The newest whole snapshot.
    pub(crate) fn newest(&self) -> Option<SnapshotRecord> {
        self.whole.first().map(|whole| whole.record.clone())
    }

    /// Id of a whole snapshot.
    pub(crate) fn find(&self, record: &SnapshotRecord) -> Option<SnapshotId> {
        self.whole.iter().find(|whole| whole.record == *record).map(|whole| whole.id)
    }

    /// An id for a snapshot of our own making.
    pub(crate) fn fresh(&mut self) -> SnapshotId {
        let id = self.next;
        self.next = after(id);
        id
    }

    /// Begins or resumes a named snapshot.
    pub(crate) fn begin_named(&mut self, name: &Bytes) -> Result<Resumed, StoreError> {
        if self.partial.as_ref().is_some_and(|partial| partial.writing) {
            return Err(StoreError::SnapshotBusy { name: hex(name) });
        }
        if let Some(partial) = self.partial.as_mut().filter(|partial| partial.name == *name) {
            partial.writing = true;
            return Ok(Resumed { id: partial.id, begun: Begun::Before });
        }
        let id = self.fresh();
        let partial = Partial { id, name: name.clone(), writing: true };
        let replaces = self.partial.replace(partial).map(|partial| partial.id);
        Ok(Resumed { id, begun: Begun::Now { replaces } })
    }

    /// The writer of a named snapshot went away; what it wrote stays.
    pub(crate) fn pause_named(&mut self, id: SnapshotId) {
        if let Some(partial) = self.partial.as_mut().filter(|partial| partial.id == id) {
            partial.writing = false;
        }
    }

    /// A named snapshot became whole or was given up.
    pub(crate) fn end_named(&mut self, id: SnapshotId) {
        self.partial.take_if(|partial| partial.id == id);
    }
}

fn after(id: SnapshotId) -> SnapshotId {
    SnapshotId(id.0.saturating_add(1))
}
