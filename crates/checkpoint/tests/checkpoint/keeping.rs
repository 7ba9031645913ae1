//! The number of checkpoints that are kept, and the behaviour when there is no room.

use std::fs;

use tessera_checkpoint::{Error, Objects, Store, measure, save};

use crate::support::{Shelf, id, small_chunks, trained};

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
