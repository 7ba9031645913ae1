//! Folders are found again, kept as long as they should be, and made only once.

use super::*;
use crate::supervisor::status::STATUS_FILE;
use crate::worker::{Fence, Term};
use std::os::unix::fs::MetadataExt;
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
    let folder = folders.create(WORKER).expect("new");
    folder.write_order(&order()).expect("writable");
    assert!(folder.essentials().iter().all(|path| path.exists()));
    folder
}

#[test]
fn a_folder_is_made_once_and_found_again() {
    let (_data, folders) = folders();
    begun(&folders);
    assert_eq!(folders.create(WORKER).expect_err("there").kind(), io::ErrorKind::AlreadyExists);
    let found = folders.search().expect("readable");
    assert_eq!((found.len(), found[0].worker, found[0].damage.len()), (1, WORKER, 0));
    assert_eq!(found[0].order.as_ref().map(|order| order.job_id), Some(77));
    assert_eq!(found[0].status, None);
}

#[test]
fn what_cannot_be_read_is_still_a_worker() {
    let (_data, folders) = folders();
    let folder = folders.create(WORKER).expect("new");
    let look = || {
        let mut found = folders.search().expect("readable");
        assert_eq!((found.len(), found[0].worker), (1, WORKER));
        found.remove(0)
    };
    assert_eq!(look().damage, ["its order is missing"]);
    fs::write(folder.file(ORDER_FILE), [0xff; 9]).expect("writable");
    assert!(look().order.is_none() && look().damage[0].contains("order cannot be read"));
    folder.write_order(&order()).expect("writable");
    let fence = Fence { term: Term(1), epoch: Epoch(9) };
    Status::new(WORKER, 77, fence, "boot".to_owned()).store(folder.path()).expect("writable");
    assert_eq!((look().damage.len(), look().status.map(|status| status.job)), (0, Some(77)));
    fs::write(folder.file(STATUS_FILE), "{").expect("writable");
    assert!(look().status.is_none() && look().damage[0].contains("status cannot be read"));
}

#[test]
fn a_folder_opens_to_its_worker_and_closes_after_it() {
    let (data, folders) = folders();
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!([mode(data.path()), mode(&data.path().join("workers"))], [PASSABLE; 2]);
    let folder = begun(&folders);
    fs::write(folder.file(VCARD_FILE), "{}").expect("writable");
    assert_eq!(mode(folder.path()), CLOSED);
    let own = fs::metadata(folder.path()).expect("there");
    let account = Account { uid: own.uid(), gid: own.gid(), groups: Vec::new(), person: None };
    folder.open_to(&account).expect("mine");
    assert_eq!([mode(folder.path()), mode(&folder.work()), mode(&folder.file(VCARD_FILE))], [PASSABLE, CLOSED, 0o640]);
    folder.close().expect("mine");
    assert_eq!(mode(folder.path()), CLOSED);
}

/// An agent is started anew while its supervisor makes an image, and asks for one, too.
#[test]
fn an_image_that_is_being_made_is_left_alone_and_those_before_it_are_removed() {
    let (_data, folders) = folders();
    let folder = begun(&folders);
    for number in [3, 4] {
        folder.make_snapshot_folder(number).expect("new");
    }
    fs::write(folder.snapshot(4).join("image/pages"), "half").expect("writable");
    let again = folder.make_snapshot_folder(4).expect_err("it is there");
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    folder.remove_snapshots_to(3).expect("removed");
    assert!(!folder.snapshot(3).exists());
    assert_eq!(fs::read_to_string(folder.snapshot(4).join("image/pages")).expect("untouched"), "half");
    folder.settle(None).expect("settled");
    assert!(!folder.snapshots().exists());
}
