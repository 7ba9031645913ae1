//! The reserve: a file whose only purpose is to be given up.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use nix::fcntl::{FallocateFlags, fallocate};

use super::folder::{Folder, io_error, sync_folder};
use crate::error::StoreError;
use crate::reserve::{releases_below, remakes_from};
use crate::store::Reserve;

/// The reserve file of a data folder.
pub(crate) struct ReserveFile {
    path: PathBuf,
    size: u64,
    held: bool,
}

impl ReserveFile {
    /// Looks whether the file is there. One that is not wanted, or not with this size, is removed.
    pub(crate) fn find(folder: &Folder, size: u64) -> Result<Self, StoreError> {
        let path = folder.path().join("reserve");
        let found = fs::metadata(&path).ok().map(|data| data.len());
        let mut reserve = ReserveFile { path, size, held: found.is_some() };
        if found.is_some_and(|found| found != size) {
            reserve.remove(folder)?;
        }
        // What a crash left of making it takes room without counting as the reserve.
        let _ = fs::remove_file(reserve.nascent());
        Ok(reserve)
    }

    fn nascent(&self) -> PathBuf {
        self.path.with_extension("new")
    }

    pub(crate) fn state(&self) -> Reserve {
        match (self.size, self.held) {
            (0, _) => Reserve::Off,
            (bytes, true) => Reserve::Held { bytes },
            (_, false) => Reserve::Released,
        }
    }

    /// Gives the file up when the disk is full.
    pub(crate) fn release_if_full(&mut self, folder: &Folder) -> Result<(), StoreError> {
        if folder.free_bytes().is_some_and(|free| free < releases_below(self.size)) {
            self.release(folder)?;
        }
        Ok(())
    }

    /// Gives the file up; says whether there was one.
    pub(crate) fn release(&mut self, folder: &Folder) -> Result<bool, StoreError> {
        if !self.held {
            return Ok(false);
        }
        self.remove(folder)?;
        tracing::error!(
            folder = %folder.path().display(),
            bytes = self.size,
            "the disk is full: the reserve was given up so that the member can start; free space now"
        );
        Ok(true)
    }

    fn remove(&mut self, folder: &Folder) -> Result<(), StoreError> {
        let doing = "removing the reserve file";
        fs::remove_file(&self.path).map_err(io_error(folder.path(), doing))?;
        self.held = false;
        sync_folder(folder.path()).map_err(io_error(folder.path(), doing))
    }

    /// Makes the file when it is missing and there is room. Failing to is no failure of the store: the state says so.
    pub(crate) fn remake_if_room(&mut self, folder: &Folder) {
        let room = folder.free_bytes().is_none_or(|free| free >= remakes_from(self.size));
        if self.held || self.size == 0 || !room {
            return;
        }
        match self.make() {
            Ok(()) => self.held = true,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the reserve file could not be made");
                let _ = fs::remove_file(self.nascent());
            }
        }
    }

    fn make(&self) -> io::Result<()> {
        let nascent = self.nascent();
        let file = File::create(&nascent)?;
        let length = i64::try_from(self.size).map_err(io::Error::other)?;
        if fallocate(&file, FallocateFlags::empty(), 0, length).is_err() {
            fill(&file, self.size)?;
        }
        file.sync_all()?;
        fs::rename(&nascent, &self.path)?;
        sync_folder(self.path.parent().unwrap_or(&self.path))
    }
}

/// Writes the file out where the file system cannot allocate.
fn fill(mut file: &File, size: u64) -> io::Result<()> {
    const STEP: usize = 1 << 16;
    let zeros = [0; STEP];
    let mut left = size;
    while left > 0 {
        let step = usize::try_from(left).unwrap_or(STEP).min(STEP);
        file.write_all(&zeros[..step])?;
        left -= step as u64;
    }
    Ok(())
}
