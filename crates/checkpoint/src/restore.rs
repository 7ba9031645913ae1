//! Making a folder of a checkpoint.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::unistd::syncfs;
use tempfile::{Builder, TempDir};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::chunks::{Cut, Joiner};
use crate::earlier::Earlier;
use crate::file_system::is_elsewhere;
use crate::limits::Limits;
use crate::space::free_bytes;
use crate::store::read_stored;
use crate::unpack::{Unpacked, unpack};
use crate::{Error, Published, Store};

/// The owner of the restored files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// Makes the folder `into` of a checkpoint. It must not be there yet, or be empty. It appears when all of it is there
/// and its hash is right; whatever fails before leaves it as it was. Only its owner may look into it. It need not have
/// reached the disk of this machine: after a loss of power whoever needs it restores it again.
///
/// Chunks that the store `near` has of an earlier checkpoint of the same program, or of this one, are read there.
///
/// # Errors
/// [`Error::NotEmpty`], [`Error::Damaged`], [`Error::Full`] when there is no room for the folder, [`Error::Io`]; what
/// the store says.
pub async fn restore(
    store: &dyn Store,
    near: Option<&dyn Store>,
    published: &Published,
    into: &Path,
    owner: Option<Owner>,
    limits: &Limits,
) -> Result<(), Error> {
    let seat = limits.seat().await;
    let earlier = match near {
        Some(near) => Earlier::to_read(near, &published.id).await,
        None => Earlier::none(store),
    };
    let (sender, receiver) = channel(1);
    let making = Making { published: published.clone(), place: store.place().to_owned(), into: into.to_owned(), owner };
    // When this future is dropped, the chunks end too early, and the thread removes what it made.
    let unpacking = tokio::task::spawn_blocking(move || making.make(receiver, seat));
    let sent = send_all(store, &earlier, published, limits, sender).await;
    let made = unpacking.await.map_err(|_| Error::Ended)?;
    // When the store failed, unpacking failed only because of that; when unpacking failed, nothing more was sent.
    sent.and(made)
}

async fn send_all(
    store: &dyn Store,
    earlier: &Earlier<'_>,
    published: &Published,
    limits: &Limits,
    chunks: Sender<Cut>,
) -> Result<(), Error> {
    for (stored, chunk) in published.all_stored().zip(&published.chunks) {
        let bytes = match earlier.read(&stored).await {
            Some(bytes) => bytes,
            None => {
                limits.pace(stored.stored_bytes).await;
                read_stored(store, &stored).await?
            }
        };
        if chunks.send(Cut { chunk: chunk.clone(), bytes }).await.is_err() {
            break;
        }
    }
    Ok(())
}

struct Making {
    published: Published,
    place: String,
    into: PathBuf,
    owner: Option<Owner>,
}

impl Making {
    fn make(self, chunks: Receiver<Cut>, _seat: Option<OwnedSemaphorePermit>) -> Result<(), Error> {
        let above = self.above()?;
        // Nobody else may look into it, or put anything there, while it is made.
        let mode = fs::Permissions::from_mode(0o700);
        let made = Builder::new().prefix(".restoring-").permissions(mode).tempdir_in(&above);
        let made = made.map_err(Error::io(&above))?;
        let mut joiner = Joiner::new(chunks);
        let Published { id, bytes, entries, .. } = self.published;
        let unpacked = unpack(&mut joiner, made.path(), self.owner, Unpacked { bytes, entries });
        unpacked.map_err(|failed| failed.of(&id, &self.place))?;
        self.check(joiner)?;
        if is_elsewhere(&above).map_err(Error::io(&above))? {
            // What a server has no room for is only said when it is told to keep it.
            let folder = File::open(made.path()).map_err(Error::io(made.path()))?;
            syncfs(&folder).map_err(|error| Error::io(made.path())(error.into()))?;
        }
        self.publish(&made)?;
        // It is not there any more under its old name: nothing is removed.
        let _ = made.keep();
        Ok(())
    }

    /// The folder in which it is to appear, when it may and there is room.
    fn above(&self) -> Result<PathBuf, Error> {
        match fs::read_dir(&self.into).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Err(Error::NotEmpty { path: self.into.clone() }),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&self.into)(error)),
        }
        let above = self.into.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let free_bytes = free_bytes(above).map_err(Error::io(above))?;
        if self.published.bytes > free_bytes {
            let place = above.display().to_string();
            return Err(Error::Full { place, needed_bytes: self.published.bytes, free_bytes });
        }
        Ok(above.to_owned())
    }

    fn check(&self, joiner: Joiner) -> Result<(), Error> {
        let Published { id, hash, .. } = self.published;
        if joiner.finish() == hash {
            return Ok(());
        }
        Err(Error::Damaged { place: self.place.clone(), id, problem: "its content is not what was packed".to_owned() })
    }

    fn publish(&self, made: &TempDir) -> Result<(), Error> {
        if let Some(Owner { user, group }) = self.owner {
            chown(made.path(), Some(user), Some(group)).map_err(Error::io(made.path()))?;
        }
        fs::rename(made.path(), &self.into).map_err(Error::io(&self.into))
    }
}
