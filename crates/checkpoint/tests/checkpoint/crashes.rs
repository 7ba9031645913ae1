//! Whatever breaks at whatever step: a checkpoint is complete or absent, and a folder restored or not there.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tessera_checkpoint::{Error, Store, copy, read_published, restore, save};

use crate::breaking::{Breaking, How};
use crate::support::{Shelf, content, id, small_chunks, trained};

/// Checks that the content of the store is whole or absent, and that the same can be saved or copied afterwards.
async fn complete_or_absent(shelf: &Shelf, folder: &std::path::Path) {
    let listed = shelf.objects.list(Some(12)).await.expect("it answers");
    if listed.is_empty() {
        assert!(matches!(read_published(&shelf.objects, &id(1)).await, Err(Error::Missing { .. })));
        save(&shelf.objects, &id(1), folder, &small_chunks()).await.expect("what is left of it stands against nothing");
    }
    let published = read_published(&shelf.objects, &id(1)).await.expect("it is whole");
    let above = tempfile::tempdir().expect("a folder");
    restore(&shelf.objects, None, &published, &above.path().join("again"), None, &small_chunks())
        .await
        .expect("it is whole");
    assert_eq!(content(&above.path().join("again")), content(folder));
}

#[tokio::test]
async fn a_save_that_breaks_at_any_step_leaves_a_checkpoint_or_none() {
    let folder = trained();
    for how in [How::Fails, How::DoneUntold, How::Full, How::Hangs] {
        for steps in 0.. {
            let shelf = Shelf::new();
            let store = Breaking::after(steps, how, &shelf.objects);
            let (first, limits) = (id(1), small_chunks());
            let saved = tokio::select! {
                saved = save(&store, &first, folder.path(), &limits) => Some(saved),
                () = store.hanging.notified() => None,
            };
            if !store.broke() {
                assert!(steps > 8, "there are several chunks: {steps}");
                saved.expect("it did not hang").expect("nothing broke");
                break;
            }
            assert!(saved.is_none_or(|saved| saved.is_err()), "{how:?} at {steps}");
            if how == How::Full {
                assert!(shelf.files(&id(1)).is_empty(), "what did not fit is removed: {steps}");
            }
            complete_or_absent(&shelf, folder.path()).await;
        }
    }
}

