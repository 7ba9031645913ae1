//! The archive: a `tar.gz` that only its owner may read, with a manifest.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::parts::{Missing, Parts};

/// The list of the files in the archive, and of those that are missing.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    pub made_at: String,
    /// Release of the program that made it.
    pub version: String,
    /// The time that the collection took.
    pub seconds: f64,
    pub files: Vec<FileEntry>,
    pub missing: Vec<Missing>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FileEntry {
    pub name: String,
    pub bytes: usize,
    pub sha256: String,
}

impl Manifest {
    #[must_use]
    pub fn of(parts: &Parts, seconds: f64) -> Self {
        let entry = |(name, content): &(String, Vec<u8>)| FileEntry {
            name: name.clone(),
            bytes: content.len(),
            sha256: Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        Self {
            made_at: jiff::Timestamp::now().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seconds,
            files: parts.files.iter().map(entry).collect(),
            missing: parts.missing.clone(),
        }
    }
}

/// Opens the file, which must not be there yet: only its owner can read it from the first byte on.
///
/// # Errors
/// When it is there, or cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes the parts and their manifest.
///
/// # Errors
/// When the file cannot be written.
pub fn write(file: File, parts: &Parts, manifest: &Manifest) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let manifest = serde_json::to_vec_pretty(manifest).map_err(io::Error::other)?;
    let first = ("manifest.json".to_owned(), manifest);
    let made = jiff::Timestamp::now().as_second();
    for (name, content) in std::iter::once(&first).chain(&parts.files) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(made).unwrap_or(0));
        archive.append_data(&mut header, format!("tessera-debug/{name}"), content.as_slice())?;
    }
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_archive_is_for_its_owner_only_and_is_never_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("b.tar.gz");
        let mut parts = Parts::default();
        parts.put("a/b.txt", Ok(b"hello".to_vec()));
        parts.put("c", Err("gone".to_owned()));
        let manifest = Manifest::of(&parts, 1.5);
        write(create(&path).expect("made"), &parts, &manifest).expect("written");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);

        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).expect("there")));
        let mut texts = Vec::new();
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            texts.push((entry.path().expect("a name").display().to_string(), text));
        }
        assert_eq!(texts[1], ("tessera-debug/a/b.txt".to_owned(), "hello".to_owned()));
        let manifest: serde_json::Value = serde_json::from_str(&texts[0].1).expect("JSON");
        assert_eq!(manifest["files"][0]["sha256"], "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert_eq!(manifest["missing"][0]["why"], "gone");
    }
}
