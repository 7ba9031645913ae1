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
//!   settled.json     the worker is settled in the ledger; since when, and until when its job has its output kept
//!   vcard.json       TESSERA_VCARD_FILE: what backs the virtual card; the worker reads it, the agent rewrites it
//!   checkpoint/      TESSERA_CHECKPOINT_DIR: what a cooperative program needs to go on; the worker's own. Of a program
//!                    that is dumped: its image; the agent's alone (what it may write itself lies in work/.checkpoint)
//!   control.sock     TESSERA_CONTROL: where such a program is asked to save while it runs
//!   saved.json       the newest part of a checkpoint that was saved of the worker
//!   progress         how far the program said it is
//!   snapshot/NUMBER/ an image of a program that was dumped while it ran, until it is kept
//!   restored/        the checkpoint that a program that was dumped goes on from
//!   found            marks of what the newest image of a program that may save itself too has of that
//!   work/            TESSERA_WORKER_DIR: the worker's own: its script, and where the program starts
//! ```
//!
//! While the worker lives, others may pass through the folder and read nothing in it (mode 0711); what is not the
//! worker's own can be read by the agent's user only. Once the worker is over, nobody else may pass (0700). Once it is
//! settled, only status.json, settled.json and what is not empty of supervisor.log, output and work/ stays.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use prost::Message;
use serde::{Deserialize, Serialize};
use tessera_api::v1 as wire;
use tessera_ledger::SavedPart;
use tessera_ledger::wire::{WireEnum, enum_from_wire};

use super::account::Account;
use super::environment::VCARD_FILE;
use super::id::WorkerId;
use crate::durable;
use crate::supervisor::status::Status;

pub(super) const ORDER_FILE: &str = "order.pb";
/// The folders of all workers, below the data folder.
const FOLDER: &str = "workers";
/// Folder in which the program starts, below the worker's folder.
pub const WORK_FOLDER: &str = "work";
/// Folder of what a cooperative program needs to resume, or of a dumped program's image, below the worker's folder.
const CHECKPOINT_FOLDER: &str = "checkpoint";
const SAVED_FILE: &str = "saved.json";
const PROGRESS_FILE: &str = "progress";
/// A folder that others may pass through, and not look into.
const PASSABLE: u32 = 0o711;
/// A folder for the agent's user alone.
pub(super) const CLOSED: u32 = 0o700;

/// The folder that holds the folders of all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFolders(PathBuf);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerFolder(PathBuf);

/// The description of the newest saved part of a worker's checkpoint, as it is written down.
#[derive(Serialize, Deserialize)]
struct NotedSave {
    sequence: u64,
    progress: u64,
    bytes: u64,
    hash: Vec<u8>,
    ticket: String,
    shared: bool,
    mode: i32,
}

/// One worker that was found. Its folder's name alone says that it may be there: what cannot be read is not taken for
/// stopped (law L2), but searched for.
#[derive(Debug)]
pub struct FoundWorker {
    pub worker: WorkerId,
    /// Its order; `None`: it cannot be read.
    pub order: Option<wire::WorkerOrder>,
    /// The status that its supervisor wrote last; `None`: nothing yet, or nothing that can be read.
    pub status: Option<Status>,
    /// Defects of the folder; empty when there are none.
    pub damage: Vec<String>,
}

