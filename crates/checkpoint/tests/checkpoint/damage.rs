//! Damage is found, reported, and never restored.

use std::fs;

use tessera_checkpoint::{Error, FORMAT, Hash, Published, read_published, restore, save};

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
            let refused = restore(&shelf.objects, None, &published, &into, None, &small_chunks()).await;
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{file:?} {wrong:?}: {refused:?}");
            assert!(!into.exists());
        }
        fs::write(file, right).expect("written");
    }
    restore(&shelf.objects, None, &published, &into, None, &small_chunks()).await.expect("it is whole again");
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
    let entries = 1_000_001;
    assert!(complaint(Published { entries, ..published.clone() }).contains("more files, folders and links"));
    let bytes = published.chunks.iter().map(|chunk| chunk.packed_bytes).sum::<u64>() + 1;
    assert!(complaint(Published { bytes, ..published.clone() }).contains("more than its chunks"));
    for format in [FORMAT - 1, FORMAT + 1] {
        assert!(complaint(Published { format, ..published.clone() }).contains(&format!("format {format}")));
    }
    assert!(complaint(Published { id: id(2), ..published.clone() }).contains("another checkpoint"));
    let above = tempfile::tempdir().expect("a folder");
    let other = Published { hash: Hash::of(b"another"), ..published };
    let refused = restore(&shelf.objects, None, &other, &above.path().join("again"), None, &small_chunks()).await;
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(content(above.path()).len(), 0);
}

#[tokio::test]
async fn a_manifest_that_is_longer_than_any_is_not_read() {
    let (folder, shelf) = (trained(), Shelf::new());
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let manifest = shelf.files(&id(1)).pop().expect("it is the last of its files");
    let lengthen = |to: u64| fs::OpenOptions::new().write(true).open(&manifest).and_then(|file| file.set_len(to));
    lengthen((16 << 20) + 1).expect("written");
    match read_published(&shelf.objects, &id(1)).await {
        Err(Error::Damaged { problem, .. }) => assert_eq!(problem, "its manifest has 16777217 bytes"),
        other => panic!("it was read: {other:?}"),
    }
}

#[tokio::test]
async fn folders_that_lie_too_deep_in_each_other_are_not_saved() {
    for (deep, is_saved) in [(128, true), (129, false)] {
        let (folder, shelf) = (tempfile::tempdir().expect("a folder"), Shelf::new());
        fs::create_dir_all(folder.path().join(vec!["d"; deep].join("/"))).expect("made");
        match save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await {
            Ok(_) => assert!(is_saved, "{deep}"),
            Err(refused) => assert!(!is_saved && refused.to_string().contains("too deep"), "{deep}: {refused}"),
        }
    }
}
