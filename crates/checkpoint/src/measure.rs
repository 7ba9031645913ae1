//! The size that a folder would have as a checkpoint, so that room can be had before anything is stopped.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::Error;
use crate::extents::Extents;
use crate::pack::long_bytes;
use crate::walk::{Found, walk};

/// The measured content of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of all files: holes count nothing, and a file of several names counts once.
    pub bytes: u64,
    /// Files, folders, named pipes and links.
    pub entries: u64,
    /// Bytes that are said beside headers: names that are too long for them, and where files with holes hold something.
    pub said_bytes: u64,
}

/// A header, and the rest of the last block.
const PER_ENTRY: u64 = 2 * 512;
/// The length of a file with holes, which is said before it.
const PER_LENGTH: u64 = 2 * 512;
/// A manifest, the end of the archive, and what file systems keep for themselves.
const ONCE: u64 = 64 << 10;

impl Measured {
    /// Bytes that it takes in a store at most, when it does not become smaller by compression.
    #[must_use]
    pub const fn at_most(&self) -> u64 {
        let bytes = self.bytes.saturating_add(self.entries.saturating_mul(PER_ENTRY)).saturating_add(self.said_bytes);
        bytes.saturating_add(bytes / 1024).saturating_add(ONCE)
    }

    /// Counts something in the folder, but not the content of a file.
    pub(crate) fn add_entry(&mut self, path: &Path, found: &Found) {
        self.entries += 1;
        self.said_bytes += long_bytes(path);
        if let Found::Link(target) | Found::NameOf(target) = found {
            self.said_bytes += long_bytes(target);
        }
    }

    /// Counts the content of a file.
    pub(crate) fn add_file(&mut self, file: &Extents) {
        self.bytes = self.bytes.saturating_add(file.bytes());
        if file.has_holes() {
            self.said_bytes += PER_LENGTH + file.map_bytes();
        }
    }
}

/// Looks how much a folder holds, and whether all of it can be in a checkpoint.
///
/// # Errors
/// [`Error::Unsuitable`], [`Error::Changed`], [`Error::Io`].
pub async fn measure(folder: &Path) -> Result<Measured, Error> {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || measured(&folder)).await.map_err(|_| Error::Ended)?
}

/// A number for each file in a folder, of its place, its size and when it was changed: what is not among those of an
/// earlier time was written since, whatever clocks said. Looks as [`measure`](measure()) does, and blocks.
///
/// # Errors
/// [`Error::Unsuitable`], [`Error::Changed`], [`Error::Io`].
pub fn marks(folder: &Path) -> Result<BTreeSet<u64>, Error> {
    let mut marks = BTreeSet::new();
    walk(folder, &mut |path, found, seen| {
        if let Found::File(_) | Found::NameOf(_) = found {
            let mut mark = blake3::Hasher::new();
            for number in [seen.st_size, seen.st_mtime, seen.st_mtime_nsec] {
                mark.update(&number.to_le_bytes());
            }
            mark.update(path.as_os_str().as_bytes());
            let mut short = [0; 8];
            mark.finalize_xof().fill(&mut short);
            marks.insert(u64::from_le_bytes(short));
        }
        Ok(())
    })?;
    Ok(marks)
}

pub(crate) fn measured(folder: &Path) -> Result<Measured, Error> {
    let mut measured = Measured::default();
    walk(folder, &mut |path, found, seen| {
        measured.add_entry(path, &found);
        if let Found::File(file) = found {
            measured.add_file(&Extents::of(&file, seen).map_err(Error::io(folder.join(path)))?);
        }
        Ok(())
    })?;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::pack::pack;

    #[test]
    fn no_archive_is_longer_than_was_measured() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = folder.path().join("n".repeat(200));
        File::create(&first).and_then(|file| file.set_len(1 << 40)).expect("it may be so long");
        for number in 0..100 {
            let named = |kind: &str| folder.path().join(format!("{kind}-{number:0>200}"));
            fs::hard_link(&first, named("name")).expect("linked");
            symlink("to/".repeat(200), named("link")).expect("linked");
        }
        let mut archive = Vec::new();
        let packed = pack(folder.path(), &mut archive).expect("it is packed");
        let measured = measured(folder.path()).expect("it is measured");
        assert_eq!(measured, packed);
        assert!(archive.len() as u64 <= measured.at_most(), "{} bytes: {measured:?}", archive.len());
    }
}
