//! Errors of checkpoints.

use std::io;
use std::path::PathBuf;

use tessera_objects::PlaceError;

use crate::CheckpointId;
use crate::published::BadManifest;

/// The reason for which an operation on a checkpoint failed. Nothing is half done: a checkpoint is complete or absent,
/// and a folder is restored or not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the checkpoint store {place} is full: {needed_bytes} bytes are needed, {free_bytes} are free; remove checkpoints or give it more"
    )]
    Full {
        place: String,
        /// 0: not known.
        needed_bytes: u64,
        /// The free bytes; 0: none, or not known.
        free_bytes: u64,
    },
    /// It does not answer, or not now.
    #[error("the checkpoint store {place} cannot be reached; try again later")]
    Unreachable {
        place: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It does not let us.
    #[error("the checkpoint store {place} refuses; check who may read and write there")]
    Refused {
        place: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is none, or it was never complete.
    #[error("there is no checkpoint {id} in {place}; it was never complete, or was removed")]
    Missing { place: String, id: CheckpointId },
    /// An agent does not know the ticket for it: it forgets tickets with the checkpoints.
    #[error("the checkpoint {id} is not given out by {place}: it is not kept there any more, or has another ticket")]
    NotGiven { place: String, id: CheckpointId },
    #[error("the checkpoint {id} in {place} is damaged: {problem}; take the one before")]
    Damaged { place: String, id: CheckpointId, problem: String },
    #[error(
        "there is a checkpoint {id} in {place} already, and checkpoints do not change; save under the next sequence"
    )]
    Exists { place: String, id: CheckpointId },
    #[error("the checkpoint store {place} belongs to another agent and is only read from here")]
    ReadOnly { place: String },
    /// Something that cannot be packed.
    #[error("{} cannot be in a checkpoint: {problem}", path.display())]
    Unsuitable { path: PathBuf, problem: &'static str },
    /// It was written to.
    #[error("{} changed while it was saved; save when the program writes nothing", path.display())]
    Changed { path: PathBuf },
    /// There is something where a checkpoint should be restored.
    #[error("{} is not empty; restore into a folder that does not exist yet", path.display())]
    NotEmpty { path: PathBuf },
    /// The file system.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The path that could not be read or written.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{address:?} is no checkpoint store: {problem}")]
    BadAddress { address: String, problem: String },
    /// The process ends, or a thread of it died.
    #[error("work in the background ended before it was done")]
    Ended,
}

impl Error {
    /// Returns whether the same operation may succeed when it is tried again later.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Full { .. } | Self::Changed { .. } | Self::Ended)
    }

    /// Returns whether the checkpoint is not there, or not any more.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NotGiven { .. })
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match is_full(&source) {
            true => Self::Full { place: path.display().to_string(), needed_bytes: 0, free_bytes: 0 },
            false => Self::Io { path, source },
        }
    }

    pub(crate) fn manifest(place: &str, id: &CheckpointId) -> impl FnOnce(BadManifest) -> Self {
        let (place, id) = (place.to_owned(), *id);
        move |bad| Self::Damaged { place, id, problem: bad.to_string() }
    }
}

impl From<PlaceError> for Error {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::BadUrl { url: address, problem } => Self::BadAddress {
                address,
                problem: format!("{problem}; the forms are file:///folder and s3://bucket/prefix"),
            },
            PlaceError::Full { place } => Self::Full { place, needed_bytes: 0, free_bytes: 0 },
            PlaceError::Refused { place, source } => Self::Refused { place, source },
            PlaceError::Unreachable { place, source } => Self::Unreachable { place, source },
            PlaceError::Io { path, source } => Self::io(path)(source),
            // Only a bucket is missing as a whole; what is in it is asked for by those who know what it is.
            PlaceError::Missing { ref place, .. } => {
                Self::Unreachable { place: place.clone(), source: Box::new(error) }
            }
        }
    }
}

/// Returns whether the system reported that there is no room, or no more for this user.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
