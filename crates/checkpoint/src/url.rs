//! Where things are kept, by URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use url::Url;

use crate::Error;

/// A folder or a bucket, ready to be used. It opens no connection by itself.
#[derive(Clone, Debug)]
pub struct Place {
    url: String,
    objects: Arc<dyn ObjectStore>,
    prefix: Key,
    folder: Option<PathBuf>,
}

impl Place {
    /// Of a URL: `file:///folder` or `s3://bucket/prefix`.
    ///
    /// A bucket's credentials, region and endpoint are those of the environment, under the names that all tools of S3
    /// use: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`
    /// (`AWS_ALLOW_HTTP=true` where that is plain HTTP), web identity and instance roles.
    ///
    /// # Errors
    /// [`Error::BadUrl`]; [`Error::Io`] when the folder cannot be made.
    pub fn open(url: &str) -> Result<Self, Error> {
        let bad = |problem: String| Error::BadUrl { url: url.to_owned(), problem };
        let parsed = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        match parsed.scheme() {
            "file" => {
                let folder =
                    parsed.to_file_path().map_err(|()| bad("it names no folder of this machine".to_owned()))?;
                Self::folder(&folder)
            }
            "s3" => Self::bucket(url, &parsed),
            scheme => Err(bad(format!("{scheme} is not known here"))),
        }
    }

    /// A folder. It is made when it is not there; then nobody but its owner may look into it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn folder(folder: &Path) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(Error::io(folder))?;
        let folder = folder.canonicalize().map_err(Error::io(folder))?;
        let bad = |problem: String| Error::BadUrl { url: folder.display().to_string(), problem };
        let objects = LocalFileSystem::new_with_prefix(&folder).map_err(|error| bad(error.to_string()))?;
        let url = Url::from_file_path(&folder).map_err(|()| bad("it is not absolute".to_owned()))?;
        // A checkpoint that was told is there after a power cut.
        let objects = Arc::new(objects.with_fsync(true));
        Ok(Self { url: url.to_string(), objects, prefix: Key::default(), folder: Some(folder) })
    }

    fn bucket(url: &str, parsed: &Url) -> Result<Self, Error> {
        let bad = |problem: String| Error::BadUrl { url: url.to_owned(), problem };
        let bucket = parsed.host_str().filter(|bucket| !bucket.is_empty());
        let bucket = bucket.ok_or_else(|| bad("it names no bucket".to_owned()))?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(bad("credentials and options come from the environment, not from the URL".to_owned()));
        }
        let prefix = Key::from_url_path(parsed.path()).map_err(|error| bad(error.to_string()))?;
        // TLS needs one provider of ciphers for the process; whoever came first has chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let objects = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
        let objects = Arc::new(objects.map_err(|error| bad(error.to_string()))?);
        Ok(Self { url: url.trim_end_matches('/').to_owned(), objects, prefix, folder: None })
    }

    /// As it was given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is in it, under [`Place::prefix`].
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// How the names of all objects here begin.
    #[must_use]
    pub const fn prefix(&self) -> &Key {
        &self.prefix
    }

    /// Where it is on this machine; `None`: it is not.
    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What an answer of the object store means, when it is not that something is missing.
    #[must_use]
    pub fn error(&self, error: object_store::Error) -> Error {
        let place = self.url.clone();
        if causes(&error).any(|cause| cause.downcast_ref().is_some_and(crate::error::is_full)) {
            return Error::Full { place, needed_bytes: 0, free_bytes: 0 };
        }
        let denied = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::PermissionDenied;
        let refused = causes(&error).any(|cause| cause.downcast_ref().is_some_and(denied));
        match error {
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Error::Refused { place, source: Box::new(error) }
            }
            error if refused => Error::Refused { place, source: Box::new(error) },
            error => Error::Unreachable { place, source: Box::new(error) },
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_place_is_refused_and_says_the_forms() {
        for url in ["", "/folder", "ftp://host/folder", "s3://", "s3://key:secret@bucket/prefix", "file://other/folder"]
        {
            let refused = Place::open(url).expect_err(url).to_string();
            assert!(refused.contains("s3://bucket/prefix"), "{refused}");
        }
    }
}
