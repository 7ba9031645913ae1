//! The data folder: who owns it, and how much room there is.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::statvfs::statvfs;

use crate::error::StoreError;

/// A data folder that belongs to this process as long as the value lives.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if need be, closes it to other users (what jobs run as may be on the same host), and takes
    /// possession of it.
    pub(crate) fn own(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(io_error(path, "making the data folder"))?;
        fs::set_permissions(path, Permissions::from_mode(0o700))
            .map_err(io_error(path, "closing the data folder to others"))?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(io_error(path, "making the lock file"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(io_error(path, "locking the data folder")(error)),
        }
    }

    /// Takes possession of a folder that is there, or of a copy of one without its lock file; makes nothing.
    pub(crate) fn own_existing(path: &Path) -> Result<Option<Self>, StoreError> {
        let lock = match File::open(path.join("lock")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(path, "opening the lock file")(error)),
        };
        match lock.try_lock() {
            Ok(()) => Ok(Some(Folder { path: path.to_owned(), _lock: lock })),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(io_error(path, "locking the data folder")(error)),
        }
    }

    /// The data folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of RocksDB.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("db")
    }

    /// The folder in which RocksDB is created.
    pub(crate) fn nascent(&self) -> PathBuf {
        self.path.join("db.new")
    }

    /// Moves a newly created RocksDB to its place, durably.
    pub(crate) fn adopt_nascent(&self) -> Result<(), StoreError> {
        let doing = "creating the store";
        fs::rename(self.nascent(), self.database()).map_err(io_error(&self.path, doing))?;
        sync_folder(&self.path).map_err(io_error(&self.path, doing))
    }

    /// Bytes that are free for us on the file system.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let system = statvfs(&self.path).ok()?;
        Some(system.blocks_available() * system.fragment_size())
    }

    /// Bytes that RocksDB's files take.
    pub(crate) fn database_bytes(&self) -> u64 {
        const BLOCK: u64 = 512;
        let Ok(files) = fs::read_dir(self.database()) else {
            return 0;
        };
        files.flatten().filter_map(|file| file.metadata().ok()).map(|data| data.blocks() * BLOCK).sum()
    }
}

/// Makes changes to a folder's entries durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Turns an operating system's error into ours; a full disk or quota is told apart.
pub(crate) fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| {
        let full = matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOSPC | Errno::EDQUOT));
        let source = Arc::new(error);
        if full { StoreError::Full { path, doing, source } } else { StoreError::Io { path, doing, source } }
    }
}
