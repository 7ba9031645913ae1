//! The folders of jobs that have no checkpoint left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Error;

/// Removes folders of jobs in which there has been nothing for so long. None goes at once with its last checkpoint: a
/// save that begins just then has made the folder, and not yet what it makes in it.
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
            // Other agents look through a shared folder, too.
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {}
            removed => removed?,
        }
    }
    Ok(())
}
