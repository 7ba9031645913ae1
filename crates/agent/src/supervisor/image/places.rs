//! Folders in which CRIU makes something as root that a program has had: a file that was removed while it was open, and
//! the socket that it listens on. Both are made under a name, and given to their owner by that name.
//!
//! Whoever can put another file under the name meanwhile has root give away that. So nothing is restored, and nothing
//! is dumped, that would be made in a folder which others can change: other accounts, or other jobs of the same person.
//! The worker's own folder, and those that an account of the worker alone has made, are none.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::PLACE;
use crate::worker::Account;

/// What the kernel says of a path whose file was removed.
const REMOVED: &str = " (deleted)";
/// The bits of a mode: writable by the group, by all, and only owners rename and remove what lies there.
const BY_GROUP: u32 = 0o020;
const BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Looks at where something would have to be made for this path to be there again.
///
/// # Errors
/// Why others could interfere, as a sentence that names the folder.
pub(super) fn check(path: &Path, account: &Account) -> Result<(), String> {
    if path.starts_with(PLACE) {
        return Ok(());
    }
    let made = path.display();
    let Some(folder) = path.parent().filter(|_| path.is_absolute()) else {
        return Err(format!("{made} has no path from the root on"));
    };
    let real = fs::canonicalize(folder).map_err(|error| format!("the folder of {made} is not reached: {error}"))?;
    if real != folder {
        return Err(format!(
            "{made} is reached through a symbolic link, which is not followed: it lies in {}",
            real.display()
        ));
    }
    for folder in folder.ancestors() {
        let seen =
            fs::symlink_metadata(folder).map_err(|error| format!("{} is not reached: {error}", folder.display()))?;
        if let Some(who) = changed_by(&seen, account) {
            let folder = folder.display();
            return Err(format!(
                "{made} would have to be made anew, and {who} may put something in its place: see {folder}"
            ));
        }
    }
    Ok(())
}

/// Who beside root and the worker itself can change what lies in a folder.
fn changed_by(folder: &Metadata, account: &Account) -> Option<&'static str> {
    // An id from the range is the worker's alone, as long as it is there.
    let is_own = account.person.is_none() && folder.uid() == account.uid;
    let is_own_group = account.person.is_none() && folder.gid() == account.gid;
    let may = |bit| folder.mode() & bit != 0 && folder.mode() & STICKY == 0;
    if folder.uid() != 0 && !is_own {
        Some("its owner")
    } else if may(BY_GROUP) && folder.gid() != 0 && !is_own_group {
        Some("its group")
    } else if may(BY_ALL) {
        Some("everybody")
    } else {
        None
    }
}

