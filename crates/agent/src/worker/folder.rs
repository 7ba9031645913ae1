//! The folder of a worker: everything about it, in one place that outlives the agent.
//!
//! ```text
//! workers/ALLOCATION-EPOCH-RANK/
//!   order.pb         the order as received; on disk before the process starts
//!   launch.json      what the supervisor has to do
//!   grant.json       what the worker holds of this node's cards
//!   status.json      how the worker stands, by its supervisor
//!   lock             held by the supervisor, or by whoever declares the worker over
//!   supervisor.sock  where agents reach the supervisor
//!   supervisor.log   what the supervisor has to complain about
//!   stdout.OFFSET, stderr.OFFSET   output; the number is the offset of the file's first byte
//!   settled.json     the worker is settled in the ledger; until when its output is kept
//!   work/            TESSERA_WORKER_DIR: vcard.json, script, and where the program starts
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use serde::{Deserialize, Serialize};
use tessera_api::v1 as wire;

use super::id::WorkerId;
use crate::boot::unix_millis;
use crate::durable;
use crate::supervisor::status::Status;

const ORDER_FILE: &str = "order.pb";
const SETTLED_FILE: &str = "settled.json";
/// Where the program starts, below the worker's folder.
const WORK_FOLDER: &str = "work";
/// How long it is remembered that output was there and is not kept any more.
const MEMORY_OF_EXPIRED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The folder that holds the folders of all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFolders(PathBuf);

/// The folder of one worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerFolder(PathBuf);

/// What is known of the end of a worker's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Settled {
    expires_unix_ms: u64,
    removed: bool,
}

/// What a search of the folders found.
#[derive(Debug, Default)]
pub struct Found {
    /// Workers of which something is known.
    pub workers: Vec<FoundWorker>,
    /// Folders that cannot be understood, with the reason. They are left as they are.
    pub damaged: Vec<(PathBuf, String)>,
}

/// One worker that was found.
#[derive(Debug)]
pub struct FoundWorker {
    /// Its name.
    pub worker: WorkerId,
    /// Its order.
    pub order: wire::WorkerOrder,
    /// What its supervisor wrote last; `None`: nothing yet.
    pub status: Option<Status>,
}

impl WorkerFolders {
    /// Below a data folder; made when it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(data: &Path) -> io::Result<Self> {
        let path = data.join("workers");
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// The folder of a worker, whether it exists or not.
    #[must_use]
    pub fn of(&self, worker: WorkerId) -> WorkerFolder {
        WorkerFolder(self.0.join(worker.to_string()))
    }

    /// Looks for workers that an earlier agent left.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn search(&self) -> io::Result<Found> {
        let mut found = Found::default();
        for (worker, folder) in self.all()? {
            if folder.settled().is_some() {
                continue;
            }
            match (folder.order(), Status::load(folder.path())) {
                (Ok(Some(order)), Ok(status)) => found.workers.push(FoundWorker { worker, order, status }),
                // The order is on disk before anything starts: without one, nothing ever ran.
                (Ok(None), Ok(None)) => fs::remove_dir_all(folder.path())?,
                (Ok(None), Ok(Some(_))) => found.damaged.push((folder.0, "its order is missing".to_owned())),
                (Err(error), _) | (_, Err(error)) => found.damaged.push((folder.0, error.to_string())),
            }
        }
        Ok(found)
    }

    /// Removes output whose time is over, and the memory of output that is long gone.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn remove_expired(&self) -> io::Result<usize> {
        let now = unix_millis();
        let mut removed = 0;
        for (_, folder) in self.all()? {
            match folder.settled() {
                Some(settled) if !settled.removed && settled.expires_unix_ms <= now => {
                    folder.empty(settled)?;
                    removed += 1;
                }
                Some(settled) if settled.removed && settled.expires_unix_ms + millis(MEMORY_OF_EXPIRED) <= now => {
                    fs::remove_dir_all(folder.path())?;
                }
                _ => {}
            }
        }
        Ok(removed)
    }

    fn all(&self) -> io::Result<Vec<(WorkerId, WorkerFolder)>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if let Some(worker) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                folders.push((worker, WorkerFolder(entry.path())));
            }
        }
        folders.sort();
        Ok(folders)
    }
}

impl WorkerFolder {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Where the worker's own files are.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.0.join(WORK_FOLDER)
    }

    /// Makes it. A worker is started at most once, so it must not be there.
    ///
    /// # Errors
    /// When it is there already, or what the file system says.
    pub fn create(&self) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(&self.0)?;
        fs::create_dir(self.work())
    }

    /// Writes the order, not yet durably: see [`essentials`](Self::essentials).
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_order(&self, order: &wire::WorkerOrder) -> io::Result<()> {
        fs::write(self.file(ORDER_FILE), order.encode_to_vec())
    }

    /// Everything that has to be durable before the worker may start: the order, its folder, and the folder's entry.
    #[must_use]
    pub fn essentials(&self) -> [PathBuf; 3] {
        let above = self.0.parent().unwrap_or(&self.0);
        [self.file(ORDER_FILE), self.0.clone(), above.to_owned()]
    }

    /// The order; `None` when there is none.
    fn order(&self) -> io::Result<Option<wire::WorkerOrder>> {
        match fs::read(self.file(ORDER_FILE)) {
            Ok(bytes) => wire::WorkerOrder::decode(bytes.as_slice()).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes that the worker is settled and its output is kept for a while.
    ///
    /// # Errors
    /// What the file system says.
    pub fn settle(&self, retention: Duration) -> io::Result<()> {
        if !self.0.exists() {
            return Ok(());
        }
        self.write_settled(Settled { expires_unix_ms: unix_millis().saturating_add(millis(retention)), removed: false })
    }

    /// Whether there was output that is not kept any more.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.settled().is_some_and(|settled| settled.removed)
    }

    fn write_settled(&self, settled: Settled) -> io::Result<()> {
        durable::replace(&self.file(SETTLED_FILE), &serde_json::to_vec(&settled)?)
    }

    fn settled(&self) -> Option<Settled> {
        serde_json::from_slice(&fs::read(self.file(SETTLED_FILE)).ok()?).ok()
    }

    /// Removes everything but the note that there was something.
    fn empty(&self, settled: Settled) -> io::Result<()> {
        self.write_settled(Settled { removed: true, ..settled })?;
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_name() == SETTLED_FILE {
                continue;
            }
            if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
