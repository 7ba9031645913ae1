//! The backups that are kept in one place: a folder or a bucket.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tessera_consensus::try_blocking;
use tessera_objects::{Location, Place};

use super::partial::PREFIX;
use super::read::{LINE_LIMIT, header};
use super::{Backup, BackupError, Header, Partial};

/// The suffix of the names of backups.
pub(super) const SUFFIX: &str = ".tessera-backup";
/// Age from which a file that is not whole belongs to nobody any more.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// A backup that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name in the folder or bucket.
    pub name: String,
    /// Its content, as stated in the file. Whether the file is whole is only known once it is read to its end.
    pub header: Header,
    pub bytes: u64,
}

/// The backups of all clusters in a folder, or under a prefix of a bucket, the oldest first. What cannot be read as
/// one is left out, and told in the log.
///
/// # Errors
/// When it cannot be found out what is there.
pub async fn kept(place: &Location) -> io::Result<Vec<Kept>> {
    let mut kept = match place {
        Location::Local(folder) => {
            let folder = folder.clone();
            in_background(move || in_folder(&folder)).await?
        }
        Location::Bucket(bucket) => in_bucket(bucket).await?,
    };
    kept.sort_by(|one, other| (one.header.taken_at_ms, &one.name).cmp(&(other.header.taken_at_ms, &other.name)));
    Ok(kept)
}

fn in_folder(folder: &Path) -> io::Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(SUFFIX) {
            continue;
        }
        let bytes = entry.metadata().map_or(0, |about| about.len());
        kept.extend(usable(name, bytes, Backup::open(&entry.path()).map(|backup| backup.header().clone())));
    }
    Ok(kept)
}

async fn in_bucket(bucket: &Place) -> io::Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for object in bucket.list().await.map_err(io::Error::other)? {
        if !object.name.ends_with(SUFFIX) {
            continue;
        }
        let beginning = bucket.beginning(&object.name, 2 * LINE_LIMIT).await.map_err(io::Error::other)?;
        let path = PathBuf::from(format!("{bucket}/{}", object.name));
        let header = header(&path, &mut &beginning[..], &mut Sha256::new());
        kept.extend(usable(object.name, object.bytes, header));
    }
    Ok(kept)
}

fn usable(name: String, bytes: u64, header: Result<Header, BackupError>) -> Option<Kept> {
    match header {
        Ok(header) => Some(Kept { name, header, bytes }),
        Err(error) => {
            tracing::warn!(%error, "a file among the backups is left alone");
            None
        }
    }
}

/// The folder in which a backup is written until it is whole: its final one, or the temporary folder of this machine
/// before the upload to a bucket.
pub(super) fn workshop(place: &Location) -> PathBuf {
    match place {
        Location::Local(folder) => folder.clone(),
        Location::Bucket(_) => std::env::temp_dir(),
    }
}

/// Puts a backup in its place when all of it is right.
pub(super) async fn publish(place: &Location, partial: Partial, name: &str) -> io::Result<()> {
    let bucket = match place {
        Location::Local(_) => None,
        Location::Bucket(bucket) => Some(bucket),
    };
    let here = bucket.is_none();
    let checked = in_background(move || {
        Backup::open(partial.written()).and_then(Backup::verify).map_err(io::Error::other)?;
        if here {
            return partial.publish().map(|()| None);
        }
        Ok(Some(partial))
    });
    if let (Some(partial), Some(bucket)) = (checked.await?, bucket) {
        bucket.upload(name, partial.written()).await.map_err(io::Error::other)?;
    }
    Ok(())
}

pub(super) async fn remove(place: &Location, name: &str) -> io::Result<()> {
    match place {
        Location::Local(folder) => {
            let path = folder.join(name);
            in_background(move || fs::remove_file(path)).await
        }
        Location::Bucket(bucket) => bucket.remove(name).await.map_err(io::Error::other),
    }
}

/// Removes what writers that died left where they wrote.
pub(super) async fn remove_abandoned(place: &Location) -> io::Result<()> {
    let folder = workshop(place);
    in_background(move || {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let abandoned = || entry.metadata()?.modified().map(|at| at.elapsed().is_ok_and(|age| age > ABANDONED));
            if entry.file_name().to_string_lossy().starts_with(PREFIX) && abandoned()? {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    })
    .await
}

/// Does what waits for a disk where that holds up nobody.
pub(super) async fn in_background<R: Send + 'static>(
    work: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    try_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
