//! A checkpoint costs what its files hold: one with holes what is in none, one of several names its content once.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use tessera_checkpoint::{Objects, Store, copy, measure, restore, save};

use crate::support::{Shelf, content, id, on_disk, small_chunks, with_holes};

/// Longer than any disk of a test could hold, or anybody would wait for.
const LENGTH: u64 = 8 << 40;
const MIB: u64 = 1 << 20;

#[tokio::test]
async fn a_file_with_holes_costs_what_it_holds_wherever_it_goes() {
    let (folder, shelf, above) =
        (tempfile::tempdir().expect("a folder"), Shelf::new(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("holes");
    with_holes(&file, LENGTH, &[(0, b"first"), (LENGTH / 2, &[7; 4096])]);
    with_holes(&folder.path().join("nothing"), LENGTH, &[]);
    assert!(on_disk(&file) < MIB, "a file system of tests knows holes");
    let measured = measure(folder.path()).await.expect("it is measured");
    assert!(measured.at_most() < MIB, "{measured:?}");
    let nothing = tempfile::tempdir().expect("a folder");
    with_holes(&nothing.path().join("zeros"), LENGTH, &[]);
    assert!(measure(nothing.path()).await.expect("it is measured").bytes > 0, "what is empty counts as not saved");
    let store = Objects::folder(shelf.folder.path()).expect("it is there").quota_bytes(MIB);
    let published = save(&store, &id(1), folder.path(), &small_chunks()).await.expect("it fits");
    assert!(published.bytes < MIB && published.stored_bytes < MIB, "{published:?}");

    let other = Shelf::new();
    copy(&store, &other.objects, &id(1), &small_chunks()).await.expect("it is copied");
    assert!(other.objects.used_bytes().await.expect("it is known") < MIB);
    let into = above.path().join("again");
    restore(&other.objects, None, &published, &into, None, &small_chunks()).await.expect("it is restored");
    let again = fs::File::open(into.join("holes")).expect("it is there");
    let (mut first, mut middle) = ([0; 6], [0; 4097]);
    again.read_exact_at(&mut first, 0).expect("it is long enough");
    again.read_exact_at(&mut middle, LENGTH / 2).expect("it is long enough");
    assert_eq!((&first, &middle[..4096], middle[4096]), (b"first\0", [7; 4096].as_slice(), 0));
    for name in ["holes", "nothing"] {
        let (was, is) = (folder.path().join(name), into.join(name));
        assert_eq!(fs::metadata(&is).expect("it is there").len(), LENGTH);
        assert!(on_disk(&is) <= on_disk(&was) + 4096, "{name}: {} bytes, {} before", on_disk(&is), on_disk(&was));
    }
}

#[tokio::test]
async fn a_file_of_several_names_is_saved_once_and_comes_back_as_one() {
    let (folder, shelf, above) =
        (tempfile::tempdir().expect("a folder"), Shelf::new(), tempfile::tempdir().expect("a folder"));
    let mut weights = vec![0; 100_000];
    blake3::Hasher::new().finalize_xof().fill(&mut weights);
    fs::write(folder.path().join("step-1"), &weights).expect("written");
    fs::create_dir(folder.path().join("kept")).expect("made");
    for name in ["kept/best", "latest", &"n".repeat(200)] {
        fs::hard_link(folder.path().join("step-1"), folder.path().join(name)).expect("linked");
    }
    fs::write(above.path().join("elsewhere"), "outside").expect("written");
    fs::hard_link(above.path().join("elsewhere"), folder.path().join("inside")).expect("linked");
    let published = save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    assert_eq!((published.bytes, published.entries), (100_007, 6));
    let into = above.path().join("again");
    restore(&shelf.objects, None, &published, &into, None, &small_chunks()).await.expect("it is restored");
    assert_eq!(content(&into), content(folder.path()));
    let links = |name: &str| fs::metadata(into.join(name)).expect("it is there").nlink();
    assert_eq!((links("latest"), links("inside")), (4, 1));
}

#[tokio::test]
async fn what_fills_a_hole_leaves_the_rest_stored_as_it_was() {
    let (folder, shelf) = (tempfile::tempdir().expect("a folder"), Shelf::new());
    let mut pages = vec![0; 1 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut pages);
    let file = folder.path().join("mapped");
    with_holes(&file, 1 << 30, &[(MIB, &pages), (100 * MIB, &pages[..300_000])]);
    save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let before = shelf.objects.stored(&id(1)).await.expect("it is known");
    let filled = fs::File::options().write(true).open(&file).expect("it is there");
    filled.write_all_at(&[9; 20_000], 0).expect("written");
    filled.write_all_at(&[9; 20_000], 50 * MIB).expect("written");
    save(&shelf.objects, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    let after = shelf.objects.stored(&id(2)).await.expect("it is known");
    let known = |hash| before.iter().any(|chunk| chunk.hash == hash);
    let new: u64 = after.iter().filter(|chunk| !known(chunk.hash)).map(|chunk| chunk.stored_bytes).sum();
    assert!(new < 100_000, "{new} bytes are stored again");
}
