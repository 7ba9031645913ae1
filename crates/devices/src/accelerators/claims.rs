//! Two agents of one host would both offer its cards: each card is claimed by a lock of a file that all of them know.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;

use crate::error::DeviceError;
use crate::host::HostRoot;

/// The folder of the files. It is gone when the host starts, and so are the agents.
const FOLDER: &str = "/run/tessera-cards";

/// Cards that are this process' to offer, for as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Claims {
    _locked: Vec<File>,
}

impl Claims {
    /// Claims all of them.
    ///
    /// # Errors
    /// When another process has claimed one, with its name.
    pub(super) fn take<'a>(host: &HostRoot, cards: impl Iterator<Item = &'a str>) -> Result<Self, DeviceError> {
        let folder = host.path(FOLDER);
        if let Err(error) = fs::create_dir_all(&folder) {
            // Who may not make the folder is not root, and offers what the one who may has not claimed.
            let folder = folder.display();
            tracing::warn!(%folder, %error, "cards are not claimed: see that no other agent offers them");
            return Ok(Self::default());
        }
        let mut locked = Vec::new();
        for card in cards {
            let path = folder.join(card.replace('/', "_"));
            let claimed = |path| DeviceError::CardClaimed { card: card.to_owned(), path };
            let file = match File::options().create(true).append(true).open(&path) {
                Ok(file) => file,
                // Of an agent of somebody else.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(claimed(path)),
                Err(source) => return Err(DeviceError::Host { path, source }),
            };
            match file.try_lock() {
                Ok(()) => locked.push(file),
                Err(TryLockError::WouldBlock) => return Err(claimed(path)),
                Err(TryLockError::Error(source)) => return Err(DeviceError::Host { path, source }),
            }
        }
        Ok(Self { _locked: locked })
    }
}
