//! Whole files at a place.

use std::path::Path;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use object_store::{GetOptions, GetRange, MultipartUpload, ObjectStoreExt};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Place, PlaceError};

/// Bytes that are sent at once. S3 takes ten thousand such parts for one object.
const PART: usize = 8 << 20;

/// Something at a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    pub name: String,
    pub bytes: u64,
}

impl Place {
    /// Lists the objects at the place by name, without objects in deeper folders.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub async fn list(&self) -> Result<Vec<Object>, PlaceError> {
        let listed =
            self.objects().list_with_delimiter(Some(self.prefix())).await.map_err(|error| self.error(error))?;
        let named = listed
            .objects
            .into_iter()
            .filter_map(|object| Some(Object { name: object.location.filename()?.to_owned(), bytes: object.size }));
        let mut named: Vec<_> = named.collect();
        named.sort();
        Ok(named)
    }

    /// Puts a file there under a name. It appears when all of it is there; one of that name from before is replaced
    /// as a whole. When this fails there is nothing new; when it is dropped, parts may be left that the bucket's own
    /// rule for unfinished uploads removes.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn upload(&self, name: &str, file: &Path) -> Result<u64, PlaceError> {
        let unread = || PlaceError::io(file);
        let mut source = File::open(file).await.map_err(unread())?;
        let key = self.key(name);
        let mut upload = self.objects().put_multipart(&key).await.map_err(|error| self.not_put(error))?;
        match self.parts(upload.as_mut(), &mut source).await {
            Ok(bytes) => upload.complete().await.map(|_| bytes).map_err(|error| self.not_put(error)),
            Err(failed) => {
                // What cannot be taken back now is what an unfinished upload leaves.
                let _ = upload.abort().await;
                Err(match failed {
                    Failed::Read(source) => unread()(source),
                    Failed::Sent(error) => self.not_put(error),
                })
            }
        }
    }

    /// The error of a failed upload: if something is missing there, it is the place itself.
    fn not_put(&self, error: object_store::Error) -> PlaceError {
        match error {
            object_store::Error::NotFound { .. } => {
                PlaceError::Unreachable { place: self.url().to_owned(), source: Box::new(error) }
            }
            error => self.error(error),
        }
    }

    async fn parts(&self, upload: &mut dyn MultipartUpload, source: &mut File) -> Result<u64, Failed> {
        let mut sent = 0;
        loop {
            let mut part = BytesMut::with_capacity(PART);
            while part.len() < PART && source.read_buf(&mut part).await.map_err(Failed::Read)? > 0 {}
            if part.is_empty() && sent > 0 {
                return Ok(sent);
            }
            let (bytes, last) = (part.len(), part.len() < PART);
            upload.put_part(part.freeze().into()).await.map_err(Failed::Sent)?;
            sent += bytes as u64;
            if last {
                return Ok(sent);
            }
        }
    }

    /// Writes what is there under a name to a file.
    ///
    /// # Errors
    /// [`PlaceError::Missing`]; when it cannot be read or written. What was written is of no use then.
    pub async fn download(&self, name: &str, file: &Path) -> Result<u64, PlaceError> {
        let unwritten = || PlaceError::io(file);
        let found = self.objects().get(&self.key(name)).await.map_err(|error| self.error(error))?;
        let mut pieces = found.into_stream();
        let (mut target, mut bytes) = (File::create(file).await.map_err(unwritten())?, 0);
        while let Some(piece) = pieces.try_next().await.map_err(|error| self.error(error))? {
            target.write_all(&piece).await.map_err(unwritten())?;
            bytes += piece.len() as u64;
        }
        target.flush().await.map_err(unwritten())?;
        Ok(bytes)
    }

    /// The first bytes of what is there under a name, at most so many.
    ///
    /// # Errors
    /// [`PlaceError::Missing`]; when it cannot be read.
    pub async fn beginning(&self, name: &str, most: u64) -> Result<Bytes, PlaceError> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..most)), ..GetOptions::default() };
        let found = self.objects().get_opts(&self.key(name), options).await.map_err(|error| self.error(error))?;
        found.bytes().await.map_err(|error| self.error(error))
    }

    /// Removes what is there under a name. It is no error when there is nothing.
    ///
    /// # Errors
    /// When it may still be there.
    pub async fn remove(&self, name: &str) -> Result<(), PlaceError> {
        match self.objects().delete(&self.key(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }
}

enum Failed {
    Read(std::io::Error),
    Sent(object_store::Error),
}

#[cfg(test)]
mod tests {
    use tessera_testkit::BucketServer;

    use super::*;

    /// Checks that an object is there in full once put, is replaced in full, and is gone when it is removed.
    async fn keeps_files(place: &Place) {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, back) = (folder.path().join("file"), folder.path().join("back"));
        // Nothing, a part, and more than two.
        for length in [0, 10, PART * 2 + 5] {
            let content: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            std::fs::write(&file, &content).expect("written");
            assert_eq!(place.upload("a.backup", &file).await.expect("it is put there"), length as u64);
            assert_eq!(
                place.list().await.expect("it answers"),
                [Object { name: "a.backup".to_owned(), bytes: length as u64 }]
            );
            assert_eq!(place.download("a.backup", &back).await.expect("it is there"), length as u64);
            assert!(std::fs::read(&back).expect("it is read") == content, "{length} bytes came back as others");
            if length > 0 {
                let first = place.beginning("a.backup", 7).await.expect("it is there");
                assert_eq!(first, content[..7]);
            }
        }
        let missing = place.download("b.backup", &back).await;
        assert!(matches!(missing, Err(PlaceError::Missing { .. })), "{missing:?}");
        place.remove("a.backup").await.expect("it is removed");
        place.remove("a.backup").await.expect("it is not there");
        assert_eq!(place.list().await.expect("it answers"), []);
    }

    #[tokio::test]
    async fn a_folder_keeps_files() {
        let folder = tempfile::tempdir().expect("a folder");
        keeps_files(&Place::folder(&folder.path().join("new")).expect("it is made")).await;
    }

    #[tokio::test]
    async fn a_bucket_keeps_files() {
        let server = BucketServer::start().expect("deploy/setup.sh test installs it");
        let open = |prefix: &str| Place::open_with(&server.url(prefix), server.variables()).expect("a place");
        keeps_files(&open("pool/backups")).await;
        keeps_files(&open("")).await;
    }

    #[tokio::test]
    async fn a_bucket_that_is_not_there_or_not_reached_is_named() {
        let server = BucketServer::start().expect("deploy/setup.sh test installs it");
        let nobody = Place::open_with("s3://nobody/a", server.variables()).expect("a place");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "content").expect("written");
        let refused = nobody.upload("a", &file).await.expect_err("there is no such bucket").to_string();
        assert!(refused.contains("s3://nobody/a cannot be reached"), "{refused}");
    }
}
