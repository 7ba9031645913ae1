//! A small file system of a test's own, to be filled.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A small file system of the test's own.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one; `None` where that is not permitted, which is said.
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub fn mount(folder: &Path) -> Result<Option<Self>> {
        Self::mount_with(folder, "size=256m")
    }

    /// The same, of another size (options of a tmpfs).
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub fn mount_with(folder: &Path, options: &str) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder)?;
        match mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some(options)) {
            Ok(()) => Ok(Some(Self(folder.to_owned()))),
            Err(error) => {
                eprintln!("NOT TESTED: mounting a small disk is not permitted here ({error})");
                Ok(None)
            }
        }
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Writes until nothing more fits.
    ///
    /// # Errors
    /// When it cannot be written to at all.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.filler()).context("making the filler")?;
        let mut size = 1 << 20;
        while size > 0 {
            if file.write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
        Ok(())
    }

    /// Takes that back.
    ///
    /// # Errors
    /// When it was not filled.
    pub fn make_room(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Detached, so that a member that has not quite ended cannot hold it.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
