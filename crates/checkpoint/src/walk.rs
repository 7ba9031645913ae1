//! Looking at a folder that belongs to somebody who may change it meanwhile, and may mean harm.
//!
//! Whoever saves a checkpoint may read more than the program that wrote it. So nothing is opened by a path that the
//! program could have replaced by a link: every folder is opened from the folder above it, and links are never
//! followed.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use crate::Error;
use crate::limits::MOST_ENTRIES;

/// The greatest depth of nested folders: each is open while its content is looked at.
const DEEPEST: usize = 128;

/// Something in the folder.
pub(crate) enum Found {
    /// A folder; what is in it comes next.
    Folder,
    /// A file, open for reading.
    File(File),
    /// Another name of a file that was found before (a hard link), and the first one.
    NameOf(PathBuf),
    /// A link, and where it points to.
    Link(PathBuf),
    /// A named pipe; what somebody has written into it and nobody read is not looked at.
    Pipe,
}

/// Visits everything in `folder`, names in order, folders before what is in them. Paths are relative to the folder.
pub(crate) fn walk(
    folder: &Path,
    visit: &mut dyn FnMut(&Path, Found, &FileStat) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |error: nix::Error| Error::io(folder)(error.into());
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let opened = openat(AT_FDCWD, folder, flags, Mode::empty()).map_err(failed)?;
    Walk { root: folder, visit, named: HashMap::new(), left: MOST_ENTRIES }.folder(opened, Path::new(""), 0)
}

struct Walk<'a> {
    root: &'a Path,
    visit: &'a mut dyn FnMut(&Path, Found, &FileStat) -> Result<(), Error>,
    /// The first names of files that have several, with their device and number there.
    named: HashMap<(u64, u64), (PathBuf, FileStat)>,
    /// Entries that may still come.
    left: u64,
}

impl Walk<'_> {
    fn folder(&mut self, opened: OwnedFd, path: &Path, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(Error::Unsuitable {
                path: self.root.join(path),
                problem: "folders lie too deep in each other",
            });
        }
        let mut opened = Dir::from_fd(opened).map_err(|error| self.failed(path, error))?;
        for name in self.names(&mut opened, path)? {
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            self.entry(&opened, &name, &path, depth)?;
        }
        Ok(())
    }

    fn names(&mut self, opened: &mut Dir, path: &Path) -> Result<Vec<CString>, Error> {
        let mut names = Vec::new();
        for entry in opened.iter() {
            let entry = entry.map_err(|error| self.failed(path, error))?;
            let name = entry.file_name();
            if name.to_bytes() != b"." && name.to_bytes() != b".." {
                let left = self.left.checked_sub(1);
                self.left = left.ok_or_else(|| {
                    self.unsuitable(path, "with it there are more than 1,000,000 files, folders and links")
                })?;
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn entry(&mut self, above: &Dir, name: &CStr, path: &Path, depth: usize) -> Result<(), Error> {
        let seen = fstatat(above.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW);
        let seen = seen.map_err(|error| self.failed(path, error))?;
        match kind(&seen) {
            SFlag::S_IFDIR => {
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
                let opened = openat(above.as_fd(), name, flags, Mode::empty());
                let opened = opened.map_err(|error| self.failed(path, error))?;
                (self.visit)(path, Found::Folder, &seen)?;
                self.folder(opened, path, depth + 1)
            }
            SFlag::S_IFREG => {
                // Opening a pipe that took its place would wait for a writer.
                let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
                let opened = openat(above.as_fd(), name, flags, Mode::empty());
                let opened = opened.map_err(|error| self.failed(path, error))?;
                let seen = fstat(&opened).map_err(|error| self.failed(path, error))?;
                if kind(&seen) != SFlag::S_IFREG {
                    return Err(Error::Changed { path: self.root.join(path) });
                }
                let found = match self.first_name(path, &seen)? {
                    Some(first) => Found::NameOf(first),
                    None => Found::File(File::from(opened)),
                };
                (self.visit)(path, found, &seen)
            }
            SFlag::S_IFLNK => {
                let target = readlinkat(above.as_fd(), name).map_err(|error| self.failed(path, error))?;
                (self.visit)(path, Found::Link(target.into()), &seen)
            }
            SFlag::S_IFSOCK => Err(self.unsuitable(path, "it is a socket")),
            SFlag::S_IFIFO => (self.visit)(path, Found::Pipe, &seen),
            _ => Err(self.unsuitable(path, "it is a device")),
        }
    }

    /// The name under which a file was found before, if it was.
    fn first_name(&mut self, path: &Path, seen: &FileStat) -> Result<Option<PathBuf>, Error> {
        if seen.st_nlink < 2 {
            return Ok(None);
        }
        let (first, before) = self.named.entry((seen.st_dev, seen.st_ino)).or_insert((path.to_owned(), *seen));
        if !is_same(before, seen) {
            return Err(Error::Changed { path: self.root.join(path) });
        }
        Ok((first != path).then(|| first.clone()))
    }

    fn unsuitable(&self, path: &Path, problem: &'static str) -> Error {
        Error::Unsuitable { path: self.root.join(path), problem }
    }

    fn failed(&self, path: &Path, error: nix::Error) -> Error {
        match error {
            // It was there a moment ago, and as something else.
            nix::Error::ENOENT | nix::Error::ELOOP | nix::Error::ENOTDIR => {
                Error::Changed { path: self.root.join(path) }
            }
            error => Error::io(self.root.join(path))(io::Error::from(error)),
        }
    }
}

/// Tells that a file was not written to in between, by its size and time.
pub(crate) fn is_same(before: &FileStat, now: &FileStat) -> bool {
    let marks = |seen: &FileStat| (seen.st_size, seen.st_mtime, seen.st_mtime_nsec);
    marks(before) == marks(now)
}

fn kind(seen: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(seen.st_mode & SFlag::S_IFMT.bits())
}
