//! Images of a worker's processes in its folder: where they go, what is put beside them, and what they are restored
//! from.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::sys::stat::SFlag;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};

use super::below;
use super::folder::{CLOSED, WORK_FOLDER, WorkerFolder, remove_if_there};
use crate::durable;
use crate::supervisor::image::{IMAGE_FOLDER, ImageRecord, RECORD_FILE};

/// Images that are made while the program runs, below the worker's folder.
const SNAPSHOT_FOLDER: &str = "snapshot";
/// Folder of the checkpoint from which a program that was dumped resumes, below the worker's folder.
const RESTORED_FOLDER: &str = "restored";

impl WorkerFolder {
    /// The folder of the checkpoint from which a program resumes whose job is saved by images: an image, or what a
    /// program wrote.
    #[must_use]
    pub fn restored(&self) -> PathBuf {
        self.file(RESTORED_FOLDER)
    }

    /// Makes the folder for images of the worker's processes, which nobody but the agent's user may read or write:
    /// whoever could write it could become anybody.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn make_image_folder(&self) -> io::Result<()> {
        make(&self.checkpoint().join(IMAGE_FOLDER))
    }

    /// The folder of images that are made while the program runs.
    #[must_use]
    pub fn snapshots(&self) -> PathBuf {
        self.file(SNAPSHOT_FOLDER)
    }

    /// The folder of the image of this number.
    #[must_use]
    pub fn snapshot(&self, number: u64) -> PathBuf {
        snapshot_in(&self.snapshots(), number)
    }

    /// Makes room for one of them. None is ever made where another is or was, whoever asked for it.
    ///
    /// # Errors
    /// What the file system says; also when it is there already.
    pub(crate) fn make_snapshot_folder(&self, number: u64) -> io::Result<()> {
        make(&self.snapshots())?;
        let folder = self.snapshot(number);
        // Nobody makes one twice.
        fs::DirBuilder::new().mode(CLOSED).create(&folder)?;
        make(&folder.join(IMAGE_FOLDER))
    }

    /// Puts what restoring it takes beside it. The worker's own folder has been copied there.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn complete_snapshot(&self, number: u64, record: &ImageRecord) -> io::Result<()> {
        let folder = self.snapshot(number);
        write_record(&folder, record)?;
        remove_sockets(&folder.join(WORK_FOLDER))
    }

    /// Removes those that are over, made or not: that of this number, and those before it.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn remove_snapshots_to(&self, number: u64) -> io::Result<()> {
        for entry in fs::read_dir(self.snapshots())? {
            let entry = entry?;
            if entry.file_name().to_str().and_then(|name| name.parse().ok()).is_some_and(|this: u64| this <= number) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Puts the rest of what was dumped beside the image: what restoring it takes, and the worker's own folder. Done
    /// twice, it is done once.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn complete_image(&self, record: &ImageRecord) -> io::Result<()> {
        let (work, kept) = (self.work(), self.checkpoint().join(WORK_FOLDER));
        write_record(&self.checkpoint(), record)?;
        match fs::rename(work, &kept) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && kept.is_dir() => {}
            renamed => renamed?,
        }
        remove_sockets(&kept)
    }

    /// The part that is missing of the checkpoint from which a program that was dumped resumes; `None`: it is whole.
    #[must_use]
    pub(crate) fn restored_lacks(&self) -> Option<&'static str> {
        [IMAGE_FOLDER, RECORD_FILE, WORK_FOLDER].into_iter().find(|part| !self.restored().join(part).exists())
    }

    /// Puts the worker's own folder back as it was when it was dumped, with everything in it `owner`'s.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn restore_work(&self, owner: Option<(u32, u32)>) -> io::Result<()> {
        let kept = self.restored().join(WORK_FOLDER);
        if let Some(owner) = owner {
            give(&kept, owner)?;
        }
        fs::remove_dir_all(self.work())?;
        fs::rename(kept, self.work())
    }

    /// Removes what a program that goes on has been restored from.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn remove_restored(&self) -> io::Result<()> {
        remove_if_there(&self.restored())
    }
}

/// The folder of an image of this number, below the folder of all of them.
#[must_use]
pub(crate) fn snapshot_in(snapshots: &Path, number: u64) -> PathBuf {
    snapshots.join(number.to_string())
}

fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(CLOSED).create(folder)
}

fn write_record(folder: &Path, record: &ImageRecord) -> io::Result<()> {
    durable::replace_soon(&folder.join(RECORD_FILE), &serde_json::to_vec(record)?)
}

/// Removes the names of sockets below a folder: no checkpoint holds them, and CRIU binds those that were bound anew.
fn remove_sockets(folder: &Path) -> io::Result<()> {
    below::each(folder, &mut |within, name, kind| match kind {
        SFlag::S_IFSOCK => unlinkat(within, name, UnlinkatFlags::NoRemoveDir),
        _ => Ok(()),
    })
}

/// Gives a folder and everything in it to somebody, the folder last; links are given themselves, and not followed.
fn give(folder: &Path, (user, group): (u32, u32)) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    below::each(folder, &mut |within, name, _| fchownat(within, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW))?;
    lchown(folder, Some(user), Some(group))
}
