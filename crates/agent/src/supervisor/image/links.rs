//! Mounts without symbolic links, where root reads and opens what accounts of workers can change meanwhile.
//!
//! CRIU opens what a program had open again: as root, by its path, and on the way it follows whatever lies there. The
//! paths in an image hold no link, because the kernel has named them; a link that is there now was put there since, by
//! another job or by the program's own account. So every mount of the namespace refuses to follow links (`nosymfollow`,
//! mount_setattr(2)) until all files are open and looked at ([`super::open_files`]), and before the program goes on.
//! The same is done with the worker's folder where it is copied.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use super::helper::on_own_thread;

/// As the kernel has it (`linux/mount.h`).
const MOUNT_ATTR_NOSYMFOLLOW: u64 = 0x0020_0000;
/// As `/proc/PID/mountinfo` has it.
const NOSYMFOLLOW: &str = "nosymfollow";
/// Places where no account of a worker can put a link, and where CRIU follows links of the kernel; each with all that
/// is mounted below it, or without.
const OF_THE_SYSTEM: [(&CStr, libc::c_int); 3] =
    [(c"/proc", libc::AT_RECURSIVE), (c"/sys", libc::AT_RECURSIVE), (c"/dev", 0)];

/// The argument structure of mount_setattr(2).
#[repr(C)]
struct Attributes {
    set: u64,
    cleared: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A mount namespace in which no link is followed.
#[derive(Debug)]
pub(super) struct WithoutLinks {
    namespace: File,
    /// The file that lists its mounts.
    mounts: PathBuf,
    /// Mounts that follow none at any time.
    before: Vec<CString>,
}

impl WithoutLinks {
    /// Has no link be followed any more in the mount namespace of a process.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(pid: i32) -> io::Result<Self> {
        let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
        let mounts = PathBuf::from(format!("/proc/{pid}/mountinfo"));
        let before = without_links(&fs::read(&mounts)?)?;
        within(&namespace, || {
            change(c"/", libc::AT_RECURSIVE, true)?;
            for (path, below) in OF_THE_SYSTEM {
                unless_nothing_is_there(change(path, below, false))?;
            }
            Ok(())
        })?;
        Ok(Self { namespace, mounts, before })
    }

    /// Has links be followed again where they were before.
    ///
    /// # Errors
    /// What the kernel says, or where something has been mounted meanwhile that follows links.
    pub fn end(self) -> io::Result<()> {
        if let Some(place) = followed_at(&fs::read(&self.mounts)?) {
            return Err(io::Error::other(format!("{} has been mounted while its files were opened", place.display())));
        }
        within(&self.namespace, || {
            change(c"/", libc::AT_RECURSIVE, false)?;
            self.before.iter().try_for_each(|path| unless_nothing_is_there(change(path, 0, true)))
        })
    }
}

/// Tells whether the kernel can keep links from being followed.
///
/// # Errors
/// What it says instead; before 5.14 it knows no such mount.
pub(crate) fn can_be_refused() -> Result<(), Errno> {
    // There is no such descriptor, and that is all that is wrong.
    match set(-1, c"", libc::AT_EMPTY_PATH, true) {
        Err(Errno::EBADF) | Ok(()) => Ok(()),
        other => other,
    }
}

/// Has a program that is about to be run follow no link below `folder`: it gets a mount namespace of its own, in which
/// that is a mount which follows none.
pub(super) fn follow_none_below(command: &mut Command, folder: &Path) -> io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    #[allow(unsafe_code)]
    // SAFETY: the child only makes system calls that are async-signal-safe, on texts that were made before.
    unsafe {
        command.pre_exec(move || {
            let kept_here = MsFlags::MS_REC | MsFlags::MS_SLAVE;
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(None::<&CStr>, c"/", None::<&CStr>, kept_here, None::<&CStr>)?;
            mount(Some(&*folder), &*folder, None::<&CStr>, MsFlags::MS_BIND, None::<&CStr>)?;
            Ok(change(&folder, 0, true)?)
        });
    }
    Ok(())
}

/// Does something in a mount namespace, on a thread of its own.
fn within(namespace: &File, act: impl FnOnce() -> Result<(), Errno> + Send) -> io::Result<()> {
    on_own_thread(|| {
        unshare(CloneFlags::CLONE_FS)?;
        setns(namespace, CloneFlags::CLONE_NEWNS)?;
        Ok(act()?)
    })
}

