//! Writing a snapshot, chunk by chunk, over either disk.

use std::sync::Arc;

use bytes::Bytes;

use crate::body::{self, Whole};
use crate::engine::{Disk, submit};
use crate::error::StoreError;
use crate::keys::SnapshotId;
use crate::record::{EntryId, SnapshotRecord};
use crate::request::{Answer, Request};
use crate::shelf::{Begun, Resumed, Tally};
use crate::store::{SnapshotDone, SnapshotProgress, SnapshotWriter};

/// A snapshot under way.
pub(crate) struct ChunkWriter<D: Disk> {
    disk: Arc<D>,
    id: SnapshotId,
    /// Received under a name: dropping keeps it.
    received: bool,
    tally: Tally,
    ended: bool,
}

impl<D: Disk> ChunkWriter<D> {
    /// A snapshot of our own making.
    pub(crate) fn own(disk: &Arc<D>) -> Result<Self, StoreError> {
        disk.writable()?;
        let id = disk.core().shelf().fresh();
        Ok(ChunkWriter { disk: disk.clone(), id, received: false, tally: Tally::default(), ended: false })
    }

    /// A snapshot that is received, from the beginning or from where it was interrupted.
    pub(crate) fn named(disk: &Arc<D>, name: &Bytes) -> Result<Self, StoreError> {
        disk.writable()?;
        let Resumed { id, begun } = disk.core().shelf().begin_named(name)?;
        let mut writer = ChunkWriter { disk: disk.clone(), id, received: true, tally: Tally::default(), ended: false };
        match begun {
            Begun::Before => writer.tally = recount(&**disk, id)?,
            Begun::Now { replaces } => {
                let name = name.clone();
                submit(&**disk, Answer::Nobody, |_| Ok(Some(Request::PartialBegun { id, name, replaces })));
            }
        }
        Ok(writer)
    }

    /// Hands in the last request of this snapshot. The shelf changes together with the queue, so that a transfer that
    /// begins right after comes after it on the disk too.
    fn end(&mut self, answer: Answer, request: Result<Request, StoreError>) {
        self.ended = request.is_ok();
        let (disk, id, received) = (&*self.disk, self.id, self.received);
        submit(disk, answer, |_| {
            let request = request?;
            if received {
                disk.core().shelf().end_named(id);
            }
            Ok(Some(request))
        });
    }
}

/// Counts the chunks an interrupted transfer left. Nobody was told that they are safe, so the first one that is missing
/// or damaged is simply where the transfer goes on.
fn recount<D: Disk>(disk: &D, id: SnapshotId) -> Result<Tally, StoreError> {
    let mut tally = Tally::default();
    while let Some(frame) = disk.chunk(id, tally.next())? {
        match body::unseal_chunk(id, tally.next(), &frame) {
            Ok(chunk) => tally.add(&chunk),
            Err(fault) => {
                tracing::warn!(chunk = tally.next(), ?fault, "received chunk is damaged and will be received again");
                break;
            }
        }
    }
    Ok(tally)
}

impl<D: Disk> SnapshotWriter for ChunkWriter<D> {
    fn progress(&self) -> SnapshotProgress {
        self.tally.progress()
    }

    fn write_chunk(&mut self, chunk: Bytes) -> Result<(), StoreError> {
        self.disk.writable()?;
        self.disk.put_chunk(self.id, self.tally.next(), chunk.clone())?;
        self.tally.add(&chunk);
        Ok(())
    }

    fn finish(mut self: Box<Self>, last: Option<EntryId>, description: Bytes, done: SnapshotDone) {
        let SnapshotProgress { chunks, bytes, hash } = self.tally.progress();
        let record = SnapshotRecord { last, description, chunks, bytes, hash };
        let whole = Whole { id: self.id, record: record.clone() };
        let received = self.received;
        let request = self.disk.settle_chunks().map(|()| Request::Whole { whole, received });
        self.end(Answer::Snapshot(done, record), request);
    }

    fn discard(mut self: Box<Self>) -> Result<(), StoreError> {
        self.disk.writable()?;
        let (id, received) = (self.id, self.received);
        self.end(Answer::Nobody, Ok(Request::Discard { id, received }));
        Ok(())
    }
}

impl<D: Disk> Drop for ChunkWriter<D> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.received {
            self.disk.core().shelf().pause_named(self.id);
        } else {
            let (id, received) = (self.id, false);
            self.end(Answer::Nobody, Ok(Request::Discard { id, received }));
        }
    }
}
