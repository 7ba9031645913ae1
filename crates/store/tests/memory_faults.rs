//! Effects of a modelled disk on a store: crashes, damage, no room; and that none of it is met with silence.

use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tessera_store::memory::{Crash, Flushing, Place};
use tessera_store::{MemoryDisk, Reserve, Store, StoreError};

use crate::contract::{self, answer, append, finish, id, ids, purge, records, save_vote};

fn told() -> (MemoryDisk, Arc<dyn Store>) {
    let disk = MemoryDisk::new(Flushing::WhenTold);
    let store = disk.open().expect("an empty disk opens");
    (disk, store)
}

fn filled() -> (MemoryDisk, Arc<dyn Store>) {
    let disk = MemoryDisk::new(Flushing::AtOnce);
    let store = disk.open().expect("an empty disk opens");
    append(&*store, records(1, 0..10)).expect("there is room");
    save_vote(&*store, "vote").expect("there is room");
    (disk, store)
}

fn found(error: StoreError) -> String {
    assert!(error.is_damage(), "{error}");
    error.to_string()
}

#[test]
fn nothing_is_answered_before_it_is_flushed() {
    let (disk, store) = told();
    let (done, first) = answer();
    store.append(records(1, 0..3), done);
    let (done, second) = answer();
    store.save_vote(Bytes::from_static(b"vote"), done);
    assert_eq!(first.try_recv().err(), Some(TryRecvError::Empty));
    assert_eq!(store.read(0..9, u64::MAX).unwrap().len(), 3, "readable all the same");
    assert_eq!(disk.flush_first(1), 1);
    first.try_recv().expect("answered").expect("durable");
    assert_eq!(second.try_recv().err(), Some(TryRecvError::Empty));
    assert_eq!((disk.pending(), disk.flush(), disk.pending()), (1, 1, 0));
    second.try_recv().expect("answered").expect("durable");
}

#[test]
fn a_crash_loses_what_was_pending_and_answers_nobody() {
    let (disk, store) = told();
    let (done, kept) = answer();
    store.append(records(1, 0..3), done);
    disk.flush();
    let (done, lost) = answer();
    store.append(records(1, 3..6), done);
    store.save_vote(Bytes::from_static(b"vote"), answer().0);
    disk.crash(Crash::LosePending);
    kept.try_recv().expect("answered").expect("durable");
    assert_eq!(lost.try_recv().err(), Some(TryRecvError::Disconnected), "dropped, not called");
    assert!(matches!(store.vote(), Err(StoreError::Closed)));
    assert!(matches!(append(&*store, records(1, 6..7)), Err(StoreError::Closed)));
    let after = disk.open().expect("the old store is no obstacle");
    drop(store);
    assert_eq!(ids(&*after), [(0, 1), (1, 1), (2, 1)]);
    assert_eq!(after.vote().unwrap(), None);
}

#[test]
fn a_crash_may_keep_what_nobody_was_told() {
    let (disk, store) = told();
    for index in 0..4 {
        store.append(records(1, [index]), answer().0);
    }
    disk.crash(Crash::KeepFirst(2));
    assert_eq!(ids(&*disk.open().unwrap()), [(0, 1), (1, 1)]);
}

#[test]
fn dropping_the_store_is_a_crash() {
    let (disk, store) = told();
    store.append(records(1, 0..3), answer().0);
    drop(store);
    assert_eq!(ids(&*disk.open().unwrap()), []);
}

#[test]
fn a_hook_may_flush_later_on_its_own_clock() {
    let (disk, store) = told();
    let due = Arc::new(Mutex::new(Vec::new()));
    let clock = due.clone();
    disk.on_pending(move |disk| clock.lock().unwrap().push(disk.pending()));
    let (done, answered) = answer();
    store.append(records(1, 0..1), done);
    store.save_vote(Bytes::from_static(b"vote"), answer().0);
    assert_eq!(*due.lock().unwrap(), [1, 2]);
    assert_eq!(answered.try_recv().err(), Some(TryRecvError::Empty));
    disk.flush();
    answered.try_recv().expect("answered").expect("durable");
}

#[test]
fn committed_is_never_ahead_of_the_durable_log() {
    let (disk, store) = told();
    store.append(records(1, 0..3), answer().0);
    store.append(records(1, 3..6), answer().0);
    store.save_committed(Some(id(1, 5)));
    disk.flush_first(1);
    disk.crash(Crash::LosePending);
    let after = disk.open().unwrap();
    assert_eq!(after.log_state().unwrap().last, Some(id(1, 2)));
    assert_eq!(after.committed().unwrap(), None);
}