/// Looks at all that would have to be made anew for these processes.
///
/// # Errors
/// As [`check`].
pub(super) fn check_processes(processes: &[i32], account: Option<&Account>) -> Result<(), String> {
    let Some(account) = account else { return Ok(()) };
    let (mut made, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for pid in processes {
        for folder in ["fd", "map_files"] {
            // One that has ended has nothing.
            for entry in fs::read_dir(format!("/proc/{pid}/{folder}")).into_iter().flatten().flatten() {
                let Ok(file) = fs::metadata(entry.path()) else { continue };
                if file.file_type().is_socket() {
                    sockets.insert(file.ino());
                } else if file.nlink() == 0 {
                    made.extend(fs::read_link(entry.path()).ok().as_deref().and_then(removed));
                }
            }
        }
    }
    if let Some(first) = processes.first().filter(|_| !sockets.is_empty()) {
        let listed = fs::read(format!("/proc/{first}/net/unix"));
        let listed = listed.map_err(|error| format!("its sockets cannot be listed: {error}"))?;
        // One that was bound to a relative path was so in its folder, or before that was changed.
        let here = fs::read_link(format!("/proc/{first}/cwd")).unwrap_or_default();
        made.extend(named(&listed, &sockets).into_iter().map(|path| here.join(path)));
    }
    made.iter().try_for_each(|path| check(path, account))
}

/// The path that a removed file had; `None`: it never had one that others could use (memory that is shared, and the like).
fn removed(link: &Path) -> Option<PathBuf> {
    let path = link.as_os_str().as_bytes().strip_suffix(REMOVED.as_bytes())?;
    let of_the_kernel = [&b"/memfd:"[..], b"/dev/zero", b"/SYSV", b"/anon_hugepage", b"/[aio]", b"/proc/"];
    let is_path = path.starts_with(b"/") && !of_the_kernel.iter().any(|name| path.starts_with(name));
    is_path.then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// The paths under which sockets of these numbers are bound, of a file `/proc/PID/net/unix`.
fn named(listed: &[u8], sockets: &BTreeSet<u64>) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let number: u64 = std::str::from_utf8(words.nth(6)?).ok()?.parse().ok()?;
        // It is the rest of the line. One that begins with an at sign is that of no file.
        let first = words.next().filter(|name| !name.starts_with(b"@"))?;
        let start = first.as_ptr().addr() - line.as_ptr().addr();
        sockets.contains(&number).then(|| PathBuf::from(OsStr::from_bytes(&line[start..])))
    };
    listed.split(|byte| *byte == b'\n').filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::worker::Person;

    fn account(is_person: bool) -> Account {
        let person = is_person.then(|| Person { name: "ann".to_owned(), home: "/home/ann".to_owned() });
        Account { uid: 61_234, gid: 61_235, groups: Vec::new(), person }
    }

    fn why(path: &Path, is_person: bool) -> String {
        check(path, &account(is_person)).err().unwrap_or_default()
    }

    /// This takes root, to give folders away.
    #[test]
    fn what_others_may_change_is_no_place_to_make_something_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = |name: &str, mode: u32, owner: (u32, u32)| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).expect("made");
            chown(&path, Some(owner.0), Some(owner.1)).expect("this takes root");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mine");
            path.join("file")
        };
        let root = (0, 0);
        for (path, as_id, as_person) in [
            (made("root", 0o755, root), "", ""),
            (made("like-tmp", 0o1777, root), "", ""),
            (made("open", 0o777, root), "everybody", "everybody"),
            (made("open/below", 0o755, root), "everybody", "everybody"),
            (made("group", 0o775, (0, 50)), "its group", "its group"),
            (made("own", 0o775, (61_234, 61_235)), "", "its owner"),
            (made("own/below", 0o755, root), "", "its owner"),
            (made("of-another", 0o755, (61_233, 61_233)), "its owner", "its owner"),
        ] {
            for (is_person, expected) in [(false, as_id), (true, as_person)] {
                let why = why(&path, is_person);
                assert_eq!(why.is_empty(), expected.is_empty(), "{}: {why}", path.display());
                assert!(why.contains(expected), "{}: {why}", path.display());
            }
        }
        assert_eq!(why(&Path::new(PLACE).join("work/socket"), true), "", "nobody else gets there");
        symlink(folder.path().join("root"), folder.path().join("link")).expect("made");
        assert!(why(&folder.path().join("link/socket"), false).contains("through a symbolic link"));
        assert!(why(Path::new("socket"), false).contains("no path from the root"));
    }

    #[test]
    fn sockets_and_removed_files_are_known_by_their_paths() {
        let listed = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/a b/socket\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 4712\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  4713 @/abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  4714 /run/other\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  4715 socket\n";
        let named = named(listed, &[4711, 4712, 4713, 4715].into());
        assert_eq!(named, [PathBuf::from("/run/a b/socket"), PathBuf::from("socket")]);
        assert_eq!(removed(Path::new("/tmp/x (deleted)")), Some(PathBuf::from("/tmp/x")));
        for other in ["/tmp/x", "/memfd:x (deleted)", "/dev/zero (deleted)", "anon_inode:[eventpoll]"] {
            assert_eq!(removed(Path::new(other)), None, "{other}");
        }
    }
}
