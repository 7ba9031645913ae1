//! How much a folder would take as a checkpoint, so that room can be had before anything is stopped.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::Error;
use crate::extents::Extents;
use crate::pack::length;
use crate::walk::{Found, walk};

/// What a folder holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of all files: holes count nothing, and a file of several names counts once.
    pub bytes: u64,
    /// Files, folders, named pipes and links.
    pub entries: u64,
    /// Bytes that say where files with holes hold something.
    pub map_bytes: u64,
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
        let bytes = self.bytes.saturating_add(self.entries.saturating_mul(PER_ENTRY)).saturating_add(self.map_bytes);
        bytes.saturating_add(bytes / 1024).saturating_add(ONCE)
    }

    /// Counts the content of a file.
    pub(crate) fn add(&mut self, file: &Extents) {
        self.bytes = self.bytes.saturating_add(file.bytes());
        if file.has_holes() {
            self.map_bytes += PER_LENGTH + file.map().len() as u64;
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
        measured.entries += 1;
        if let Found::File(file) = found {
            measured.add(&Extents::of(&file, length(seen)).map_err(Error::io(folder.join(path)))?);
        }
        Ok(())
    })?;
    Ok(measured)
}
