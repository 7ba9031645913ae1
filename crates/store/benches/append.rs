//! The cost of a durable append, alone and in company: `cargo bench -p tessera-store`.
//!
//! The folder is made below the current one, or below TESSERA_BENCH_DIR: a folder in memory would measure nothing.

use std::sync::Arc;
use std::sync::mpsc::channel;

use bytes::Bytes;
use divan::counter::ItemsCount;
use tempfile::TempDir;
use tessera_store::memory::Flushing;
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{EntryId, LogRecord, MemoryDisk, Store};

/// Entries handed in before the first answer is waited for.
const IN_FLIGHT: [u64; 4] = [1, 16, 64, 256];

/// Bytes of payload per entry.
const PAYLOAD: usize = 256;

fn main() {
    divan::main();
}

fn rocks() -> (TempDir, Arc<dyn Store>) {
    let below = std::env::var_os("TESSERA_BENCH_DIR").unwrap_or_else(|| ".".into());
    let folder = TempDir::new_in(below).expect("a temporary folder");
    let store = rocks::open(&RocksOptions::new(folder.path())).expect("a new store opens");
    (folder, store)
}

/// Appends `count` entries, each a request of its own, and waits until all are durable.
fn append(store: &dyn Store, count: u64) {
    let (sender, answers) = channel();
    let begin = store.log_state().expect("state").last.map_or(0, |last| last.index + 1);
    for index in begin..begin + count {
        let sender = sender.clone();
        let record = LogRecord { id: EntryId { term: 1, index }, payload: Bytes::from(vec![7; PAYLOAD]) };
        store.append(vec![record], Box::new(move |result| sender.send(result).expect("waited for")));
    }
    drop(sender);
    for answer in answers {
        answer.expect("durable");
    }
}

#[divan::bench(args = IN_FLIGHT)]
fn on_disk(bencher: divan::Bencher<'_, '_>, in_flight: u64) {
    let (_folder, store) = rocks();
    bencher.counter(ItemsCount::new(in_flight)).bench_local(|| append(&*store, in_flight));
}

#[divan::bench(args = IN_FLIGHT)]
fn in_memory(bencher: divan::Bencher<'_, '_>, in_flight: u64) {
    let disk = MemoryDisk::new(Flushing::AtOnce);
    let store = disk.open().expect("an empty disk opens");
    bencher.counter(ItemsCount::new(in_flight)).bench_local(|| append(&*store, in_flight));
}

#[divan::bench(args = [100_000])]
fn reopening(bencher: divan::Bencher<'_, '_>, entries: u64) {
    let (folder, store) = rocks();
    append(&*store, entries);
    drop(store);
    bencher
        .counter(ItemsCount::new(entries))
        .bench_local(|| rocks::open(&RocksOptions::new(folder.path())).expect("the store opens again"));
}