/// Accepts a path that does not exist or is no mount point: the mount in which it lies decides for it.
fn unless_nothing_is_there(changed: Result<(), Errno>) -> Result<(), Errno> {
    match changed {
        Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        other => other,
    }
}

fn change(path: &CStr, below: libc::c_int, refuses: bool) -> Result<(), Errno> {
    set(AT_FDCWD.as_raw_fd(), path, below, refuses)
}

#[allow(unsafe_code)]
fn set(folder: RawFd, path: &CStr, flags: libc::c_int, refuses: bool) -> Result<(), Errno> {
    let (set, cleared) = if refuses { (MOUNT_ATTR_NOSYMFOLLOW, 0) } else { (0, MOUNT_ATTR_NOSYMFOLLOW) };
    let attributes = Attributes { set, cleared, propagation: 0, user_namespace: 0 };
    // SAFETY: a system call that reads a NUL-terminated text and a structure of the size that it is told.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    Errno::result(done).map(drop)
}

/// The places of mounts that follow no links, of a file `mountinfo`.
fn without_links(mounts: &[u8]) -> io::Result<Vec<CString>> {
    let places = mounts_in(mounts).filter_map(|(place, follows)| (!follows).then_some(place));
    places.map(|place| Ok(CString::new(place.as_bytes())?)).collect()
}

/// The first place of a mount that follows links, of those that could be refused.
fn followed_at(mounts: &[u8]) -> Option<PathBuf> {
    let of_the_system = |place: &Path| {
        OF_THE_SYSTEM.iter().any(|(path, below)| {
            let path = Path::new(OsStr::from_bytes(path.to_bytes()));
            place == path || *below != 0 && place.starts_with(path)
        })
    };
    let followed = mounts_in(mounts).filter_map(|(place, follows)| follows.then(|| PathBuf::from(place)));
    followed.into_iter().find(|place| !of_the_system(place))
}

/// The mounts of such a file: where each is, and whether it follows links.
fn mounts_in(mounts: &[u8]) -> impl Iterator<Item = (OsString, bool)> {
    mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let (place, options) = (words.nth(4)?, words.next()?);
        let follows = !options.split(|byte| *byte == b',').any(|option| option == NOSYMFOLLOW.as_bytes());
        Some((unescaped(place), follows))
    })
}

/// A path as the kernel lists it: spaces and the like are written as octal numbers.
fn unescaped(place: &[u8]) -> OsString {
    let mut path = Vec::with_capacity(place.len());
    let mut rest = place;
    while let Some((first, after)) = rest.split_first() {
        let octal = || u8::from_str_radix(std::str::from_utf8(after.get(..3)?).ok()?, 8).ok();
        match (*first == b'\\').then(octal).flatten() {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_follow_no_links_are_known_by_their_places() {
        let mounts = b"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
            30 22 0:5 / /srv/a\\040b\\134c rw,nosymfollow,relatime shared:2 - tmpfs nosymfollow rw\n\
            31 22 0:6 / /mnt/nosymfollow rw - tmpfs none rw\n";
        assert_eq!(without_links(mounts).expect("no NUL"), [CString::new("/srv/a b\\c").expect("no NUL")]);
        assert_eq!(followed_at(mounts).as_deref(), Some(Path::new("/")));
        let kept = b"30 22 0:5 / /srv rw,nosymfollow - tmpfs none rw\n31 22 0:6 / /dev rw - tmpfs none rw\n\
            32 22 0:7 / /sys/fs/x rw - tmpfs none rw\n";
        assert_eq!(followed_at(kept), None);
        let late = [&kept[..], b"33 22 0:8 / /dev/shm rw - tmpfs none rw\n"].concat();
        assert_eq!(followed_at(&late).as_deref(), Some(Path::new("/dev/shm")));
    }

    /// This takes root, as all that changes mounts.
    #[test]
    fn below_a_folder_no_link_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("below/real")).expect("made");
        fs::write(at("below/real/file"), "there").expect("written");
        std::os::unix::fs::symlink("real", at("below/link")).expect("made");
        let read = |path: &str| {
            let mut command = Command::new("cat");
            follow_none_below(&mut command, &at("below")).expect("no NUL");
            let output = command.arg(at(path)).output().expect("it runs");
            (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        assert_eq!(read("below/real/file"), (true, "there".to_owned()));
        assert_eq!(read("below/link/file"), (false, String::new()));
        assert_eq!(fs::read_to_string(at("below/link/file")).expect("others follow it"), "there");
        assert_eq!(can_be_refused(), Ok(()));
    }
}