impl WorkerFolders {
    /// Below a data folder; made when it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(data: &Path) -> io::Result<Self> {
        let path = data.join(FOLDER);
        fs::create_dir_all(&path)?;
        // Workers pass through on the way to their own folders.
        for folder in [data, path.as_path()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(PASSABLE))?;
        }
        Ok(Self(path))
    }

    /// Tells whether any worker has a folder below a data folder, which need not have been opened.
    ///
    /// # Errors
    /// What the file system says.
    pub fn any_below(data: &Path) -> io::Result<bool> {
        match Self(data.join(FOLDER)).all() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => Ok(!found?.is_empty()),
        }
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
    pub fn search(&self) -> io::Result<Vec<FoundWorker>> {
        let all = self.all()?.into_iter().filter(|(_, folder)| !folder.is_settled());
        Ok(all.map(|(worker, folder)| folder.look(worker)).collect())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn all(&self) -> io::Result<Vec<(WorkerId, WorkerFolder)>> {
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
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The folder of the worker's own files.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.0.join(WORK_FOLDER)
    }

    /// The folder into which a cooperative program writes its state, and where it finds it when it resumes.
    #[must_use]
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join(CHECKPOINT_FOLDER)
    }

    /// Notes the newest part of a checkpoint that was saved of the worker.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn note_saved(&self, saved: &SavedPart) -> io::Result<()> {
        let SavedPart { sequence, progress, bytes, hash, ticket, shared, mode } = saved;
        let (hash, ticket) = (hash.to_vec(), format!("{ticket:032x}"));
        let (sequence, progress, bytes, shared, mode) = (*sequence, *progress, *bytes, *shared, mode.to_wire());
        let noted = NotedSave { sequence, progress, bytes, hash, ticket, shared, mode };
        durable::replace(&self.file(SAVED_FILE), &serde_json::to_vec(&noted)?)
    }

    /// The newest part of a checkpoint that was saved of the worker.
    pub(crate) fn saved(&self) -> Option<SavedPart> {
        let noted: NotedSave = serde_json::from_slice(&fs::read(self.file(SAVED_FILE)).ok()?).ok()?;
        let NotedSave { sequence, progress, bytes, hash, ticket, shared, mode } = noted;
        let mode = enum_from_wire("mode", mode).ok().flatten()?;
        let ticket = u128::from_str_radix(&ticket, 16).ok()?;
        Some(SavedPart { sequence, progress, bytes, hash: hash.try_into().ok()?, ticket, shared, mode })
    }

    /// Notes how far the program said it is, for the agent that may come after this one.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn note_progress(&self, progress: u64) -> io::Result<()> {
        durable::replace_soon(&self.file(PROGRESS_FILE), progress.to_string().as_bytes())
    }

    /// The progress that the program reported last; 0: it reported none, or the note cannot be read.
    pub(crate) fn progress(&self) -> u64 {
        let text = fs::read_to_string(self.file(PROGRESS_FILE)).unwrap_or_default();
        text.parse().unwrap_or(0)
    }

    /// Gives the worker what is its own, and lets it pass and read the file of its virtual card.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open_to(&self, account: &Account) -> io::Result<()> {
        let (work, vcard) = (self.work(), self.file(VCARD_FILE));
        for entry in fs::read_dir(&work)? {
            chown(entry?.path(), Some(account.uid), Some(account.gid))?;
        }
        chown(&work, Some(account.uid), Some(account.gid))?;
        chown(&vcard, None, Some(account.gid))?;
        fs::set_permissions(&vcard, fs::Permissions::from_mode(0o640))?;
        fs::set_permissions(&self.0, fs::Permissions::from_mode(PASSABLE))
    }

    /// Closes the folder to everybody but the agent's user: its worker is over. Nothing happens when it was never made.
    ///
    /// # Errors
    /// What the file system says.
    pub fn close(&self) -> io::Result<()> {
        match fs::set_permissions(&self.0, fs::Permissions::from_mode(CLOSED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            closed => closed,
        }
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

    /// Reads what can be read of the worker.
    fn look(&self, worker: WorkerId) -> FoundWorker {
        let mut damage = Vec::new();
        let order = self.order().unwrap_or_else(|error| {
            damage.push(format!("its order cannot be read: {error}"));
            None
        });
        let status = Status::load(self.path()).unwrap_or_else(|error| {
            damage.push(format!("its status cannot be read: {error}"));
            None
        });
        if order.is_none() && damage.is_empty() {
            // An agent that was killed while it made the folder leaves one like this, and so does a disk that forgot.
            damage.push("its order is missing".to_owned());
        }
        FoundWorker { worker, order, status, damage }
    }

    /// `None` when there is none.
    pub(crate) fn order(&self) -> io::Result<Option<wire::WorkerOrder>> {
        match fs::read(self.file(ORDER_FILE)) {
            // It was made ahead, and its host lost power before it was written.
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => wire::WorkerOrder::decode(bytes.as_slice()).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn remove_if_there(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
