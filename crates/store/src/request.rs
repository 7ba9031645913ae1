//! Requests to the disk, in terms of the log, and their encoding as changes of keys and values.
//!
//! Both stores write through [`Request::encode`], so that what a modelled disk holds is what a real one would hold.

use std::ops::Range;

use bytes::Bytes;

use crate::body::{self, Start, Whole};
use crate::codec::Family;
use crate::error::StoreError;
use crate::keys::{self, SnapshotId};
use crate::record::{EntryId, LogRecord, SnapshotRecord};
use crate::store::{Done, SnapshotDone};
use crate::view::Mark;

/// The number of whole snapshots that are retained: the newest, and the one that a transfer may still be reading.
const KEPT_SNAPSHOTS: usize = 2;

/// One request that was accepted. It is written whole or not at all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    /// New entries, and where the log begins if they settle that.
    Append { records: Vec<LogRecord>, start: Option<Start> },
    /// The new vote.
    Vote(Bytes),
    /// The identity of the store's owner.
    Identity(Bytes),
    /// Entries to remove at the end, and where the log begins if that is open again.
    Truncate { entries: Range<u64>, start: Option<Start> },
    /// Entries to remove at the beginning, and where the log begins then.
    Purge { entries: Range<u64>, start: Start },
    /// A snapshot begins to be received; another one may end by that.
    PartialBegun { id: SnapshotId, name: Bytes, replaces: Option<SnapshotId> },
    /// A chunk (modelled disk only: on a real one chunks do not pass through the log's queue).
    Chunk { id: SnapshotId, n: u32, chunk: Bytes },
    /// A snapshot is whole.
    Whole { whole: Whole, received: bool },
    /// A snapshot is given up.
    Discard { id: SnapshotId, received: bool },
}

/// The destination of the encoded changes.
pub(crate) trait Changes {
    fn put(&mut self, family: Family, key: &[u8], frame: Vec<u8>);
    fn remove(&mut self, family: Family, key: &[u8]);
    /// Removes every value from `from` to before `to`.
    fn remove_range(&mut self, family: Family, from: &[u8], to: &[u8]);
}

impl Request {
    /// Bytes of payload, for the bounds of the queue.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn size(&self) -> usize {
        match self {
            Request::Append { records, .. } => records.iter().map(|record| record.payload.len()).sum(),
            Request::Vote(bytes) | Request::Identity(bytes) | Request::Chunk { chunk: bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// Turns the request into changes. `whole` are the whole snapshots before it, and afterwards those after it.
    pub(crate) fn encode(&self, whole: &mut Vec<Whole>, changes: &mut dyn Changes) {
        match self {
            Request::Append { records, start } => {
                encode_start(*start, changes);
                for record in records {
                    let frame = body::seal_entry(record);
                    changes.put(Family::Log, &keys::entry(record.id.index), frame);
                }
            }
            Request::Vote(vote) => put_opaque(keys::VOTE, vote, changes),
            Request::Identity(identity) => put_opaque(keys::IDENTITY, identity, changes),
            Request::Truncate { entries, start } => {
                encode_start(*start, changes);
                remove_entries(entries, changes);
            }
            Request::Purge { entries, start } => {
                encode_start(Some(*start), changes);
                remove_entries(entries, changes);
            }
            Request::PartialBegun { id, name, replaces } => {
                if let Some(replaced) = replaces {
                    remove_chunks(*replaced, changes);
                }
                changes.put(Family::Meta, keys::PARTIAL, body::seal_partial(*id, name));
            }
            Request::Chunk { id, n, chunk } => {
                let frame = body::seal_chunk(*id, *n, chunk);
                changes.put(Family::Snapshot, &keys::chunk(*id, *n), frame);
            }
            Request::Whole { whole: new, received } => encode_whole(new, *received, whole, changes),
            Request::Discard { id, received } => {
                if *received {
                    changes.remove(Family::Meta, keys::PARTIAL);
                }
                remove_chunks(*id, changes);
            }
        }
    }
}

/// The last committed entry, which rides with other requests.
pub(crate) fn encode_committed(committed: Option<EntryId>, changes: &mut dyn Changes) {
    changes.put(Family::Meta, keys::COMMITTED, body::seal_committed(committed));
}

fn encode_start(start: Option<Start>, changes: &mut dyn Changes) {
    if let Some(start) = start {
        changes.put(Family::Meta, keys::START, body::seal_start(start));
    }
}

fn put_opaque(key: &[u8], bytes: &Bytes, changes: &mut dyn Changes) {
    changes.put(Family::Meta, key, body::seal_opaque(key, bytes));
}

fn remove_entries(entries: &Range<u64>, changes: &mut dyn Changes) {
    /// Up to so many, single removals are cheaper for later readers than a range tombstone.
    const FEW: u64 = 32;
    if entries.end - entries.start <= FEW {
        for index in entries.clone() {
            changes.remove(Family::Log, &keys::entry(index));
        }
    } else {
        changes.remove_range(Family::Log, &keys::entry(entries.start), &keys::entry(entries.end));
    }
}

fn remove_chunks(id: SnapshotId, changes: &mut dyn Changes) {
    changes.remove_range(Family::Snapshot, &keys::chunks_from(id), &keys::chunks_end(id));
}

/// The newest by its last entry comes first; what is more than can be kept goes.
fn encode_whole(new: &Whole, received: bool, whole: &mut Vec<Whole>, changes: &mut dyn Changes) {
    whole.push(new.clone());
    whole.sort_by_key(|Whole { id, record }| std::cmp::Reverse((record.last, *id)));
    for gone in whole.drain(KEPT_SNAPSHOTS.min(whole.len())..) {
        remove_chunks(gone.id, changes);
    }
    if received {
        changes.remove(Family::Meta, keys::PARTIAL);
    }
    changes.put(Family::Meta, keys::SNAPSHOTS, body::seal_snapshots(whole));
}

/// The receiver of the result when a request is durable or has failed.
pub(crate) enum Answer {
    Nobody,
    /// A caller who waits for durability.
    Done(Done),
    /// A caller who waits for a whole snapshot.
    Snapshot(SnapshotDone, SnapshotRecord),
}

impl Answer {
    /// Calls back.
    pub(crate) fn give(self, result: Result<(), StoreError>) {
        match self {
            Answer::Nobody => {}
            Answer::Done(done) => done(result),
            Answer::Snapshot(done, record) => done(result.map(|()| record)),
        }
    }
}

/// A request on its way to the disk. Refused ones travel too, so that answers come in the order of the calls.
pub(crate) struct Submission {
    /// The request to write; `None` when there is nothing to change.
    pub(crate) request: Result<Option<Request>, StoreError>,
    pub(crate) answer: Answer,
    /// The position up to which the log reaches with this request.
    pub(crate) mark: Mark,
}

impl Submission {
    /// Bytes of payload.
    #[cfg(feature = "rocksdb")]
    pub(crate) fn size(&self) -> usize {
        self.request.as_ref().map_or(0, |request| request.as_ref().map_or(0, Request::size))
    }

    /// The request, if there is something to write.
    pub(crate) fn to_write(&self) -> Option<&Request> {
        self.request.as_ref().ok().and_then(Option::as_ref)
    }

    /// Answers: with its own refusal, or with what became of the batch.
    pub(crate) fn settle(self, batch: Result<(), StoreError>) {
        let Submission { request, answer, .. } = self;
        answer.give(request.and(batch));
    }
}
