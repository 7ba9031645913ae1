//! A restored folder equals the saved one, whatever it contains.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tessera_checkpoint::{Error, Limits, Owner, measure, restore, save};

use crate::support::{Shelf, content, id, small_chunks, trained, with_holes};

/// Something in a folder.
#[derive(Clone, Debug)]
enum Thing {
    File {
        content: Vec<u8>,
        mode: u32,
    },
    /// Pages at some places of a file that has nothing elsewhere.
    Holed {
        length: u64,
        pages: Vec<(u64, u8)>,
    },
    /// Another name of a file that was made before.
    Name {
        of: usize,
    },
    Link {
        target: PathBuf,
    },
    Folder {
        mode: u32,
        things: Vec<(OsString, Thing)>,
    },
}

fn name() -> impl Strategy<Value = OsString> {
    let bytes = prop_oneof![
        "[a-z.]{1,8}".prop_map(String::into_bytes),
        "[a-z]{90,200}".prop_map(String::into_bytes),
        prop::collection::vec(1_u8..=255, 1..20),
    ];
    let usable = |bytes: &Vec<u8>| !bytes.contains(&b'/') && bytes != b"." && bytes != b"..";
    bytes.prop_filter("no name of a file", usable).prop_map(OsString::from_vec)
}

fn thing() -> impl Strategy<Value = Thing> {
    let file = (prop::collection::vec(any::<u8>(), 0..9000), prop_oneof![Just(0o644), Just(0o755), Just(0o400)])
        .prop_map(|(content, mode)| Thing::File { content, mode });
    let link = prop_oneof!["[a-z./]{1,30}", Just("/etc/passwd".to_owned()), Just("../".repeat(60))]
        .prop_map(|target| Thing::Link { target: target.into() });
    let pages = prop::collection::vec((0_u64..400, any::<u8>()), 0..6);
    let holed = (0_u64..1_600_000, pages).prop_map(|(length, pages)| Thing::Holed { length, pages });
    let again = any::<usize>().prop_map(|of| Thing::Name { of });
    prop_oneof![3 => file, 1 => holed, 1 => again, 1 => link].prop_recursive(4, 40, 6, |inner| {
        (prop::collection::vec((name(), inner), 0..6), prop_oneof![Just(0o755), Just(0o700), Just(0o500)])
            .prop_map(|(things, mode)| Thing::Folder { mode, things })
    })
}

