//! The frame of a record on the disk: one version byte, a CRC-32, then the body.
//!
//! The checksum covers the version, the column family, the key and the body, so that a value which is intact but lies
//! under another key is found too. The first five bytes keep this form in every later version (L7): a checksum that
//! holds under a version we do not know means "newer release", one that does not hold means "damaged".

use std::path::Path;

use bytes::Bytes;

use crate::error::StoreError;

/// Newest version of the record frame this release reads and the one it writes.
pub(crate) const FRAME_VERSION: u8 = 1;

const HEADER: usize = 5;

/// The remedy for a bad record: never repair by guessing, take the member's data from the others (L7).
pub(crate) const REMEDY: &str = "nothing was skipped or repaired; keep a copy of the data folder, then replace this \
    member by a new one with an empty data folder";

/// The three column families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// Entries by big-endian index.
    Log,
    /// Everything there is one of, by name.
    Meta,
    /// Chunks by big-endian snapshot id and chunk number.
    Snapshot,
}

impl Family {
    /// All of them, in the order of their tags.
    #[cfg(feature = "rocksdb")]
    pub(crate) const ALL: [Family; 3] = [Family::Log, Family::Meta, Family::Snapshot];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Log => "log",
            Family::Meta => "meta",
            Family::Snapshot => "snapshot",
        }
    }

    fn tag(self) -> u8 {
        match self {
            Family::Log => 1,
            Family::Meta => 2,
            Family::Snapshot => 3,
        }
    }
}

/// A defect of a frame, before it is known where the frame lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The record should be there and is not.
    Missing,
    /// Too short to hold a header.
    Short { length: usize },
    /// The checksum does not hold.
    Checksum { expected: u32, found: u32 },
    /// Intact, but of a later version.
    Version(u8),
    /// Intact, but its body says something that cannot be.
    Content { expected: String, found: String },
}

impl Fault {
    /// The error of a record at `key` of `family` in the store at `path`.
    pub(crate) fn at(self, path: &Path, family: Family, key: &[u8]) -> StoreError {
        let key = shown_key(family, key);
        let (expected, found) = match self {
            Fault::Version(found) => {
                return StoreError::UnknownFormat {
                    path: path.to_owned(),
                    what: format!("record {key} of column family {}", family.name()),
                    found: u32::from(found),
                    known: u32::from(FRAME_VERSION),
                };
            }
            Fault::Missing => ("a record".to_owned(), "none".to_owned()),
            Fault::Short { length } => (format!("at least {HEADER} bytes"), format!("{length} bytes")),
            Fault::Checksum { expected, found } => {
                (format!("CRC-32 {expected:08x}"), format!("content with CRC-32 {found:08x}"))
            }
            Fault::Content { expected, found } => (expected, found),
        };
        StoreError::Damaged {
            path: path.to_owned(),
            family: family.name(),
            key: key.into(),
            expected: expected.into(),
            found: found.into(),
            remedy: REMEDY,
        }
    }
}

/// Wraps a body given in parts.
pub(crate) fn seal(family: Family, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER + parts.iter().map(|part| part.len()).sum::<usize>());
    frame.push(FRAME_VERSION);
    frame.extend_from_slice(&[0; 4]);
    for part in parts {
        frame.extend_from_slice(part);
    }
    let sum = checksum(FRAME_VERSION, family, key, &frame[HEADER..]);
    frame[1..HEADER].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Unwraps a body after checking it.
pub(crate) fn unseal(family: Family, key: &[u8], frame: &Bytes) -> Result<Bytes, Fault> {
    let Some((header, body)) = frame.split_first_chunk::<HEADER>() else {
        return Err(Fault::Short { length: frame.len() });
    };
    let [version, a, b, c, d] = *header;
    let expected = u32::from_be_bytes([a, b, c, d]);
    let found = checksum(version, family, key, body);
    if expected != found {
        return Err(Fault::Checksum { expected, found });
    }
    if version != FRAME_VERSION {
        return Err(Fault::Version(version));
    }
    Ok(frame.slice(HEADER..))
}

fn checksum(version: u8, family: Family, key: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[version, family.tag()]);
    hasher.update(key);
    hasher.update(body);
    hasher.finalize()
}

fn shown_key(family: Family, key: &[u8]) -> String {
    match (family, key) {
        (Family::Log, key) if key.len() == 8 => number(key).to_string(),
        (Family::Snapshot, key) if key.len() == 12 => {
            format!("chunk {} of snapshot {}", number(&key[8..]), number(&key[..8]))
        }
        (Family::Meta, key) => String::from_utf8_lossy(key).into_owned(),
        (_, key) => hex(key),
    }
}

/// Index in the key of a log entry.
pub(crate) fn index_of(key: &[u8], path: &Path) -> Result<u64, StoreError> {
    key.try_into().map(u64::from_be_bytes).map_err(|_| {
        let (expected, found) = ("a key of 8 bytes".to_owned(), format!("{} bytes", key.len()));
        Fault::Content { expected, found }.at(path, Family::Log, key)
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// Bytes as people read them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_again() {
        let frame = Bytes::from(seal(Family::Log, b"key", &[b"bo", b"dy"]));
        assert_eq!(unseal(Family::Log, b"key", &frame), Ok(Bytes::from_static(b"body")));
    }

    #[test]
    fn every_flipped_bit_and_every_wrong_place_is_found() {
        let frame = seal(Family::Meta, b"vote", &[b"body"]);
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = unseal(Family::Meta, b"vote", &Bytes::from(bad));
            assert!(matches!(found, Err(Fault::Checksum { .. })), "bit {bit}: {found:?}");
        }
        let frame = Bytes::from(frame);
        assert!(unseal(Family::Meta, b"vota", &frame).is_err());
        assert!(unseal(Family::Log, b"vote", &frame).is_err());
        assert_eq!(unseal(Family::Meta, b"vote", &frame.slice(..3)), Err(Fault::Short { length: 3 }));
    }

    #[test]
    fn an_intact_record_of_a_newer_version_is_not_called_damaged() {
        let mut frame = seal(Family::Meta, b"vote", &[b"body"]);
        frame[0] = 2;
        let sum = checksum(2, Family::Meta, b"vote", b"body");
        frame[1..HEADER].copy_from_slice(&sum.to_be_bytes());
        let fault = unseal(Family::Meta, b"vote", &Bytes::from(frame)).expect_err("version 2");
        assert_eq!(fault, Fault::Version(2));
        let error = fault.at(Path::new("data"), Family::Meta, b"vote");
        assert!(matches!(error, StoreError::UnknownFormat { found: 2, known: 1, .. }));
    }

    #[test]
    fn an_error_names_file_family_and_index() {
        let key = 4711_u64.to_be_bytes();
        let error = Fault::Checksum { expected: 1, found: 2 }.at(Path::new("data"), Family::Log, &key);
        let text = error.to_string();
        for part in ["data", "log", "4711", "00000001", "00000002", "replace this member"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}
