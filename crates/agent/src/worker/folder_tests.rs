//! Folders are found again, kept as long as they should be, and made only once.

use super::*;
use crate::worker::{Fence, Term};
use tessera_ledger::{AllocationId, Epoch, Rank};

const WORKER: WorkerId = WorkerId { allocation: AllocationId(3), epoch: Epoch(9), rank: Rank(1) };

fn folders() -> (tempfile::TempDir, WorkerFolders) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let folders = WorkerFolders::open(data.path()).expect("writable");
    (data, folders)
}

fn order() -> wire::WorkerOrder {
    wire::WorkerOrder { job_id: 77, ..Default::default() }
}

fn begun(folders: &WorkerFolders) -> WorkerFolder {
    let folder = folders.of(WORKER);
    folder.create().expect("new");
    folder.write_order(&order()).expect("writable");
    assert!(folder.essentials().iter().all(|path| path.exists()));
    folder
}

#[test]
fn a_folder_is_made_once_and_found_again() {
    let (_data, folders) = folders();
    let folder = begun(&folders);
    assert_eq!(folder.create().expect_err("there").kind(), io::ErrorKind::AlreadyExists);
    let found = folders.search().expect("readable");
    assert_eq!((found.workers.len(), found.workers[0].worker, found.workers[0].order.job_id), (1, WORKER, 77));
    assert_eq!(found.workers[0].status, None);
}

#[test]
fn a_folder_without_an_order_never_began_and_is_removed() {
    let (_data, folders) = folders();
    folders.of(WORKER).create().expect("new");
    assert!(folders.search().expect("readable").workers.is_empty());
    assert!(!folders.of(WORKER).path().exists());
}

#[test]
fn damage_is_told_and_left_for_people() {
    let (_data, folders) = folders();
    let folder = begun(&folders);
    fs::write(folder.file(ORDER_FILE), [0xff; 9]).expect("writable");
    let found = folders.search().expect("readable");
    assert_eq!((found.workers.len(), found.damaged.len()), (0, 1));
    fs::remove_file(folder.file(ORDER_FILE)).expect("there");
    let fence = Fence { term: Term(1), epoch: Epoch(9) };
    Status::new(WORKER, 77, fence, "boot".to_owned()).store(folder.path()).expect("writable");
    assert_eq!(folders.search().expect("readable").damaged[0].1, "its order is missing");
}

#[test]
fn output_outlives_the_worker_for_as_long_as_was_said() {
    let (_data, folders) = folders();
    let folder = begun(&folders);
    fs::write(folder.file("stdout.00000000000000000000"), "x").expect("writable");
    folder.settle(Duration::from_secs(3600)).expect("writable");
    assert!(folders.search().expect("readable").workers.is_empty(), "settled workers are not found again");
    assert_eq!(folders.remove_expired().expect("readable"), 0);
    assert!(folder.file("stdout.00000000000000000000").exists() && !folder.is_expired());
    folder.settle(Duration::ZERO).expect("writable");
    assert_eq!(folders.remove_expired().expect("readable"), 1);
    assert!(!folder.file("stdout.00000000000000000000").exists() && folder.is_expired());
    assert_eq!(folders.remove_expired().expect("readable"), 0, "removed once");
}
