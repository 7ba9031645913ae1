//! Archives that were made to write where they must not.

use std::fs;
use std::path::Path;

use tar::{Builder, EntryType, Header};
use tessera_checkpoint::{Chunk, Error, FORMAT, Hash, Limits, Published, Store, restore};

use crate::support::{Shelf, content, id};

/// An entry of an archive: of which kind, its name, its content or where it leads.
type Entry<'a> = (EntryType, &'a str, &'a str);

/// What an archive has, and why it is refused.
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

async fn refused(packed: Vec<u8>) -> String {
    let (shelf, above) = (Shelf::new(), tempfile::tempdir().expect("a folder"));
    fs::create_dir(above.path().join("outside")).expect("made");
    fs::write(above.path().join("outside/kept"), "kept").expect("written");
    let before = content(above.path());
    let published = planted(&shelf, packed, 4, 1).await;
    let refused = restore(&shelf.objects, None, &published, &above.path().join("into"), None, &Limits::new()).await;
    assert_eq!(content(above.path()), before, "nothing was written anywhere");
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
        (&[(Link, "a", "../outside/kept"), (Regular, "a", "evil")], "no file, folder, pipe or link"),
        (&[(Regular, "b/deep", "evil")], "no folder of the checkpoint"),
        (&[(Regular, "a", "evil"), (Regular, "a/b", "evil")], "no folder of the checkpoint"),
        (&[(Char, "null", "")], "no file, folder, pipe or link"),
        (&[(Block, "disk", "")], "no file, folder, pipe or link"),
    ];
    for (entries, complaint) in outside {
        let problem = refused(archive(entries)).await;
        assert!(problem.contains(complaint), "{entries:?}: {problem}");
    }
    assert!(!Path::new("/tmp/tessera-evil").exists());
}

#[tokio::test]
async fn what_is_no_archive_or_not_what_was_said_is_refused() {
    assert!(refused(vec![7; 2000]).await.contains("cannot be unpacked"));
    let whole = archive(&[(EntryType::Regular, "a", "good")]);
    assert!(refused(whole[..516].to_vec()).await.contains("cannot be unpacked"));
    let more = archive(&[(EntryType::Regular, "a", "good"), (EntryType::Regular, "b", "more")]);
    assert!(refused(more).await.contains("more or less"));
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
