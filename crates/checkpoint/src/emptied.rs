//! The folders of jobs: one goes when nothing is left in it, also while somebody is about to put something there.

use std::error::Error as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Error;

/// Removes the folder of a job if it is empty.
pub(crate) async fn remove_if_empty(of_job: PathBuf) -> Result<(), Error> {
    match tokio::fs::remove_dir(&of_job).await {
        Err(error) if !is_in_use_or_gone(&error) => Err(Error::io(of_job)(error)),
        _ => Ok(()),
    }
}

/// Returns whether something could not be put into a folder because that was removed meanwhile.
pub(crate) fn lost_its_folder(error: &object_store::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.any(|cause| cause.downcast_ref().is_some_and(|error: &io::Error| error.kind() == ErrorKind::NotFound))
}

/// Makes the entry of a checkpoint's folder durable, and that of its job's: whoever put something there may have seen a
/// folder that was another by then.
pub(crate) async fn sync_above(of_checkpoint: PathBuf) -> Result<(), Error> {
    let place = of_checkpoint.clone();
    let sync = move || of_checkpoint.ancestors().skip(1).take(2).try_for_each(|above| File::open(above)?.sync_all());
    let synced = tokio::task::spawn_blocking(sync).await;
    synced.map_err(io::Error::other).flatten().map_err(Error::io(place))
}

/// Removes folders of jobs in which there has been nothing for so long: whoever removed the last checkpoint may have
/// died before it removed the folder.
pub(crate) async fn remove_emptied(store: PathBuf, older_than: Duration) -> Result<(), Error> {
    let place = store.clone();
    let removed = tokio::task::spawn_blocking(move || remove_in(&store, older_than)).await;
    removed.map_err(io::Error::other).flatten().map_err(Error::io(place))
}

fn remove_in(store: &Path, older_than: Duration) -> io::Result<()> {
    let is_old = |changed: SystemTime| changed.elapsed().is_ok_and(|age| age >= older_than);
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        // Whatever else is there is somebody else's.
        let is_of_job = entry.file_name().to_str().is_some_and(|name| name.parse::<u64>().is_ok());
        let is_old = || entry.metadata().is_ok_and(|about| about.is_dir() && about.modified().is_ok_and(is_old));
        if !is_of_job || !is_old() {
            continue;
        }
        match fs::remove_dir(entry.path()) {
            Err(error) if is_in_use_or_gone(&error) => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Other agents look through a shared folder, too.
fn is_in_use_or_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound)
}
