//! A file that appears under its name only when it is whole.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// The prefix of the names of files that are not whole yet.
pub(crate) const PREFIX: &str = ".tessera-backup-";

/// A file being written beside its place. Dropped before it is published, it is gone. Nobody but its owner may read it:
/// jobs carry what their users would not show.
#[derive(Debug)]
pub struct Partial {
    file: NamedTempFile,
    path: PathBuf,
}

impl Partial {
    /// Begins a file that is to be at `path`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = Builder::new().prefix(PREFIX).suffix(".partial").tempfile_in(folder_of(path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// What the file system says, such as that it is full.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// The path of the file until it is published.
    #[must_use]
    pub fn written(&self) -> &Path {
        self.file.path()
    }

    /// Puts it in its place, durably; a file that was there before is replaced as a whole.
    ///
    /// # Errors
    /// What the file system says.
    pub fn publish(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path).map_err(|failed| failed.error)?;
        File::open(folder_of(&self.path))?.sync_all()
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
