//! Bodies of the records, as protobuf messages of our own: fields may be added, never renumbered or reused (L7).
//!
//! Log entries are the exception: term (eight bytes, big-endian) and payload, because there are many of them and the
//! payload is versioned by its owner.

use bytes::Bytes;
use prost::Message;

use crate::codec::{Family, Fault, seal, unseal};
use crate::keys::{self, SnapshotId};
use crate::record::{EntryId, LogRecord, SnapshotRecord};

/// Version of the store as a whole that this release writes, and the newest it opens.
pub(crate) const STORE_FORMAT: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct FormatBody {
    #[prost(uint32, tag = "1")]
    version: u32,
}

#[derive(Clone, PartialEq, Message)]
struct EntryIdBody {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
}

#[derive(Clone, PartialEq, Message)]
struct CommittedBody {
    #[prost(message, optional, tag = "1")]
    entry: Option<EntryIdBody>,
}

#[derive(Clone, PartialEq, Message)]
struct StartBody {
    #[prost(message, optional, tag = "1")]
    purged: Option<EntryIdBody>,
    #[prost(uint64, optional, tag = "2")]
    first: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct SnapshotBody {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, optional, tag = "2")]
    last: Option<EntryIdBody>,
    #[prost(bytes = "bytes", tag = "3")]
    description: Bytes,
    #[prost(uint32, tag = "4")]
    chunks: u32,
    #[prost(uint64, tag = "5")]
    bytes: u64,
    #[prost(bytes = "vec", tag = "6")]
    hash: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct SnapshotsBody {
    #[prost(message, repeated, tag = "1")]
    whole: Vec<SnapshotBody>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialBody {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    name: Bytes,
}

/// The position at which the log begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// Last entry that was purged.
    pub(crate) purged: Option<EntryId>,
    /// Index of the first entry that is in the log or will be; `None` while any may come.
    pub(crate) first: Option<u64>,
}

/// A whole snapshot and the id its chunks lie under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) id: SnapshotId,
    pub(crate) record: SnapshotRecord,
}

fn entry_body(id: EntryId) -> EntryIdBody {
    EntryIdBody { term: id.term, index: id.index }
}

fn entry_id(body: EntryIdBody) -> EntryId {
    EntryId { term: body.term, index: body.index }
}

pub(crate) fn seal_entry(record: &LogRecord) -> Vec<u8> {
    let term = record.id.term.to_be_bytes();
    seal(Family::Log, &keys::entry(record.id.index), &[&term, &record.payload])
}

pub(crate) fn unseal_entry(index: u64, frame: &Bytes) -> Result<LogRecord, Fault> {
    let body = unseal(Family::Log, &keys::entry(index), frame)?;
    let Some((term, _)) = body.split_first_chunk::<8>() else {
        return Err(content("a term of eight bytes", format!("{} bytes", body.len())));
    };
    let id = EntryId { term: u64::from_be_bytes(*term), index };
    Ok(LogRecord { id, payload: body.slice(8..) })
}

/// Frame of opaque bytes under a name.
pub(crate) fn seal_opaque(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    seal(Family::Meta, key, &[bytes])
}

pub(crate) fn unseal_opaque(key: &[u8], frame: &Bytes) -> Result<Bytes, Fault> {
    unseal(Family::Meta, key, frame)
}

/// Frame of the store's version.
pub(crate) fn seal_format() -> Vec<u8> {
    seal_message(keys::FORMAT, &FormatBody { version: STORE_FORMAT })
}

/// The store's version from its frame.
pub(crate) fn unseal_format(frame: &Bytes) -> Result<u32, Fault> {
    unseal_message::<FormatBody>(keys::FORMAT, frame).map(|body| body.version)
}

pub(crate) fn seal_committed(committed: Option<EntryId>) -> Vec<u8> {
    seal_message(keys::COMMITTED, &CommittedBody { entry: committed.map(entry_body) })
}

pub(crate) fn unseal_committed(frame: &Bytes) -> Result<Option<EntryId>, Fault> {
    unseal_message::<CommittedBody>(keys::COMMITTED, frame).map(|body| body.entry.map(entry_id))
}

/// Frame of the log's start.
pub(crate) fn seal_start(start: Start) -> Vec<u8> {
    let body = StartBody { purged: start.purged.map(entry_body), first: start.first };
    seal_message(keys::START, &body)
}

pub(crate) fn unseal_start(frame: &Bytes) -> Result<Start, Fault> {
    let body = unseal_message::<StartBody>(keys::START, frame)?;
    Ok(Start { purged: body.purged.map(entry_id), first: body.first })
}

pub(crate) fn seal_snapshots(whole: &[Whole]) -> Vec<u8> {
    let whole = whole
        .iter()
        .map(|Whole { id, record }| SnapshotBody {
            id: id.0,
            last: record.last.map(entry_body),
            description: record.description.clone(),
            chunks: record.chunks,
            bytes: record.bytes,
            hash: record.hash.to_be_bytes().to_vec(),
        })
        .collect();
    seal_message(keys::SNAPSHOTS, &SnapshotsBody { whole })
}

pub(crate) fn unseal_snapshots(frame: &Bytes) -> Result<Vec<Whole>, Fault> {
    let body = unseal_message::<SnapshotsBody>(keys::SNAPSHOTS, frame)?;
    body.whole.into_iter().map(whole_snapshot).collect()
}

