//! Errors of places.

use std::io;
use std::path::PathBuf;

/// The reason why something could not be stored or retrieved.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("{url:?} names no place: {problem}; the forms are file:///folder and s3://bucket/prefix")]
    BadUrl { url: String, problem: String },
    #[error("{place} is full; remove something there, or give it more")]
    Full { place: String },
    #[error("there is no {name} at {place}")]
    Missing { place: String, name: String },
    /// It does not answer, or not now.
    #[error("{place} cannot be reached; try again later")]
    Unreachable {
        place: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It does not let us.
    #[error("{place} refuses; check who may read and write there")]
    Refused {
        place: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file on this machine.
    #[error("{} cannot be used", path.display())]
    Io {
        /// The path that could not be read or written.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl PlaceError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Converts an error of the object store.
    pub(crate) fn of(place: &str, error: object_store::Error) -> Self {
        let place = place.to_owned();
        let said = |kinds: &[io::ErrorKind]| {
            let mut causes =
                std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source());
            causes.any(|cause| cause.downcast_ref().is_some_and(|error: &io::Error| kinds.contains(&error.kind())))
        };
        if said(&[io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) {
            return Self::Full { place };
        }
        let refused = said(&[io::ErrorKind::PermissionDenied]);
        match error {
            object_store::Error::NotFound { path, .. } => Self::Missing { place, name: path },
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::Refused { place, source: Box::new(error) }
            }
            error if refused => Self::Refused { place, source: Box::new(error) },
            error => Self::Unreachable { place, source: Box::new(error) },
        }
    }
}
