//! Openraft's own conformance suite against our log and state machine, on the modelled disk.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, RaftSnapshotBuilder, StorageError};
use tessera_store::memory::Flushing;
use tessera_store::{MemoryDisk, Store};

use crate::apply::Applier;
use crate::clock::SystemClock;
use crate::config::ConsensusConfig;
use crate::entropy::Entropy;
use crate::ids::{ClusterId, Identity, MemberId};
use crate::log::Log;
use crate::machine::{EntryPosition, Frozen, Machine, Unreadable};
use crate::shared::Shared;
use crate::snapshot::{Builder, Received, SnapshotData};
use crate::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};

/// Counts entries.
#[derive(Clone, Default)]
struct Counter(u64);

impl Machine for Counter {
    type Outcome = ();

    fn apply(&mut self, _at: EntryPosition, commands: &[Bytes]) -> Result<Vec<()>, Unreadable> {
        self.0 += 1;
        Ok(vec![(); commands.len()])
    }

    fn observe(&mut self, _at: EntryPosition) {
        self.0 += 1;
    }

    fn publish(&mut self) {}

    fn freeze(&self) -> Box<dyn Frozen> {
        Box::new(self.clone())
    }

    fn restore(&mut self, chunks: &mut dyn Iterator<Item = Bytes>) -> Result<(), Unreadable> {
        let chunk = chunks.next().ok_or_else(|| Unreadable { what: "the only chunk is missing".to_owned() })?;
        let count = chunk.as_ref().try_into().map_err(|_| Unreadable { what: "a count has 8 bytes".to_owned() })?;
        self.0 = u64::from_be_bytes(count);
        Ok(())
    }
}

impl Frozen for Counter {
    fn chunks(self: Box<Self>) -> Box<dyn Iterator<Item = Bytes> + Send> {
        Box::new(std::iter::once(Bytes::copy_from_slice(&self.0.to_be_bytes())))
    }
}

/// The state machine with a snapshot that knows from which store it comes: the suite carries snapshots from one to
/// another without a network.
struct Carried(Applier<Counter>, Arc<dyn Store>);

struct Parcel(Arc<dyn Store>, SnapshotData);

struct Packer(Builder, Arc<dyn Store>);

fn packed(store: &Arc<dyn Store>, snapshot: Snapshot<SnapshotData>) -> Snapshot<Parcel> {
    Snapshot { meta: snapshot.meta, snapshot: Parcel(Arc::clone(store), snapshot.snapshot) }
}

impl RaftSnapshotBuilder<TypeConfig> for Packer {
    type SnapshotData = Parcel;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot<Parcel>> {
        Ok(packed(&self.1, self.0.build_snapshot().await?))
    }
}

impl Carried {
    /// Copies the chunks of another member's snapshot into the own store, in place of the network.
    fn receive(&self, parcel: Parcel) -> io::Result<SnapshotData> {
        let Parcel(theirs, SnapshotData::Stored(record)) = parcel else {
            return Err(io::Error::other("only stored snapshots are carried"));
        };
        if Arc::ptr_eq(&theirs, &self.1) {
            return Ok(SnapshotData::Stored(record));
        }
        let mut writer = self.1.begin_snapshot().map_err(io::Error::other)?;
        for number in 0..record.chunks {
            let chunk = theirs.snapshot_chunk(&record, number).map_err(io::Error::other)?;
            writer.write_chunk(chunk).map_err(io::Error::other)?;
        }
        Ok(SnapshotData::Received(Received::new(record.description, writer)))
    }
}

impl RaftStateMachine<TypeConfig> for Carried {
    type SnapshotData = Parcel;
    type SnapshotBuilder = Packer;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        self.0.applied_state().await
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        self.0.apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> Packer {
        Packer(self.0.get_snapshot_builder().await, Arc::clone(&self.1))
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Parcel) -> io::Result<()> {
        let received = self.receive(snapshot)?;
        self.0.install_snapshot(meta, received).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot<Parcel>>> {
        Ok(self.0.get_current_snapshot().await?.map(|snapshot| packed(&self.1, snapshot)))
    }
}

struct Fresh;

impl StoreBuilder<TypeConfig, Log, Carried, MemoryDisk> for Fresh {
    async fn build(&self) -> Result<(MemoryDisk, Log, Carried), StorageError<TypeConfig>> {
        let disk = MemoryDisk::new(Flushing::AtOnce);
        let store = disk.open().expect("a new modelled disk can be opened");
        let cluster = ClusterId::new("conformance").expect("a legal id");
        let shared = Arc::new(Shared::new(
            Identity { cluster, member: MemberId(0) },
            ConsensusConfig::default(),
            Arc::clone(&store),
            Arc::new(SystemClock),
            Entropy::new(1),
            true,
        ));
        let log = Log::open(Arc::clone(&shared)).expect("an empty log can be opened");
        Ok((disk, log, Carried(Applier::new(shared, Counter::default()), store)))
    }
}

#[tokio::test]
async fn the_log_and_the_state_machine_conform() {
    Suite::test_all(Fresh).await.expect("openraft's suite must pass");
}