fn whole_snapshot(body: SnapshotBody) -> Result<Whole, Fault> {
    let hash = <[u8; 16]>::try_from(body.hash.as_slice())
        .map_err(|_| content("a hash of 16 bytes", format!("{} bytes", body.hash.len())))?;
    let record = SnapshotRecord {
        last: body.last.map(entry_id),
        description: body.description,
        chunks: body.chunks,
        bytes: body.bytes,
        hash: u128::from_be_bytes(hash),
    };
    Ok(Whole { id: SnapshotId(body.id), record })
}

/// Frame of the name of the snapshot that is being received.
pub(crate) fn seal_partial(id: SnapshotId, name: &Bytes) -> Vec<u8> {
    seal_message(keys::PARTIAL, &PartialBody { id: id.0, name: name.clone() })
}

/// Id and name of the snapshot that is being received from its frame.
pub(crate) fn unseal_partial(frame: &Bytes) -> Result<(SnapshotId, Bytes), Fault> {
    let body = unseal_message::<PartialBody>(keys::PARTIAL, frame)?;
    Ok((SnapshotId(body.id), body.name))
}

pub(crate) fn seal_chunk(id: SnapshotId, n: u32, chunk: &[u8]) -> Vec<u8> {
    seal(Family::Snapshot, &keys::chunk(id, n), &[chunk])
}

pub(crate) fn unseal_chunk(id: SnapshotId, n: u32, frame: &Bytes) -> Result<Bytes, Fault> {
    unseal(Family::Snapshot, &keys::chunk(id, n), frame)
}

fn seal_message(key: &[u8], message: &impl Message) -> Vec<u8> {
    seal(Family::Meta, key, &[&message.encode_to_vec()])
}

fn unseal_message<M: Message + Default>(key: &[u8], frame: &Bytes) -> Result<M, Fault> {
    let body = unseal(Family::Meta, key, frame)?;
    M::decode(body).map_err(|error| content("a protobuf message", error.to_string()))
}

fn content(expected: &str, found: String) -> Fault {
    Fault::Content { expected: expected.to_owned(), found }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::codec::hex;
    use crate::error::StoreError;
    use crate::memory::Image;
    use crate::recovery;

    fn record() -> LogRecord {
        LogRecord { id: EntryId { term: 3, index: 7 }, payload: Bytes::from_static(b"payload") }
    }

    fn snapshot() -> Whole {
        let record = SnapshotRecord {
            last: Some(EntryId { term: 3, index: 7 }),
            description: Bytes::from_static(b"who"),
            chunks: 2,
            bytes: 300,
            hash: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        };
        Whole { id: SnapshotId(5), record }
    }

    /// These bytes are on disks: a change here must be a new version that still reads the old one (L7).
    #[test]
    fn frames_stay_as_they_are() {
        let start = Start { purged: Some(EntryId { term: 1, index: 4 }), first: Some(5) };
        let name = Bytes::from_static(b"name");
        let frames = [
            seal_entry(&record()),
            seal_opaque(keys::VOTE, b"vote"),
            seal_format(),
            seal_committed(Some(EntryId { term: 3, index: 7 })),
            seal_start(start),
            seal_snapshots(&[snapshot()]),
            seal_partial(SnapshotId(6), &name),
            seal_chunk(SnapshotId(5), 1, b"chunk"),
        ];
        let golden = [
            "016157b15b00000000000000037061796c6f6164",
            "018f4a6247766f7465",
            "0101304bbc0801",
            "01660891530a0408031007",
            "01b899b27c0a04080110041005",
            "014245f8620a2408051204080310071a0377686f200228ac0232100102030405060708090a0b0c0d0e0f10",
            "01f8a4e7ac080612046e616d65",
            "01993d0a876368756e6b",
        ];
        assert_eq!(frames.each_ref().map(|frame| hex(frame)), golden);
    }

    #[test]
    fn frames_are_read_as_written() {
        let start = Start { purged: None, first: Some(0) };
        assert_eq!(unseal_entry(7, &seal_entry(&record()).into()), Ok(record()));
        assert_eq!(unseal_start(&seal_start(start).into()), Ok(start));
        assert_eq!(unseal_committed(&seal_committed(None).into()), Ok(None));
        assert_eq!(unseal_snapshots(&seal_snapshots(&[snapshot()]).into()), Ok(vec![snapshot()]));
        let partial = (SnapshotId(6), Bytes::from_static(b"name"));
        assert_eq!(unseal_partial(&seal_partial(partial.0, &partial.1).into()), Ok(partial));
        assert!(unseal_entry(8, &seal_entry(&record()).into()).is_err(), "under another index");
    }

    #[test]
    fn a_store_of_a_newer_format_is_refused() {
        let mut image = Image::default();
        let newer = seal_message(keys::FORMAT, &FormatBody { version: STORE_FORMAT + 1 });
        image.put(Family::Meta, keys::FORMAT.to_vec(), newer.into());
        let error = recovery::check_format(&image, Path::new("data")).expect_err("newer");
        assert!(matches!(error, StoreError::UnknownFormat { found: 2, known: 1, .. }), "{error}");
    }
}
