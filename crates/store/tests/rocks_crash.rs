//! A process that is killed in the middle of its writes: whatever it was told is durable is there afterwards.

#![cfg(feature = "rocksdb")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::{DB, IteratorMode, Options};
use tempfile::TempDir;
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{Done, LogRecord, Store};

use crate::contract::id;

const FOLDER: &str = "TESSERA_STORE_CRASH_FOLDER";
const TEST: &str = "rocks_crash::what_was_acknowledged_survives_sigkill";
const ROUNDS: usize = 8;

fn open(folder: &Path) -> Arc<dyn Store> {
    let options = RocksOptions {
        reserve_bytes: 0,
        // Small, so that kills also fall into flushes of write buffers.
        write_buffer_bytes: 256 << 10,
        tail_bytes: 64 << 10,
        ..RocksOptions::new(folder)
    };
    rocks::open(&options).expect("the store opens after a kill")
}

fn payload(index: u64) -> Bytes {
    let length = usize::try_from(index * 37 % 900).expect("small");
    Bytes::from(vec![index.to_le_bytes()[0]; length])
}

/// Says on standard output that something is durable.
fn announce(word: &'static str, number: u64) -> Done {
    Box::new(move |result| {
        result.expect("the disk works");
        // Past the capture of the test harness, in one write.
        std::io::stdout().write_all(format!("{word} {number}\n").as_bytes()).expect("a pipe");
    })
}

/// The child: appends, votes, purges and makes snapshots until it is killed.
fn write_for_ever(folder: &Path) -> ! {
    let store = open(folder);
    let mut next = store.log_state().expect("state").last.map_or(0, |last| last.index + 1);
    let mut vote = number(store.vote().expect("vote"));
    loop {
        let count = next % 7 + 1;
        let records =
            (next..next + count).map(|index| LogRecord { id: id(1, index), payload: payload(index) }).collect();
        next += count;
        store.append(records, announce("entry", next - 1));
        store.save_committed(Some(id(1, next - 1)));
        if next.is_multiple_of(5) {
            vote += 1;
            store.save_vote(Bytes::from(vote.to_be_bytes().to_vec()), announce("vote", vote));
        }
        if next.is_multiple_of(301) {
            store.purge_to(id(1, next - 200), announce("purged", next - 200));
        }
        if next.is_multiple_of(97) {
            make_snapshot(&*store, next - 1);
        }
    }
}

fn make_snapshot(store: &dyn Store, last: u64) {
    let mut writer = store.begin_snapshot().expect("a snapshot begins");
    for n in 0..4 {
        writer.write_chunk(payload(last + n)).expect("a chunk is written");
    }
    let done = announce("snapshot", last);
    writer.finish(Some(id(1, last)), Bytes::new(), Box::new(|result| done(result.map(|_| ()))));
}

fn number(vote: Option<Bytes>) -> u64 {
    vote.map_or(0, |vote| u64::from_be_bytes(vote.as_ref().try_into().expect("eight bytes")))
}

/// The largest of each that the children announced.
#[derive(Default)]
struct Announced {
    entry: Option<u64>,
    vote: u64,
    purged: Option<u64>,
    snapshot: Option<u64>,
}

impl Announced {
    fn take(&mut self, line: &str) -> bool {
        let Some((word, number)) = line.split_once(' ') else {
            return false;
        };
        let Ok(number) = number.parse() else {
            return false;
        };
        match word {
            "entry" => self.entry = self.entry.max(Some(number)),
            "vote" => self.vote = self.vote.max(number),
            "purged" => self.purged = self.purged.max(Some(number)),
            "snapshot" => self.snapshot = self.snapshot.max(Some(number)),
            _ => return false,
        }
        true
    }
}

/// A child that is killed and waited for in any case.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().expect("the child can be killed");
        self.0.wait().expect("the child can be waited for");
    }
}

/// Runs a child, kills it after so many announcements, and reads what it still managed to say.
fn run_and_kill(folder: &Path, after: usize, announced: &mut Announced) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", TEST, "--nocapture"]).env(FOLDER, folder).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().expect("the child starts"));
    let pipe = child.0.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(pipe).lines().map(|line| line.expect("readable"));
    let heard = lines.by_ref().filter(|line| announced.take(line)).take(after).count();
    assert_eq!(heard, after, "the child ended by itself");
    drop(child);
    // What it said before it died counts; a line cut off by the kill would have lost its end.
    let rest: Vec<_> = lines.collect();
    for line in rest.iter().rev().skip(1) {
        announced.take(line);
    }
}

fn check(folder: &Path, announced: &Announced) {
    let store = open(folder);
    let state = store.log_state().expect("state");
    let last = state.last.map(|last| last.index);
    assert!(last >= announced.entry, "acknowledged {:?}, found {last:?}", announced.entry);
    assert!(number(store.vote().expect("vote")) >= announced.vote, "the vote went back");
    assert!(state.last_purged.map(|purged| purged.index) >= announced.purged);
    assert!(store.committed().expect("committed").map(|committed| committed.index) <= last);
    let first = state.last_purged.map_or(0, |purged| purged.index + 1);
    let found = store.read(first..u64::MAX, u64::MAX).expect("nothing is damaged");
    assert_eq!(found.last().map(|record| record.id.index), last);
    for record in found {
        assert_eq!(record.payload, payload(record.id.index));
    }
    let snapshot = store.snapshot().expect("snapshot");
    let snapshot_last = snapshot.as_ref().and_then(|snapshot| snapshot.last).map(|last| last.index);
    assert!(snapshot_last >= announced.snapshot, "an acknowledged snapshot is gone");
    if let (Some(record), Some(last)) = (snapshot, snapshot_last) {
        for n in 0..record.chunks {
            let chunk = store.snapshot_chunk(&record, n).expect("a whole snapshot has its chunks");
            assert_eq!(chunk, payload(last + u64::from(n)));
        }
    }
}

/// Checks that opening has left nothing of all the snapshots that the kills interrupted.
fn check_chunks(folder: &Path) {
    let families = ["default", "log", "meta", "snapshot"];
    let db = DB::open_cf(&Options::default(), folder.join("db"), families).expect("opens raw");
    let family = db.cf_handle("snapshot").expect("the family is there");
    let keys = db.iterator_cf(&family, IteratorMode::Start).map(|item| item.expect("readable").0);
    let owners: BTreeSet<_> = keys.map(|key| key[..8].to_vec()).collect();
    assert!(owners.len() <= 2, "chunks of {} snapshots are there", owners.len());
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        write_for_ever(Path::new(&folder));
    }
    let folder = TempDir::new().expect("a temporary folder");
    let mut announced = Announced::default();
    for round in 0..ROUNDS {
        run_and_kill(folder.path(), 300 + 200 * round, &mut announced);
        check(folder.path(), &announced);
    }
    check_chunks(folder.path());
    assert!(announced.vote > 0 && announced.purged.is_some() && announced.snapshot.is_some());
}
