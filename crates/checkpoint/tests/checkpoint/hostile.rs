//! Archives that were made to write where they must not.

use std::fs;
use std::path::Path;

use tar::{Builder, EntryType, Header};
use tessera_checkpoint::{Chunk, Error, FORMAT, Hash, Limits, Published, Store, restore};

use crate::support::{Shelf, content, id};

/// An entry of an archive: of which kind, its name, its content or where it leads.
type Entry<'a> = (EntryType, &'a str, &'a str);

/// The entries of an archive, and the reason for which it is refused.
type Lie<'a> = (&'a [Entry<'a>], &'a str);

/// An archive of entries: kind, name, and content or target.
fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (kind, name, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o4777);
        // As bytes: the crate would refuse to write such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        let content = match kind {
            EntryType::Symlink | EntryType::Link => {
                header.set_link_name_literal(content).expect("it is short");
                ""
            }
            _ => content,
        };
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, content.as_bytes()).expect("into memory");
    }
    archive.into_inner().expect("into memory")
}

/// Puts it into a store as if it had been saved.
async fn planted(shelf: &Shelf, packed: Vec<u8>, bytes: u64, entries: u64) -> Published {
    let (hash, size) = (Hash::of(&packed), packed.len() as u64);
    let chunks = vec![Chunk { packed_bytes: size, stored_bytes: size, hash, compressed: false }];
    shelf.objects.put_chunk(&id(1), 0, &hash, packed.into()).await.expect("stored");
    let whole = Hash::of(&[size.to_le_bytes().as_slice(), hash.bytes()].concat());
    Published { format: FORMAT, id: id(1), bytes, entries, stored_bytes: size, hash: whole, chunks }
}

