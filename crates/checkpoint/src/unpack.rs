//! A folder out of an archive that may have been made to do harm.
//!
//! Whoever restores it may write more than the program that it is for. So nothing is written but below the new
//! folder: a name has no `..` and does not begin at the root, what is above it is a folder that this archive made,
//! and nothing that is there is opened again. Symbolic links are made as they are and never followed; a further name is
//! only given to a file that this archive made, of which there is a copy where the file system gives no more names. No
//! more is written than the manifest says, and copies as long as there is room. Of what an archive says, names and maps
//! are kept in memory, and both are bounded.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown, lchown, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tar::{Archive, Entry, EntryType};

use crate::before::Before;
use crate::extents::Extents;
use crate::further_name;
use crate::{CheckpointId, Error, Owner};

/// The content of an archive, or a part of it, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    pub bytes: u64,
    pub entries: u64,
}

#[derive(Debug)]
pub(crate) enum Failed {
    /// The archive is not one of ours.
    Archive(String),
    /// The file system.
    System(Error),
}

impl Failed {
    /// As said of a checkpoint.
    pub(crate) fn of(self, id: &CheckpointId, place: &str) -> Error {
        match self {
            Self::Archive(problem) => Error::Damaged { place: place.to_owned(), id: *id, problem },
            Self::System(error) => error,
        }
    }

    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System(Error::io(path)(source))
    }
}

/// Unpacks everything in `archive` into the folder, which is there and empty, and reads `archive` to its end. It must
/// hold what was `said`.
pub(crate) fn unpack(archive: &mut dyn Read, into: &Path, owner: Option<Owner>, said: Unpacked) -> Result<(), Failed> {
    let mut unpacking = Unpacking { into, owner, folders: BTreeMap::new(), left: said };
    let mut archive = Archive::new(archive);
    let mut before = Before::default();
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        if !before.takes_in(&mut entry).map_err(unreadable)? {
            unpacking.entry(std::mem::take(&mut before), entry)?;
        }
    }
    if before != Before::default() {
        return Err(Failed::Archive("something is said of an entry that does not come".to_owned()));
    }
    unpacking.finish_folders()?;
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(unreadable)?;
    if unpacking.left == Unpacked::default() { Ok(()) } else { Err(more_or_less()) }
}

fn more_or_less() -> Failed {
    Failed::Archive("it holds more or less than its manifest says".to_owned())
}

fn unreadable(error: io::Error) -> Failed {
    Failed::Archive(format!("it cannot be unpacked: {error}"))
}

/// The mode and time that a folder gets when everything is in it: a folder that may not be written to could not be
/// filled.
struct Finish {
    mode: u32,
    changed: SystemTime,
}

struct Unpacking<'a> {
    into: &'a Path,
    owner: Option<Owner>,
    /// The folders that the archive made, relative to the target folder.
    folders: BTreeMap<PathBuf, Finish>,
    /// The part of it that is still to come.
    left: Unpacked,
}

