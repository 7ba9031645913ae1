//! What is damaged is found, said, and never restored; the one before is taken.

use std::fs;

use tessera_checkpoint::{Error, Hash, Published, newest_whole, restore, save};

use crate::support::{Shelf, content, id, small_chunks, trained};

#[tokio::test]
async fn damage_of_any_chunk_is_found() {
    let (folder, shelf) = (trained(), Shelf::new());
    let published = save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let above = tempfile::tempdir().expect("a folder");
    let into = above.path().join("again");
    let files = shelf.files(&id(1));
    assert_eq!(files.len(), published.chunks.len() + 1, "the chunks and the manifest: {files:?}");
    for file in &files[..published.chunks.len()] {
        let right = fs::read(file).expect("it is there");
        let mut flipped = right.clone();
        flipped[right.len() / 2] ^= 1;
        for wrong in [Some(flipped), Some(right[..right.len() - 1].to_vec()), Some(Vec::new()), None] {
            match &wrong {
                Some(wrong) => fs::write(file, wrong).expect("written"),
                None => fs::remove_file(file).expect("removed"),
            }
            let refused = restore(&shelf.objects, &published, &into, None, &small_chunks()).await;
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{file:?} {wrong:?}: {refused:?}");
            assert!(!into.exists());
        }
        fs::write(file, right).expect("written");
    }
    restore(&shelf.objects, &published, &into, None, &small_chunks()).await.expect("it is whole again");
}

#[tokio::test]
async fn the_one_before_is_taken_and_what_was_skipped_is_said() {
    let (folder, shelf) = (trained(), Shelf::new());
    for sequence in 1..=4 {
        fs::write(folder.path().join("state/step"), sequence.to_string()).expect("written");
        save(&shelf.objects, &id(sequence), folder.path(), &small_chunks()).await.expect("it is saved");
    }
    let manifest = |sequence| shelf.files(&id(sequence)).pop().expect("it has one");
    fs::remove_file(&shelf.files(&id(4))[0]).expect("removed");
    let damaged = fs::read_to_string(manifest(3)).expect("it is there").replace("\"bytes\":2", "\"bytes\":3");
    fs::write(manifest(3), damaged).expect("written");
    let newest = newest_whole(&shelf.objects, (1..=5).map(id)).await.expect("it answers");
    assert_eq!(newest.published.expect("one is whole").id, id(2));
    let skipped: Vec<_> = newest.skipped.iter().map(|(id, error)| (id.sequence, error.to_string())).collect();
    assert!(
        matches!(&skipped[..], [(5, missing), (4, gone), (3, changed)]
        if missing.contains("never complete") && gone.contains("chunk 0 is gone") && changed.contains("hash")),
        "{skipped:?}"
    );
    fs::write(manifest(2), "").expect("written");
    fs::write(manifest(1), "{}\n").expect("written");
    assert!(newest_whole(&shelf.objects, (1..=5).map(id)).await.expect("it answers").published.is_none());
}

#[tokio::test]
async fn a_manifest_of_something_else_is_not_believed() {
    let (folder, shelf) = (trained(), Shelf::new());
    let published = save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let complaint = |changed: Published| Published::from_manifest(&changed.manifest(), &id(1)).unwrap_err().to_string();
    let mut large = published.clone();
    large.chunks[0].packed_bytes = 1 << 40;
    assert!(complaint(large).contains("larger than chunks are"));
    let mut sums = published.clone();
    sums.chunks.pop();
    assert!(complaint(sums).contains("sum up"));
    assert!(complaint(Published { format: 2, ..published.clone() }).contains("format 2"));
    assert!(complaint(Published { id: id(2), ..published.clone() }).contains("another checkpoint"));
    let above = tempfile::tempdir().expect("a folder");
    let other = Published { hash: Hash::of(b"another"), ..published };
    let refused = restore(&shelf.objects, &other, &above.path().join("again"), None, &small_chunks()).await;
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(content(above.path()).len(), 0);
}
