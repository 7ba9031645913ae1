//! The replicated log on top of a [`Store`]: openraft asks here, the disk answers.
//!
//! Completion is reported only from the store's callbacks, that is after the data is durable, and in the order of the
//! requests. Whatever the store refuses ends this member: a log that was not written as asked is not a log.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::BoxStream;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::type_config::alias::EntryOf;
use openraft::{OptionalSend, RaftLogReader};
use planted::Bug;
use tessera_store::{Done, EntryId, LogRecord, StoreError};
use tokio::sync::oneshot;

use crate::blocking::blocking;
use crate::codec;
use crate::error::StopReason;
use crate::machine::{LogIndex, Term, Unreadable};
use crate::recent::Recent;
use crate::shared::Shared;
use crate::types::{Entry, LogId, Payload, TypeConfig, Vote, log_id};

/// Reader and writer of the log; clones share the cache.
#[derive(Clone)]
pub(crate) struct Log {
    shared: Arc<Shared>,
    recent: Arc<Mutex<Recent>>,
    vote: Arc<Mutex<Option<Vote>>>,
}

pub(crate) fn entry_id(id: &LogId) -> EntryId {
    EntryId { term: id.leader_id.term, index: id.index }
}

pub(crate) fn from_entry_id(id: EntryId) -> LogId {
    log_id(Term(id.term), LogIndex(id.index))
}

impl Shared {
    /// Notes that the store failed, and says so to openraft.
    pub(crate) fn store_failed(&self, error: StoreError) -> io::Error {
        self.stopper.stop(StopReason::Storage(error.clone()));
        io::Error::other(error)
    }

    /// Notes that something cannot be read, and says so to openraft.
    pub(crate) fn unreadable(&self, error: Unreadable) -> io::Error {
        let said = error.to_string();
        self.stopper.stop(StopReason::Unreadable(Arc::new(error)));
        io::Error::other(said)
    }

    /// Makes a request of the store and waits until it is durable.
    pub(crate) async fn durable(&self, request: impl FnOnce(Done)) -> io::Result<()> {
        let (done, durable) = oneshot::channel();
        request(Box::new(move |result| {
            // Whoever asked may have gone; the request was made all the same.
            let _ = done.send(result);
        }));
        durable.await.unwrap_or(Err(StoreError::Closed)).map_err(|error| self.store_failed(error))
    }
}

impl Log {
    /// Takes the log as the store has it.
    pub(crate) fn open(shared: Arc<Shared>) -> io::Result<Self> {
        let stored = shared.store.vote().map_err(|error| shared.store_failed(error))?;
        let vote = stored.map(codec::decode_vote).transpose().map_err(|error| shared.unreadable(error))?;
        let recent = Recent::new(shared.config.cache_bytes);
        Ok(Log { shared, recent: Arc::new(Mutex::new(recent)), vote: Arc::new(Mutex::new(vote)) })
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Recent::purgeable`].
    pub(crate) fn purgeable(&self, upto: LogIndex, keep_bytes: u64) -> Option<LogIndex> {
        self.recent().purgeable(upto.0, keep_bytes).map(LogIndex)
    }

    async fn read(&self, range: Range<u64>, max_bytes: u64) -> io::Result<Vec<Entry>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(entries) = self.recent().read(range.clone(), max_bytes) {
            return Ok(entries);
        }
        let shared = Arc::clone(&self.shared);
        blocking(move || {
            let records = shared.store.read(range, max_bytes).map_err(|error| shared.store_failed(error))?;
            records.into_iter().map(decode).collect::<Result<_, _>>().map_err(|error| shared.unreadable(error))
        })
        .await
    }
}

fn decode(record: LogRecord) -> Result<Entry, Unreadable> {
    let content = codec::decode_content(LogIndex(record.id.index), record.payload.clone())?;
    Ok(Entry { id: from_entry_id(record.id), payload: Payload::decoded(content, record.payload) })
}

fn plain_range(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl RaftLogReader<TypeConfig> for Log {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let asked = plain_range(&range);
        let state = self.shared.store.log_state().map_err(|error| self.shared.store_failed(error))?;
        let first = state.last_purged.map_or(0, |purged| purged.index + 1);
        self.read(asked.start.max(first)..asked.end, u64::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start..end, self.shared.config.append_bytes).await
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl futures::Stream<Item = io::Result<EntryOf<TypeConfig>>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        pages(self.clone(), plain_range(&range))
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(*self.vote.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The entries of a range, read page by page: a member that starts may have to apply more than fits into memory at
/// once.
fn pages(log: Log, range: Range<u64>) -> BoxStream<'static, io::Result<Entry>> {
    let pages = futures::stream::try_unfold((log, range), |(log, range)| async move {
        let page = log.read(range.clone(), log.shared.config.append_bytes).await?;
        let Some(last) = page.last() else {
            return Ok::<_, io::Error>(None);
        };
        let rest = last.id.index + 1..range.end;
        Ok(Some((futures::stream::iter(page.into_iter().map(Ok)), (log, rest))))
    });
    Box::pin(futures::TryStreamExt::try_flatten(pages))
}

impl RaftLogStorage<TypeConfig> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let state = self.shared.store.log_state().map_err(|error| self.shared.store_failed(error))?;
        Ok(LogState {
            last_purged_log_id: state.last_purged.map(from_entry_id),
            last_log_id: state.last.map(from_entry_id),
        })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let encoded = codec::encode_vote(vote);
        *self.vote.lock().unwrap_or_else(PoisonError::into_inner) = Some(*vote);
        self.shared.durable(|done| self.shared.store.save_vote(encoded, done)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.shared.store.save_committed(committed.as_ref().map(entry_id));
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        let committed = self.shared.store.committed().map_err(|error| self.shared.store_failed(error))?;
        Ok(committed.map(from_entry_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        let mut bytes = 0;
        {
            let mut recent = self.recent();
            for entry in entries {
                let payload = entry.payload.encoded();
                bytes += payload.len() as u64;
                records.push(LogRecord { id: entry_id(&entry.id), payload });
                recent.push(entry);
            }
        }
        if records.is_empty() {
            callback.io_completed(Ok(()));
            return Ok(());
        }
        self.shared.bytes_since_snapshot.fetch_add(bytes, Ordering::Relaxed);
        if planted::is(Bug::AcknowledgedBeforeFsync) {
            callback.io_completed(Ok(()));
            self.shared.store.append(records, Box::new(drop));
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        self.shared.store.append(
            records,
            Box::new(move |result| callback.io_completed(result.map_err(|error| shared.store_failed(error)))),
        );
        Ok(())
    }

    async fn truncate_after(&mut self, last_kept: Option<LogId>) -> io::Result<()> {
        self.recent().truncate_after(last_kept.map(|id| id.index));
        let last_kept = last_kept.as_ref().map(entry_id);
        self.shared.durable(|done| self.shared.store.truncate_after(last_kept, done)).await
    }

    async fn purge(&mut self, last_purged: LogId) -> io::Result<()> {
        self.recent().purge_to(last_purged.index);
        // Nobody builds on its being durable: what is written later is durable no earlier, and a purge that is lost in
        // a crash is made again. So the raft core, which waits for this answer, does not wait for the disk.
        let shared = Arc::clone(&self.shared);
        self.shared.store.purge_to(
            entry_id(&last_purged),
            Box::new(move |result| {
                if let Err(error) = result {
                    let _ = shared.store_failed(error);
                }
            }),
        );
        Ok(())
    }
}
