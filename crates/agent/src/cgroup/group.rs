//! The control group of one worker: made, limited, killed, proven empty, removed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CgroupError;
use super::mounts::{Hierarchies, Hierarchy, while_removed};
use crate::process::{has_live_thread, kill_pid};

/// Length of a period of CPU time over which a quota is enforced, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// Smallest quota that the kernel takes, in microseconds.
const CPU_QUOTA_MIN_US: u64 = 1_000;

/// Limits of a worker's use of its host; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPU time in thousandths of a core.
    pub cpu_millicores: Option<u64>,
    /// True if the worker gets more CPU time while nobody else wants it.
    pub cpu_elastic: bool,
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
}

/// Version of a hierarchy of control groups; that of the tracking hierarchy decides how processes are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// Version 1: processes are killed by means of the freezer.
    V1,
    V2,
}

/// The location of a worker's group: enough to find it again after a restart of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The folder by which processes are tracked and killed, and its version; `None`: no control group can be had and
    /// processes are tracked as descendants of the supervisor.
    pub tracking: Option<(PathBuf, Version)>,
    /// Folder that limits CPU time, with its version.
    pub cpu: Option<(PathBuf, Version)>,
    /// Folder that limits memory, with its version.
    pub memory: Option<(PathBuf, Version)>,
    /// Folder that limits processes, with its version.
    pub processes: Option<(PathBuf, Version)>,
    /// Everything that cannot be enforced here, in sentences for people.
    pub missing: Vec<String>,
}

impl GroupRecord {
    /// All folders that it consists of. In version 2 one does everything.
    #[must_use]
    pub fn folders(&self) -> BTreeSet<&(PathBuf, Version)> {
        [&self.tracking, &self.cpu, &self.memory, &self.processes].into_iter().flatten().collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerGroup {
    record: GroupRecord,
}

impl WorkerGroup {
    /// Makes the group `name` (a path below the hierarchies' roots) with limits. What cannot be had is recorded, not
    /// fatal: the node's operator decides whether such a node may run work.
    #[must_use]
    pub fn create(hierarchies: &Hierarchies, name: &str, limits: Limits) -> Self {
        let mut group = Self { record: GroupRecord::default() };
        group.track(hierarchies, name);
        if let Some(millicores) = limits.cpu_millicores {
            group.limit_cpu(hierarchies, name, millicores, limits.cpu_elastic);
        }
        if let Some(bytes) = limits.memory_bytes {
            group.limit_memory(hierarchies, name, bytes);
        }
        if let Some(processes) = limits.processes {
            group.limit_processes(hierarchies, name, processes);
        }
        group
    }

    /// The group that an earlier process recorded.
    #[must_use]
    pub const fn from_record(record: GroupRecord) -> Self {
        Self { record }
    }

    /// The record of the group: its folders, and what cannot be enforced.
    #[must_use]
    pub const fn record(&self) -> &GroupRecord {
        &self.record
    }

    /// Returns whether processes are tracked by a control group at all.
    #[must_use]
    pub const fn is_tracked(&self) -> bool {
        self.record.tracking.is_some()
    }

    /// The version 2 folder into which a process can be born, opened for `clone3`.
    ///
    /// # Errors
    /// When the folder is gone.
    pub fn birth_folder(&self) -> Result<Option<File>, CgroupError> {
        let Some((path, Version::V2)) = &self.record.tracking else { return Ok(None) };
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path);
        opened.map(Some).map_err(|source| CgroupError { action: "open", path: path.clone(), source })
    }

    /// The `cgroup.procs` files that a new process must write itself into, opened. `born` tells that it was born into
    /// the version 2 folder already.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn join_files(&self, born: bool) -> Result<Vec<File>, CgroupError> {
        let mut folders = self.record.folders();
        folders.retain(|(_, version)| !(born && *version == Version::V2));
        let open = |(folder, _): &(PathBuf, Version)| {
            let path = folder.join("cgroup.procs");
            OpenOptions::new().write(true).open(&path).map_err(|source| CgroupError { action: "open", path, source })
        };
        folders.into_iter().map(open).collect()
    }

