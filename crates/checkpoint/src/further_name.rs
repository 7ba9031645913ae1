//! A further name of a file (a hard link), or a copy of it where the file system gives it none: some have no such
//! names, and all give only so many.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use crate::Error;
use crate::extents::{Extent, Extents};
use crate::space::free_bytes;

/// Gives the file at `first` another name; answers `false` where the file system does not.
pub(crate) fn given(first: &Path, at: &Path) -> io::Result<bool> {
    match fs::hard_link(first, at) {
        Err(error) if gives_none(&error) => Ok(false),
        given => given.map(|()| true),
    }
}

fn gives_none(error: &io::Error) -> bool {
    let error = error.raw_os_error().map(Errno::from_raw);
    matches!(error, Some(Errno::EMLINK | Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EXDEV))
}

/// Copies the file at `first` to a new one, holes included. A manifest counts a file once: whether there is room for it
/// once more is only looked at here.
pub(crate) fn copied(first: &Path, at: &Path) -> Result<File, Error> {
    let mut from = File::open(first).map_err(Error::io(first))?;
    let seen = fstat(&from).map_err(|error| Error::io(first)(error.into()))?;
    let extents = Extents::of(&from, &seen).map_err(Error::io(first))?;
    let free_bytes = free_bytes(first).map_err(Error::io(first))?;
    if extents.bytes() > free_bytes {
        let place = first.display().to_string();
        return Err(Error::Full { place, needed_bytes: extents.bytes(), free_bytes });
    }
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(at);
    let mut to = to.map_err(Error::io(at))?;
    pour(&mut from, &extents, &mut to).map_err(Error::io(at))?;
    Ok(to)
}

fn pour(from: &mut File, extents: &Extents, to: &mut File) -> io::Result<()> {
    for Extent { start, bytes } in extents.iter() {
        from.seek(SeekFrom::Start(start))?;
        to.seek(SeekFrom::Start(start))?;
        io::copy(&mut from.by_ref().take(bytes), to)?;
    }
    to.set_len(extents.length())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn where_no_name_is_given_there_is_a_copy_with_its_holes() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, at) = (folder.path().join("first"), folder.path().join("again"));
        let length = 1 << 40;
        let file = File::create(&first).expect("made");
        file.set_len(length).expect("it may be so long");
        file.write_all_at(b"content", 1 << 30).expect("written");
        copied(&first, &at).expect("there is room");
        let (mut content, about) = ([0; 8], fs::metadata(&at).expect("it is there"));
        File::open(&at).and_then(|again| again.read_exact_at(&mut content, 1 << 30)).expect("it is long enough");
        assert_eq!((&content, about.len(), about.nlink()), (b"content\0", length, 1));
        assert!(about.blocks() < 100, "{} blocks", about.blocks());
        assert!(copied(&first, &at).is_err(), "what is there is not written over");
    }

    #[test]
    fn a_file_system_without_further_names_is_no_failure() {
        for errno in [Errno::EMLINK, Errno::EPERM, Errno::EOPNOTSUPP, Errno::EXDEV] {
            assert!(gives_none(&errno.into()), "{errno}");
        }
        for errno in [Errno::EEXIST, Errno::ENOSPC, Errno::EIO, Errno::ENOENT] {
            assert!(!gives_none(&errno.into()), "{errno}");
        }
    }
}
