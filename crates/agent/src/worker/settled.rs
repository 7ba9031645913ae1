//! The folder of a worker that is settled in the ledger: until when it stays, with what somebody may still read and
//! nothing else.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::folder::{WorkerFolder, remove_if_there};
use crate::boot::unix_millis;
use crate::durable;
use crate::supervisor::LOG_FILE;
use crate::supervisor::output::Stream;
use crate::supervisor::status::STATUS_FILE;

const SETTLED_FILE: &str = "settled.json";
/// Bytes of the disk that a folder with nothing but a note takes on most file systems.
pub(super) const NOTE: u64 = 8192;
/// The unit in which the system counts what a file takes of a disk, whatever its blocks.
const BLOCK: u64 = 512;

/// The retention of a settled worker's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settled {
    /// The time at which the agent noted that the worker is over, in milliseconds since the Unix epoch.
    pub settled_unix_ms: u64,
    /// Until when output is kept, or was; `None`: its job does not say, so that it goes by what holds when one looks.
    pub expires_unix_ms: Option<u64>,
    pub removed: bool,
    /// It was removed before its time, for lack of room.
    pub for_room: bool,
    /// Bytes of the disk that what is left takes.
    pub bytes: u64,
}

/// The reason why output is not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    InTime,
    ForRoom,
}

impl Settled {
    /// The time for which output is kept where `usual` holds for jobs that do not say; `None`: nobody knows yet.
    pub fn retention(&self, usual: Option<Duration>) -> Option<Duration> {
        let said = self.expires_unix_ms.map(|expires| expires.saturating_sub(self.settled_unix_ms));
        said.map(Duration::from_millis).or(usual)
    }
}

impl WorkerFolder {
    /// Notes that the worker is settled and its output is kept for a while, as long as its job says, if it does; and
    /// removes what nobody reads any more. Answers the note; `None`: the worker has no folder. Said again, as leaders
    /// do that do not know of the first time, it changes nothing: output that went stays known as gone, and its time
    /// does not begin anew.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn settle(&self, retention: Option<Duration>) -> io::Result<Option<Settled>> {
        if !self.path().exists() {
            return Ok(None);
        }
        let before = self.settled();
        if let Some(removed) = before.filter(|before| before.removed) {
            return self.empty(removed).map(Some);
        }
        // What the job goes on from lies in a store by now, and may be large.
        remove_if_there(&self.checkpoint())?;
        self.remove_restored()?;
        remove_if_there(&self.snapshots())?;
        let now = unix_millis();
        let expires_unix_ms = retention.map(|retention| now.saturating_add(millis(retention)));
        let read = self.still_read()?;
        let bytes = NOTE + read.iter().map(|path| on_disk(path)).sum::<u64>();
        let anew = Settled { settled_unix_ms: now, expires_unix_ms, removed: false, for_room: false, bytes };
        let settled = before.map_or(anew, |before| Settled { bytes, ..before });
        self.note_settled(settled)?;
        self.remove_all_but(&read)?;
        Ok(Some(settled))
    }

    /// The files that are read of a settled worker: its output, the complaints of its supervisor, its own files, and
    /// how it ended, which is what a late order for it is answered with. What is empty says nothing.
    fn still_read(&self) -> io::Result<Vec<PathBuf>> {
        let mut read = vec![self.file(LOG_FILE), self.work()];
        for stream in [Stream::Stdout, Stream::Stderr] {
            let offsets = stream.offsets(self.path())?;
            read.extend(offsets.into_iter().map(|offset| stream.file(self.path(), offset)));
        }
        read.retain(|path| !is_empty(path));
        read.extend([STATUS_FILE, SETTLED_FILE].map(|name| self.file(name)));
        Ok(read)
    }

    /// Returns whether the worker is settled in the ledger.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled().is_some()
    }

    /// The reason why output is not kept any more that was there; `None`: it is, or never was.
    pub(crate) fn gone(&self) -> Option<Gone> {
        let removed = self.settled().filter(|settled| settled.removed)?;
        Some(if removed.for_room { Gone::ForRoom } else { Gone::InTime })
    }

    pub(super) fn note_settled(&self, settled: Settled) -> io::Result<()> {
        durable::replace(&self.file(SETTLED_FILE), &serde_json::to_vec(&settled)?)
    }

    pub(super) fn settled(&self) -> Option<Settled> {
        serde_json::from_slice(&fs::read(self.file(SETTLED_FILE)).ok()?).ok()
    }

    /// Removes everything but the note that there was something; answers that.
    pub(super) fn empty(&self, settled: Settled) -> io::Result<Settled> {
        let settled = Settled { removed: true, bytes: NOTE, ..settled };
        let kept = [self.file(SETTLED_FILE)];
        // Where not even the note has room, the room comes first: what is read then of it says that it is not gone.
        if let Err(error) = self.note_settled(settled) {
            if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
                return Err(error);
            }
            self.remove_all_but(&kept)?;
            self.note_settled(settled)?;
        }
        self.remove_all_but(&kept)?;
        Ok(settled)
    }

    fn remove_all_but(&self, kept: &[PathBuf]) -> io::Result<()> {
        for entry in fs::read_dir(self.path())? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            if kept.contains(&path) {
                continue;
            }
            if kind.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        Ok(())
    }
}

/// Returns whether nothing is in a file or folder; what cannot be looked at may hold something.
fn is_empty(path: &Path) -> bool {
    let about = fs::symlink_metadata(path);
    about.is_ok_and(|about| match about.is_dir() {
        true => fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()),
        false => about.len() == 0,
    })
}

/// The bytes of the disk that a file, or everything in a folder, takes. What cannot be looked at counts as nothing.
fn on_disk(path: &Path) -> u64 {
    let (mut bytes, mut left) = (0, vec![path.to_owned()]);
    while let Some(path) = left.pop() {
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        bytes += about.blocks() * BLOCK;
        if about.is_dir() {
            left.extend(fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    bytes
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}