    /// Sends SIGKILL to everything in it, once. Processes that fork meanwhile are caught: the group is frozen first, or
    /// the kernel does it in one go.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> Result<(), CgroupError> {
        let Some((path, version)) = &self.record.tracking else { return Ok(()) };
        if *version == Version::V2 && path.join("cgroup.kill").exists() {
            return write(path, "cgroup.kill", "1");
        }
        let freezing = self.freeze(true);
        // 0 would be this very process' group.
        for pid in self.pids().into_iter().filter(|pid| *pid != UNKNOWN_PROCESS) {
            // A pid that cannot be signalled shows up again in the next round, and in the end as an unconfirmed kill.
            let _ = kill_pid(pid);
        }
        freezing.and(self.freeze(false))
    }

    /// The folder by which its processes are stopped and go on without their knowing; `None`: they cannot be.
    #[must_use]
    pub fn freezer(&self) -> Option<&Path> {
        self.record.tracking.as_ref().map(|(path, _)| path.as_path())
    }

    /// Stops all its processes where they are, or lets them go on. They are stopped some time later:
    /// [`is_frozen`](Self::is_frozen).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn freeze(&self, frozen: bool) -> Result<(), CgroupError> {
        match &self.record.tracking {
            None => Ok(()),
            Some((path, Version::V1)) => write(path, "freezer.state", if frozen { "FROZEN" } else { "THAWED" }),
            Some((path, Version::V2)) => write(path, "cgroup.freeze", if frozen { "1" } else { "0" }),
        }
    }

    /// Returns whether all processes of the group are stopped.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        let says = |path: &Path, file: &str, word: &str| {
            fs::read_to_string(path.join(file)).is_ok_and(|text| text.lines().any(|line| line == word))
        };
        match &self.record.tracking {
            None => false,
            Some((path, Version::V1)) => says(path, "freezer.state", "FROZEN"),
            Some((path, Version::V2)) => says(path, "cgroup.events", "frozen 1"),
        }
    }

    /// Returns whether no live process is in the group. Zombies do not count: they compute nothing and hold no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.pids().into_iter().any(|pid| pid == UNKNOWN_PROCESS || has_live_thread(pid))
    }

    #[must_use]
    pub fn holds(&self, pid: i32) -> bool {
        self.pids().contains(&pid)
    }

    /// Every pid in it and in groups below it; [`UNKNOWN_PROCESS`] for what has no pid here or could not be looked at.
    pub(super) fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        if let Some((path, _)) = &self.record.tracking {
            collect_pids(path, &mut pids);
        }
        pids
    }

    /// The number of its processes that the kernel killed for lack of memory.
    #[must_use]
    pub fn memory_kills(&self) -> u64 {
        let Some((path, version)) = &self.record.memory else { return 0 };
        let file = match version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(path.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    /// Removes the empty folders. One that is still busy is left to the next attempt.
    pub fn remove(&self) {
        for (path, _) in self.record.folders() {
            remove_tree(path);
        }
    }

    fn track(&mut self, hierarchies: &Hierarchies, name: &str) {
        let made = if let Some(unified) = &hierarchies.unified {
            Some((make(unified, name), Version::V2))
        } else {
            hierarchies.legacy_with("freezer").map(|freezer| (make(freezer, name), Version::V1))
        };
        match made {
            Some((Ok(path), version)) => self.record.tracking = Some((path, version)),
            Some((Err(error), _)) => self.missing("processes are tracked by descent, not by control group", &error),
            None => self.record.missing.push(
                "processes are tracked by descent: neither cgroup version 2 nor a version 1 freezer is mounted"
                    .to_owned(),
            ),
        }
    }

    /// The weight divides processors that everybody wants, the quota keeps a worker from what nobody else wants.
    fn limit_cpu(&mut self, hierarchies: &Hierarchies, name: &str, millicores: u64, elastic: bool) {
        let quota = (millicores.saturating_mul(CPU_PERIOD_US) / 1000).max(CPU_QUOTA_MIN_US);
        let quota = |none: &str| if elastic { none.to_owned() } else { quota.to_string() };
        let done = if let Some(unified) = hierarchies.unified_with("cpu") {
            enable(unified, name, "cpu").and_then(|path| {
                write_if_present(&path, "cpu.weight", &weight(millicores, 100, 1..=10_000))?;
                write(&path, "cpu.max", &format!("{} {CPU_PERIOD_US}", quota("max"))).map(|()| (path, Version::V2))
            })
        } else if let Some(cpu) = hierarchies.legacy_with("cpu") {
            make(cpu, name).and_then(|path| {
                write(&path, "cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
                write_if_present(&path, "cpu.shares", &weight(millicores, 1024, 2..=262_144))?;
                write(&path, "cpu.cfs_quota_us", &quota("-1")).map(|()| (path, Version::V1))
            })
        } else {
            return self.record.missing.push("CPU time is not limited: no cpu controller is mounted".to_owned());
        };
        match done {
            Ok(folder) => self.record.cpu = Some(folder),
            Err(error) => self.missing("CPU time is not limited", &error),
        }
    }

    fn limit_memory(&mut self, hierarchies: &Hierarchies, name: &str, bytes: u64) {
        let done = if let Some(unified) = hierarchies.unified_with("memory") {
            enable(unified, name, "memory").and_then(|path| {
                write(&path, "memory.max", &bytes.to_string())?;
                write_if_present(&path, "memory.swap.max", "0")?;
                write_if_present(&path, "memory.oom.group", "1").map(|()| (path, Version::V2))
            })
        } else if let Some(memory) = hierarchies.legacy_with("memory") {
            make(memory, name).and_then(|path| {
                write(&path, "memory.limit_in_bytes", &bytes.to_string())?;
                write_if_present(&path, "memory.memsw.limit_in_bytes", &bytes.to_string()).map(|()| (path, Version::V1))
            })
        } else {
            return self.record.missing.push("memory is not limited: no memory controller is mounted".to_owned());
        };
        match done {
            Ok(folder) => self.record.memory = Some(folder),
            Err(error) => self.missing("memory is not limited", &error),
        }
    }

    fn limit_processes(&mut self, hierarchies: &Hierarchies, name: &str, most: u64) {
        let limit = |path: PathBuf| write(&path, "pids.max", &most.to_string()).map(|()| path);
        let done = if let Some(unified) = hierarchies.unified_with("pids") {
            enable(unified, name, "pids").and_then(limit).map(|path| (path, Version::V2))
        } else if let Some(pids) = hierarchies.legacy_with("pids") {
            make(pids, name).and_then(limit).map(|path| (path, Version::V1))
        } else {
            return self.record.missing.push("processes are not limited: no pids controller is mounted".to_owned());
        };
        match done {
            Ok(folder) => self.record.processes = Some(folder),
            Err(error) => self.missing("processes are not limited", &error),
        }
    }

    fn missing(&mut self, what: &str, error: &CgroupError) {
        self.record.missing.push(format!("{what}: {error}: {}", error.source));
    }
}

/// The weight of so many cores, where one has that of `core`.
fn weight(millicores: u64, core: u64, bounds: RangeInclusive<u64>) -> String {
    (millicores.saturating_mul(core) / 1000).clamp(*bounds.start(), *bounds.end()).to_string()
}

fn make(hierarchy: &Hierarchy, name: &str) -> Result<PathBuf, CgroupError> {
    let path = hierarchy.mount.join(name);
    if let Err(source) = while_removed(|| fs::create_dir_all(&path)) {
        return Err(CgroupError { action: "make", path, source });
    }
    // Programs look up what they may use, whoever they run as.
    for folder in path.ancestors().take_while(|folder| *folder != hierarchy.mount) {
        // A folder above that is not ours is as open as its owner made it.
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o755));
    }
    Ok(path)
}

