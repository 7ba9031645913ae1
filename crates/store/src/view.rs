//! The current answers of the store: the state after every request that was accepted, durable or not.
//!
//! The view decides whether a request is legal and what it means for the disk; it knows no disk itself. It also holds
//! the newest entries (at least those that are not written yet), so that reading the tail of the log, which is what a
//! leader does for its followers, never touches the disk.

use std::ops::Range;

use bytes::Bytes;

use crate::body::Start;
use crate::error::StoreError;
use crate::record::{EntryId, LogRecord};
use crate::request::Request;
use crate::store::LogState;
use crate::tail::Tail;

/// State of everything but snapshots.
pub(crate) struct View {
    pub(crate) vote: Option<Bytes>,
    pub(crate) committed: Option<EntryId>,
    pub(crate) identity: Option<Bytes>,
    start: Start,
    /// Last entry of the log, if it holds any.
    last: Option<EntryId>,
    tail: Tail,
    /// Grows whenever entries go away, so that whoever reads without the lock can tell.
    removals: u64,
}

/// The position up to which the log was written: handed to the disk with a request, handed back when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    removals: u64,
    last: Option<u64>,
}

/// The plan for reading a range: first from the disk, then from memory.
pub(crate) struct ReadPlan {
    /// Indices that are on the disk only; every one of them must be there.
    pub(crate) disk: Range<u64>,
    /// The entries after them.
    pub(crate) memory: Vec<LogRecord>,
    /// State of removals that the plan holds for.
    pub(crate) removals: u64,
}

impl View {
    /// A view of what was found on the disk; entries follow through [`View::recovered`].
    pub(crate) fn new(start: Start, tail_bytes: usize) -> Self {
        View {
            vote: None,
            committed: None,
            identity: None,
            start,
            last: None,
            tail: Tail::new(tail_bytes),
            removals: 0,
        }
    }

    /// Takes in the next entry found on the disk.
    pub(crate) fn recovered(&mut self, record: LogRecord) {
        let index = record.id.index;
        self.last = Some(record.id);
        self.tail.push(record);
        self.tail.written(index);
    }

    pub(crate) fn log_state(&self) -> LogState {
        LogState { last_purged: self.start.purged, last: self.last.or(self.start.purged) }
    }

    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// First index of the log, if that is settled.
    pub(crate) fn first(&self) -> u64 {
        self.start.first.unwrap_or(0)
    }

    /// Index after the last entry.
    fn end(&self) -> u64 {
        self.last.map_or_else(|| self.first(), |last| last.index.saturating_add(1))
    }

    /// Accepts records that follow on the log's end.
    pub(crate) fn append(&mut self, records: Vec<LogRecord>) -> Result<Option<Request>, StoreError> {
        let Some(first) = records.first().map(|record| record.id.index) else {
            return Ok(None);
        };
        let settles_first = self.start.first.is_none();
        let mut expected = if settles_first { first } else { self.end() };
        for record in &records {
            // The largest number is kept free, so that every entry has an index after it.
            if record.id.index != expected || expected == u64::MAX {
                let last = self.log_state().last;
                return Err(StoreError::OutOfOrder { last, first: record.id.index });
            }
            expected = expected.saturating_add(1);
        }
        self.start.first = Some(self.start.first.unwrap_or(first));
        for record in &records {
            self.last = Some(record.id);
            self.tail.push(record.clone());
        }
        Ok(Some(Request::Append { records, start: settles_first.then_some(self.start) }))
    }

    pub(crate) fn save_vote(&mut self, vote: Bytes) -> Option<Request> {
        self.vote = Some(vote.clone());
        Some(Request::Vote(vote))
    }

    pub(crate) fn save_identity(&mut self, identity: Bytes) -> Result<Option<Request>, StoreError> {
        match &self.identity {
            Some(known) if *known == identity => Ok(None),
            Some(_) => Err(StoreError::IdentityTaken),
            None => {
                self.identity = Some(identity.clone());
                Ok(Some(Request::Identity(identity)))
            }
        }
    }

    /// Accepts the removal of everything after `kept`.
    pub(crate) fn truncate(&mut self, kept: Option<EntryId>) -> Result<Option<Request>, StoreError> {
        let from = kept.map_or_else(|| self.first(), |kept| kept.index.saturating_add(1));
        let end = self.end();
        if from < self.first() {
            return Err(self.out_of_range("truncate", kept.map_or(0, |kept| kept.index)));
        }
        if from >= end {
            return Ok(None);
        }
        self.removals += 1;
        self.tail.truncate(from);
        self.last = if from == self.first() { None } else { kept };
        let forgets_first = self.last.is_none() && self.start.purged.is_none();
        if forgets_first {
            self.start.first = None;
        }
        let start = forgets_first.then_some(self.start);
        Ok(Some(Request::Truncate { entries: from..end, start }))
    }

    /// Accepts the removal of everything up to `purged`.
    pub(crate) fn purge(&mut self, purged: EntryId) -> Result<Option<Request>, StoreError> {
        if self.start.purged.is_some_and(|before| before.index >= purged.index) {
            return Ok(None);
        }
        let Some(next) = purged.index.checked_add(1) else {
            return Err(self.out_of_range("purge", purged.index));
        };
        let first = self.first();
        if self.last.is_some() && next < first {
            return Err(self.out_of_range("purge", purged.index));
        }
        let entries = first..next.min(self.end()).max(first);
        self.removals += 1;
        self.tail.purge(next);
        self.start = Start { purged: Some(purged), first: Some(next) };
        self.last = self.last.filter(|last| last.index >= next);
        Ok(Some(Request::Purge { entries, start: self.start }))
    }

    /// The current end of the log; to be given back to [`View::written`].
    pub(crate) fn mark(&self) -> Mark {
        Mark { removals: self.removals, last: self.last.map(|last| last.index) }
    }

    /// Everything up to `mark` is on the disk, so memory may let go of it.
    pub(crate) fn written(&mut self, mark: Mark) {
        // After a removal the same index may mean another entry; a later mark will cover it.
        if let (true, Some(last)) = (mark.removals == self.removals, mark.last) {
            self.tail.written(last);
        }
    }

    /// Plans the reading of `range` as far as the log reaches.
    pub(crate) fn plan_read(&self, range: Range<u64>, max_bytes: u64) -> ReadPlan {
        let start = range.start.max(self.first());
        let end = range.end.min(self.end()).max(start);
        // What begins before the log's first entry is answered as "not there", never as a later entry.
        let end = if range.start < self.first() && self.start.purged.is_some() { start } else { end };
        let on_disk = start..self.tail.first().unwrap_or(self.end()).clamp(start, end);
        let memory = self.tail.read(on_disk.end..end, max_bytes);
        ReadPlan { disk: on_disk, memory, removals: self.removals }
    }

    fn out_of_range(&self, what: &'static str, index: u64) -> StoreError {
        StoreError::OutOfRange { what, index, first: self.first(), last: self.last.map(|last| last.index) }
    }
}
