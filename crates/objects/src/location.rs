//! The location of something that may be on this machine or in a bucket.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use crate::{Place, PlaceError};

/// A path of this machine, or what a URL names in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this machine. It need not be there.
    Local(PathBuf),
    Bucket(Place),
}

impl Location {
    /// Parses a path, `file:///path` or `s3://bucket/name`. Nothing is created or contacted.
    ///
    /// # Errors
    /// [`PlaceError::BadUrl`].
    pub fn parse(text: &str) -> Result<Self, PlaceError> {
        if !text.contains("://") {
            return Ok(Self::Local(text.into()));
        }
        let bad = |problem: String| PlaceError::BadUrl { url: text.to_owned(), problem };
        let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
        if url.scheme() != "file" {
            return Place::open(text).map(Self::Bucket);
        }
        url.to_file_path().map(Self::Local).map_err(|()| bad("it names nothing of this machine".to_owned()))
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::Local(path)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Bucket(place) => place.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_name_what_they_say() {
        let local = |text: &str| match Location::parse(text) {
            Ok(Location::Local(path)) => path,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(local("pool.backup"), PathBuf::from("pool.backup"));
        assert_eq!(local("/srv/a b"), PathBuf::from("/srv/a b"));
        assert_eq!(local("file:///srv/a%20b"), PathBuf::from("/srv/a b"));
        let Ok(Location::Bucket(place)) = Location::parse("s3://bucket/pool/a.backup") else {
            panic!("it is in a bucket");
        };
        let (folder, name) = place.split().expect("it names something");
        assert_eq!((folder.url(), name.as_str()), ("s3://bucket/pool", "a.backup"));
        assert!(Location::parse("s3://bucket").is_ok_and(|bucket| match bucket {
            Location::Bucket(bucket) => bucket.split().is_err(),
            Location::Local(_) => false,
        }));
        for wrong in ["https://host/a", "file://host/a", "s3:///a"] {
            assert!(Location::parse(wrong).is_err(), "{wrong}");
        }
    }
}
