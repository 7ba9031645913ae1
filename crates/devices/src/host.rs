//! The host as backends see it: a root folder for its files, a name, and a folder for what was measured.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::DeviceError;

/// The location of the files of the host: `/`, or a folder of fixtures in tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot {
    root: PathBuf,
    data: PathBuf,
    node: String,
}

impl HostRoot {
    /// This very host.
    #[must_use]
    pub fn new(node: impl Into<String>, data: impl Into<PathBuf>) -> Self {
        Self::with_root("/", node, data)
    }

    /// A host whose files lie under another folder.
    #[must_use]
    pub fn with_root(root: impl Into<PathBuf>, node: impl Into<String>, data: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), data: data.into(), node: node.into() }
    }

    /// Name of the node: part of the identity of cards that have none of their own.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// A file of the data folder.
    #[must_use]
    pub fn data_file(&self, name: &str) -> PathBuf {
        self.data.join(name)
    }

    /// A path of the host.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a text file of the host.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, path: &str) -> Result<String, DeviceError> {
        let path = self.path(path);
        fs::read_to_string(&path).map_err(|source| DeviceError::Host { path, source })
    }

    /// Writes a file of the data folder, completely or not at all.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub(crate) fn keep(&self, name: &str, text: &str) -> Result<(), DeviceError> {
        let path = self.data_file(name);
        let aside = path.with_extension("new");
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.data)?;
            let mut file = File::create(&aside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&aside, &path)
        };
        write().map_err(|source| DeviceError::Cache { path: path.clone(), source })
    }

    /// Folders below a folder of the host, in order of name; empty when there is no such folder.
    #[must_use]
    pub fn folders(&self, path: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut folders: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    }
}

/// The number after `name:` in a file of `name: number unit` lines.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// A small file of one number.
pub(crate) fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