/// Makes a version 2 group in which a controller works: every group above it must hand the controller down.
fn enable(hierarchy: &Hierarchy, name: &str, controller: &str) -> Result<PathBuf, CgroupError> {
    let path = make(hierarchy, name)?;
    let mut above = hierarchy.mount.clone();
    let mut parts = name.split('/').peekable();
    while let Some(part) = parts.next() {
        let handed_down = fs::read_to_string(above.join("cgroup.subtree_control")).unwrap_or_default();
        if !handed_down.split_ascii_whitespace().any(|name| name == controller) {
            write(&above, "cgroup.subtree_control", &format!("+{controller}"))?;
        }
        if parts.peek().is_some() {
            above.push(part);
        }
    }
    Ok(path)
}

fn write(folder: &Path, file: &str, content: &str) -> Result<(), CgroupError> {
    let path = folder.join(file);
    // Control files exist already and must not be made: a missing one is an error to be told.
    let written = OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut opened| io::Write::write_all(&mut opened, content.as_bytes()));
    written.map_err(|source| CgroupError { action: "write", path, source })
}

fn write_if_present(folder: &Path, file: &str, content: &str) -> Result<(), CgroupError> {
    if folder.join(file).exists() { write(folder, file, content) } else { Ok(()) }
}

/// The pid that the kernel reports for a process of another pid namespace; here also for what could not be inspected.
const UNKNOWN_PROCESS: i32 = 0;

fn collect_pids(folder: &Path, pids: &mut Vec<i32>) {
    let own = match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(own) => own,
        Err(error) if is_gone(&error) => String::new(),
        Err(_) => {
            // It could not be looked at: a kill must not count as confirmed because of that (law L2).
            pids.push(UNKNOWN_PROCESS);
            return;
        }
    };
    pids.extend(own.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
    for below in folders_below(folder) {
        collect_pids(&below, pids);
    }
}

/// Returns whether an error says that the group no longer exists.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn remove_tree(folder: &Path) {
    for below in folders_below(folder) {
        remove_tree(&below);
    }
    // A folder that is still busy stays; the sweep at the agent's next start tries again.
    let _ = fs::remove_dir(folder);
}

/// The folders below; none when the folder itself cannot be read, which for the processes of a group was noticed
/// before.
fn folders_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
