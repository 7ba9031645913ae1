//! Snapshots: made, received, interrupted, replaced.

use bytes::Bytes;
use tessera_store::{SnapshotRecord, Store, StoreError};

use super::{Bed, finish, id};

fn chunk(n: u8) -> Bytes {
    Bytes::from(vec![n; 1000 + usize::from(n)])
}

fn make(store: &dyn Store, last: u64, chunks: u8) -> SnapshotRecord {
    let mut writer = store.begin_snapshot().expect("a snapshot begins");
    for n in 0..chunks {
        writer.write_chunk(chunk(n)).expect("a chunk is written");
    }
    finish(writer, Some(id(1, last)), "made here").expect("the snapshot is whole")
}

fn assert_readable(store: &dyn Store, record: &SnapshotRecord) {
    for n in 0..record.chunks {
        let expected = chunk(u8::try_from(n).unwrap());
        assert_eq!(store.snapshot_chunk(record, n).expect("a chunk is there"), expected);
    }
}

pub fn a_snapshot_is_read_as_written(bed: &dyn Bed) {
    let store = bed.open();
    let empty = finish(store.begin_snapshot().unwrap(), None, "empty").unwrap();
    assert_eq!((empty.chunks, empty.bytes, empty.last), (0, 0, None));
    let made = make(&*store, 7, 5);
    assert_eq!((made.chunks, made.bytes), (5, 5010));
    assert_eq!(made.description, "made here");
    assert_eq!(store.snapshot().unwrap().unwrap(), made);
    drop(store);
    let store = bed.open();
    assert_eq!(store.snapshot().unwrap().unwrap(), made);
    assert_readable(&*store, &made);
    let beyond = store.snapshot_chunk(&made, 5);
    assert!(matches!(beyond, Err(StoreError::NoSuchChunk { asked: 5, chunks: 5 })));
}

pub fn the_newest_and_the_one_before_are_kept(bed: &dyn Bed) {
    let store = bed.open();
    let made: Vec<_> = (1..=3).map(|last| make(&*store, last * 10, 3)).collect();
    assert_eq!(store.snapshot().unwrap().unwrap(), made[2]);
    assert_readable(&*store, &made[2]);
    assert_readable(&*store, &made[1]);
    assert!(matches!(store.snapshot_chunk(&made[0], 0), Err(StoreError::SnapshotGone)));
    drop(store);
    assert_eq!(bed.open().snapshot().unwrap().unwrap(), made[2]);
}

pub fn an_older_snapshot_does_not_become_the_newest(bed: &dyn Bed) {
    let store = bed.open();
    let newest = make(&*store, 100, 2);
    make(&*store, 50, 2);
    assert_eq!(store.snapshot().unwrap().unwrap(), newest);
    drop(store);
    assert_eq!(bed.open().snapshot().unwrap().unwrap(), newest);
}

pub fn an_unfinished_own_snapshot_leaves_nothing(bed: &dyn Bed) {
    let store = bed.open();
    let kept = make(&*store, 1, 2);
    let mut dropped = store.begin_snapshot().unwrap();
    let mut left = store.begin_snapshot().unwrap();
    dropped.write_chunk(chunk(1)).unwrap();
    left.write_chunk(chunk(1)).unwrap();
    drop(dropped);
    assert_eq!(store.snapshot().unwrap().unwrap(), kept);
    drop(left);
    drop(store);
    let store = bed.open();
    assert_eq!(store.snapshot().unwrap().unwrap(), kept);
    let next = make(&*store, 2, 1);
    assert_readable(&*store, &next);
}

pub fn a_received_snapshot_goes_on_where_it_broke(bed: &dyn Bed) {
    let name = Bytes::from_static(b"sent by member 2");
    let store = bed.open();
    let sent = make(&*store, 9, 6);
    let mut writer = store.begin_snapshot_named(name.clone()).unwrap();
    assert_eq!(writer.progress().chunks, 0);
    writer.write_chunk(chunk(0)).unwrap();
    writer.write_chunk(chunk(1)).unwrap();
    drop(writer);
    let mut writer = store.begin_snapshot_named(name.clone()).unwrap();
    assert_eq!(writer.progress().chunks, 2, "kept over a break");
    writer.write_chunk(chunk(2)).unwrap();
    let before = writer.progress();
    drop(writer);
    drop(store);
    let store = bed.open();
    let mut writer = store.begin_snapshot_named(name.clone()).unwrap();
    assert_eq!(writer.progress(), before, "kept over a restart");
    for n in 3..6 {
        writer.write_chunk(chunk(n)).unwrap();
    }
    assert_eq!(writer.progress().hash, sent.hash);
    let received = finish(writer, Some(id(1, 10)), "received").unwrap();
    assert_eq!((received.chunks, received.bytes, received.hash), (6, sent.bytes, sent.hash));
    assert_readable(&*store, &received);
    let again = store.begin_snapshot_named(name).unwrap();
    assert_eq!(again.progress().chunks, 0, "a whole one is not a partial one");
    drop(again);
    drop(store);
    let store = bed.open();
    assert_eq!(store.snapshot().unwrap().unwrap(), received);
    assert_readable(&*store, &received);
}

pub fn another_name_replaces_a_partial(bed: &dyn Bed) {
    let store = bed.open();
    let mut writer = store.begin_snapshot_named(Bytes::from_static(b"old")).unwrap();
    writer.write_chunk(chunk(0)).unwrap();
    drop(writer);
    let mut writer = store.begin_snapshot_named(Bytes::from_static(b"new")).unwrap();
    assert_eq!(writer.progress().chunks, 0);
    writer.write_chunk(chunk(0)).unwrap();
    writer.write_chunk(chunk(1)).unwrap();
    drop(writer);
    drop(store);
    let store = bed.open();
    let writer = store.begin_snapshot_named(Bytes::from_static(b"new")).unwrap();
    assert_eq!(writer.progress().chunks, 2);
    drop(writer);
    let writer = store.begin_snapshot_named(Bytes::from_static(b"old")).unwrap();
    assert_eq!(writer.progress().chunks, 0);
}

pub fn a_discarded_partial_is_gone(bed: &dyn Bed) {
    let name = Bytes::from_static(b"wrong hash");
    let store = bed.open();
    let mut writer = store.begin_snapshot_named(name.clone()).unwrap();
    writer.write_chunk(chunk(3)).unwrap();
    writer.discard().unwrap();
    assert_eq!(store.begin_snapshot_named(name.clone()).unwrap().progress().chunks, 0);
    drop(store);
    let store = bed.open();
    assert_eq!(store.begin_snapshot_named(name).unwrap().progress().chunks, 0);
    assert_eq!(store.snapshot().unwrap(), None);
}

pub fn one_named_writer_at_a_time(bed: &dyn Bed) {
    let name = Bytes::from_static(b"n");
    let store = bed.open();
    let writer = store.begin_snapshot_named(name.clone()).unwrap();
    for other in [name.clone(), Bytes::from_static(b"m")] {
        let second = store.begin_snapshot_named(other);
        assert!(matches!(second.err(), Some(StoreError::SnapshotBusy { .. })));
    }
    let own = store.begin_snapshot().expect("a snapshot of our own is no obstacle");
    drop(own);
    drop(writer);
    store.begin_snapshot_named(name).expect("the first is gone");
}