#[test]
fn every_flipped_bit_of_an_entry_is_found_on_reading_and_on_opening() {
    for bit in 0..64 {
        let (disk, store) = filled();
        assert!(disk.flip_bit(Place::Entry(7), bit));
        let text = found(store.read(0..10, u64::MAX).expect_err("damage is not skipped"));
        assert!(text.contains("column family log, key 7: expected CRC-32"), "{text}");
        assert_eq!(store.read(0..7, u64::MAX).unwrap().len(), 7, "what is intact can be read");
        drop(store);
        found(disk.open().err().expect("damage is not skipped"));
    }
}

#[test]
fn torn_and_lost_records_are_found() {
    let (disk, store) = filled();
    assert!(disk.tear(Place::Entry(9)));
    found(store.read(9..10, u64::MAX).expect_err("a torn entry"));

    let (disk, store) = filled();
    assert!(disk.lose(Place::Entry(4)));
    let hole = store.read(0..10, u64::MAX).expect_err("a hole");
    assert!(matches!(hole, StoreError::Hole { missing: 4, next: 5, .. }), "{hole}");
    drop(store);
    let hole = disk.open().err().expect("a hole");
    assert!(matches!(hole, StoreError::Hole { missing: 4, next: 5, .. }), "{hole}");

    let (disk, store) = filled();
    assert!(disk.lose(Place::Entry(0)));
    drop(store);
    let hole = disk.open().err().expect("the beginning is missing");
    assert!(matches!(hole, StoreError::Hole { missing: 0, next: 1, .. }), "{hole}");
}

#[test]
fn a_damaged_vote_or_identity_stops_the_member() {
    for (place, name) in [(Place::Vote, "key vote"), (Place::Identity, "key identity")] {
        let (disk, store) = filled();
        contract::wait(|done| store.save_identity(Bytes::from_static(b"me"), done)).unwrap();
        assert!(disk.flip_bit(place, 50));
        drop(store);
        let text = found(disk.open().err().expect("damage is not skipped"));
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_damaged_chunk_is_found() {
    let (disk, store) = filled();
    let mut writer = store.begin_snapshot().unwrap();
    writer.write_chunk(Bytes::from_static(b"one")).unwrap();
    writer.write_chunk(Bytes::from_static(b"two")).unwrap();
    let record = finish(writer, Some(id(1, 9)), "").unwrap();
    assert!(disk.flip_bit(Place::Chunk(1), 60));
    store.snapshot_chunk(&record, 0).expect("the other is intact");
    let text = found(store.snapshot_chunk(&record, 1).expect_err("damage"));
    assert!(text.contains("chunk 1 of snapshot 1"), "{text}");
}

#[test]
fn a_full_disk_fails_the_request_and_all_later_ones_until_reopened() {
    let (disk, store) = filled();
    disk.set_capacity(Some(disk.used_bytes() + 10));
    let error = append(&*store, records(1, 10..11)).expect_err("no room");
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    disk.set_capacity(None);
    let error = save_vote(&*store, "later").expect_err("refused although there is room again");
    assert!(matches!(error, StoreError::Failed { .. }) && error.is_full(), "{error}");
    assert!(store.status().failed.is_some_and(|failed| failed.is_full()));
    drop(store);
    let store = disk.open().unwrap();
    assert_eq!(ids(&*store).len(), 10);
    append(&*store, records(1, 10..11)).expect("usable again");
}

#[test]
fn the_reserve_lets_a_member_start_on_a_full_disk() {
    const RESERVE: u64 = 4096;
    let (disk, store) = filled();
    disk.set_reserve(RESERVE);
    assert_eq!(store.status().reserve, Reserve::Held { bytes: RESERVE });
    disk.set_capacity(Some(disk.used_bytes() + RESERVE));
    append(&*store, records(1, 10..11)).expect_err("no room");
    drop(store);
    let store = disk.open().expect("opens on a full disk");
    assert_eq!(store.status().reserve, Reserve::Released);
    append(&*store, records(1, 10..11)).expect("there is the reserve's room");
    disk.set_capacity(Some(disk.used_bytes() + 10 * RESERVE));
    purge(&*store, id(1, 8)).expect("purging makes room");
    assert_eq!(store.status().reserve, Reserve::Held { bytes: RESERVE });
}
