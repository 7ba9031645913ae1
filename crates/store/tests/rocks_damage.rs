//! Damage on a real disk is found, named and never skipped; an interrupted last write is no damage.

#![cfg(feature = "rocksdb")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::{DB, Options};
use tempfile::TempDir;
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{Store, StoreError};

use crate::contract::{append, finish, id, ids, records, save_vote, wait};

fn open(folder: &Path) -> Result<Arc<dyn Store>, StoreError> {
    rocks::open(&RocksOptions { reserve_bytes: 0, ..RocksOptions::new(folder) })
}

/// A folder with entries 0 to 19, a vote, an identity and a snapshot of three chunks.
fn filled() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let store = open(folder.path()).expect("a new store opens");
    append(&*store, records(1, 0..20)).expect("written");
    save_vote(&*store, "vote").expect("written");
    wait(|done| store.save_identity(Bytes::from_static(b"member 1"), done)).expect("written");
    let mut writer = store.begin_snapshot().expect("a snapshot begins");
    for n in 0..3_u8 {
        writer.write_chunk(Bytes::from(vec![n; 500])).expect("written");
    }
    finish(writer, Some(id(1, 5)), "description").expect("written");
    folder
}

/// Changes a value behind the store's back; `None` removes it.
fn tamper(folder: &Path, family: &str, key: &[u8], change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
    let families = ["default", "log", "meta", "snapshot"];
    let db = DB::open_cf(&Options::default(), folder.join("db"), families).expect("opens raw");
    let family = db.cf_handle(family).expect("the family is there");
    let value = db.get_cf(&family, key).expect("readable").expect("the record is there");
    match change(value) {
        Some(value) => db.put_cf(&family, key, value).expect("written"),
        None => db.delete_cf(&family, key).expect("removed"),
    }
}

fn flip_last(mut value: Vec<u8>) -> Option<Vec<u8>> {
    *value.last_mut().expect("a record is not empty") ^= 0x10;
    Some(value)
}

fn refusal(folder: &Path) -> StoreError {
    let error = open(folder).err().expect("damage is not skipped");
    assert!(error.is_damage(), "{error}");
    error
}

#[test]
fn a_flipped_entry_stops_the_member_and_is_named() {
    let folder = filled();
    tamper(folder.path(), "log", &7_u64.to_be_bytes(), flip_last);
    let text = refusal(folder.path()).to_string();
    let path = folder.path().display().to_string();
    for part in [path.as_str(), "column family log", "key 7", "CRC-32", "replace this member"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn a_missing_entry_is_a_hole() {
    let folder = filled();
    tamper(folder.path(), "log", &7_u64.to_be_bytes(), |_| None);
    let error = refusal(folder.path());
    assert!(matches!(error, StoreError::Hole { missing: 7, next: 8, .. }), "{error}");
}

#[test]
fn a_missing_beginning_is_a_hole() {
    let folder = filled();
    tamper(folder.path(), "log", &0_u64.to_be_bytes(), |_| None);
    let error = refusal(folder.path());
    assert!(matches!(error, StoreError::Hole { missing: 0, next: 1, .. }), "{error}");
}

#[test]
fn flipped_single_records_stop_the_member() {
    for name in ["vote", "identity", "start", "snapshots", "format"] {
        let folder = filled();
        tamper(folder.path(), "meta", name.as_bytes(), flip_last);
        let text = refusal(folder.path()).to_string();
        assert!(text.contains(&format!("column family meta, key {name}")), "{text}");
    }
}

#[test]
fn a_store_without_its_format_or_start_is_not_taken_for_a_new_one() {
    for name in ["format", "start"] {
        let folder = filled();
        tamper(folder.path(), "meta", name.as_bytes(), |_| None);
        let text = refusal(folder.path()).to_string();
        assert!(text.contains(&format!("key {name}: expected a record, found none")), "{text}");
    }
}

#[test]
fn a_value_under_another_key_is_damage() {
    let folder = filled();
    let mut vote = Vec::new();
    tamper(folder.path(), "meta", b"vote", |value| {
        vote.clone_from(&value);
        Some(value)
    });
    tamper(folder.path(), "meta", b"identity", |_| Some(vote));
    assert!(refusal(folder.path()).to_string().contains("key identity"));
}

#[test]
fn a_damaged_or_missing_chunk_is_found_on_reading() {
    for removed in [false, true] {
        let folder = filled();
        let key = [1_u64.to_be_bytes().as_slice(), &1_u32.to_be_bytes()].concat();
        tamper(folder.path(), "snapshot", &key, |value| if removed { None } else { flip_last(value) });
        let store = open(folder.path()).expect("chunks are not read at opening");
        let record = store.snapshot().unwrap().expect("the snapshot is there");
        store.snapshot_chunk(&record, 0).expect("the others are intact");
        let error = store.snapshot_chunk(&record, 1).expect_err("damage is not skipped");
        assert!(error.is_damage() && error.to_string().contains("chunk 1 of snapshot 1"), "{error}");
    }
}

/// The write-ahead log, which after a clean end still holds the last writes.
fn write_ahead_log(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder.join("db")).expect("a folder").map(|file| file.expect("a file").path());
    let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.max_by_key(|path| fs::metadata(path).expect("a file").len()).expect("there is one")
}

fn with_entries_in_the_write_ahead_log() -> TempDir {
    let folder = filled();
    let store = open(folder.path()).expect("opens");
    for index in 20..40 {
        append(&*store, records(2, [index])).expect("written");
    }
    folder
}

#[test]
fn an_interrupted_last_write_is_dropped_whole() {
    let folder = with_entries_in_the_write_ahead_log();
    let log = write_ahead_log(folder.path());
    let file = fs::File::options().write(true).open(&log).expect("opens");
    file.set_len(file.metadata().expect("a length").len() - 3).expect("cut");
    let store = open(folder.path()).expect("an interrupted write is no damage");
    assert_eq!(ids(&*store).last(), Some(&(38, 2)));
    append(&*store, records(3, [39])).expect("goes on");
}

#[test]
fn damage_in_the_middle_of_the_write_ahead_log_stops_the_member() {
    let folder = with_entries_in_the_write_ahead_log();
    let log = write_ahead_log(folder.path());
    let mut bytes = fs::read(&log).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x01;
    fs::write(&log, bytes).expect("written");
    let error = refusal(folder.path());
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn a_store_that_lost_its_files_is_not_taken_for_a_new_one() {
    let folder = filled();
    fs::remove_file(folder.path().join("db/CURRENT")).expect("removed");
    let error = open(folder.path()).err().expect("not a new store");
    assert!(matches!(error, StoreError::Io { .. } | StoreError::Damaged { .. }), "{error}");
    assert!(fs::read_dir(folder.path().join("db")).expect("a folder").count() > 3, "nothing was removed");
}

#[test]
fn a_creation_that_was_interrupted_begins_again() {
    let folder = TempDir::new().expect("a temporary folder");
    fs::create_dir_all(folder.path().join("db.new")).expect("made");
    fs::write(folder.path().join("db.new/CURRENT"), "MANIFEST-of-nothing\n").expect("written");
    let store = open(folder.path()).expect("a half-created store is no store");
    append(&*store, records(1, 0..1)).expect("usable");
    assert!(!folder.path().join("db.new").exists());
}
