//! The state machine as openraft sees it: applies committed entries to the [`Machine`], takes and installs snapshots.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use tessera_store::SnapshotRecord;
use tokio::time::Instant;

use crate::blocking::blocking;
use crate::codec::{Description, unreadable};
use crate::error::StopReason;
use crate::ids::MemberId;
use crate::machine::{EntryPosition, LogIndex, LogTime, Machine};
use crate::shared::{AppliedAt, Shared};
use crate::snapshot::{Builder, SnapshotData, StoredChunks};
use crate::types::{
    Content, Entry, LogId, Membership, Reply, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, index_of, term_of,
};

/// Most entries applied before their effects are published and their proposers answered.
const PUBLISHED_TOGETHER: usize = 64;

/// The position of the machine: every field of a snapshot's description.
#[derive(Clone, Default)]
struct Position {
    last: Option<LogId>,
    membership: StoredMembership,
    highest_member: MemberId,
    log_time: LogTime,
}

/// Owns the machine.
///
/// Openraft runs it on a task of its own and does not notice when that task panics; dropping it therefore ends the
/// member.
pub(crate) struct Applier<M> {
    shared: Arc<Shared>,
    // Never locked: a mutex only because openraft asks for `Sync`, which a machine need not be. `None` while a snapshot
    // is being restored on another thread.
    machine: Mutex<Option<M>>,
    position: Position,
}

impl<M: Machine> Applier<M> {
    pub(crate) fn new(shared: Arc<Shared>, machine: M) -> Self {
        Applier { shared, machine: Mutex::new(Some(machine)), position: Position::default() }
    }

    fn machine(&mut self) -> io::Result<&mut M> {
        let machine = self.machine.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut();
        machine.ok_or_else(|| io::Error::other("the state machine was lost while a snapshot was restored"))
    }

    /// Applies one entry. Entries that carry no time inherit that of the entry before, so that time is part of the log
    /// and never goes back, whichever leader wrote it.
    fn apply_one(&mut self, entry: &Entry) -> io::Result<Reply> {
        let content = entry.payload.content();
        if let Content::Batch(batch) = content {
            self.position.log_time = self.position.log_time.max(batch.time);
        }
        let at =
            EntryPosition { index: LogIndex(entry.id.index), term: term_of(&entry.id), time: self.position.log_time };
        let reply = match content {
            Content::Batch(batch) => {
                let outcomes = self.machine()?.apply(at, &batch.commands);
                let outcomes = outcomes.map_err(|error| self.shared.unreadable(error))?;
                if outcomes.len() != batch.commands.len() {
                    let wrong = format!(
                        "log entry {}: the state machine answered {} outcomes for {} commands",
                        at.index.0,
                        outcomes.len(),
                        batch.commands.len()
                    );
                    return Err(self.shared.unreadable(unreadable(wrong)));
                }
                Reply::of(outcomes)
            }
            Content::Membership(membership) => {
                self.note_membership(&entry.id, membership);
                self.observe(at)?;
                Reply::none()
            }
            Content::Blank => {
                self.observe(at)?;
                Reply::none()
            }
        };
        self.position.last = Some(entry.id);
        self.note_digest(at.index)?;
        Ok(reply)
    }

    /// Entry 0 creates the cluster; the machine's entries begin at 1.
    fn observe(&mut self, at: EntryPosition) -> io::Result<()> {
        if at.index.0 > 0 {
            self.machine()?.observe(at);
        }
        Ok(())
    }

    fn note_membership(&mut self, at: &LogId, membership: &Membership) {
        let highest = membership.nodes().map(|(id, _)| MemberId(*id)).max().unwrap_or_default();
        self.position.highest_member = self.position.highest_member.max(highest);
        self.position.membership = StoredMembership::new(Some(*at), membership.clone());
        self.note_members();
    }

    fn note_members(&self) {
        let members = self.position.membership.membership().nodes().map(|(id, _)| *id);
        self.shared.set_members(members, self.position.highest_member);
    }

