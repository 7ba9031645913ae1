//! The search for what a worker left when its supervisor is gone without a result: killed, or lost with the machine, or
//! when its folder does not say.
//!
//! Whoever sweeps holds the folder's lock, so that no supervisor can start meanwhile; what it finds alive is killed;
//! and only when nothing is left is the worker declared over. What cannot be looked at counts as left.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, geteuid};
use serde::Deserialize;

use super::environment::WORKER_DIR;
use super::folder::WorkerFolder;
use crate::boot::{boot_id, unix_millis};
use crate::cgroup::{Hierarchies, Limits, WorkerGroup};
use crate::process::{all_pids, has_live_thread, kill_pid};
use crate::supervisor::status::{Cause, Phase, Status};
use crate::supervisor::{LAUNCH_FILE, LOCK_FILE};

/// Wait between two rounds of killing.
const ROUND: Duration = Duration::from_millis(20);

/// The result of a sweep.
#[derive(Debug)]
pub enum Swept {
    /// A supervisor is at work: there is nothing to search for.
    Supervised,
    /// The worker is over; the status is on disk.
    Over(Box<Status>),
    /// Something of it is still alive. Try again.
    Unconfirmed(Box<Status>),
}

/// Searches for what is left of the worker in `folder`, which stands as `known` if nothing newer is on disk, and kills
/// it, for at most `patience`. `cgroup` is the control group, below each hierarchy's root, that supervisors of this
/// release make for it.
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
    if same_boot && let Err(left) = kill_rest(folder, &group_of(folder, cgroup, &status)?, &status, patience) {
        status.phase = Phase::Unconfirmed;
        status.message = format!("its supervisor is gone, and {left}");
        return Ok(Swept::Unconfirmed(Box::new(status)));
    }
    if !same_boot && status.image.take().is_some() {
        // Only the last status says that all of it is on disk.
        status.not_saved = "its node was restarted before the image of its processes was on disk".to_owned();
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

/// Kills until nothing is left; the sentence that says what still is after `patience`.
fn kill_rest(folder: &WorkerFolder, group: &WorkerGroup, status: &Status, patience: Duration) -> Result<(), String> {
    let begin = Instant::now();
    // A namespace or a group holds all that a worker forks. Where it had neither, only its identity tells what is left.
    let held = status.init.is_some() || group.is_tracked();
    let owner = fs::metadata(folder.work()).ok().map(|work| work.uid());
    loop {
        let init = status.init.filter(|init| init.is_alive()).map(|init| init.pid);
        let Search { marked, suspects } = search(folder, owner.filter(|_| !held))
            .map_err(|error| format!("the processes of this host cannot be listed: {error}"))?;
        reap(status);
        let found = init.is_some() || !marked.is_empty() || !group.is_empty();
        if !found && suspects.is_empty() {
            group.remove();
            return if held || owner != Some(geteuid().as_raw()) || status.supervisor.is_none() {
                Ok(())
            } else {
                Err("this host gives no means to tell whether something that it forked is left".to_owned())
            };
        }
        if begin.elapsed() >= patience {
            return Err(match suspects.first() {
                Some(pid) if !found => format!("process {pid}, which runs under its identity, may be a part of it"),
                _ => "something of it cannot be killed".to_owned(),
            });
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

/// Collects the exit status of what became this process's own child when its supervisor died, as it does where the
/// agent is the first process of a container: until then the init of the worker's namespace does not end.
fn reap(status: &Status) {
    for process in [status.process, status.init].into_iter().flatten() {
        // Somebody else's child, which is what it nearly always is, is somebody else's to collect.
        let _ = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
    }
}

/// The part of a supervisor's order that names the group.
#[derive(Deserialize)]
struct GroupOrder {
    cgroup: String,
}

/// The worker's group: as its supervisor recorded it, or, when it had no time to or the record cannot be read, where it
/// was told to make it. Another release may name groups otherwise.
fn group_of(folder: &WorkerFolder, cgroup: &str, status: &Status) -> io::Result<WorkerGroup> {
    if status.group.tracking.is_some() || status.supervisor.is_some() {
        return Ok(WorkerGroup::from_record(status.group.clone()));
    }
    let told = group_told(folder);
    let cgroup = told.as_deref().unwrap_or(cgroup);
    Ok(WorkerGroup::create(&Hierarchies::detect(Path::new("/"))?, cgroup, Limits::default()))
}

/// The group that the supervisor of a worker was told to make; `None`: its folder does not say.
fn group_told(folder: &WorkerFolder) -> Option<String> {
    let launch = fs::read(folder.file(LAUNCH_FILE)).ok()?;
    serde_json::from_slice::<GroupOrder>(&launch).ok().map(|order| order.cgroup)
}

/// Live processes that are, or may be, the worker's.
struct Search {
    /// They carry its folder in their environment.
    marked: Vec<i32>,
    /// They run under its identity and carry no worker's folder, or do not let it be seen.
    suspects: Vec<i32>,
}

/// Looks at all processes: those with the worker's mark in their environment, which are found so where there are no
/// control groups, and those who left theirs; and, where an `owner` is given who is not this agent, those of that
/// user id.
fn search(folder: &WorkerFolder, owner: Option<u32>) -> io::Result<Search> {
    let mark = format!("{WORKER_DIR}={}", folder.work().display());
    let owner = owner.filter(|owner| *owner != geteuid().as_raw());
    let mut found = Search { marked: Vec::new(), suspects: Vec::new() };
    for pid in all_pids()? {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let marks =
            || environment.split(|byte| *byte == 0).filter(|variable| variable.starts_with(WORKER_DIR.as_bytes()));
        if marks().any(|variable| variable == mark.as_bytes()) {
            found.marked.push(pid);
        } else if owner.is_some() && marks().next().is_none() && user_of(pid) == owner {
            found.suspects.push(pid);
        }
    }
    found.marked.retain(|pid| has_live_thread(*pid));
    found.suspects.retain(|pid| has_live_thread(*pid));
    Ok(found)
}

/// The real user id of a process, which everybody may read.
fn user_of(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{AllocationId, Epoch, Rank};

    use super::*;
    use crate::worker::{Fence, Term, WorkerId};

    #[test]
    fn a_worker_of_another_release_is_searched_for_where_its_supervisor_was_told_to_make_its_group() {
        let folder = tempfile::tempdir().expect("a folder");
        let worker = WorkerFolder::at(folder.path());
        assert_eq!(group_told(&worker), None);
        fs::write(folder.path().join(LAUNCH_FILE), r#"{"job":5,"cgroup":"tessera/node-a/1-10-0"}"#).expect("written");
        assert_eq!(group_told(&worker).as_deref(), Some("tessera/node-a/1-10-0"));
    }

    #[test]
    fn an_image_that_may_not_have_come_to_disk_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(10), rank: Rank(0) };
        let fence = Fence { term: Term(1), epoch: worker.epoch };
        let mut status = Status::new(worker, 5, fence, "another boot".to_owned());
        (status.phase, status.cause) = (Phase::Stopping, Some(Cause::Ordered));
        let image = r#"{"format":1,"node":"n","criu":"4.2","root":2,"free_from":9,"outputs":[1,2],"connections":"none",
            "on_cards":[],"user":5,"group":5}"#;
        status.image = Some(serde_json::from_str(image).expect("a record"));
        status.store(folder.path()).expect("stored");
        let folder = WorkerFolder::at(folder.path());
        let swept = sweep(&folder, "none", status, Duration::ZERO).expect("it can be searched");
        let Swept::Over(status) = swept else { panic!("it is over: {swept:?}") };
        assert_eq!((status.phase, status.image.is_none()), (Phase::Stopped, true));
        assert!(status.not_saved.contains("restarted"), "{}", status.not_saved);
    }
}
