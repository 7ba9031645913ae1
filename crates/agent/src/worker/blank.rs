//! A worker's folder that is made before there is a worker for it.
//!
//! Making a file takes many file systems ten times as long as writing to one, and a launch needs ten of them. So one
//! folder lies ready with all that every worker has, empty. What is a worker's is written into it, and then it is given
//! the worker's name in one step: whoever looks finds no folder or one that is complete.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::environment::VCARD_FILE;
use super::folder::{CLOSED, ORDER_FILE, WORK_FOLDER, WorkerFolder, WorkerFolders, remove_if_there};
use super::id::WorkerId;
use super::slices_file;
use crate::supervisor::output::Stream;
use crate::supervisor::{LAUNCH_FILE, LOCK_FILE, LOG_FILE};

/// Prefix of the names of such folders, and of those that are nobody's any more; no worker's name begins with it.
const PREFIX: &str = ".blank-";

/// A folder that is nobody's yet. It goes with this value unless it was given a name.
#[derive(Debug)]
pub struct BlankFolder(Option<PathBuf>);

impl BlankFolder {
    /// Makes one beside the folders of workers.
    ///
    /// # Errors
    /// What the file system says.
    pub fn make(workers: &WorkerFolders) -> io::Result<Self> {
        let path = workers.path().join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
        let blank = Self(Some(path.clone()));
        let mut closed = DirBuilder::new();
        closed.mode(CLOSED);
        closed.create(&path)?;
        closed.create(path.join(WORK_FOLDER))?;
        for name in [ORDER_FILE, LAUNCH_FILE, VCARD_FILE, slices_file::FILE, LOCK_FILE, LOG_FILE] {
            File::create_new(path.join(name))?;
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            File::create_new(stream.file(&path, 0))?;
        }
        Ok(blank)
    }

    pub fn folder(&self) -> WorkerFolder {
        WorkerFolder::at(self.0.clone().unwrap_or_default())
    }

    /// Makes it the folder of a worker.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`]: that worker has one, and a worker is started at most once. What the file
    /// system says.
    pub fn give_to(mut self, worker: &WorkerFolder) -> io::Result<()> {
        let Some(path) = &self.0 else { return Err(io::ErrorKind::NotFound.into()) };
        name_anew(path, worker.path())?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for BlankFolder {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(fs::remove_dir_all) {
            tracing::debug!(%error, "a folder that was made ahead is left over; the next agent removes it");
        }
    }
}

/// Gives a folder another name, which nothing has yet. Where the file system cannot promise that, it is looked before:
/// nobody else makes folders here.
fn name_anew(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Err(Errno::EINVAL | Errno::ENOSYS) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(Errno::EINVAL | Errno::ENOSYS) => fs::rename(from, to),
        named => Ok(named?),
    }
}

impl WorkerFolders {
    /// Removes the folder of a worker in one step for whoever looks: one of which half is gone would be taken for that
    /// of a worker of which nobody knows how it stands.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn discard(&self, worker: WorkerId) -> io::Result<()> {
        let nobodys = self.path().join(format!("{PREFIX}{worker}"));
        match fs::rename(self.of(worker).path(), &nobodys) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        remove_if_there(&nobodys)
    }

    /// Removes folders that an agent that is gone had made ahead, and those that it did not come to remove. One that
    /// stays is in nobody's way.
    pub fn remove_blank(&self) {
        for entry in fs::read_dir(self.path()).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
                && let Err(error) = fs::remove_dir_all(entry.path())
            {
                tracing::warn!(%error, folder = %entry.path().display(), "what was made ahead cannot be removed");
            }
        }
    }
}

#[cfg(test)]
impl WorkerFolders {
    /// The folder of a worker, as its launch makes it.
    pub(crate) fn create(&self, worker: WorkerId) -> io::Result<WorkerFolder> {
        let folder = self.of(worker);
        BlankFolder::make(self)?.give_to(&folder)?;
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_ledger::{AllocationId, Epoch, Rank};

    const WORKER: WorkerId = WorkerId { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };

    fn names(folders: &WorkerFolders) -> Vec<String> {
        let entries = fs::read_dir(folders.path()).expect("readable").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_worker_is_given_one_whole_and_no_other_takes_its_place() {
        let data = tempfile::tempdir().expect("a folder");
        let folders = WorkerFolders::open(data.path()).expect("writable");
        let blank = BlankFolder::make(&folders).expect("writable");
        fs::write(blank.folder().file(ORDER_FILE), "first").expect("writable");
        assert!(folders.search().expect("readable").is_empty(), "it is nobody's");
        blank.give_to(&folders.of(WORKER)).expect("the name is free");
        let second = BlankFolder::make(&folders).expect("writable").give_to(&folders.of(WORKER));
        assert_eq!(second.expect_err("the worker has one").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(folders.of(WORKER).file(ORDER_FILE)).expect("readable"), "first");
        assert_eq!(names(&folders), [WORKER.to_string()], "what was not given is gone");
    }

    #[test]
    fn what_an_agent_that_is_gone_had_made_ahead_is_removed() {
        let data = tempfile::tempdir().expect("a folder");
        let folders = WorkerFolders::open(data.path()).expect("writable");
        std::mem::forget(BlankFolder::make(&folders).expect("writable"));
        folders.create(WORKER).expect("the name is free");
        folders.remove_blank();
        assert_eq!(names(&folders), [WORKER.to_string()]);
    }
}