fn build(folder: &Path, things: &[(OsString, Thing)], made: &mut Vec<PathBuf>) {
    for (name, thing) in things {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        match thing {
            Thing::File { content, mode } => {
                fs::write(&path, content).expect("written");
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).expect("set");
                made.push(path);
            }
            Thing::Holed { length, pages } => {
                let pages: Vec<_> = pages.iter().map(|(page, byte)| (page * 4096, [*byte; 4096])).collect();
                let held: Vec<_> = pages.iter().map(|(start, bytes)| (*start, bytes.as_slice())).collect();
                with_holes(&path, *length, &held);
                made.push(path);
            }
            Thing::Name { of } => {
                if let Some(first) = of.checked_rem(made.len()).map(|of| &made[of]) {
                    fs::hard_link(first, &path).expect("linked");
                }
            }
            Thing::Link { target } => symlink(target, &path).expect("linked"),
            Thing::Folder { mode, things } => {
                fs::create_dir(&path).expect("made");
                build(&path, things, made);
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).expect("set");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_folder_comes_back_as_it_was(things in prop::collection::vec((name(), thing()), 0..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (folder, shelf) = (tempfile::tempdir().expect("a folder"), Shelf::new());
        build(folder.path(), &things, &mut Vec::new());
        let restored = tempfile::tempdir().expect("a folder");
        let into = restored.path().join("again");
        runtime.block_on(async {
            let published = save(&shelf.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
            restore(&shelf.objects, None, &published, &into, None, &small_chunks()).await.expect("it is restored");
            let measured = measure(folder.path()).await.expect("it is measured");
            assert_eq!((published.bytes, published.entries), (measured.bytes, measured.entries));
            assert!(published.stored_bytes <= measured.at_most(), "no more than was said: {published:?} {measured:?}");
        });
        prop_assert_eq!(content(&into), content(folder.path()));
    }
}

#[tokio::test]
async fn times_are_kept_and_the_owner_is_whom_it_is_for() {
    let (folder, shelf, above) = (trained(), Shelf::new(), tempfile::tempdir().expect("a folder"));
    let file = fs::File::options().write(true).open(folder.path().join("weights")).expect("it is there");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(long_ago).expect("set");
    let published = save(&shelf.objects, &id(1), folder.path(), &Limits::new()).await.expect("it is saved");
    let into = above.path().join("again");
    let (user, group) = match nix::unistd::geteuid().is_root() {
        true => (12_345, 23_456),
        false => (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()),
    };
    let owner = Some(Owner { user, group });
    restore(&shelf.objects, None, &published, &into, owner, &Limits::new()).await.expect("it is restored");
    assert_eq!(fs::metadata(into.join("weights")).expect("there").modified().expect("known"), long_ago);
    for path in ["", "weights", "state", "state/step", "state/newest"] {
        let about = fs::symlink_metadata(into.join(path)).expect("there");
        assert_eq!((about.uid(), about.gid()), (user, group), "{path}");
    }
    assert_eq!(fs::metadata(&into).expect("there").mode() & 0o777, 0o700, "nobody else looks into it");
}

#[tokio::test]
async fn links_are_kept_as_links_and_never_followed() {
    let (folder, shelf, above) = (trained(), Shelf::new(), tempfile::tempdir().expect("a folder"));
    symlink("/", folder.path().join("everything")).expect("linked");
    let published = save(&shelf.objects, &id(1), folder.path(), &Limits::new()).await.expect("it is saved");
    let into = above.path().join("again");
    restore(&shelf.objects, None, &published, &into, None, &Limits::new()).await.expect("it is restored");
    assert_eq!(fs::read_link(into.join("everything")).expect("a link"), Path::new("/"));
    let link = above.path().join("link");
    symlink(folder.path(), &link).expect("linked");
    let refused = save(&shelf.objects, &id(2), &link, &Limits::new()).await;
    assert!(refused.is_err(), "the folder itself could have been replaced by a link");
}

#[tokio::test]
async fn named_pipes_are_kept_and_nobody_waits_at_them() {
    let (folder, shelf, above) = (trained(), Shelf::new(), tempfile::tempdir().expect("a folder"));
    nix::unistd::mkfifo(&folder.path().join("state/pipe"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    let published = save(&shelf.objects, &id(1), folder.path(), &Limits::new()).await.expect("it is saved");
    let into = above.path().join("again");
    restore(&shelf.objects, None, &published, &into, None, &Limits::new()).await.expect("it is restored");
    let about = fs::symlink_metadata(into.join("state/pipe")).expect("there");
    assert!(about.file_type().is_fifo() && about.mode() & 0o777 == 0o700, "{about:?}");
}

#[tokio::test]
async fn what_cannot_be_in_a_checkpoint_is_named() {
    let shelf = Shelf::new();
    let folder = trained();
    let socket = folder.path().join("state/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let refused = save(&shelf.objects, &id(1), folder.path(), &Limits::new()).await.expect_err("a socket");
    assert!(refused.to_string().contains("state/socket cannot be in a checkpoint: it is a socket"), "{refused}");
    assert_eq!(shelf.files(&id(1)), Vec::<PathBuf>::new(), "nothing was stored");
    let missing = save(&shelf.objects, &id(1), &folder.path().join("nowhere"), &Limits::new()).await;
    assert!(missing.is_err());
}

#[tokio::test]
async fn a_folder_with_something_in_it_is_not_replaced() {
    let (folder, shelf, into) = (trained(), Shelf::new(), tempfile::tempdir().expect("a folder"));
    let published = save(&shelf.objects, &id(1), folder.path(), &Limits::new()).await.expect("it is saved");
    restore(&shelf.objects, None, &published, into.path(), None, &Limits::new()).await.expect("an empty one is");
    assert_eq!(content(into.path()), content(folder.path()));
    let refused = restore(&shelf.objects, None, &published, into.path(), None, &Limits::new()).await;
    assert!(matches!(refused, Err(Error::NotEmpty { .. })), "{refused:?}");
}
