//! Reading a backup.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tessera_consensus::Unreadable;
use tessera_ledger::State;
use tessera_ledger::wire::decode_snapshot;

use super::{FORMAT, HASH_BYTES, Header, MAGIC};
use crate::machine::unreadable;

/// Longest line that is read: the header has a few hundred bytes.
pub(super) const LINE_LIMIT: u64 = 64 << 10;
/// Largest chunk that is read: no release writes a larger one, and a damaged length must not take gigabytes.
const CHUNK_LIMIT: usize = 80 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} cannot be read", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Another kind of file.
    #[error("{} is no backup of Tessera: {problem}", path.display())]
    NotABackup { path: PathBuf, problem: String },
    /// A newer release wrote it.
    #[error("{} is in format {found}, this release reads format {FORMAT}; use the release that wrote it", path.display())]
    UnknownFormat { path: PathBuf, found: String },
    /// It ends too early.
    #[error("{} is truncated: it ends before its hash; nothing of it was taken, use another backup", path.display())]
    Truncated { path: PathBuf },
    /// Its content is not what was written.
    #[error("{} is damaged: {problem}; nothing of it was taken, use another backup", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// Its hash is right, and this release cannot read what is in it.
    #[error("{} cannot be taken up", path.display())]
    Content {
        path: PathBuf,
        #[source]
        source: Unreadable,
    },
}

/// A backup of which the header was read. Whether the file is whole is known at its end.
#[derive(Debug)]
pub struct Backup {
    path: PathBuf,
    header: Header,
    file: BufReader<File>,
    hash: Sha256,
}

impl Backup {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        let failed = |source| BackupError::Io { path: path.to_owned(), source };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let mut hash = Sha256::new();
        let header = header(path, &mut file, &mut hash)?;
        Ok(Self { path: path.to_owned(), header, file, hash })
    }

    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Reads all of it and compares its hash; answers that, and how many bytes the file has. Nothing is kept.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn verify(mut self) -> Result<Verified, BackupError> {
        let hash = loop {
            if let Piece::End(hash) = self.next()? {
                break hash;
            }
        };
        let bytes = self.file.get_ref().metadata().map_err(|source| self.io(source))?.len();
        Ok(Verified { header: self.header, sha256: hash, bytes })
    }

    /// The ledger in it. The file is read twice: nothing is made of it before its hash is right.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn state(path: &Path) -> Result<(Header, State), BackupError> {
        let verified = Self::open(path)?.verify()?;
        let mut backup = Self::open(path)?;
        let mut failed = None;
        let chunks = std::iter::from_fn(|| match backup.next() {
            Ok(Piece::Chunk(chunk)) => Some(chunk),
            Ok(Piece::End(_)) => None,
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        let state = decode_snapshot(chunks);
        if let Some(error) = failed {
            return Err(error);
        }
        let content = |source| BackupError::Content { path: path.to_owned(), source };
        let state = state.map_err(|error| content(unreadable("the ledger in it", &error)))?;
        Ok((verified.header, state))
    }

    fn io(&self, source: io::Error) -> BackupError {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return BackupError::Truncated { path: self.path.clone() };
        }
        BackupError::Io { path: self.path.clone(), source }
    }

    fn damaged(&self, problem: impl Into<String>) -> BackupError {
        BackupError::Damaged { path: self.path.clone(), problem: problem.into() }
    }

    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, BackupError> {
        let mut taken = vec![0; bytes];
        self.file.read_exact(&mut taken).map_err(|source| self.io(source))?;
        self.hash.update(&taken);
        Ok(taken)
    }

    fn next(&mut self) -> Result<Piece, BackupError> {
        let length = self.take(4)?;
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if length > CHUNK_LIMIT {
            return Err(self.damaged(format!("a chunk of {length} bytes is longer than any release writes")));
        }
        if length > 0 {
            return Ok(Piece::Chunk(Bytes::from(self.take(length)?)));
        }
        let computed = self.hash.finalize_reset();
        let mut written = [0; HASH_BYTES];
        self.file.read_exact(&mut written).map_err(|source| self.io(source))?;
        if computed.as_slice() != written {
            return Err(self.damaged("its content does not have the SHA-256 at its end"));
        }
        match self.file.fill_buf().map(<[u8]>::is_empty) {
            Ok(true) => Ok(Piece::End(computed.iter().map(|byte| format!("{byte:02x}")).collect())),
            Ok(false) => Err(self.damaged("bytes follow its hash")),
            Err(source) => Err(self.io(source)),
        }
    }
}

