//! The search for what a worker left when its supervisor is gone without a result: killed, or lost with the machine, or when
//! its folder does not say.
//!
//! Whoever sweeps holds the folder's lock, so that no supervisor can start meanwhile; what it finds alive is killed; and
//! only when nothing is left is the worker declared over.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use super::folder::WorkerFolder;
use crate::boot::{boot_id, unix_millis};
use crate::cgroup::{Hierarchies, Limits, WorkerGroup};
use crate::process::{has_live_thread, kill_pid};
use crate::supervisor::LOCK_FILE;
use crate::supervisor::status::{Cause, Phase, Status};

/// Wait between two rounds of killing.
const ROUND: Duration = Duration::from_millis(20);

/// What a sweep came to.
#[derive(Debug)]
pub enum Swept {
    /// A supervisor is at work: there is nothing to search for.
    Supervised,
    /// The worker is over; the status is on disk.
    Over(Box<Status>),
    /// Something of it is still alive. Try again.
    Unconfirmed(Box<Status>),
}

/// Searches for what is left of the worker in `folder`, which stands as `known` if nothing newer is on disk, and kills it,
/// for at most `patience`. `cgroup` is the control group, below each hierarchy's root, that its supervisor makes for it.
///
/// # Errors
/// When the folder cannot be used.
pub fn sweep(folder: &WorkerFolder, cgroup: &str, known: Status, patience: Duration) -> io::Result<Swept> {
    let Some(_lock) = lock(folder)? else { return Ok(Swept::Supervised) };
    let kept = Status::load(folder.path());
    let damaged = kept.as_ref().err().map(ToString::to_string);
    let mut status = kept.ok().flatten().unwrap_or(known);
    if status.is_final() {
        return Ok(Swept::Over(Box::new(status)));
    }
    let same_boot = status.boot_id == boot_id()?;
    if same_boot && !kill_rest(folder, &group_of(cgroup, &status)?, &status, patience) {
        status.phase = Phase::Unconfirmed;
        status.message = "its supervisor is gone and something of it cannot be killed".to_owned();
        return Ok(Swept::Unconfirmed(Box::new(status)));
    }
    status.phase = Phase::Stopped;
    status.stopped_unix_ms = Some(unix_millis());
    if status.cause.is_none() {
        status.cause = Some(Cause::Vanished);
        let reason = match damaged {
            Some(damage) => format!("its status cannot be read ({damage})"),
            None if same_boot => "its supervisor ended without a result".to_owned(),
            None => "the node was restarted".to_owned(),
        };
        status.message = format!("{reason}; nothing of it is left");
    }
    status.store(folder.path())?;
    Ok(Swept::Over(Box::new(status)))
}

/// The folder's lock; `None` when a supervisor holds it.
fn lock(folder: &WorkerFolder) -> io::Result<Option<Flock<File>>> {
    let file = OpenOptions::new().create(true).append(true).open(folder.file(LOCK_FILE))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

/// Kills until nothing is left; false when something still is after `patience`.
fn kill_rest(folder: &WorkerFolder, group: &WorkerGroup, status: &Status, patience: Duration) -> bool {
    let begin = Instant::now();
    loop {
        let init = status.init.filter(|init| init.is_alive()).map(|init| init.pid);
        let marked = pids_by_environment(folder);
        if init.is_none() && marked.is_empty() && group.is_empty() {
            group.remove();
            return true;
        }
        if begin.elapsed() >= patience {
            return false;
        }
        if let Err(error) = group.kill() {
            tracing::warn!(%error, source = %error.source, "cannot kill by control group");
        }
        for pid in init.into_iter().chain(marked) {
            // One that cannot be killed is there in the next round, which is what is told.
            let _ = kill_pid(pid);
        }
        std::thread::sleep(ROUND);
    }
}

/// The worker's group: as its supervisor recorded it, or, when it had no time to or the record cannot be read, where it makes
/// it.
fn group_of(cgroup: &str, status: &Status) -> io::Result<WorkerGroup> {
    if status.group.tracking.is_some() || status.supervisor.is_some() {
        return Ok(WorkerGroup::from_record(status.group.clone()));
    }
    Ok(WorkerGroup::create(&Hierarchies::detect(Path::new("/"))?, cgroup, Limits::default()))
}

/// Processes that carry this worker's folder in their environment: how they are found where there are no control groups, and
/// who left theirs.
fn pids_by_environment(folder: &WorkerFolder) -> Vec<i32> {
    let mark = format!("TESSERA_WORKER_DIR={}", folder.work().display());
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let marked = pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    });
    marked.filter(|pid| has_live_thread(*pid)).collect()
}
