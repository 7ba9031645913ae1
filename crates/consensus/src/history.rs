//! Looking back: the log of a stopped member, entry by entry, as its machine was fed with it.

use bytes::Bytes;
use tessera_store::{LogRecord, SnapshotRecord, StoreError, StoreReader};

use crate::codec::{self, Description};
use crate::ids::Identity;
use crate::machine::{EntryPosition, LogIndex, LogTime, Term, Unreadable};
use crate::types::Content;

/// Bytes of entries read at once.
const READ_BYTES: u64 = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The beginning of the log was removed and no snapshot stands for it.
    #[error("the log begins at entry {first}, and no snapshot says what was before; take the folder of another member")]
    NoBeginning {
        /// First entry that is left.
        first: u64,
    },
}

/// One entry of a member's log, as a machine is fed with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastEntry {
    pub at: EntryPosition,
    /// Its commands; `None` for an entry without (a leader's first, a change of members).
    pub commands: Option<Vec<Bytes>>,
    /// True if the entry is known to be committed. The last entries of a member that stopped may never have been.
    pub committed: bool,
}

/// The log of a stopped member, from a snapshot or from its very beginning.
pub struct History {
    reader: StoreReader,
    snapshot: Option<SnapshotRecord>,
    time: LogTime,
    next: u64,
}

impl History {
    /// Finds where the past can be read from: the beginning when nothing was removed, the newest snapshot otherwise.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn new(reader: StoreReader) -> Result<Self, HistoryError> {
        let Some(purged) = reader.log_state().last_purged else {
            return Ok(Self { reader, snapshot: None, time: LogTime(0), next: 0 });
        };
        let record = reader.snapshot().filter(|record| record.last.is_some_and(|last| last.index >= purged.index));
        let Some(record) = record else { return Err(HistoryError::NoBeginning { first: purged.index + 1 }) };
        let description = Description::decode(record.description.clone())?;
        let next = record.last.map_or(0, |last| last.index.saturating_add(1));
        Ok(Self { reader, snapshot: Some(record), time: description.log_time, next })
    }

    /// The identity of the member that the log belongs to, if it ever belonged to a cluster.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn identity(&self) -> Result<Option<Identity>, Unreadable> {
        self.reader.identity().map(codec::decode_identity).transpose()
    }

    /// Last entry of the log, or of the snapshot that stands for it: who has the most log is told by it, the
    /// term first.
    #[must_use]
    pub fn last(&self) -> (Term, LogIndex) {
        let last =
            self.reader.log_state().last.into_iter().chain(self.snapshot.as_ref().and_then(|record| record.last));
        last.max().map_or((Term(0), LogIndex(0)), |last| (Term(last.term), LogIndex(last.index)))
    }

    /// Last entry that the member knew to be committed; there may be later ones that were.
    #[must_use]
    pub fn committed(&self) -> LogIndex {
        LogIndex(self.reader.committed().map_or(0, |entry| entry.index))
    }

    /// The highest term that the member took part in.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn term(&self) -> Result<Term, Unreadable> {
        let vote = self.reader.vote().map(codec::decode_vote).transpose()?;
        Ok(Term(vote.map_or(0, |vote| vote.leader_id.term)).max(self.last().0))
    }

    /// The chunks of the machine's state before the first entry; `None` when that is the empty state.
    ///
    /// # Errors
    /// [`HistoryError::Store`].
    pub fn beginning(&self) -> Result<Option<Vec<Bytes>>, HistoryError> {
        let Some(record) = &self.snapshot else { return Ok(None) };
        let chunks = (0..record.chunks).map(|n| self.reader.snapshot_chunk(record, n));
        Ok(Some(chunks.collect::<Result<_, _>>()?))
    }

    /// The next entries, in order; none at the end of the log.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn read_on(&mut self) -> Result<Vec<PastEntry>, HistoryError> {
        let committed = self.reader.committed().map_or(0, |entry| entry.index);
        let records = self.reader.read(self.next..u64::MAX, READ_BYTES)?;
        let mut entries = Vec::with_capacity(records.len());
        for LogRecord { id, payload } in records {
            self.next = id.index.saturating_add(1);
            let commands = match codec::decode_content(LogIndex(id.index), payload)? {
                Content::Batch(batch) => {
                    self.time = self.time.max(batch.time);
                    Some(batch.commands)
                }
                Content::Blank | Content::Membership(_) => None,
            };
            // Entry 0 creates the cluster; the machine's entries begin at 1.
            if id.index > 0 {
                let at = EntryPosition { index: LogIndex(id.index), term: Term(id.term), time: self.time };
                entries.push(PastEntry { at, commands, committed: id.index <= committed });
            }
        }
        Ok(entries)
    }
}