#[tokio::test]
async fn a_copy_that_breaks_at_any_step_goes_on_where_it_was() {
    let (folder, source) = (trained(), Shelf::new());
    save(&source.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    for how in [How::Fails, How::DoneUntold, How::Hangs] {
        for steps in 0.. {
            let target = Shelf::new();
            let store = Breaking::after(steps, how, &target.objects);
            let (first, limits) = (id(1), small_chunks());
            let copied = tokio::select! {
                copied = copy(&source.objects, &store, &first, &limits) => Some(copied),
                () = store.hanging.notified() => None,
            };
            if !store.broke() {
                copied.expect("it did not hang").expect("nothing broke");
                break;
            }
            assert!(copied.is_none_or(|copied| copied.is_err()), "{how:?} at {steps}");
            let there = target.files(&id(1)).len() as i64;
            // Of the source only what is missing is read: its manifest, and the chunks.
            let reads = 1 + source.files(&id(1)).len() as i64 - 1 - there;
            let sparing = Breaking::after(reads.max(0), How::Fails, &source.objects);
            if target.objects.list(None).await.expect("it answers").is_empty() {
                copy(&sparing, &target.objects, &id(1), &limits).await.expect("what is there is not read again");
            }
            complete_or_absent(&target, folder.path()).await;
        }
    }
}

#[tokio::test]
async fn a_restore_that_breaks_at_any_step_leaves_no_folder() {
    let (folder, shelf) = (trained(), Shelf::new());
    let published = save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    for how in [How::Fails, How::Hangs] {
        for steps in 0..published.chunks.len() as i64 {
            let store = Breaking::after(steps, how, &shelf.objects);
            let above = tempfile::tempdir().expect("a folder");
            let into = above.path().join("again");
            let limits = small_chunks();
            let restored = tokio::select! {
                restored = restore(&store, None, &published, &into, None, &limits) => Some(restored),
                () = store.hanging.notified() => None,
            };
            assert!(matches!(restored, None | Some(Err(Error::Unreachable { .. }))), "{restored:?}");
            assert!(!into.exists(), "{how:?} at {steps}");
            // The thread that unpacked ends soon after it was left alone.
            while std::fs::read_dir(above.path()).expect("it is there").next().is_some() {
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test]
async fn what_saves_left_is_swept_and_what_is_whole_stays() {
    let (folder, shelf) = (trained(), Shelf::new());
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let store = Breaking::after(5, How::Fails, &shelf.objects);
    save(&store, &id(2), folder.path(), &small_chunks()).await.expect_err("it broke");
    assert!(!shelf.files(&id(2)).is_empty(), "it could not even remove what it left");
    assert_eq!(shelf.objects.sweep(Duration::from_secs(3600)).await.expect("it answers"), []);
    assert_eq!(shelf.objects.sweep(Duration::ZERO).await.expect("it answers"), [id(2)]);
    assert!(shelf.files(&id(2)).is_empty());
    assert_eq!(shelf.objects.list(None).await.expect("it answers"), [id(1)]);
}

#[tokio::test]
async fn a_job_without_checkpoints_leaves_no_folder() {
    let (folder, shelf) = (trained(), Shelf::new());
    for sequence in [1, 2] {
        save(&shelf.objects, &id(sequence), folder.path(), &small_chunks()).await.expect("it is saved");
    }
    let of_job = shelf.folder.path().join(id(1).job.to_string());
    shelf.objects.delete(&id(1)).await.expect("it is removed");
    assert_eq!(shelf.objects.list(None).await.expect("it answers"), [id(2)]);
    shelf.objects.delete(&id(2)).await.expect("it is removed");
    assert!(!of_job.exists(), "its last checkpoint is gone");
    fs::create_dir(&of_job).expect("the agent died before it removed it");
    shelf.objects.sweep(Duration::from_secs(3600)).await.expect("it answers");
    assert!(of_job.exists(), "it is looked at later");
    shelf.objects.sweep(Duration::ZERO).await.expect("it answers");
    assert!(!of_job.exists());
}

/// Other agents of a shared folder remove the last checkpoint of the job meanwhile, at any moment.
#[tokio::test]
async fn the_removal_of_an_emptied_folder_hinders_no_save() {
    let (folder, shelf) = (tempfile::tempdir().expect("a folder"), Shelf::new());
    fs::write(folder.path().join("step"), "1200").expect("written");
    let (of_job, over) = (shelf.folder.path().join(id(1).job.to_string()), Arc::new(AtomicBool::new(false)));
    let removing = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let mut removed = 0;
            while !over.load(Ordering::Relaxed) {
                removed += u64::from(fs::remove_dir(&of_job).is_ok());
                // Agents do it once a minute, and not for as long as a save takes.
                std::thread::park_timeout(Duration::from_micros(200));
            }
            removed
        }
    });
    for sequence in 1..200 {
        let saved = save(&shelf.objects, &id(sequence), folder.path(), &small_chunks()).await;
        let saved = saved.expect("it is saved");
        assert_eq!(read_published(&shelf.objects, &id(sequence)).await.expect("it is whole"), saved);
        shelf.objects.delete(&id(sequence)).await.expect("it is removed");
    }
    over.store(true, Ordering::Relaxed);
    assert!(removing.join().expect("it ends") > 0, "it was removed by others, too");
}

#[tokio::test]
async fn a_checkpoint_does_not_change() {
    let (folder, other, shelf) = (trained(), tempfile::tempdir().expect("a folder"), Shelf::new());
    let first = save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let refused = save(&shelf.objects, &id(1), other.path(), &small_chunks()).await;
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    assert_eq!(read_published(&shelf.objects, &id(1)).await.expect("it is there"), first);
}
