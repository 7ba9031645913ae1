//! The log-writer thread: requests that wait share one sync, the queue is bounded, and nobody waits for ever.

#![cfg(feature = "rocksdb")]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use bytes::Bytes;
use tempfile::TempDir;
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{Store, StoreError};

use crate::contract::{PATIENCE, answer, append, ids, records, save_vote};

fn open(folder: &Path, queue_requests: usize) -> Arc<dyn Store> {
    let options = RocksOptions { reserve_bytes: 0, queue_requests, ..RocksOptions::new(folder) };
    rocks::open(&options).expect("the store opens")
}

/// Holds the writer thread in a callback until the sender is dropped; returns once it is held.
fn hold_writer(store: &dyn Store) -> Sender<()> {
    let (held, is_held) = channel();
    let (release, released): (Sender<()>, Receiver<()>) = channel();
    let done = Box::new(move |result: Result<(), StoreError>| {
        result.expect("durable");
        held.send(()).expect("the test waits");
        released.recv().expect_err("released by dropping");
    });
    store.save_vote(Bytes::from_static(b"hold"), done);
    is_held.recv_timeout(PATIENCE).expect("the writer thread runs");
    release
}

#[test]
fn what_waits_shares_one_sync() {
    const REQUESTS: u64 = 500;
    let folder = TempDir::new().expect("a temporary folder");
    let store = open(folder.path(), 1000);
    let release = hold_writer(&*store);
    let before = store.status().syncs.count;
    let answers: Vec<_> = (0..REQUESTS)
        .map(|index| {
            let (done, answer) = answer();
            store.append(records(1, [index]), done);
            answer
        })
        .collect();
    assert_eq!(store.status().queued, 500);
    drop(release);
    for answer in answers {
        answer.recv_timeout(PATIENCE).expect("answered").expect("durable");
    }
    let syncs = store.status().syncs;
    assert_eq!(syncs.count - before, 1);
    assert_eq!(syncs.requests, REQUESTS + 1);
}

#[test]
fn a_full_queue_makes_callers_wait() {
    const BOUND: usize = 4;
    let folder = TempDir::new().expect("a temporary folder");
    let store = open(folder.path(), BOUND);
    let release = hold_writer(&*store);
    let before = store.status().syncs.count;
    let (handed_in, progress) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0..20 {
                store.append(records(1, [index]), answer().0);
                handed_in.send(index).expect("the test listens");
            }
        });
        for expected in 0..4 {
            assert_eq!(progress.recv_timeout(PATIENCE).expect("there is room"), expected);
        }
        assert_eq!(store.status().queued, BOUND);
        drop(release);
    });
    assert_eq!(progress.try_iter().count(), 16, "all others came in afterwards");
    save_vote(&*store, "behind them").expect("durable");
    let syncs = store.status().syncs.count - before;
    assert!(syncs >= 5, "twenty requests, four at a time, were written with {syncs} syncs");
    assert_eq!(ids(&*store).len(), 20);
}

#[test]
fn closing_writes_what_was_handed_in() {
    let folder = TempDir::new().expect("a temporary folder");
    let store = open(folder.path(), 100);
    let release = hold_writer(&*store);
    let (done, answered) = answer();
    store.append(records(1, 0..7), done);
    drop(release);
    drop(store);
    answered.try_recv().expect("answered before the drop returned").expect("durable");
    assert_eq!(ids(&*open(folder.path(), 100)).len(), 7);
}

#[test]
fn when_a_callback_panics_the_others_are_told() {
    let folder = TempDir::new().expect("a temporary folder");
    let store = open(folder.path(), 100);
    let release = hold_writer(&*store);
    store.append(records(1, 0..1), Box::new(|_| panic!("a callback that panics, as this test wants")));
    let deadline = Instant::now() + PATIENCE;
    drop(release);
    // Requests that came before the thread ended may have been written; from some moment on all are refused.
    while !matches!(append_or_lose(&*store), Some(Err(StoreError::Closed))) {
        assert!(Instant::now() < deadline, "requests are neither answered nor refused");
    }
    drop(store);
    assert_eq!(ids(&*open(folder.path(), 100)).first(), Some(&(0, 1)), "it was durable all the same");
}

/// Appends one record; `None` when the callback was dropped because the thread ended under it.
fn append_or_lose(store: &dyn Store) -> Option<Result<(), StoreError>> {
    let next = store.log_state().expect("state").last.map_or(0, |last| last.index + 1);
    let (done, answer) = answer();
    store.append(records(1, [next]), done);
    answer.recv_timeout(PATIENCE).ok()
}

#[test]
fn the_folder_is_free_again_once_the_store_is_closed() {
    let folder = TempDir::new().expect("a temporary folder");
    for round in 0..5 {
        let store = open(folder.path(), 100);
        append(&*store, records(1, [round])).expect("durable");
    }
    assert_eq!(ids(&*open(folder.path(), 100)).len(), 5);
}
