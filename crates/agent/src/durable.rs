//! Files that are either old or new after a crash, never torn.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

/// Replaces the file by `content` so that a crash at any moment leaves the old or the new content: written beside it,
/// fsynced, renamed, and the folder fsynced.
///
/// # Errors
/// What the file system says.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = beside(path)?;
    let mut file = File::create(&beside)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(&beside, path)?;
    sync_parent(path)
}

/// Replaces the file by `content` at once for every reader, and on disk when the system finds time.
///
/// # Errors
/// What the file system says.
pub fn replace_soon(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = beside(path)?;
    fs::write(&beside, content)?;
    fs::rename(&beside, path)
}

/// As [`replace_soon`], and whoever could read the old file can read the new one: owner, group and mode are taken over.
///
/// # Errors
/// What the file system says; also when there is no old file.
pub fn replace_soon_like(path: &Path, content: &[u8]) -> io::Result<()> {
    let (beside, old) = (beside(path)?, fs::metadata(path)?);
    fs::write(&beside, content)?;
    chown(&beside, Some(old.uid()), Some(old.gid()))?;
    fs::set_permissions(&beside, old.permissions())?;
    fs::rename(&beside, path)
}

/// Makes the entries of the folder that holds `path` durable.
///
/// # Errors
/// What the file system says.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn beside(path: &Path) -> io::Result<PathBuf> {
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a file must have a name"))?;
    let mut beside = name.to_owned();
    beside.push(".new");
    Ok(path.with_file_name(beside))
}
