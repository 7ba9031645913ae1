//! Data that a program did not change since its last checkpoint is neither written nor sent again, and is no less safe
//! for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tessera_checkpoint::{Error, Objects, Store, copy, read_published, restore, save};
use tessera_objects::Place;
use tessera_testkit::BucketServer;

use crate::breaking::{Breaking, How};
use crate::support::{Shelf, content, id, small_chunks};

/// Bytes of the file that does not change.
const BASE: usize = 100_000;

/// A folder with a large file that stays as it is, and small ones before and after it that do not.
struct Trained(TempDir);

impl Trained {
    fn new() -> Self {
        Self::with(BASE)
    }

    fn with(bytes: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut base = vec![0; bytes];
        blake3::Hasher::new().finalize_xof().fill(&mut base);
        fs::write(folder.path().join("base"), base).expect("written");
        let trained = Self(folder);
        trained.step(1);
        trained
    }

    /// Goes on, and writes more than before: what comes later in the archive moves.
    fn step(&self, number: usize) {
        fs::write(self.0.path().join("adapter"), vec![b'a'; 900 * number]).expect("written");
        fs::write(self.0.path().join("progress"), number.to_string()).expect("written");
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Bytes on the disk below a folder: a file with two names counts once.
fn on_disk(folder: &Path) -> u64 {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("it is there").flatten() {
            let about = entry.metadata().expect("it is there");
            match about.is_dir() {
                true => folders.push(entry.path()),
                false => drop(files.insert(about.ino(), about.len())),
            }
        }
    }
    files.values().sum()
}

async fn comes_back(store: &dyn Store, sequence: u64, as_in: &BTreeMap<PathBuf, String>) {
    let published = read_published(store, &id(sequence)).await.expect("it is whole");
    let above = tempfile::tempdir().expect("a folder");
    let into = above.path().join("again");
    restore(store, None, &published, &into, None, &small_chunks()).await.expect("it is restored");
    assert_eq!(&content(&into), as_in);
}

#[tokio::test]
async fn what_did_not_change_lies_on_the_disk_once_and_outlives_the_checkpoint_before() {
    let (folder, shelf) = (Trained::new(), Shelf::new());
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let alone = on_disk(shelf.folder.path());
    folder.step(2);
    save(&shelf.objects, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    let more = on_disk(shelf.folder.path()) - alone;
    assert!(more < BASE as u64 / 4, "{more} bytes more lie on the disk");
    shelf.objects.delete(&id(1)).await.expect("it is removed");
    comes_back(&shelf.objects, 2, &content(folder.path())).await;
}

#[tokio::test]
async fn what_the_disk_lost_of_the_one_before_is_written_again() {
    let (folder, shelf) = (Trained::new(), Shelf::new());
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    for file in shelf.files(&id(1)) {
        let mut bytes = fs::read(&file).expect("it is there");
        if bytes.len() > 1000 && !file.ends_with("manifest") {
            bytes[500] ^= 1;
            fs::write(file, bytes).expect("written");
        }
    }
    save(&shelf.objects, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    comes_back(&shelf.objects, 2, &content(folder.path())).await;
}

#[tokio::test]
async fn a_save_that_adds_nothing_but_old_chunks_is_not_swept_from_under_it() {
    let (folder, shelf) = (Trained::new(), Shelf::new());
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    for file in shelf.files(&id(1)) {
        fs::File::open(file).and_then(|file| file.set_modified(long_ago)).expect("its time is changed");
    }
    let published = read_published(&shelf.objects, &id(1)).await.expect("it is whole");
    let first = published.stored(0).expect("it has chunks");
    assert!(shelf.objects.share_chunk(&first, &id(2), 0, None).await.expect("it answers"));
    assert_eq!(shelf.objects.sweep(Duration::from_secs(3600)).await.expect("it answers"), []);
    assert_eq!(shelf.objects.sweep(Duration::ZERO).await.expect("it answers"), [id(2)]);
}

#[tokio::test]
async fn what_a_store_has_of_the_one_before_is_not_fetched() {
    let (folder, source, target) = (Trained::new(), Shelf::new(), Shelf::new());
    save(&source.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    copy(&source.objects, &target.objects, &id(1), &small_chunks()).await.expect("it is copied");
    folder.step(2);
    let published = save(&source.objects, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    // A source that gives its manifest and a few chunks: all of them are many more.
    let few = 5;
    assert!(published.chunks.len() > 5 * few);
    let poor = || Breaking::after(few as i64, How::Fails, &source.objects);
    let above = tempfile::tempdir().expect("a folder");
    let into = above.path().join("again");
    let far = restore(&poor(), None, &published, &into, None, &small_chunks()).await;
    assert!(matches!(far, Err(Error::Unreachable { .. })), "{far:?}");
    let near = Some(&target.objects as &dyn Store);
    restore(&poor(), near, &published, &into, None, &small_chunks()).await.expect("it is restored");
    assert_eq!(content(&into), content(folder.path()));
    copy(&poor(), &target.objects, &id(2), &small_chunks()).await.expect("it is copied");
    comes_back(&target.objects, 2, &content(folder.path())).await;
}

#[tokio::test]
async fn in_a_bucket_what_did_not_change_is_not_sent_again() {
    let server = BucketServer::start().expect("deploy/setup.sh test installs it");
    let store = Place::open_with(&server.url("pool"), server.variables()).map(Objects::at).expect("a place");
    let folder = Trained::new();
    let published = save(&store, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let second = published.stored(1).expect("it has chunks");
    assert!(store.share_chunk(&second, &id(2), 1, None).await.expect("it answers"));
    folder.step(2);
    save(&store, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    store.delete(&id(1)).await.expect("it is removed");
    comes_back(&store, 2, &content(folder.path())).await;
}

/// Returns whether a file of one checkpoint is one of the other too.
fn share_files(shelf: &Shelf, one: u64, other: u64) -> bool {
    let files = |sequence| -> BTreeSet<u64> {
        let files = shelf.files(&id(sequence)).into_iter();
        files.map(|file| fs::metadata(file).expect("it is there").ino()).collect()
    };
    !files(one).is_disjoint(&files(other))
}

#[tokio::test]
async fn where_nobody_else_keeps_copies_each_checkpoint_lies_apart() {
    let (folder, shelf) = (Trained::new(), Shelf::new());
    let store = shelf.objects.clone().only_copy();
    for sequence in 1..=3 {
        folder.step(sequence as usize);
        save(&store, &id(sequence), folder.path(), &small_chunks()).await.expect("it is saved");
    }
    for (one, other) in [(1, 2), (2, 3), (1, 3)] {
        assert!(!share_files(&shelf, one, other), "damage of {one} would be damage of {other}");
    }
}

/// Somebody whose clock is wrong sweeps what is being saved, or a server said that it copied and has not: nothing is
/// told to be there that is not.
#[tokio::test]
async fn what_is_gone_again_while_it_is_saved_is_stored_again() {
    let (folder, shelf) = (Trained::new(), Shelf::new());
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let forgetful = Breaking::after(12, How::Forgets, &shelf.objects);
    save(&forgetful, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    assert!(forgetful.broke(), "it was swept meanwhile");
    comes_back(&shelf.objects, 2, &content(folder.path())).await;
}

/// Chunks that were copied before a copy broke off are not fetched again for the next checkpoint either.
#[tokio::test]
async fn what_an_unfinished_copy_left_is_used() {
    let (folder, source, target) = (Trained::new(), Shelf::new(), Shelf::new());
    save(&source.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let breaks = Breaking::after(25, How::Fails, &source.objects);
    copy(&breaks, &target.objects, &id(1), &small_chunks()).await.expect_err("it broke off");
    folder.step(2);
    let published = save(&source.objects, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    let rest = Breaking::after(published.chunks.len() as i64 - 20, How::Fails, &source.objects);
    let above = tempfile::tempdir().expect("a folder");
    let into = above.path().join("again");
    let near = Some(&target.objects as &dyn Store);
    restore(&rest, near, &published, &into, None, &small_chunks()).await.expect("it is restored");
    assert_eq!(content(&into), content(folder.path()));
}

#[tokio::test]
async fn a_save_that_shares_and_breaks_at_any_step_leaves_a_checkpoint_or_none() {
    let folder = Trained::with(10_000);
    for how in [How::Fails, How::DoneUntold, How::Hangs] {
        for steps in 0.. {
            folder.step(1);
            let shelf = Shelf::new();
            save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
            folder.step(2);
            let store = Breaking::after(steps, how, &shelf.objects);
            let (second, limits) = (id(2), small_chunks());
            let saved = tokio::select! {
                saved = save(&store, &second, folder.path(), &limits) => Some(saved),
                () = store.hanging.notified() => None,
            };
            if !store.broke() {
                saved.expect("it did not hang").expect("nothing broke");
                break;
            }
            if shelf.objects.list(None).await.expect("it answers") == [id(1)] {
                save(&shelf.objects, &id(2), folder.path(), &small_chunks()).await.expect("nothing stands against it");
            }
            comes_back(&shelf.objects, 2, &content(folder.path())).await;
        }
    }
}
