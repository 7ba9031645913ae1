//! How many checkpoints are kept, and what happens when there is no room.

use std::collections::BTreeSet;
use std::fs;

use tessera_checkpoint::{CheckpointId, Error, Objects, Store, measure, retain, save};

use crate::support::{Shelf, id, small_chunks, trained};

#[tokio::test]
async fn the_oldest_go_but_never_the_newest_whole_one_or_one_that_is_needed() {
    let (folder, shelf) = (trained(), Shelf::new());
    let of_rank = |sequence, rank| CheckpointId { rank, ..id(sequence) };
    for (sequence, rank) in [(1, 0), (2, 0), (3, 0), (4, 0), (1, 1), (2, 1)] {
        save(&shelf.objects, &of_rank(sequence, rank), folder.path(), &small_chunks()).await.expect("it is saved");
    }
    fs::remove_file(&shelf.files(&id(4))[0]).expect("removed");
    let needed = BTreeSet::from([id(1)]);
    let removed = retain(&shelf.objects, 12, 1, &needed).await.expect("it answers");
    assert_eq!(removed, [of_rank(1, 1), id(2)], "3 is the newest whole one of rank 0, and 1 is needed");
    let left = shelf.objects.list(Some(12)).await.expect("it answers");
    assert_eq!(
        left,
        [id(1), id(3), id(4), of_rank(2, 1)].into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
    assert_eq!(retain(&shelf.objects, 13, 1, &needed).await.expect("it answers"), [], "another job has none");
}

#[tokio::test]
async fn a_save_that_would_not_fit_is_refused_before_anything_is_stored() {
    let folder = trained();
    let at_most = measure(folder.path()).await.expect("it is measured").at_most();
    let shelf = Shelf::new();
    let store = Objects::folder(shelf.folder.path()).expect("it is there").quota_bytes(at_most + 1000);
    save(&store, &id(1), folder.path(), &small_chunks()).await.expect("it fits");
    let refused = save(&store, &id(2), folder.path(), &small_chunks()).await.expect_err("the quota is used up");
    assert!(matches!(refused, Error::Full { needed_bytes, .. } if needed_bytes == at_most), "{refused}");
    assert!(refused.to_string().contains("remove checkpoints"), "{refused}");
    assert!(shelf.files(&id(2)).is_empty());
    store.delete(&id(1)).await.expect("it is removed");
    save(&store, &id(2), folder.path(), &small_chunks()).await.expect("there is room again");
}

#[tokio::test]
async fn room_is_promised_once() {
    let shelf = Shelf::new();
    let store = Objects::folder(shelf.folder.path()).expect("it is there").quota_bytes(1000);
    let first = store.reserve(600).await.expect("there is room");
    let refused = store.reserve(600).await;
    assert!(matches!(refused, Err(Error::Full { free_bytes: 400, .. })), "{refused:?}");
    drop(first);
    store.reserve(600).await.expect("there is room again");
}

#[tokio::test]
async fn what_is_somebody_elses_in_the_folder_is_left_alone() {
    let (folder, shelf) = (trained(), Shelf::new());
    fs::write(shelf.folder.path().join("readme"), "mine").expect("written");
    fs::create_dir_all(shelf.folder.path().join("12/other")).expect("made");
    fs::write(shelf.folder.path().join("12/other/manifest"), "mine").expect("written");
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    assert_eq!(shelf.objects.list(None).await.expect("it answers"), [id(1)]);
    shelf.objects.sweep(std::time::Duration::ZERO).await.expect("it answers");
    shelf.objects.delete(&id(1)).await.expect("it is removed");
    assert_eq!(fs::read(shelf.folder.path().join("readme")).expect("it is there"), b"mine");
    assert!(shelf.folder.path().join("12/other/manifest").exists());
}
