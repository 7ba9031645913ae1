//! Output is kept as long as was said, and nothing of ended work longer than somebody needs it.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tessera_ledger::{AllocationId, Epoch, Rank};

use super::*;
use crate::supervisor::output::Stream;
use crate::supervisor::status::Status;
use crate::supervisor::{LOG_FILE, SOCKET_FILE};
use crate::worker::folder::WorkerFolder;
use crate::worker::{Fence, Term};

const HOUR: Duration = Duration::from_secs(3600);

/// A node with work that has ended.
struct Place {
    _data: TempDir,
    folders: WorkerFolders,
    ended: Ended,
}

impl Place {
    fn new() -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let folders = WorkerFolders::open(data.path()).expect("writable");
        Self { _data: data, ended: Ended::new(folders.clone()), folders }
    }

    /// A worker that was supervised to its end, and said something.
    fn ended(&self, number: u64) -> WorkerId {
        let worker = WorkerId { allocation: AllocationId(number), epoch: Epoch(9), rank: Rank(0) };
        let folder = self.folders.create(worker).expect("new");
        for name in [LOG_FILE, SOCKET_FILE, "control.sock", "saved.json", "progress"] {
            fs::write(folder.file(name), "").expect("writable");
        }
        fs::create_dir(folder.checkpoint()).expect("writable");
        fs::write(said(&folder), "x").expect("writable");
        let fence = Fence { term: Term(1), epoch: Epoch(9) };
        Status::new(worker, 77, fence, "boot".to_owned()).store(folder.path()).expect("writable");
        worker
    }

    fn settled(&self, number: u64, retention: Option<Duration>) -> WorkerId {
        let worker = self.ended(number);
        self.ended.settle(worker, retention).expect("writable");
        worker
    }

    /// What the next agent knows.
    fn started_anew(self) -> Self {
        Self { ended: Ended::new(self.folders.clone()), ..self }
    }

    /// Lets a worker have been settled so much earlier.
    fn age(&self, worker: WorkerId, by: Duration) {
        let mut known = self.ended.known();
        let settled = known.settled.get_mut(&worker).expect("it is settled");
        settled.settled_unix_ms -= u64::try_from(by.as_millis()).expect("short");
    }

    fn is_expired(&self, worker: WorkerId) -> bool {
        self.folders.of(worker).is_expired()
    }

    fn removed(&self, usual: Option<Duration>) -> usize {
        self.ended.remove_expired(usual).expect("removable")
    }
}

fn said(folder: &WorkerFolder) -> PathBuf {
    Stream::Stdout.file(folder.path(), 0)
}

fn names(folder: &WorkerFolder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("readable").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn of_a_job_that_has_ended_only_what_somebody_reads_stays() {
    let place = Place::new();
    let output = "stdout.00000000000000000000";
    let folder = place.folders.of(place.settled(1, None));
    assert_eq!(names(&folder), ["settled.json", "status.json", output]);
    let worker = place.ended(2);
    let folder = place.folders.of(worker);
    fs::write(folder.work().join("script"), "true").expect("writable");
    fs::write(folder.file(LOG_FILE), "the card is hot").expect("writable");
    place.ended.settle(worker, None).expect("writable");
    assert_eq!(names(&folder), ["settled.json", "status.json", output, LOG_FILE, "work"]);
    let found = place.folders.search().expect("readable");
    assert!(found.is_empty(), "settled workers are not found again: {found:?}");
}

#[test]
fn output_outlives_the_worker_for_as_long_as_was_said() {
    let place = Place::new();
    let (long, short) = (place.settled(1, Some(HOUR)), place.settled(2, Some(Duration::ZERO)));
    assert_eq!(place.removed(None), 1);
    assert!(said(&place.folders.of(long)).exists() && !place.is_expired(long));
    assert!(!said(&place.folders.of(short)).exists() && place.is_expired(short));
    assert_eq!(place.removed(None), 0, "removed once");
}

#[test]
fn output_of_a_job_that_does_not_say_goes_by_what_the_pool_says_now() {
    let place = Place::new();
    let (silent, says) = (place.settled(1, None), place.settled(2, Some(HOUR)));
    assert_eq!(place.removed(None), 0, "nobody has said how long");
    assert_eq!(place.removed(Some(HOUR)), 0);
    assert_eq!(place.removed(Some(Duration::ZERO)), 1, "it was settled before the change");
    assert!(place.is_expired(silent) && !place.is_expired(says), "the other's job has said how long");
    assert_eq!(place.removed(Some(HOUR)), 0, "removed once");
}

/// What lies on the disk is what counts for the next agent.
#[test]
fn an_agent_that_starts_anew_removes_what_the_one_before_has_settled() {
    let place = Place::new();
    let (short, long) = (place.settled(1, Some(Duration::ZERO)), place.settled(2, Some(HOUR)));
    let place = place.started_anew();
    assert_eq!(place.removed(None), 1);
    assert!(place.is_expired(short) && !place.is_expired(long));
}

/// A late order for a worker finds for a while that it was here. Then nothing is left.
#[test]
fn a_worker_is_remembered_for_an_hour_and_its_folder_goes() {
    let place = Place::new();
    let (worker, kept) = (place.settled(1, Some(Duration::ZERO)), place.settled(2, Some(2 * HOUR)));
    assert_eq!(place.removed(None), 1);
    place.age(worker, HOUR / 2);
    assert_eq!(place.removed(None), 0);
    let again = place.folders.create(worker).expect_err("it was here");
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    place.age(worker, HOUR);
    assert_eq!(place.removed(None), 0, "its output is gone");
    assert!(!place.folders.of(worker).path().exists());
    assert!(said(&place.folders.of(kept)).exists());
    let left = fs::read_dir(place.folders.path()).expect("readable").count();
    assert_eq!((left, place.ended.known().settled.len()), (1, 1), "nothing is left of it anywhere");
}