    fn note_digest(&mut self, at: LogIndex) -> io::Result<()> {
        if at.0 > 0
            && at.0.is_multiple_of(self.shared.config.digest_interval)
            && let Some(digest) = self.machine()?.digest()
        {
            self.shared.digests.note(at, digest);
        }
        Ok(())
    }

    /// Makes what was applied visible: to readers of the machine's view, then to whoever waits for an index.
    fn publish(&mut self) -> io::Result<()> {
        self.machine()?.publish();
        self.shared.time.applied(self.position.log_time);
        let applied = AppliedAt {
            term: self.position.last.as_ref().map(term_of).unwrap_or_default(),
            index: index_of(self.position.last.as_ref()),
        };
        self.shared.note_applied(applied);
        Ok(())
    }

    fn apply_some(&mut self, entries: Vec<io::Result<EntryResponder<TypeConfig>>>) -> io::Result<()> {
        let began = Instant::now();
        let mut replies: Vec<(ApplyResponder<TypeConfig>, Reply)> = Vec::new();
        for entry in entries {
            let (entry, responder) = entry?;
            let reply = self.apply_one(&entry)?;
            if let Some(responder) = responder {
                replies.push((responder, reply));
            }
        }
        self.publish()?;
        self.shared.meters.applied(began.elapsed());
        for (responder, reply) in replies {
            responder.send(reply);
        }
        self.machine()?.announce();
        Ok(())
    }

    /// Replaces the machine's state by a stored snapshot, on a thread where that may take its time.
    async fn restore(&mut self, record: SnapshotRecord) -> io::Result<()> {
        let machine = self.machine.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut machine) = machine else {
            return Err(io::Error::other("the state machine was lost while a snapshot was restored"));
        };
        let mut chunks = StoredChunks { store: Arc::clone(&self.shared.store), record, next: 0, failed: None };
        let (machine, restored, failed) = blocking(move || {
            let restored = machine.restore(&mut chunks);
            (machine, restored, chunks.failed)
        })
        .await;
        *self.machine.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(machine);
        if let Some(error) = failed {
            return Err(self.shared.store_failed(error));
        }
        restored.map_err(|error| self.shared.unreadable(error))
    }
}

impl<M> Drop for Applier<M> {
    fn drop(&mut self) {
        // In an orderly end the reason was noted before.
        let what = "its state machine ended, by a panic that is in the log before this line".to_owned();
        self.shared.stopper.stop(StopReason::Core { what });
    }
}

impl<M: Machine> RaftStateMachine<TypeConfig> for Applier<M> {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.position.last, self.position.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut groups = entries.ready_chunks(PUBLISHED_TOGETHER);
        while let Some(group) = groups.next().await {
            self.apply_some(group)?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        self.shared.bytes_since_snapshot.store(0, Ordering::Relaxed);
        let position = self.position.clone();
        let frozen = self.machine().ok().map(|machine| machine.freeze());
        Builder {
            shared: Arc::clone(&self.shared),
            description: Description {
                last: position.last,
                membership: position.membership,
                highest_member: position.highest_member,
                log_time: position.log_time,
            },
            frozen: Mutex::new(frozen),
        }
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, snapshot: SnapshotData) -> io::Result<()> {
        let (description, record) = match snapshot {
            SnapshotData::Stored(record) => {
                let description = Description::decode(record.description.clone());
                (description.map_err(|error| self.shared.unreadable(error))?, record)
            }
            SnapshotData::Received(received) => {
                let description = Description::decode(received.description.clone());
                let description = description.map_err(|error| self.shared.unreadable(error))?;
                let record = self.shared.keep_received(&description, received).await?;
                (description, record)
            }
        };
        self.restore(record).await?;
        self.position = Position {
            last: description.last,
            membership: description.membership,
            highest_member: description.highest_member,
            log_time: description.log_time,
        };
        self.note_members();
        tracing::info!(last = ?self.position.last, "snapshot installed");
        self.publish()?;
        self.machine()?.announce();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot<SnapshotData>>> {
        let newest = self.shared.newest_snapshot()?;
        Ok(newest
            .map(|(description, record)| Snapshot { meta: description.meta(), snapshot: SnapshotData::Stored(record) }))
    }
}