impl Unpacking<'_> {
    fn entry(&mut self, before: Before, mut entry: Entry<'_, &mut dyn Read>) -> Result<(), Failed> {
        let path = self.place_of(&before.name(&entry))?;
        let at = self.into.join(&path);
        let mode = entry.header().mode().map_err(unreadable)? & 0o777;
        let changed =
            SystemTime::UNIX_EPOCH + Duration::from_secs(entry.header().mtime().map_err(unreadable)?.min(MOST));
        self.left.entries = self.left.entries.checked_sub(1).ok_or_else(more_or_less)?;
        match entry.header().entry_type() {
            EntryType::Directory => {
                DirBuilder::new().mode(0o700).create(&at).map_err(Self::not_new(&at))?;
                self.folders.insert(path, Finish { mode, changed });
                Ok(())
            }
            EntryType::Regular => {
                let extents = before.extents(&mut entry).map_err(unreadable)?;
                self.left.bytes = self.left.bytes.checked_sub(extents.bytes()).ok_or_else(more_or_less)?;
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&at);
                let mut file = file.map_err(Self::not_new(&at))?;
                pour(&mut entry, &extents, &mut file, &at)?;
                self.finish(&file, &at, mode, changed)
            }
            EntryType::Symlink => {
                symlink(Self::target_of(&before, &entry)?, &at).map_err(Self::not_new(&at))?;
                let Some(Owner { user, group }) = self.owner else { return Ok(()) };
                lchown(&at, Some(user), Some(group)).map_err(Failed::io(&at))
            }
            EntryType::Link => {
                let first = self.into.join(self.place_of(&Self::target_of(&before, &entry)?)?);
                if !fs::symlink_metadata(&first).is_ok_and(|about| about.is_file()) {
                    return Err(Failed::Archive(format!("{} is a name of no file of it", path.display())));
                }
                if further_name::given(&first, &at).map_err(Self::not_new(&at))? {
                    return Ok(());
                }
                let copy = further_name::copied(&first, &at).map_err(Failed::System)?;
                self.finish(&copy, &at, mode, changed)
            }
            EntryType::Fifo => {
                mkfifo(&at, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|error| Self::not_new(&at)(error.into()))?;
                if let Some(Owner { user, group }) = self.owner {
                    lchown(&at, Some(user), Some(group)).map_err(Failed::io(&at))?;
                }
                // Nobody else can put a link in its place yet.
                fs::set_permissions(&at, Permissions::from_mode(mode)).map_err(Failed::io(&at))
            }
            _ => Err(Failed::Archive(format!("{} is no file, folder, pipe or link", path.display()))),
        }
    }

    fn target_of(before: &Before, entry: &Entry<'_, &mut dyn Read>) -> Result<PathBuf, Failed> {
        before.target(entry).ok_or_else(|| Failed::Archive("a link leads nowhere".to_owned()))
    }

    /// The place of an entry, relative to the folder.
    fn place_of(&self, named: &Path) -> Result<PathBuf, Failed> {
        let wrong = |problem| Failed::Archive(format!("{:?} {problem}", named.display().to_string()));
        if named.as_os_str().is_empty() || !named.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(wrong("would lie outside of the folder"));
        }
        // Without what does not count, such as a slash at the end.
        let path: PathBuf = named.components().collect();
        match path.parent() {
            Some(above) if above.as_os_str().is_empty() || self.folders.contains_key(above) => Ok(path),
            _ => Err(wrong("lies in no folder of the checkpoint")),
        }
    }

    /// A name that comes twice is the archive's fault, everything else the system's.
    fn not_new(at: &Path) -> impl FnOnce(io::Error) -> Failed {
        let at = at.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failed::Archive(format!("{} comes twice", at.display())),
            _ => Failed::io(&at)(error),
        }
    }

    fn finish(&self, file: &File, at: &Path, mode: u32, changed: SystemTime) -> Result<(), Failed> {
        if let Some(Owner { user, group }) = self.owner {
            fchown(file, Some(user), Some(group)).map_err(Failed::io(at))?;
        }
        file.set_permissions(Permissions::from_mode(mode)).map_err(Failed::io(at))?;
        file.set_times(FileTimes::new().set_modified(changed)).map_err(Failed::io(at))
    }

    /// Finishes the folders, those that lie deeper first.
    fn finish_folders(&self) -> Result<(), Failed> {
        for (path, Finish { mode, changed }) in self.folders.iter().rev() {
            let at = self.into.join(path);
            let folder = File::open(&at).map_err(Failed::io(&at))?;
            self.finish(&folder, &at, *mode, *changed)?;
        }
        Ok(())
    }
}

/// The last second that file systems keep, and more than a program needs.
const MOST: u64 = u32::MAX as u64;

/// Writes the content of a file where it belongs. What is in no extent stays a hole.
fn pour(from: &mut dyn Read, extents: &Extents, to: &mut File, at: &Path) -> Result<(), Failed> {
    let mut buffer = vec![0; 1 << 18];
    for extent in extents.iter() {
        to.seek(SeekFrom::Start(extent.start)).map_err(Failed::io(at))?;
        let mut left = extent.bytes;
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = from.read(&mut buffer[..most]).map_err(unreadable)?;
            if read == 0 {
                return Err(unreadable(io::ErrorKind::UnexpectedEof.into()));
            }
            to.write_all(&buffer[..read]).map_err(Failed::io(at))?;
            left -= read as u64;
        }
    }
    to.set_len(extents.length()).map_err(Failed::io(at))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::pack::{BLOCK, pack};

    /// Counts what is in the folder after an archive was refused.
    fn left_of(archive: &[u8], said: Unpacked) -> usize {
        let into = tempfile::tempdir().expect("a folder");
        unpack(&mut &*archive, into.path(), None, said).expect_err("it is refused");
        fs::read_dir(into.path()).expect("it is there").count()
    }

    #[test]
    fn nothing_of_a_file_is_written_that_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("holes")).expect("made");
        file.set_len(1 << 40).expect("it may be so long");
        file.write_all_at(b"content", 1 << 30).expect("written");
        let mut archive = Vec::new();
        let measured = pack(folder.path(), &mut archive).expect("it is packed");
        let said = Unpacked { bytes: measured.bytes, entries: measured.entries };
        assert_eq!(left_of(&archive, Unpacked { bytes: said.bytes - 1, ..said }), 0);
        assert_eq!(left_of(&archive, Unpacked { entries: 0, ..said }), 0);
        // After its length, with the header of that, and its own.
        let map = 3 * BLOCK;
        assert_eq!(&archive[map..map + 2], b"2\n", "what holds something, and the end");
        archive[map] = b'3';
        assert_eq!(left_of(&archive, said), 0);
    }
}
