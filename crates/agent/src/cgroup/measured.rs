//! The host resources that the processes of a group use, as the kernel counts them.
//!
//! Version 2 counts processor time in every group; version 1 where the hierarchy of the limit counts it too. Where
//! neither tells, and for memory without a limit, the processes of the group are looked at one by one: what those used
//! that have ended is missing then.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::group::{Version, WorkerGroup};
use crate::process::ProcessStat;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUse {
    /// Processor time since it was made.
    pub processor_time: Duration,
    /// Memory in bytes, without cached files that the kernel can drop.
    pub memory_bytes: u64,
}

impl WorkerGroup {
    /// The processor time used so far and the memory used now; zero for a group that is gone.
    #[must_use]
    pub fn measured(&self) -> GroupUse {
        let record = self.record();
        let held = record.memory.as_ref().and_then(|(folder, version)| memory(folder, *version));
        GroupUse {
            processor_time: self.processor_time(),
            memory_bytes: held.unwrap_or_else(|| self.processes().filter_map(memory_of).sum()),
        }
    }

    /// Processor time since it was made; nothing of a group that is gone.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        let record = self.record();
        let times = record.cpu.iter().chain(&record.tracking);
        let counted = times.filter_map(|(folder, version)| processor_time(folder, *version)).next();
        counted.unwrap_or_else(|| {
            self.processes().filter_map(ProcessStat::read).map(|stat| ticks(stat.processor_ticks)).sum()
        })
    }

    fn processes(&self) -> impl Iterator<Item = i32> {
        self.pids().into_iter().filter(|pid| *pid > 0)
    }
}

fn processor_time(folder: &Path, version: Version) -> Option<Duration> {
    match version {
        Version::V2 => {
            value(&fs::read_to_string(folder.join("cpu.stat")).ok()?, "usage_usec").map(Duration::from_micros)
        }
        Version::V1 => number(&folder.join("cpuacct.usage")).map(Duration::from_nanos),
    }
}

fn memory(folder: &Path, version: Version) -> Option<u64> {
    let (file, cached) = match version {
        Version::V2 => ("memory.current", "inactive_file"),
        Version::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
    };
    let all = number(&folder.join(file))?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    Some(all.saturating_sub(value(&stat, cached).unwrap_or(0)))
}

/// Anonymous and shared memory of a process, in bytes.
fn memory_of(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kibibytes = |name| value(&text, name).unwrap_or(0);
    Some((kibibytes("RssAnon:") + kibibytes("RssShmem:")) << 10)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name on a line of its own.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(char::is_whitespace))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Ticks of the clock that `/proc` counts in, a hundredth of a second on every Linux.
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(10))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cgroup::GroupRecord;

    fn group(
        root: &Path,
        files: &[(&str, &str)],
        record: impl Fn(&dyn Fn(&str) -> PathBuf) -> GroupRecord,
    ) -> WorkerGroup {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        WorkerGroup::from_record(record(&|name| root.join(name)))
    }

    #[test]
    fn version_two_counts_time_everywhere_and_memory_where_it_is_limited() {
        let root = tempfile::tempdir().expect("a folder");
        let files = [
            ("w/cpu.stat", "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n"),
            ("w/memory.current", "9000\n"),
            ("w/memory.stat", "anon 100\nfile 5000\ninactive_file 4000\nactive_file 1000\n"),
        ];
        let both = |at: &dyn Fn(&str) -> PathBuf| {
            let folder = (at("w"), Version::V2);
            GroupRecord { tracking: Some(folder.clone()), memory: Some(folder), ..GroupRecord::default() }
        };
        let used = GroupUse { processor_time: Duration::from_millis(1500), memory_bytes: 5000 };
        assert_eq!(group(root.path(), &files, both).measured(), used);
    }

    #[test]
    fn version_one_counts_in_the_hierarchies_of_its_limits() {
        let root = tempfile::tempdir().expect("a folder");
        let files = [
            ("cpu/cpuacct.usage", "2500000000\n"),
            ("memory/memory.usage_in_bytes", "9000\n"),
            ("memory/memory.stat", "cache 5000\ninactive_file 1\ntotal_inactive_file 4000\n"),
        ];
        let apart = |at: &dyn Fn(&str) -> PathBuf| GroupRecord {
            cpu: Some((at("cpu"), Version::V1)),
            memory: Some((at("memory"), Version::V1)),
            ..GroupRecord::default()
        };
        let used = GroupUse { processor_time: Duration::from_millis(2500), memory_bytes: 5000 };
        assert_eq!(group(root.path(), &files, apart).measured(), used);
    }

    #[test]
    fn where_no_group_counts_the_processes_are_looked_at() {
        let root = tempfile::tempdir().expect("a folder");
        let own = std::process::id().to_string();
        let tracked = |at: &dyn Fn(&str) -> PathBuf| GroupRecord {
            tracking: Some((at("freezer"), Version::V1)),
            ..GroupRecord::default()
        };
        let group = group(root.path(), &[("freezer/cgroup.procs", &own)], tracked);
        let mut kept = vec![1_u8; 64 << 20];
        while group.measured().processor_time < Duration::from_millis(20) {
            kept.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(3));
        }
        assert!(group.measured().memory_bytes >= 64 << 20, "{:?} and {} bytes", group.measured(), kept.len());
        assert_eq!(WorkerGroup::from_record(GroupRecord::default()).measured(), GroupUse::default());
    }
}