/// A piece read from a backup.
enum Piece {
    Chunk(Bytes),
    /// The end, with the hash in hexadecimal digits.
    End(String),
}

/// A backup that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub header: Header,
    /// SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
}

/// Reads the header of a backup from its first two lines, and adds these lines to `hash`.
pub(super) fn header(path: &Path, file: &mut impl BufRead, hash: &mut Sha256) -> Result<Header, BackupError> {
    let failed = |source| BackupError::Io { path: path.to_owned(), source };
    let not_one = |problem: &str| BackupError::NotABackup { path: path.to_owned(), problem: problem.to_owned() };
    let first = line(file, hash).map_err(failed)?;
    let first = first.ok_or_else(|| not_one("its first line is none"))?;
    let format = first.strip_prefix(MAGIC).ok_or_else(|| not_one("it does not begin as one"))?;
    if format.parse() != Ok(FORMAT) {
        return Err(BackupError::UnknownFormat { path: path.to_owned(), found: format.to_owned() });
    }
    let second = line(file, hash).map_err(failed)?;
    let second = second.ok_or_else(|| BackupError::Truncated { path: path.to_owned() })?;
    serde_json::from_str(&second)
        .map_err(|error| BackupError::Damaged { path: path.to_owned(), problem: format!("its header: {error}") })
}

/// A line without its end; `None` when there is no whole one.
fn line(file: &mut impl BufRead, hash: &mut Sha256) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    file.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut bytes)?;
    hash.update(&bytes);
    let whole = bytes.pop() == Some(b'\n');
    Ok(String::from_utf8(bytes).ok().filter(|_| whole))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Counts, Encoder};
    use super::*;
    use crate::fixture::{Ledger, job};

    fn header() -> Header {
        Header {
            cluster_id: "c".to_owned(),
            release: "0.1.0".to_owned(),
            level: 1,
            revision: 5,
            term: 2,
            log_time_ms: 1_000,
            taken_at_ms: 2_000,
            counts: Counts { nodes: 1, jobs: BTreeMap::from([("pending".to_owned(), 1)]), ..Counts::default() },
        }
    }

    fn bytes_of(ledger: &Ledger) -> Vec<u8> {
        Encoder::new(header(), &ledger.state).flat_map(|piece| piece.to_vec()).collect()
    }

    fn small() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.node("a", &[10]);
        ledger.submit(job(4));
        ledger
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let (ledger, folder) = (small(), tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("backup");
        std::fs::write(&path, bytes_of(&ledger)).expect("writable");
        let verified = Backup::open(&path).and_then(Backup::verify).expect("it is whole");
        assert_eq!(verified.header, header());
        let (read, state) = Backup::state(&path).expect("it is whole");
        assert_eq!((read, state.digest()), (header(), ledger.state.digest()));
    }

    #[test]
    fn what_a_backup_says_of_lengths_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("backup");
        let refused = |content: &[u8]| {
            std::fs::write(&path, content).expect("writable");
            Backup::open(&path).and_then(Backup::verify).expect_err("no release writes it").to_string()
        };
        let line = vec![b'x'; usize::try_from(LINE_LIMIT).expect("it is small") + 1];
        assert!(refused(&line).contains("its first line is none"));
        let head = format!("{MAGIC}{FORMAT}\n{}\n", serde_json::to_string(&header()).expect("it is written"));
        let chunk = u32::try_from(CHUNK_LIMIT + 1).expect("it is small").to_be_bytes();
        let said = refused(&[head.as_bytes(), &chunk[..]].concat());
        assert!(said.contains("a chunk of 83886081 bytes is longer than any release writes"), "{said}");
    }

    #[test]
    fn a_backup_in_which_any_byte_has_changed_or_is_missing_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("backup");
        let bytes = bytes_of(&small());
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 0x10;
            for spoiled in [&flipped[..], &bytes[..place]] {
                std::fs::write(&path, spoiled).expect("writable");
                let refused = Backup::state(&path).expect_err("not what was written");
                assert!(refused.to_string().contains("backup"), "byte {place}: {refused}");
            }
        }
    }
}
