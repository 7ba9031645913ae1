//! Places for storage, named by URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::PlaceError;

/// The time limit for opening a connection to a bucket.
const CONNECT: Duration = Duration::from_secs(5);
/// The time limit for one request: a large chunk over a slow line.
const REQUEST: Duration = Duration::from_secs(300);
/// The number of retries of a request, and their time limit, before the bucket counts as unreachable.
const RETRIES: usize = 4;
const RETRY: Duration = Duration::from_secs(60);

/// A folder or a bucket, ready to be used. It opens no connection by itself.
#[derive(Clone, Debug)]
pub struct Place {
    url: String,
    objects: Arc<dyn ObjectStore>,
    prefix: Key,
    folder: Option<PathBuf>,
}

impl Place {
    /// Opens the place of a URL: `file:///folder` or `s3://bucket/prefix`.
    ///
    /// A bucket's credentials, region and endpoint are those of the environment, under the names that all tools of S3
    /// use: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`
    /// (`AWS_ALLOW_HTTP=true` where that is plain HTTP), web identity and instance roles.
    ///
    /// # Errors
    /// [`PlaceError::BadUrl`]; [`PlaceError::Io`] when the folder cannot be made.
    pub fn open(url: &str) -> Result<Self, PlaceError> {
        let variables = std::env::vars_os();
        let readable =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::open_with(url, readable)
    }

    /// As [`Place::open`], with these variables in place of those of the environment.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(url: &str, variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, PlaceError> {
        let bad = |problem: String| PlaceError::BadUrl { url: url.to_owned(), problem };
        let parsed = Url::parse(url).map_err(|error| bad(error.to_string()))?;
        match parsed.scheme() {
            "file" => {
                let folder =
                    parsed.to_file_path().map_err(|()| bad("it names no folder of this machine".to_owned()))?;
                Self::folder(&folder)
            }
            "s3" => Self::bucket(url, &parsed, variables),
            scheme => Err(bad(format!("{scheme} is not known here"))),
        }
    }

    /// A folder. It is made when it is not there; then nobody but its owner may look into it.
    ///
    /// # Errors
    /// [`PlaceError::Io`].
    pub fn folder(folder: &Path) -> Result<Self, PlaceError> {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(PlaceError::io(folder))?;
        let folder = folder.canonicalize().map_err(PlaceError::io(folder))?;
        let bad = |problem: String| PlaceError::BadUrl { url: folder.display().to_string(), problem };
        let objects = LocalFileSystem::new_with_prefix(&folder).map_err(|error| bad(error.to_string()))?;
        let url = Url::from_file_path(&folder).map_err(|()| bad("it is not absolute".to_owned()))?;
        // What was told to be there is there after a power cut.
        let objects = Arc::new(objects.with_fsync(true));
        Ok(Self { url: url.to_string(), objects, prefix: Key::default(), folder: Some(folder) })
    }

    fn bucket(
        url: &str,
        parsed: &Url,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, PlaceError> {
        let bad = |problem: String| PlaceError::BadUrl { url: url.to_owned(), problem };
        let bucket = parsed.host_str().filter(|bucket| !bucket.is_empty());
        let bucket = bucket.ok_or_else(|| bad("it names no bucket".to_owned()))?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(bad("credentials and options come from the environment, not from the URL".to_owned()));
        }
        let prefix = Key::from_url_path(parsed.path()).map_err(|error| bad(error.to_string()))?;
        // TLS needs one provider of ciphers for the process; whoever came first has chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = ClientOptions::new().with_connect_timeout(CONNECT).with_timeout(REQUEST);
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
        for (name, value) in variables {
            // What is not for S3 is for somebody else.
            if name.starts_with("AWS_")
                && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
            {
                builder = builder.with_config(key, value);
            }
        }
        let objects = builder.with_bucket_name(bucket).build();
        let objects = Arc::new(objects.map_err(|error| bad(error.to_string()))?);
        Ok(Self { url: url.trim_end_matches('/').to_owned(), objects, prefix, folder: None })
    }

    /// As it was given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The object store of the place; the place's own objects are under [`Place::prefix`].
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// The prefix of the names of all objects of the place.
    #[must_use]
    pub const fn prefix(&self) -> &Key {
        &self.prefix
    }

    /// The folder of the place on this machine; `None`: the place is elsewhere.
    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Splits the place into the one above it and its last name.
    ///
    /// # Errors
    /// [`PlaceError::BadUrl`] when it names all of a bucket or folder.
    pub fn split(mut self) -> Result<(Self, String), PlaceError> {
        let mut parts: Vec<_> = self.prefix.parts().map(|part| part.as_ref().to_owned()).collect();
        let named = parts.pop().zip(self.url.rsplit_once('/').map(|(above, _)| above.to_owned()));
        let Some((name, above)) = named else {
            return Err(PlaceError::BadUrl { url: self.url, problem: "a name is missing at its end".to_owned() });
        };
        (self.prefix, self.url) = (Key::from_iter(parts), above);
        Ok((self, name))
    }

    pub(crate) fn key(&self, name: &str) -> Key {
        self.prefix.clone().join(name)
    }

    /// Converts an error of the object store.
    #[must_use]
    pub fn error(&self, error: object_store::Error) -> PlaceError {
        PlaceError::of(&self.url, error)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for Place {}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
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
