//! Room that is set aside, so that two saves at once do not both count on the same.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::statvfs::statvfs;

use crate::Error;

/// Bytes that are free for this user on the file system of a folder.
///
/// # Errors
/// What the file system says.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let system = statvfs(folder)?;
    Ok(system.blocks_available().saturating_mul(system.fragment_size()))
}

/// The free space, less the reservations.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// The file system is asked there; `None`: there is no end to it.
    folder: Option<PathBuf>,
    /// Most bytes that all checkpoints together may take; `None`: what the file system has.
    pub quota_bytes: Option<u64>,
    promised: Arc<Mutex<u64>>,
}

/// Room that was set aside. It is free again when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    promised: Arc<Mutex<u64>>,
}

impl Space {
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_owned), quota_bytes: None, promised: Arc::default() }
    }

    /// Sets room aside, when `used_bytes` are taken of the quota.
    pub(crate) fn reserve(&self, place: &str, bytes: u64, used_bytes: u64) -> Result<Reservation, Error> {
        let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        let in_quota = self.quota_bytes.map_or(u64::MAX, |quota| quota.saturating_sub(used_bytes));
        let free = self.free(place)?.min(in_quota).saturating_sub(*promised);
        if bytes > free {
            return Err(Error::Full { place: place.to_owned(), needed_bytes: bytes, free_bytes: free });
        }
        *promised += bytes;
        Ok(Reservation { bytes, promised: Arc::clone(&self.promised) })
    }

    fn free(&self, place: &str) -> Result<u64, Error> {
        let Some(folder) = &self.folder else { return Ok(u64::MAX) };
        free_bytes(folder).map_err(|error| Error::Unreachable { place: place.to_owned(), source: Box::new(error) })
    }
}

impl Reservation {
    /// The reservation in a store without a bound on its space.
    #[must_use]
    pub fn unbounded() -> Self {
        Self { bytes: 0, promised: Arc::default() }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.promised.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
    }
}
