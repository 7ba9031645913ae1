//! Checks of the files that the processes of a restored image have open, before they go on: their account could open
//! each itself.
//!
//! CRIU has opened it as root. Where a file has taken the place of another since, or an image says what its program
//! never had, the account is asked about the very file that is open, not about its path. The kernel answers for the
//! account (faccessat2(2)), so that lists of rights, groups and what a file server says count as they do for it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use nix::sys::statfs::{FsType, PROC_SUPER_MAGIC, fstatfs};

use super::helper::on_own_thread;
use super::tree::numbers_of;
use crate::process::ProcessId;
use crate::supervisor::unrunnable::take_rights_of;
use crate::worker::Account;

/// Files that are asked about together: each is open meanwhile.
const TOGETHER: usize = 256;
/// Pipes, and descriptors of processes, are nobody's on a disk (`linux/magic.h`).
const WITHOUT_NAMES: [FsType; 2] = [FsType(0x5049_5045), FsType(0x5049_4446)];
/// The device of which each opening is a terminal of its own (`Documentation/admin-guide/devices.txt` of Linux). What
/// CRIU makes of one belongs to the account.
const TERMINAL_MAKER: (u64, u64) = (5, 2);

/// Returns whether a device is one of those of no hardware, by its numbers: null, zero, full, random, urandom, and
/// terminals. A program that is dumped is granted no others: its cards are used by slice servers, which are not.
const fn is_of_no_hardware(numbers: (u64, u64)) -> bool {
    matches!(numbers, (1, 3 | 5 | 7 | 8 | 9) | (5, 0) | TERMINAL_MAKER | (136..=143, _))
}

/// A link below `/proc` to what a process has, and what it may do there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    link: PathBuf,
    rights: Rights,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rights {
    /// To read, to write, or both (access(2)).
    Exactly(i32),
    /// To read or to execute: for a file that runs, or is mapped and not written.
    ReadOrExecute,
}

/// Looks at all that these processes have open, mapped, run, and stand in.
///
/// # Errors
/// The first path that the account could not use so, or what cannot be looked at.
pub(super) fn check(processes: &[i32], account: &Account) -> io::Result<()> {
    let own: BTreeSet<i32> = processes.iter().filter_map(|pid| numbers_of(*pid).first().copied()).collect();
    let mut uses = Vec::new();
    let mut known = BTreeSet::new();
    for pid in processes {
        let used = match uses_of(&Path::new("/proc").join(pid.to_string())) {
            // It has ended: it was a helper of CRIU.
            Err(_) if !ProcessId::of(*pid).is_some_and(ProcessId::is_alive) => continue,
            other => other?,
        };
        for used in used {
            let file = fs::metadata(&used.link)?;
            if known.insert((file.dev(), file.ino(), used.rights)) {
                uses.push(used);
            }
        }
    }
    uses.chunks(TOGETHER).try_for_each(|some| as_account(some, account, &own))
}

/// The files that a process has, by its folder below `/proc`.
fn uses_of(process: &Path) -> io::Result<Vec<Use>> {
    let mut uses = vec![
        Use { link: process.join("exe"), rights: Rights::ReadOrExecute },
        Use { link: process.join("cwd"), rights: Rights::Exactly(libc::X_OK) },
    ];
    for entry in fs::read_dir(process.join("map_files"))? {
        let link = entry?.path();
        // The rights of the link are those with which the file was opened.
        let is_written = fs::symlink_metadata(&link)?.mode() & libc::S_IWUSR != 0;
        let rights = if is_written { Rights::Exactly(libc::R_OK | libc::W_OK) } else { Rights::ReadOrExecute };
        uses.push(Use { link, rights });
    }
    for entry in fs::read_dir(process.join("fd"))? {
        let entry = entry?;
        let flags = flags_in(&fs::read_to_string(process.join("fdinfo").join(entry.file_name()))?)?;
        let rights = match flags & libc::O_ACCMODE {
            // It names a place, and opens nothing.
            _ if flags & libc::O_PATH != 0 => continue,
            libc::O_RDONLY => libc::R_OK,
            libc::O_WRONLY => libc::W_OK,
            _ => libc::R_OK | libc::W_OK,
        };
        uses.push(Use { link: entry.path(), rights: Rights::Exactly(rights) });
    }
    Ok(uses)
}

/// The flags of a descriptor, of its file in `fdinfo`.
fn flags_in(said: &str) -> io::Result<i32> {
    let flags = said.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.ok_or_else(|| io::Error::other("the kernel does not say how a file is open"))
}

