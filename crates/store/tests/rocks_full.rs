//! A full disk, for real: a small file system in memory is mounted and filled.

#![cfg(feature = "rocksdb")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{LogRecord, Reserve, Store, StoreError};

use crate::contract::{PATIENCE, answer, id, purge, save_vote, wait};

const MIB: u64 = 1 << 20;
const RESERVE: u64 = 12 * MIB;

/// A small file system that is unmounted again.
struct Small(TempDir);

impl Small {
    /// Mounts it; `None`, and a word on standard error, where mounting is not permitted.
    fn mount() -> Option<Self> {
        let folder = TempDir::new().expect("a temporary folder");
        match mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some("size=64m")) {
            Ok(()) => Some(Small(folder)),
            Err(error @ (Errno::EPERM | Errno::EACCES)) => {
                let text = format!("SKIPPED rocks_full: a tmpfs cannot be mounted here ({error}); run as root\n");
                // Directly, for the test harness would swallow a print.
                std::io::stderr().write_all(text.as_bytes()).expect("standard error");
                None
            }
            Err(error) => panic!("mounting a tmpfs failed: {error}"),
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut file = File::create(self.path().join("filler")).expect("a file");
        let mut step = vec![1_u8; 64 << 10];
        while !step.is_empty() {
            if file.write_all(&step).is_err() {
                step.truncate(step.len() / 2);
            }
        }
    }

    fn unfill(&self) {
        fs::remove_file(self.path().join("filler")).expect("the filler is there");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        umount2(self.path(), MntFlags::MNT_DETACH).expect("what was mounted can be unmounted");
    }
}

fn open(folder: &Path) -> Result<Arc<dyn Store>, StoreError> {
    rocks::open(&RocksOptions {
        reserve_bytes: RESERVE,
        write_buffer_bytes: 256 << 10,
        queue_bytes: 256 << 10,
        ..RocksOptions::new(folder.join("data"))
    })
}

fn entry(index: u64) -> LogRecord {
    LogRecord { id: id(1, index), payload: Bytes::from(vec![index.to_le_bytes()[0]; 16 << 10]) }
}

/// Appends until it fails; answers how many were acknowledged.
fn append_until_full(store: &dyn Store) -> u64 {
    for index in 0.. {
        match wait(|done| store.append(vec![entry(index)], done)) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, StoreError::Full { .. }), "{error}");
                return index;
            }
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn a_full_disk_refuses_clearly_keeps_what_it_had_and_starts_on_its_reserve() {
    let Some(small) = Small::mount() else { return };
    let store = open(small.path()).expect("there is room");
    assert_eq!(store.status().reserve, Reserve::Held { bytes: RESERVE });

    let acknowledged = append_until_full(&*store);
    assert!(acknowledged > 100, "only {acknowledged} entries fitted");
    let (done, first) = answer();
    store.append(vec![entry(acknowledged + 1)], done);
    let (done, second) = answer();
    store.save_vote(Bytes::from_static(b"vote"), done);
    for answer in [first, second] {
        let error = answer.recv_timeout(PATIENCE).expect("answered").expect_err("the store refuses writes");
        assert!(matches!(error, StoreError::Failed { .. }) && error.is_full(), "{error}");
    }
    assert!(store.status().failed.is_some_and(|error| error.is_full()));
    drop(store);

    small.fill();
    let store = open(small.path()).expect("the reserve lets it start");
    assert_eq!(store.status().reserve, Reserve::Released);
    let last = store.log_state().expect("state").last.expect("entries").index;
    assert!(last + 1 >= acknowledged, "acknowledged {acknowledged}, found up to {last}");
    for index in 0..acknowledged {
        assert_eq!(store.read(index..index + 1, 0).expect("intact"), [entry(index)]);
    }
    save_vote(&*store, "writable").expect("there is the reserve's room");
    purge(&*store, id(1, last - 1)).expect("purging is how room is made");
    // Answered after the writer thread has cleared up behind the purge.
    save_vote(&*store, "again").expect("usable");
    let status = store.status();
    assert_eq!(status.reserve, Reserve::Held { bytes: RESERVE }, "{:?} bytes are free", status.free_bytes);
    drop(store);

    let store = open(small.path()).expect("opens");
    assert_eq!(store.status().reserve, Reserve::Held { bytes: RESERVE });
    assert_eq!(store.read(last..last + 1, 0).expect("intact"), [entry(last)]);
    assert_eq!(store.vote().expect("vote").expect("a vote"), "again");
}

/// RocksDB holds writes while it flushes those before; when that finds no room it would hold them for ever.
#[test]
fn writes_for_which_there_is_no_room_are_refused_and_not_held() {
    let Some(small) = Small::mount() else { return };
    let store = open(small.path()).expect("there is room");
    // Faster than it can be flushed, and twice what fits.
    let answers: Vec<_> = (0..8192)
        .map(|index| {
            let (done, answer) = answer();
            store.append(vec![entry(index)], done);
            answer
        })
        .collect();
    let results: Vec<_> = answers.into_iter().map(|one| one.recv_timeout(PATIENCE).expect("an answer")).collect();
    let acknowledged = results.iter().take_while(|result| result.is_ok()).count() as u64;
    let first = results.iter().find_map(|result| result.as_ref().err()).expect("128 MiB do not fit");
    assert!(first.is_full(), "{first}");
    drop(store);

    let store = open(small.path()).expect("there is the reserve's room");
    for index in 0..acknowledged {
        assert_eq!(store.read(index..index + 1, 0).expect("intact"), [entry(index)]);
    }
}

#[test]
fn a_store_cannot_be_created_on_a_full_disk_but_later() {
    let Some(small) = Small::mount() else { return };
    small.fill();
    let error = open(small.path()).err().expect("there is no room");
    assert!(error.is_full(), "{error}");
    small.unfill();
    let store = open(small.path()).expect("what was begun is no obstacle");
    save_vote(&*store, "vote").expect("usable");
}

#[test]
fn a_reserve_of_another_size_is_made_anew() {
    let folder = TempDir::new().expect("a temporary folder");
    for bytes in [MIB, 2 * MIB, 0] {
        let options = RocksOptions { reserve_bytes: bytes, ..RocksOptions::new(folder.path()) };
        let store = rocks::open(&options).expect("opens");
        let expected = if bytes == 0 { Reserve::Off } else { Reserve::Held { bytes } };
        assert_eq!(store.status().reserve, expected);
        let file = fs::metadata(folder.path().join("reserve")).ok().map(|data| data.len());
        assert_eq!(file, (bytes > 0).then_some(bytes));
    }
}
