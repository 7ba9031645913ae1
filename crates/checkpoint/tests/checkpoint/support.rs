//! Folders to save, and what is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tessera_checkpoint::{CheckpointId, Limits, Objects};

/// The first checkpoint of job 12, and those after it.
pub fn id(sequence: u64) -> CheckpointId {
    CheckpointId { job: 12, attempt: 1, epoch: 40, sequence, rank: 0 }
}

/// A store in a folder that is gone with the test.
pub struct Shelf {
    pub objects: Objects,
    pub folder: TempDir,
}

impl Shelf {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { objects: Objects::folder(folder.path()).expect("it can be made"), folder }
    }

    /// The files of a checkpoint in the store.
    pub fn files(&self, id: &CheckpointId) -> Vec<PathBuf> {
        let folder = self.folder.path().join(id.job.to_string()).join(id.to_string());
        let entries = fs::read_dir(folder).into_iter().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.expect("it is read").path()).collect();
        files.sort();
        files
    }
}

/// Chunks so small that a few files make several.
pub fn small_chunks() -> Limits {
    Limits::new().chunk_bytes(NonZeroU64::new(4096).expect("not zero"))
}

/// A folder with what a trainer writes: some that compresses, some that does not.
pub fn trained() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut weights = vec![0; 20_000];
    blake3::Hasher::new().finalize_xof().fill(&mut weights);
    fs::write(folder.path().join("weights"), weights).expect("written");
    fs::create_dir(folder.path().join("state")).expect("made");
    fs::write(folder.path().join("state/step"), "1200").expect("written");
    fs::write(folder.path().join("state/history"), [7; 5000]).expect("written");
    std::os::unix::fs::symlink("../weights", folder.path().join("state/newest")).expect("linked");
    folder
}

/// A file that is `length` bytes long and holds some bytes at each of these places.
pub fn with_holes(path: &Path, length: u64, held: &[(u64, &[u8])]) {
    let file = fs::File::create(path).expect("made");
    file.set_len(length).expect("files may be so long");
    for (start, bytes) in held {
        file.write_all_at(bytes, *start).expect("written");
    }
}

/// Bytes that a file takes on its disk.
pub fn on_disk(file: &Path) -> u64 {
    fs::metadata(file).expect("it is there").blocks() * 512
}

/// Everything in a folder but times: by path, what it is, and under which other names.
pub fn content(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut content = BTreeMap::new();
    let mut names = BTreeMap::<u64, BTreeSet<PathBuf>>::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("it is there") {
            let path = entry.expect("it is read").path();
            let about = fs::symlink_metadata(&path).expect("it is there");
            let mode = about.permissions().mode() & 0o777;
            let what = if about.is_symlink() {
                format!("link to {:?}", fs::read_link(&path).expect("a link"))
            } else if about.is_dir() {
                folders.push(path.clone());
                format!("folder {mode:o}")
            } else {
                let name = path.strip_prefix(folder).expect("below").to_owned();
                names.entry(about.ino()).or_default().insert(name);
                format!("file {mode:o} {}", blake3::hash(&fs::read(&path).expect("a file")))
            };
            content.insert(path.strip_prefix(folder).expect("below").to_owned(), what);
        }
    }
    for names in names.values().filter(|names| names.len() > 1) {
        for name in names {
            content.entry(name.clone()).or_default().push_str(&format!(" as {names:?}"));
        }
    }
    content
}