/// Asks about files with the rights of the account, which a thread of its own takes for good.
fn as_account(uses: &[Use], account: &Account, own: &BTreeSet<i32>) -> io::Result<()> {
    let files: Vec<_> = uses.iter().map(Named::open).collect::<io::Result<_>>()?;
    on_own_thread(|| {
        take_rights_of(account)?;
        files.iter().zip(uses).try_for_each(|(file, used)| file.check(used.rights, account, own))
    })
}

/// A file that is named by a descriptor, and not opened.
struct Named {
    file: File,
    path: PathBuf,
}

impl Named {
    fn open(used: &Use) -> io::Result<Self> {
        let path = fs::read_link(&used.link)?;
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&used.link)?;
        Ok(Self { file, path })
    }

    fn check(&self, rights: Rights, account: &Account, own: &BTreeSet<i32>) -> io::Result<()> {
        let file = self.file.metadata()?;
        let is_device = file.file_type().is_char_device() || file.file_type().is_block_device();
        if is_device && !is_of_no_hardware((major(file.rdev()), minor(file.rdev()))) {
            let path = self.path.display();
            return Err(io::Error::other(format!("{path} is open in it, a device that its worker is not granted")));
        }
        // Who owns a file may change its rights.
        if file.uid() == account.uid || self.is_no_file(own)? {
            return Ok(());
        }
        let asked = match rights {
            Rights::Exactly(rights) => self.may(rights),
            Rights::ReadOrExecute => self.may(libc::R_OK).or_else(|_| self.may(libc::X_OK)),
        };
        asked.map_err(|why| {
            io::Error::other(format!("{} is open in it, and its account may not open that: {why}", self.path.display()))
        })
    }

    /// Tells whether there is nothing to be asked: it has no place in a file system that others could reach.
    /// `own`: the numbers of the restored processes, as they see themselves.
    fn is_no_file(&self, own: &BTreeSet<i32>) -> io::Result<bool> {
        let file = self.file.metadata()?;
        let kind = file.file_type();
        let is_file =
            kind.is_file() || kind.is_dir() || kind.is_fifo() || kind.is_char_device() || kind.is_block_device();
        let device = (major(file.rdev()), minor(file.rdev()));
        let is_terminal = kind.is_char_device() && device == TERMINAL_MAKER;
        let system = fstatfs(&self.file)?.filesystem_type();
        // Those of the tree may look at themselves, and are root's until they go on.
        let is_own = system == PROC_SUPER_MAGIC && self.process().is_some_and(|number| own.contains(&number));
        Ok(!is_file || is_terminal || is_own || WITHOUT_NAMES.contains(&system))
    }

    /// The number of the process to which a file below `/proc` belongs.
    fn process(&self) -> Option<i32> {
        self.path.strip_prefix("/proc").ok()?.components().next()?.as_os_str().to_str()?.parse().ok()
    }

    #[allow(unsafe_code)]
    fn may(&self, rights: i32) -> Result<(), Errno> {
        let how = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
        // SAFETY: a system call on a descriptor and a NUL-terminated text.
        Errno::result(unsafe { libc::syscall(libc::SYS_faccessat2, self.file.as_raw_fd(), c"".as_ptr(), rights, how) })
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::stat::{Mode, SFlag, makedev, mknod};

    use super::*;

    /// Asks about a device with these numbers that anybody may use; `None` where no devices may be made.
    fn asked(folder: &Path, (major, minor): (u64, u64)) -> Option<io::Result<()>> {
        let path = folder.join(format!("{major}-{minor}"));
        mknod(&path, SFlag::S_IFCHR, Mode::empty(), makedev(major, minor)).ok()?;
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("it was made");
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&path).expect("it is there");
        let account = Account { uid: 65_534, gid: 65_534, groups: Vec::new(), person: None };
        Some(Named { file, path }.check(Rights::Exactly(libc::R_OK), &account, &BTreeSet::new()))
    }

    #[test]
    fn devices_that_no_worker_is_granted_are_refused_whatever_their_rights() {
        let folder = tempfile::tempdir().expect("a folder");
        for granted in [(1, 3), (1, 9), (5, 0), (5, 2), (136, 7)] {
            assert!(asked(folder.path(), granted).is_none_or(|asked| asked.is_ok()), "{granted:?}");
        }
        for other in [(1, 1), (1, 11), (5, 1), (195, 0), (235, 1)] {
            let refused = asked(folder.path(), other).map(|asked| asked.expect_err("must be refused").to_string());
            assert!(refused.is_none_or(|why| why.contains("not granted")), "{other:?}");
        }
    }
}
