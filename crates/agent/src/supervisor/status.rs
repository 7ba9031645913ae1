//! The state of a worker as its supervisor knows it: sent to the agent, and stored in a file that survives both.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::image::{ImageRecord, Snapshot};
use crate::boot::BootTime;
use crate::cgroup::GroupRecord;
use crate::durable;
use crate::process::ProcessId;
use crate::worker::{Fence, Lease, WorkerId};

/// Name of the status file in a worker's folder.
pub const STATUS_FILE: &str = "status.json";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Everything is made ready; no process yet.
    Preparing,
    /// Its process runs.
    Running,
    /// It was told to stop, or is being killed.
    Stopping,
    /// Killed, but something of it is still there. It is killed further.
    Unconfirmed,
    /// Over, and nothing of it is left.
    Stopped,
}

/// The reason why a worker stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// By itself.
    Exited,
    /// It could not be started, for a reason that lies in the job.
    StartFailed,
    /// It could not be started, for a reason that lies in this node: a full disk, no control group, no supervisor.
    NodeFault,
    Ordered,
    LeaseExpired,
    /// It ran longer than its time limit.
    TimeLimit,
    NotGranted,
    /// The kernel killed it for using more memory than granted.
    OutOfMemory,
    /// There is no trace of its process.
    Vanished,
    /// It served a program on another host, which was not heard of for its lease.
    HostLost,
    /// It could not be restored from the image of its processes.
    NotRestored,
    /// A port that it was given to meet others at is somebody else's.
    PortTaken,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exited => "it ended by itself",
            Self::StartFailed => "it could not be started",
            Self::NodeFault => "its node could not start it",
            Self::Ordered => "by order",
            Self::LeaseExpired => "its lease was not renewed",
            Self::TimeLimit => "its time limit passed",
            Self::NotGranted => "nobody had granted it",
            Self::OutOfMemory => "it used more memory than granted",
            Self::Vanished => "there is no trace of its process",
            Self::NotRestored => "the image of its processes cannot be restored",
            Self::PortTaken => "a port that it was given is somebody else's",
            Self::HostLost => "the host of its program was not heard of for its lease",
        })
    }
}

/// The exit of the worker's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Status {
    pub worker: WorkerId,
    pub job: u64,
    pub phase: Phase,
    /// The boot in which the process ids below mean something.
    pub boot_id: String,
    pub supervisor: Option<ProcessId>,
    /// The worker's first process; its process group and session have the same number.
    pub process: Option<ProcessId>,
    /// The init of its PID namespace; `None` where the host gives none.
    pub init: Option<ProcessId>,
    pub group: GroupRecord,
    pub fence: Fence,
    /// The lease in force; `None`: it needs none.
    pub lease: Option<Lease>,
    /// The reason why it stopped or is being stopped.
    pub cause: Option<Cause>,
    /// The exit of its first process.
    pub exit: Option<Exit>,
    /// True unless a kill was needed before its first process had ended.
    pub within_grace: bool,
    /// The data for a restore, once its processes were dumped, all of them.
    pub image: Option<ImageRecord>,
    /// The newest image of its processes that was made while they ran.
    pub snapshot: Option<Snapshot>,
    /// The reason that kept its processes from being saved; empty: there was none.
    pub not_saved: String,
    /// One sentence for people.
    pub message: String,
    /// The time at which its agent began to start it, in milliseconds since the Unix epoch.
    pub ordered_unix_ms: Option<u64>,
    /// The time at which its process started, on the clock of the host, which nobody sets.
    pub started_boot: Option<BootTime>,
    pub started_unix_ms: Option<u64>,
    /// The time at which it was told to stop or its first process ended by itself, whichever was first.
    pub ending_unix_ms: Option<u64>,
    /// The time at which its first process ended.
    pub exited_unix_ms: Option<u64>,
    pub stopped_unix_ms: Option<u64>,
}

impl Status {
    /// A worker of which nothing exists yet.
    #[must_use]
    pub fn new(worker: WorkerId, job: u64, fence: Fence, boot_id: String) -> Self {
        Self {
            worker,
            job,
            phase: Phase::Preparing,
            boot_id,
            supervisor: None,
            process: None,
            init: None,
            group: GroupRecord::default(),
            fence,
            lease: None,
            cause: None,
            exit: None,
            within_grace: true,
            image: None,
            snapshot: None,
            not_saved: String::new(),
            message: String::new(),
            ordered_unix_ms: None,
            started_boot: None,
            started_unix_ms: None,
            ending_unix_ms: None,
            exited_unix_ms: None,
            stopped_unix_ms: None,
        }
    }

    /// The time for which it has run at `now`; zero before it started.
    #[must_use]
    pub fn ran(&self, now: BootTime) -> Duration {
        self.started_boot.map_or(Duration::ZERO, |started| started.until(now))
    }

    /// Returns whether the status will not change any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// Reads the status file of a worker's folder; `None` when there is none: a status that is not the last may be lost
    /// with the machine, and then the worker is lost too.
    ///
    /// # Errors
    /// When it cannot be read or understood: the worker may then be anywhere.
    pub fn load(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(folder.join(STATUS_FILE)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the status file. The last status survives a crash of the machine; those before it need not, because the
    /// worker does not either, and a flush of the disk for each would cost more than many a job.
    ///
    /// # Errors
    /// What the file system says.
    pub fn store(&self, folder: &Path) -> io::Result<()> {
        let (path, text) = (folder.join(STATUS_FILE), serde_json::to_vec(self)?);
        if self.is_final() { durable::replace(&path, &text) } else { durable::replace_soon(&path, &text) }
    }
}
