//! Files that are either old or new after a crash, never torn.
//!
//! The new one is written beside the old one first, into a file that was not there: some of these folders are others'
//! too, and a link that lies there leads nowhere.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// Ending of the name of a file that is not complete yet.
const UNFINISHED: &str = "new";

/// Replaces the file by `content` so that a crash at any moment leaves the old or the new content: written beside it,
/// fsynced, renamed, and the folder fsynced.
///
/// # Errors
/// What the file system says.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let (beside, file) = write_beside(path, content)?;
    file.sync_data()?;
    fs::rename(&beside, path)?;
    sync_parent(path)
}

/// Replaces the file by `content` at once for every reader, and on disk when the system finds time.
///
/// # Errors
/// What the file system says.
pub fn replace_soon(path: &Path, content: &[u8]) -> io::Result<()> {
    let (beside, _) = write_beside(path, content)?;
    fs::rename(beside, path)
}

/// As [`replace_soon`], and whoever could read the old file can read the new one: owner, group and mode are taken over.
///
/// # Errors
/// What the file system says; also when there is no old file.
pub fn replace_soon_like(path: &Path, content: &[u8]) -> io::Result<()> {
    let old = fs::metadata(path)?;
    let (beside, file) = write_beside(path, content)?;
    fchown(&file, Some(old.uid()), Some(old.gid()))?;
    file.set_permissions(old.permissions())?;
    fs::rename(beside, path)
}

/// Makes the entries of the folder that holds `path` durable.
///
/// # Errors
/// What the file system says.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Writes a file beside that of `path`, in the place of one that a crash has left.
fn write_beside(path: &Path, content: &[u8]) -> io::Result<(PathBuf, File)> {
    let beside = beside(path)?;
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(&beside)?;
    file.write_all(content)?;
    Ok((beside, file))
}

/// Returns whether the file is one that was being written when its writer died.
pub fn is_half_written(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == UNFINISHED)
}

fn beside(path: &Path) -> io::Result<PathBuf> {
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a file must have a name"))?;
    let mut beside = name.to_owned();
    beside.push(".");
    beside.push(UNFINISHED);
    Ok(path.with_file_name(beside))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_lies_beside_a_file_is_neither_followed_nor_in_the_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("kept"), "of somebody else").expect("written");
        for write in [replace, replace_soon, replace_soon_like] {
            fs::write(at("file"), "old").expect("written");
            symlink(at("kept"), at("file.new")).expect("linked");
            write(&at("file"), b"new").expect("replaced");
            assert_eq!(fs::read_to_string(at("file")).expect("read"), "new");
            assert_eq!(fs::read_to_string(at("kept")).expect("read"), "of somebody else");
            assert!(fs::symlink_metadata(at("file")).expect("there").is_file());
        }
    }
}
