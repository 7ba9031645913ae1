//! Folders in which CRIU makes something as root that a program has had: a file that was removed while it was open, and
//! the socket that it listens on. Both are made under a name, and given to their owner by that name.
//!
//! Whoever can put another file under the name meanwhile has root give away that. So nothing is restored, and nothing
//! is dumped, that would be made in a folder which others can change: other accounts, or other jobs of the same person.
//! The worker's own folder, which no others enter but where the worker lets them, and those that an account of the
//! worker alone has made, are none.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::ptr;

use super::PLACE;
use crate::worker::Account;

/// The suffix that the kernel gives the path of a removed file.
const REMOVED: &str = " (deleted)";
/// The bits of a mode: writable by the group, by all, and only owners rename and remove what lies there.
const BY_GROUP: u32 = 0o020;
const BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The worker whose places are checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub account: &'a Account,
    /// The worker's folder, as this host sees it; the worker finds it at [`PLACE`].
    pub folder: &'a Path,
}

impl Owner<'_> {
    /// Looks at where something would have to be made for this path to be there again.
    ///
    /// # Errors
    /// Why others could interfere, as a sentence that names the folder.
    pub fn check(self, path: &Path) -> Result<(), String> {
        let made = path.display();
        let is_plain = path.is_absolute() && path.components().all(|part| !matches!(part, Component::ParentDir));
        let (Some(folder), true) = (path.parent(), is_plain) else {
            return Err(format!("{made} is no path from the root on"));
        };
        let reached = |error| format!("the folder of {made} is not reached: {error}");
        let (top, folder) = match folder.strip_prefix(PLACE) {
            Ok(below) => {
                let top = fs::canonicalize(self.folder).map_err(reached)?;
                let folder = top.join(below);
                (Some(top), folder)
            }
            Err(_) => (None, folder.to_owned()),
        };
        let real = fs::canonicalize(&folder).map_err(reached)?;
        if real != folder {
            let real = real.display();
            return Err(format!("{made} is reached through a symbolic link, which is not followed: it lies in {real}"));
        }
        for folder in real.ancestors().take_while(|folder| Some(*folder) != top.as_deref()) {
            if let Some(who) = self.changed_by(folder, top.is_some()).map_err(reached)? {
                let folder = folder.display();
                return Err(format!(
                    "{made} would have to be made anew, and {who} may put something in its place: see {folder}"
                ));
            }
        }
        Ok(())
    }

    /// The same of a socket, whose place is taken from whatever lies there.
    ///
    /// # Errors
    /// As [`Self::check`], or that something of another lies there.
    pub fn check_socket(self, path: &Path) -> Result<(), String> {
        self.check(path)?;
        let here = path.strip_prefix(PLACE).map_or_else(|_| path.to_owned(), |below| self.folder.join(below));
        match fs::symlink_metadata(here) {
            Ok(there) if !there.file_type().is_socket() || there.uid() != self.account.uid => {
                Err(format!("{} is taken by something of another", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// The party other than root and the worker itself that can change what lies in a folder; `None`: there is none.
    fn changed_by(self, path: &Path, is_below_own: bool) -> io::Result<Option<&'static str>> {
        let folder = fs::symlink_metadata(path)?;
        // An id from the range is the worker's alone, as long as it is there; its own folder is in any case.
        let is_alone = self.account.person.is_none() || is_below_own;
        let is_own = is_alone && folder.uid() == self.account.uid;
        let is_own_group = is_alone && folder.gid() == self.account.gid;
        let may = |bit| folder.mode() & bit != 0 && folder.mode() & STICKY == 0;
        Ok(if folder.uid() != 0 && !is_own {
            Some("its owner")
        } else if may(BY_GROUP) && (folder.gid() != 0 && !is_own_group || has_list(path)?) {
            Some("its group")
        } else if may(BY_ALL) {
            Some("everybody")
        } else {
            None
        })
    }
}

/// Returns whether a folder has an access control list. The group bits of its mode then bound the rights that the list
/// gives.
#[allow(unsafe_code)]
fn has_list(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a system call on NUL-terminated texts that is given no place for an answer.
    let length = unsafe { libc::lgetxattr(path.as_ptr(), c"system.posix_acl_access".as_ptr(), ptr::null_mut(), 0) };
    Ok(length > 0)
}

/// Looks at all that would have to be made anew for these processes, and at what could not be.
///
/// # Errors
/// As [`Owner::check`].
pub(super) fn check_processes(processes: &[i32], owner: Option<Owner<'_>>) -> Result<(), String> {
    let Some(owner) = owner else { return Ok(()) };
    let (mut made, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for pid in processes {
        let process = Path::new("/proc").join(pid.to_string());
        let below =
            |name: &str| fs::read_dir(process.join(name)).into_iter().flatten().flatten().map(|entry| entry.path());
        for link in below("fd").chain(below("map_files")).chain([process.join("cwd"), process.join("exe")]) {
            // One that has ended has nothing.
            let (Ok(file), Ok(path)) = (fs::metadata(&link), fs::read_link(&link)) else { continue };
            if file.file_type().is_socket() {
                check_in_flight(&process, &link)?;
                sockets.insert(file.ino());
            } else if let Some(path) = removed(&path).filter(|_| file.nlink() == 0) {
                if file.is_dir() {
                    return Err(format!("its folder {} was removed", path.display()));
                }
                made.insert(path);
            }
        }
    }
    made.iter().try_for_each(|path| owner.check(path))?;
    let Some(first) = processes.first().filter(|_| !sockets.is_empty()) else { return Ok(()) };
    let listed = fs::read(format!("/proc/{first}/net/unix"));
    let listed = listed.map_err(|error| format!("its sockets cannot be listed: {error}"))?;
    // One that was bound to a relative path was so in its folder, or before that was changed.
    let here = fs::read_link(format!("/proc/{first}/cwd")).unwrap_or_default();
    named(&listed, &sockets).iter().try_for_each(|path| owner.check(&here.join(path)))
}

/// Files that are on their way through a socket are nobody's that could be asked about.
fn check_in_flight(process: &Path, link: &Path) -> Result<(), String> {
    let Some(number) = link.file_name() else { return Ok(()) };
    let said = fs::read_to_string(process.join("fdinfo").join(number)).unwrap_or_default();
    let sent = said.lines().find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse::<u32>().ok());
    match sent {
        Some(sent) if sent > 0 => Err("a file was sent through one of its sockets, and is on its way".to_owned()),
        _ => Ok(()),
    }
}

/// The path that a removed file had; `None`: it never had one that others could use, such as memory that is shared.
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
        why_in(Path::new("/nowhere"), path, is_person)
    }

    fn why_in(folder: &Path, path: &Path, is_person: bool) -> String {
        Owner { account: &account(is_person), folder }.check(path).err().unwrap_or_default()
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
        // Below the worker's own folder what a person owns is that worker's, unless that lets others in.
        let within = |path: &str| why_in(folder.path(), &Path::new(PLACE).join(path), true);
        assert_eq!(within("own/socket"), "");
        assert!(within("open/socket").contains("everybody"));
        assert!(within("of-another/socket").contains("its owner"));
        assert!(within("../../../tmp/socket").contains("no path from the root"));
        symlink(folder.path().join("root"), folder.path().join("link")).expect("made");
        assert!(why(&folder.path().join("link/socket"), false).contains("through a symbolic link"));
        assert!(
            why_in(folder.path(), &Path::new(PLACE).join("link/socket"), false).contains("through a symbolic link")
        );
        assert!(why(Path::new("socket"), false).contains("no path from the root"));
        // What lies in the place of a socket is removed for it.
        let socket = |path: &str, uid: u32| {
            let path = folder.path().join(path);
            drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
            chown(&path, Some(uid), None).expect("this takes root");
            Owner { account: &account(false), folder: folder.path() }.check_socket(&path)
        };
        assert_eq!(socket("like-tmp/own", 61_234), Ok(()));
        assert!(socket("like-tmp/of-root", 0).is_err_and(|why| why.contains("something of another")));
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
