//! Snapshots: made from a frozen machine, received from the leader, and made the newest one at a time.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use openraft::RaftSnapshotBuilder;
use tessera_store::{SnapshotRecord, SnapshotWriter, Store, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::blocking::blocking;
use crate::codec::Description;
use crate::log::entry_id;
use crate::machine::Frozen;
use crate::shared::Shared;
use crate::types::{Snapshot, TypeConfig};

/// The representation of a snapshot that openraft passes around.
pub(crate) enum SnapshotData {
    /// A whole one in the store.
    Stored(SnapshotRecord),
    /// One that has fully arrived and is not the newest yet.
    Received(Received),
}

/// A snapshot whose chunks have all arrived and been checked.
pub(crate) struct Received {
    pub description: Bytes,
    writer: Mutex<Box<dyn SnapshotWriter>>,
}

impl Received {
    pub(crate) fn new(description: Bytes, writer: Box<dyn SnapshotWriter>) -> Self {
        Received { description, writer: Mutex::new(writer) }
    }

    fn into_writer(self) -> Box<dyn SnapshotWriter> {
        self.writer.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The chunks of a stored snapshot; an error of the store ends them and is kept.
pub(crate) struct StoredChunks {
    pub store: Arc<dyn Store>,
    pub record: SnapshotRecord,
    pub next: u32,
    pub failed: Option<StoreError>,
}

impl Iterator for StoredChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.next >= self.record.chunks || self.failed.is_some() {
            return None;
        }
        match self.store.snapshot_chunk(&self.record, self.next) {
            Ok(chunk) => {
                self.next += 1;
                Some(chunk)
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}

impl Shared {
    /// The newest snapshot in the store, with its description read.
    pub(crate) fn newest_snapshot(&self) -> io::Result<Option<(Description, SnapshotRecord)>> {
        let record = self.store.snapshot().map_err(|error| self.store_failed(error))?;
        let Some(record) = record else {
            return Ok(None);
        };
        let description = Description::decode(record.description.clone()).map_err(|error| self.unreadable(error))?;
        Ok(Some((description, record)))
    }

    /// Makes a received snapshot the newest.
    pub(crate) async fn keep_received(
        self: &Arc<Self>,
        description: &Description,
        received: Received,
    ) -> io::Result<SnapshotRecord> {
        let _gate = Arc::clone(&self.snapshot_gate).lock_owned().await;
        let encoded = received.description.clone();
        self.finish(description, encoded, received.into_writer()).await
    }

    async fn finish(
        self: &Arc<Self>,
        description: &Description,
        encoded: Bytes,
        writer: Box<dyn SnapshotWriter>,
    ) -> io::Result<SnapshotRecord> {
        let last = description.last.as_ref().map(entry_id);
        let (done, whole) = oneshot::channel();
        blocking(move || {
            writer.finish(
                last,
                encoded,
                Box::new(move |result| {
                    // The member may have ended meanwhile.
                    let _ = done.send(result);
                }),
            );
        })
        .await;
        let record = whole.await.unwrap_or(Err(StoreError::Closed)).map_err(|error| self.store_failed(error))?;
        self.meters.snapshot_kept(record.bytes);
        Ok(record)
    }
}

/// Writes one frozen state of the machine.
pub(crate) struct Builder {
    pub shared: Arc<Shared>,
    pub description: Description,
    pub frozen: Mutex<Option<Box<dyn Frozen>>>,
}

/// After each chunk its writer rests so many times as long as the chunk took. Members count the same entries and so
/// write their snapshots at the same time; unpaced, each takes a processor for as long as the state is large, and
/// whatever else a member does waits.
const REST: u32 = 4;

/// A snapshot being written: what is written, and what is left.
struct Writing {
    writer: Box<dyn SnapshotWriter>,
    chunks: Box<dyn Iterator<Item = Bytes> + Send>,
}

impl Writing {
    /// Writes the next chunk; false when there is none.
    fn step(mut self) -> Result<(Self, bool), StoreError> {
        let chunk = self.chunks.next();
        let more = chunk.is_some();
        chunk.map_or(Ok(()), |chunk| self.writer.write_chunk(chunk))?;
        Ok((self, more))
    }
}

impl Builder {
    /// Writes all chunks, in a fifth of the time of one processor at most.
    async fn write_chunks(&mut self) -> io::Result<Box<dyn SnapshotWriter>> {
        let frozen = self.frozen.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let frozen = frozen.ok_or_else(|| io::Error::other("a snapshot is built once per builder"))?;
        let store = Arc::clone(&self.shared.store);
        let begun = blocking(move || store.begin_snapshot()).await.map_err(|error| self.shared.store_failed(error))?;
        let mut writing = Writing { writer: begun, chunks: frozen.chunks() };
        loop {
            let began = Instant::now();
            let step = blocking(move || writing.step()).await.map_err(|error| self.shared.store_failed(error))?;
            writing = match step {
                (writing, true) => writing,
                (whole, false) => return Ok(whole.writer),
            };
            sleep(began.elapsed() * REST).await;
        }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot<SnapshotData>> {
        let writer = self.write_chunks().await?;
        let _gate = Arc::clone(&self.shared.snapshot_gate).lock_owned().await;
        // A newer one may have been received while this one was written; it must stay the newest.
        if let Some((newest, record)) = self.shared.newest_snapshot()?
            && newest.last >= self.description.last
        {
            return Ok(Snapshot { meta: newest.meta(), snapshot: SnapshotData::Stored(record) });
        }
        let record = self.shared.finish(&self.description, self.description.encode(), writer).await?;
        tracing::info!(
            last = ?self.description.last,
            bytes = record.bytes,
            chunks = record.chunks,
            "snapshot taken"
        );
        Ok(Snapshot { meta: self.description.meta(), snapshot: SnapshotData::Stored(record) })
    }
}
