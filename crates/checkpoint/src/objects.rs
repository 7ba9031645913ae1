//! A checkpoint store in a folder or a bucket.
//!
//! Names of objects: `<job>/<id>/<index>-<hash>` for chunks, `<job>/<id>/manifest` for the manifest. A chunk's name
//! says what is in it, and objects appear in full or not at all; so one that is there is the right one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions};
use tessera_objects::Place;

use crate::emptied::{lost_its_folder, remove_emptied, remove_if_empty, sync_above};
use crate::published::{Hash, LARGEST_MANIFEST};
use crate::space::Space;
use crate::store::read_stored;
use crate::{CheckpointId, Error, Reservation, Store, StoredChunk};

const MANIFEST: &str = "manifest";

/// Says which store it is: a number that was drawn when it was first used.
const IDENTITY: &str = "identity";

/// The number of bytes of a file that are compared at once.
const COMPARED: usize = 1 << 18;

const REMOVED_AT_ONCE: usize = 8;

/// The number of times that an object is put whose folder is removed just then.
const PUTS: usize = 32;

/// A checkpoint store in a folder or a bucket.
#[derive(Clone, Debug)]
pub struct Objects {
    at: Place,
    space: Space,
    only_copy: bool,
}

impl Objects {
    /// By URL: `file:///folder` or `s3://bucket/prefix`, as [`Place::open`] says.
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::Io`] when the folder cannot be made.
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(Self::at(Place::open(url)?))
    }

    /// In a folder, such as one on an agent's own disk.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be made.
    pub fn folder(folder: &Path) -> Result<Self, Error> {
        Ok(Self::at(Place::folder(folder)?))
    }

    #[must_use]
    pub fn at(at: Place) -> Self {
        let space = Space::new(at.local());
        Self { at, space, only_copy: false }
    }

    /// Nobody else keeps copies of what is in it. In a folder, checkpoints then share no files: what damages one leaves
    /// the one before.
    #[must_use]
    pub fn only_copy(self) -> Self {
        let only_copy = self.at.local().is_some();
        Self { only_copy, ..self }
    }

    /// All checkpoints together take no more than this.
    #[must_use]
    pub fn quota_bytes(mut self, quota_bytes: u64) -> Self {
        self.space.quota_bytes = Some(quota_bytes);
        self
    }

    /// Bytes that everything in it takes, saves that are under way included. What checkpoints share counts for each.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub async fn used_bytes(&self) -> Result<u64, Error> {
        let mut objects = self.objects(None);
        let mut used = 0;
        while let Some((_, object)) = objects.try_next().await? {
            used += object.size;
        }
        Ok(used)
    }

    /// The identity of the store, whoever reaches it by whatever name; `None`: nobody has written it down. A folder in
    /// which another file system should be mounted, and is not, is another store.
    ///
    /// # Errors
    /// When that cannot be read.
    pub async fn identity(&self) -> Result<Option<u128>, Error> {
        let object = match self.at.objects().get(&self.identity_key()).await {
            Ok(object) => object,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.error(error)),
        };
        let text = object.bytes().await.map_err(|error| self.error(error))?;
        let number = std::str::from_utf8(&text).ok().and_then(|text| u128::from_str_radix(text.trim(), 16).ok());
        let problem = || format!("its object {IDENTITY:?} does not say which store it is; bring it back, or remove it");
        let bad = || Error::BadAddress { address: self.at.url().to_owned(), problem: problem() };
        number.map(Some).ok_or_else(bad)
    }

    /// Writes down which store this is, unless somebody has; answers it.
    ///
    /// # Errors
    /// When that can be neither read nor written.
    pub async fn identify(&self) -> Result<u128, Error> {
        if let Some(known) = self.identity().await? {
            return Ok(known);
        }
        let drawn: u128 = rand::random();
        let (text, options) = (Bytes::from(format!("{drawn:032x}\n")), PutOptions::from(PutMode::Create));
        match self.at.objects().put_opts(&self.identity_key(), text.into(), options).await {
            Ok(_) => Ok(drawn),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                // Somebody else was first.
                let unseen = || Error::Unreachable { place: self.at.url().to_owned(), source: "it changes".into() };
                self.identity().await?.ok_or_else(unseen)
            }
            Err(error) => Err(self.error(error)),
        }
    }

    fn identity_key(&self) -> Key {
        self.at.prefix().clone().join(IDENTITY)
    }

    fn error(&self, error: object_store::Error) -> Error {
        self.at.error(error).into()
    }

    fn key(&self, id: &CheckpointId, name: &str) -> Key {
        self.checkpoint(id).join(name)
    }

    fn checkpoint(&self, id: &CheckpointId) -> Key {
        self.job(id.job).join(id.to_string())
    }

    fn job(&self, job: u64) -> Key {
        self.at.prefix().clone().join(job.to_string())
    }

    /// The folder of a checkpoint on this machine; `None`: it is in a bucket.
    fn folder_of(&self, id: &CheckpointId) -> Option<PathBuf> {
        Some(self.at.local()?.join(id.job.to_string()).join(id.to_string()))
    }

    fn chunk(&self, id: &CheckpointId, index: u32, hash: &Hash) -> Key {
        self.key(id, &chunk_name(index, hash))
    }

    /// Everything that belongs to checkpoints, of a job or of all.
    fn objects(&self, job: Option<u64>) -> futures::stream::BoxStream<'_, Result<(CheckpointId, ObjectMeta), Error>> {
        let under = match job {
            Some(job) => self.job(job),
            None => self.at.prefix().clone(),
        };
        let depth = self.at.prefix().parts().count();
        let objects = self.at.objects().list(Some(&under)).map_err(|error| self.error(error));
        let ours = objects.try_filter_map(move |object| async move {
            let id = object.location.parts().nth(depth + 1).and_then(|part| part.as_ref().parse().ok());
            // Whatever else is there is somebody else's.
            Ok(id.map(|id: CheckpointId| (id, object)))
        });
        ours.boxed()
    }

    /// Returns whether a chunk is unchanged: a disk may have lost what it was given. Buckets look after theirs.
    async fn is_still(&self, chunk: &StoredChunk, bytes: Option<&Bytes>) -> bool {
        match (self.folder_of(&chunk.id), bytes) {
            (None, _) => true,
            // Comparing takes a third of the time that hashing does.
            (Some(folder), Some(bytes)) => {
                let (file, bytes) = (folder.join(chunk_name(chunk.index, &chunk.hash)), bytes.clone());
                tokio::task::spawn_blocking(move || holds(&file, &bytes)).await.is_ok_and(|same| same.unwrap_or(false))
            }
            (Some(_), None) => read_stored(self, chunk).await.is_ok(),
        }
    }

    /// The moment of the last addition to a checkpoint in a folder. A file that is shared with an earlier one is as old
    /// as that.
    async fn added_to(&self, id: &CheckpointId) -> Option<SystemTime> {
        tokio::fs::metadata(self.folder_of(id)?).await.and_then(|about| about.modified()).ok()
    }

    /// Puts an object. The folder of its job, which this makes where it is not there, may be removed as empty before it
    /// holds anything.
    async fn put(&self, key: &Key, bytes: Bytes, mode: PutMode) -> object_store::Result<()> {
        for _ in 1..PUTS {
            match self.at.objects().put_opts(key, bytes.clone().into(), mode.clone().into()).await {
                Err(error) if lost_its_folder(&error) => {}
                put => return put.map(drop),
            }
        }
        self.at.objects().put_opts(key, bytes.into(), mode.into()).await.map(drop)
    }

    async fn remove(&self, keys: Vec<Key>) -> Result<(), Error> {
        let removing = futures::stream::iter(keys).map(|key| async move {
            match self.at.objects().delete(&key).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.error(error)),
            }
        });
        removing.buffer_unordered(REMOVED_AT_ONCE).try_collect().await
    }
}

fn chunk_name(index: u32, hash: &Hash) -> String {
    format!("{index:08}-{hash}")
}

/// Returns whether the file contains exactly these bytes.
fn holds(file: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut file = File::open(file)?;
    let mut piece = vec![0; COMPARED];
    for expected in bytes.chunks(COMPARED) {
        file.read_exact(&mut piece[..expected.len()])?;
        if &piece[..expected.len()] != expected {
            return Ok(false);
        }
    }
    Ok(file.read(&mut piece)? == 0)
}

#[async_trait]
impl Store for Objects {
    fn place(&self) -> &str {
        self.at.url()
    }

    async fn reserve(&self, bytes: u64) -> Result<Reservation, Error> {
        let used_bytes = match self.space.quota_bytes {
            Some(_) => self.used_bytes().await?,
            None => 0,
        };
        self.space.reserve(self.at.url(), bytes, used_bytes)
    }

    async fn put_chunk(&self, id: &CheckpointId, index: u32, hash: &Hash, bytes: Bytes) -> Result<(), Error> {
        let put = self.put(&self.chunk(id, index, hash), bytes, PutMode::Overwrite).await;
        put.map_err(|error| self.error(error))
    }

    async fn begun(&self, job: u64) -> Result<Vec<CheckpointId>, Error> {
        let under = self.job(job);
        // Only the names of its checkpoints: a large gang has very many chunks.
        let listed = self.at.objects().list_with_delimiter(Some(&under)).await.map_err(|error| self.error(error))?;
        let named = |key: &Key| key.filename().and_then(|name| name.parse().ok());
        let mut ids: Vec<CheckpointId> = listed.common_prefixes.iter().filter_map(named).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    async fn stored(&self, id: &CheckpointId) -> Result<Vec<StoredChunk>, Error> {
        let listed = self.at.objects().list(Some(&self.checkpoint(id))).map_err(|error| self.error(error));
        let chunks = listed.try_filter_map(|object| async move {
            let named = object.location.filename().and_then(|name| name.split_once('-'));
            let parts = named.and_then(|(index, hash)| Some((index.parse().ok()?, Hash::of_text(hash)?)));
            Ok(parts.map(|(index, hash)| StoredChunk { id: *id, index, hash, stored_bytes: object.size }))
        });
        chunks.try_collect().await
    }

    async fn share_chunk(
        &self,
        from: &StoredChunk,
        id: &CheckpointId,
        index: u32,
        bytes: Option<&Bytes>,
    ) -> Result<bool, Error> {
        if !self.is_still(from, bytes).await {
            return Ok(false);
        }
        if (from.id, from.index) == (*id, index) {
            return Ok(true);
        }
        let (from, to) = (self.chunk(&from.id, from.index, &from.hash), self.chunk(id, index, &from.hash));
        // In a folder it becomes a second name of the same file.
        match self.at.objects().copy(&from, &to).await {
            Ok(()) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    fn is_only_copy(&self) -> bool {
        self.only_copy
    }

    async fn get_chunk(&self, chunk: &StoredChunk) -> Result<Bytes, Error> {
        let StoredChunk { id, index, hash, stored_bytes } = chunk;
        let damaged = |problem| Error::Damaged { place: self.at.url().to_owned(), id: *id, problem };
        let object = match self.at.objects().get(&self.chunk(id, *index, hash)).await {
            Ok(object) => object,
            Err(object_store::Error::NotFound { .. }) => return Err(damaged(format!("chunk {index} is gone"))),
            Err(error) => return Err(self.error(error)),
        };
        if object.meta.size != *stored_bytes {
            return Err(damaged(format!("chunk {index} is not what was stored")));
        }
        object.bytes().await.map_err(|error| self.error(error))
    }

    async fn put_manifest(&self, id: &CheckpointId, manifest: Bytes) -> Result<(), Error> {
        match self.put(&self.key(id, MANIFEST), manifest, PutMode::Create).await {
            Ok(()) => match self.folder_of(id) {
                Some(folder) => sync_above(folder).await,
                None => Ok(()),
            },
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Err(Error::Exists { place: self.at.url().to_owned(), id: *id })
            }
            Err(error) => Err(self.error(error)),
        }
    }

    async fn get_manifest(&self, id: &CheckpointId) -> Result<Bytes, Error> {
        let place = || self.at.url().to_owned();
        let object = match self.at.objects().get(&self.key(id, MANIFEST)).await {
            Ok(object) => object,
            Err(object_store::Error::NotFound { .. }) => return Err(Error::Missing { place: place(), id: *id }),
            Err(error) => return Err(self.error(error)),
        };
        if object.meta.size > LARGEST_MANIFEST as u64 {
            let problem = format!("its manifest has {} bytes", object.meta.size);
            return Err(Error::Damaged { place: place(), id: *id, problem });
        }
        object.bytes().await.map_err(|error| self.error(error))
    }

    async fn list(&self, job: Option<u64>) -> Result<Vec<CheckpointId>, Error> {
        let mut ids = Vec::new();
        let mut objects = self.objects(job);
        while let Some((id, object)) = objects.try_next().await? {
            if object.location.filename() == Some(MANIFEST) {
                ids.push(id);
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    async fn delete(&self, id: &CheckpointId) -> Result<(), Error> {
        // From here on there is none, whatever becomes of the rest.
        self.remove(vec![self.key(id, MANIFEST)]).await?;
        let list = self.at.objects().list(Some(&self.checkpoint(id)));
        let keys = list.map_ok(|object| object.location).try_collect().await.map_err(|error| self.error(error))?;
        self.remove(keys).await?;
        let Some(folder) = self.folder_of(id) else { return Ok(()) };
        // Files that were being written when their writer died are listed by nobody.
        match tokio::fs::remove_dir_all(&folder).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(folder)(error)),
            _ => {}
        }
        let of_job = folder.parent().map(Path::to_owned).unwrap_or_default();
        remove_if_empty(of_job).await
    }

    async fn sweep(&self, older_than: Duration) -> Result<Vec<CheckpointId>, Error> {
        let mut newest = BTreeMap::<CheckpointId, Option<SystemTime>>::new();
        let mut objects = self.objects(None);
        while let Some((id, object)) = objects.try_next().await? {
            let whole = object.location.filename() == Some(MANIFEST);
            let changed = SystemTime::from(object.last_modified);
            let before = newest.entry(id).or_insert(Some(changed));
            *before = (!whole).then_some(()).and(*before).map(|before| before.max(changed));
        }
        let abandoned = |changed: SystemTime| changed.elapsed().is_ok_and(|age| age >= older_than);
        let mut left = Vec::new();
        for (id, changed) in newest {
            let Some(changed) = changed else { continue };
            let is_left = abandoned(self.added_to(&id).await.map_or(changed, |added| added.max(changed)));
            // It may have come to its end meanwhile.
            if is_left && matches!(self.get_manifest(&id).await, Err(Error::Missing { .. })) {
                self.delete(&id).await?;
                left.push(id);
            }
        }
        if let Some(folder) = self.at.local() {
            remove_emptied(folder.to_owned(), older_than).await?;
        }
        Ok(left)
    }
}