/// Restores four bytes in so many entries, as a manifest says; answers why that is refused.
async fn refused(packed: Vec<u8>, entries: u64) -> String {
    let (shelf, above) = (Shelf::new(), tempfile::tempdir().expect("a folder"));
    fs::create_dir(above.path().join("outside")).expect("made");
    fs::write(above.path().join("outside/kept"), "kept").expect("written");
    let before = content(above.path());
    let published = planted(&shelf, packed, 4, entries).await;
    let refused = restore(&shelf.objects, None, &published, &above.path().join("into"), None, &Limits::new()).await;
    assert_eq!(content(above.path()), before, "nothing was written outside of it, or is left of it");
    match refused {
        Err(Error::Damaged { problem, .. }) => problem,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn nothing_is_written_outside_of_the_folder() {
    use EntryType::{Block, Char, Directory, Link, Regular, Symlink};
    let outside: &[Lie<'_>] = &[
        (&[(Regular, "../outside/kept", "evil")], "outside of the folder"),
        (&[(Regular, "/tmp/tessera-evil", "evil")], "outside of the folder"),
        (&[(Directory, "a", ""), (Regular, "a/../../evil", "evil")], "outside of the folder"),
        (&[(Directory, "..", "")], "outside of the folder"),
        (&[(Directory, ".", "")], "outside of the folder"),
        (&[(Symlink, "a", "../outside"), (Regular, "a/kept", "evil")], "no folder of the checkpoint"),
        (&[(Symlink, "a", "../outside"), (Directory, "a", ""), (Regular, "a/kept", "evil")], "comes twice"),
        (&[(Symlink, "a", "../outside"), (Symlink, "a/link", "/")], "no folder of the checkpoint"),
        (&[(Symlink, "a", "../outside/kept"), (Regular, "a", "evil")], "comes twice"),
        (&[(Directory, "a", ""), (Symlink, "a", "../outside"), (Regular, "a/kept", "evil")], "comes twice"),
        (&[(Link, "a", "../outside/kept"), (Regular, "a", "evil")], "outside of the folder"),
        (&[(Link, "a", "/etc/passwd")], "outside of the folder"),
        (&[(Link, "a", "b")], "is a name of no file"),
        (&[(Directory, "a", ""), (Link, "b", "a")], "is a name of no file"),
        (&[(Symlink, "a", "../outside/kept"), (Link, "b", "a")], "is a name of no file"),
        (&[(Symlink, "a", "../outside"), (Link, "b", "a/kept")], "no folder of the checkpoint"),
        (&[(Regular, "b/deep", "evil")], "no folder of the checkpoint"),
        (&[(Regular, "a", "evil"), (Regular, "a/b", "evil")], "no folder of the checkpoint"),
        (&[(Char, "null", "")], "no file, folder, pipe or link"),
        (&[(Block, "disk", "")], "no file, folder, pipe or link"),
    ];
    for (entries, complaint) in outside {
        let problem = refused(archive(entries), entries.len() as u64).await;
        assert!(problem.contains(complaint), "{entries:?}: {problem}");
    }
    assert!(!Path::new("/tmp/tessera-evil").exists());
}

#[tokio::test]
async fn what_is_no_archive_or_not_what_was_said_is_refused() {
    assert!(refused(vec![7; 2000], 1).await.contains("cannot be unpacked"));
    let whole = archive(&[(EntryType::Regular, "a", "good")]);
    assert!(refused(whole[..516].to_vec(), 1).await.contains("cannot be unpacked"));
    for (entries, said) in [
        (&[(EntryType::Regular, "a", "good"), (EntryType::Regular, "b", "more")][..], 2),
        (&[(EntryType::Regular, "a", "bad")][..], 1),
        (&[(EntryType::Regular, "a", "good")][..], 2),
        (&[(EntryType::Regular, "a", "good"), (EntryType::Directory, "b", "")][..], 1),
    ] {
        let problem = refused(archive(entries), said).await;
        assert!(problem.contains("more or less than its manifest"), "{entries:?}: {problem}");
    }
}

#[tokio::test]
async fn what_is_said_twice_of_an_entry_or_of_none_is_refused() {
    use EntryType::{GNULongLink, GNULongName, Regular};
    for kind in [GNULongName, GNULongLink] {
        let twice = archive(&[(kind, "first", "a"), (kind, "second", "b"), (Regular, "a", "good")]);
        assert!(refused(twice, 1).await.contains("said twice"), "{kind:?}");
        let of_none = archive(&[(Regular, "a", "good"), (kind, "a", "a")]);
        assert!(refused(of_none, 1).await.contains("does not come"), "{kind:?}");
    }
    let mapped = mapped("1\n0\n4\n", "evil");
    for said in [&[MAJOR, MAJOR, LENGTH][..], &[MAJOR, MINOR, LENGTH, LENGTH]] {
        assert!(refused(said_of(said, &mapped), 1).await.contains("said twice"), "{said:?}");
    }
    for said in [&[MAJOR, LENGTH][..], &[MINOR, LENGTH], &[MAJOR, MINOR]] {
        assert!(refused(said_of(said, &mapped), 1).await.contains("not understood"), "{said:?}");
    }
}

/// A line before a file, of its key and its value.
type Line<'a> = (&'a str, &'a str);

const MAJOR: Line<'_> = ("GNU.sparse.major", "1");
const MINOR: Line<'_> = ("GNU.sparse.minor", "0");
const LENGTH: Line<'_> = ("GNU.sparse.realsize", "100");

/// An archive of one file, whose headers say that it is one of `length` bytes with holes.
fn holed(length: &str, content: &str) -> Vec<u8> {
    said_of(&[MAJOR, MINOR, (LENGTH.0, length)], content)
}

/// An archive of one file, of which something is said before.
fn said_of(said: &[Line<'_>], content: &str) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    archive.append_pax_extensions(said.iter().map(|(key, value)| (*key, value.as_bytes()))).expect("into memory");
    let mut header = Header::new_ustar();
    header.set_path("holes").expect("it is short");
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_cksum();
    archive.append(&header, content.as_bytes()).expect("into memory");
    archive.into_inner().expect("into memory")
}

/// The map of a file with holes, with what follows it.
fn mapped(map: &str, content: &str) -> String {
    format!("{map:\0<512}{content}")
}

#[tokio::test]
async fn holes_that_cannot_be_are_refused_and_cost_nothing() {
    for (length, content, complaint) in [
        ("100", mapped("2\n0\n3\n2\n1\n", "evil"), "contradicts itself"),
        ("100", mapped("2\n50\n2\n10\n2\n", "evil"), "contradicts itself"),
        ("100", mapped("1\n97\n4\n", "evil"), "contradicts itself"),
        ("100", mapped("1\n18446744073709551615\n4\n", "evil"), "contradicts itself"),
        ("100", mapped("1\n-4\n4\n", "evil"), "cannot be read"),
        ("100", mapped("18446744073709551615\n0\n4\n", "evil"), "too many extents"),
        ("100", mapped("1\n0\n5\n", "evil"), "more or less"),
        ("100", mapped("1\n0\n3\n", "evil"), "more or less"),
        ("100", "1\n0\n4\n".to_owned(), "cannot be unpacked"),
        ("1e3", mapped("1\n0\n4\n", "evil"), "not understood"),
        ("9223372036854775808", mapped("1\n0\n4\n", "evil"), "not understood"),
        ("-1", mapped("1\n0\n4\n", "evil"), "not understood"),
        ("1000000", mapped("1\n0\n5\n", "evil!"), "more or less than its manifest"),
    ] {
        let problem = refused(holed(length, &content), 1).await;
        assert!(problem.contains(complaint), "{length} {content:?}: {problem}");
    }
}

#[tokio::test]
async fn no_more_is_written_or_kept_in_memory_than_is_said() {
    // A terabyte that is not there: it is refused before anything of it is looked for.
    for (kind, complaint) in [
        (EntryType::Regular, "more or less than its manifest"),
        (EntryType::GNULongName, "more is said of an entry"),
        (EntryType::GNULongLink, "more is said of an entry"),
        (EntryType::XHeader, "more is said of an entry"),
    ] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.as_old_mut().name[0] = b'a';
        header.set_mode(0o644);
        header.set_size(1 << 40);
        header.set_cksum();
        let problem = refused([header.as_bytes().as_slice(), &[0; 4096]].concat(), 1).await;
        assert!(problem.contains(complaint), "{kind:?}: {problem}");
    }
}

#[tokio::test]
async fn nobody_gets_rights_by_a_checkpoint() {
    use std::os::unix::fs::MetadataExt;
    let (shelf, above) = (Shelf::new(), tempfile::tempdir().expect("a folder"));
    let published = planted(&shelf, archive(&[(EntryType::Regular, "a", "good")]), 4, 1).await;
    let into = above.path().join("into");
    restore(&shelf.objects, None, &published, &into, None, &Limits::new()).await.expect("it is restored");
    let mode = fs::metadata(into.join("a")).expect("it is there").mode();
    assert_eq!(mode & 0o7777, 0o777, "whoever runs it stays who they are");
}
