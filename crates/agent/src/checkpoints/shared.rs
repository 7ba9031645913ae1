//! The checkpoint store that all nodes share, as one of them sees it.
//!
//! Under the name of a store there may be another one, or an empty folder where the share is not mounted. So a store
//! has an identity, which lies in it. A node writes down which one it found first under that name, and saves into no
//! other. What it finds empty the first time it takes for a new one only once it has heard that the pool has nothing in
//! another. An operator who empties the file in which that is written has it take whatever there is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tessera_checkpoint::{Error, Objects, Store as _};
use tokio::time::timeout;

use super::shelf::lock;
use super::tickets::ticket_of;
use crate::durable;

/// Name of the file that records which store was found under the name of the shared one.
const FILE: &str = "checkpoint-store";
/// The longest time that a store may take to identify itself. A slower store counts as absent, whether it is cut off or
/// hangs, and the node saves on its own disk.
const ASKED: Duration = Duration::from_secs(20);

/// The store that all nodes share.
pub(super) struct SharedStore {
    objects: Objects,
    file: PathBuf,
    /// The stores in which the pool has checkpoints, as the leader said last; `None`: it has not said it yet.
    of_pool: Mutex<Option<BTreeSet<u128>>>,
}

/// The store that this node has recorded.
enum Known {
    /// The store under this name.
    This(u128),
    /// One under another name, or any: its configuration was changed since, or an operator emptied the file.
    Another,
    Nothing,
}

impl SharedStore {
    /// The one at a URL, for the agent with this data folder.
    pub fn open(url: &str, data: &Path) -> Result<Self, Error> {
        let objects = Objects::open(url)?.only_copy();
        Ok(Self { objects, file: data.join(FILE), of_pool: Mutex::default() })
    }

    pub const fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The leader says in which stores the pool has checkpoints.
    pub fn heard(&self, stores: &[Bytes]) {
        *lock(&self.of_pool) = Some(stores.iter().filter_map(|store| ticket_of(store)).collect());
    }

    /// Returns the identity of the store, if this node may save in it; records a store that was not recorded yet.
    pub async fn to_save_in(&self) -> Result<u128, Error> {
        let known = self.known()?;
        let found = match known {
            Known::Nothing if self.pool_may_have_others() => self.identity().await?,
            Known::This(_) => self.identity().await?,
            Known::Another | Known::Nothing => Some(self.in_time(self.objects.identify()).await?),
        };
        match (known, found) {
            (Known::This(known), Some(found)) if known == found => Ok(found),
            (Known::Another | Known::Nothing, Some(found)) => {
                let text = format!("{found:032x} {}\n", self.objects.place());
                durable::replace(&self.file, text.as_bytes()).map_err(|source| self.failed(source))?;
                Ok(found)
            }
            (Known::This(_), _) => Err(self.refused(&format!(
                "it is another store than the one that this node knows by that name: is it mounted? If it was \
                 exchanged on purpose, empty {}",
                self.file.display()
            ))),
            (Known::Another | Known::Nothing, None) => Err(self.refused(&format!(
                "nothing was ever kept in it, and the pool may have its checkpoints in another store: is it mounted? \
                 If it is new on purpose, make an empty file {}",
                self.file.display()
            ))),
        }
    }

    /// Checks that this is the store of an identity, in which a checkpoint lies. Another store proves nothing about
    /// that checkpoint.
    pub async fn is(&self, identity: &[u8]) -> Result<(), String> {
        let found = self.identity().await.map_err(|error| error.to_string())?;
        if found.is_some_and(|found| identity == found.to_be_bytes()) {
            return Ok(());
        }
        let place = self.objects.place();
        Err(format!(
            "it is in another store than the one at {place} on this node; is that mounted, and the same everywhere?"
        ))
    }

    /// Returns whether the pool may have checkpoints in stores, as far as is known here: true until the leader has said
    /// it.
    fn pool_may_have_others(&self) -> bool {
        lock(&self.of_pool).as_ref().is_none_or(|stores| !stores.is_empty())
    }

    fn known(&self) -> Result<Known, Error> {
        let text = match std::fs::read_to_string(&self.file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Known::Nothing),
            text => text.map_err(|source| self.failed(source))?,
        };
        let (number, place) = text.trim().split_once(' ').unwrap_or_default();
        if place != self.objects.place() {
            return Ok(Known::Another);
        }
        Ok(u128::from_str_radix(number, 16).map_or(Known::Nothing, Known::This))
    }

    async fn identity(&self) -> Result<Option<u128>, Error> {
        self.in_time(self.objects.identity()).await
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late =
            || Error::Unreachable { place: self.objects.place().to_owned(), source: "it does not answer".into() };
        timeout(ASKED, asked).await.unwrap_or_else(|_| Err(late()))
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Io { path: self.file.clone(), source }
    }

    fn refused(&self, problem: &str) -> Error {
        Error::BadAddress { address: self.objects.place().to_owned(), problem: problem.to_owned() }
    }
}
