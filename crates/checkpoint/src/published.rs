//! The description of a complete checkpoint, and the manifest that carries it.
//!
//! A manifest is one line of JSON and a second with the BLAKE3 hash of the first. It is written when everything that
//! it names is there, so a checkpoint with a manifest is complete, and one without is none.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::{LARGEST_CHUNK, MOST_ENTRIES};
use crate::{CheckpointId, StoredChunk};

/// Version of the manifests that this release writes, and the newest it reads.
pub const FORMAT: u32 = 3;

/// Longest manifest that is read: a hundred thousand chunks.
pub(crate) const LARGEST_MANIFEST: usize = 16 << 20;

/// The most bytes that compression and its frame may add to a chunk that does not become smaller.
const OVERHEAD: u64 = 1 << 20;

/// BLAKE3 of some bytes; its text form is hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Parses the text form of a hash; `None`: the text is none.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text).ok().map(Self::from)
    }

    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A hash that was kept elsewhere.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<blake3::Hash> for Hash {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = blake3::HexError;

    fn try_from(text: String) -> Result<Self, blake3::HexError> {
        blake3::Hash::from_hex(text).map(Self::from)
    }
}

/// One piece of a checkpoint as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Bytes of the packed folder that are in it.
    pub packed_bytes: u64,
    /// Bytes that it takes in the store.
    pub stored_bytes: u64,
    /// The hash of the stored bytes.
    pub hash: Hash,
    /// True if the stored bytes are compressed (zstd).
    pub compressed: bool,
}

/// A checkpoint that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Version of this description.
    pub format: u32,
    pub id: CheckpointId,
    /// Bytes of all files in it: holes count nothing, and a file of several names counts once.
    pub bytes: u64,
    /// Files, folders and links in it.
    pub entries: u64,
    /// Bytes that its chunks take in the store.
    pub stored_bytes: u64,
    /// The hash of the packed folder before compression, over the lengths and hashes of its chunks: the same for the
    /// same content that is cut in the same places, however it is stored.
    pub hash: Hash,
    /// The chunks in their order.
    pub chunks: Vec<Chunk>,
}

#[derive(Debug, thiserror::Error)]
pub enum BadManifest {
    /// It was cut off or changed.
    #[error("the manifest is cut off or was changed: its hash is not that of its content")]
    Hash,
    /// It is no JSON of the right form.
    #[error("the manifest cannot be read")]
    Form(#[from] serde_json::Error),
    /// A newer release wrote it.
    #[error("the manifest is in format {found}, this release reads format {FORMAT}")]
    Format { found: u32 },
    /// The content of the manifest is impossible.
    #[error("the manifest contradicts itself: {problem}")]
    Contradiction { problem: &'static str },
}

impl Published {
    /// One of its chunks, as it lies in a store.
    #[must_use]
    pub fn stored(&self, index: u32) -> Option<StoredChunk> {
        let Chunk { hash, stored_bytes, .. } = *self.chunks.get(index as usize)?;
        Some(StoredChunk { id: self.id, index, hash, stored_bytes })
    }

    /// All of its chunks, as they lie in a store.
    pub(crate) fn all_stored(&self) -> impl Iterator<Item = StoredChunk> {
        (0..).zip(&self.chunks).filter_map(|(index, _)| self.stored(index))
    }

    #[must_use]
    pub fn manifest(&self) -> Bytes {
        let mut text = serde_json::to_string(self).expect("numbers and texts have a form in JSON");
        let hash = Hash::of(text.as_bytes());
        text.push('\n');
        text.push_str(&hash.to_string());
        text.push('\n');
        text.into()
    }

    /// Reads the manifest of a checkpoint, and believes nothing in it that cannot be.
    ///
    /// # Errors
    /// [`BadManifest`].
    pub fn from_manifest(manifest: &[u8], id: &CheckpointId) -> Result<Self, BadManifest> {
        let text = std::str::from_utf8(manifest).map_err(|_| BadManifest::Hash)?;
        let (line, hash) = text.split_once('\n').ok_or(BadManifest::Hash)?;
        if hash.strip_suffix('\n') != Some(&Hash::of(line.as_bytes()).to_string()) {
            return Err(BadManifest::Hash);
        }
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_str(line)?;
        if format != FORMAT {
            return Err(BadManifest::Format { found: format });
        }
        let published: Self = serde_json::from_str(line)?;
        published.check(id).map_err(|problem| BadManifest::Contradiction { problem })?;
        Ok(published)
    }

    fn check(&self, id: &CheckpointId) -> Result<(), &'static str> {
        if self.id != *id {
            return Err("it is of another checkpoint");
        }
        if u32::try_from(self.chunks.len()).is_err() {
            return Err("it has too many chunks");
        }
        let too_large = |chunk: &Chunk| {
            chunk.packed_bytes > LARGEST_CHUNK || chunk.stored_bytes > chunk.packed_bytes.saturating_add(OVERHEAD)
        };
        if self.chunks.iter().any(too_large) {
            return Err("a chunk is larger than chunks are");
        }
        if self.bytes > self.chunks.iter().map(|chunk| chunk.packed_bytes).sum() {
            return Err("its files hold more than its chunks");
        }
        if self.entries > MOST_ENTRIES {
            return Err("it has more files, folders and links than checkpoints have");
        }
        if self.chunks.iter().map(|chunk| chunk.stored_bytes).sum::<u64>() != self.stored_bytes {
            return Err("its chunks do not sum up");
        }
        Ok(())
    }
}
