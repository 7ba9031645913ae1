//! Processes by pid *and* start time, so that a reused pid is never mistaken for the process that had it before.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A process: its pid and when it started (field 22 of `/proc/PID/stat`, in ticks since boot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has the pid at present; `None` when there is none.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = ProcessStat::read(pid)?;
        Some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// Returns whether this very process exists and is more than a zombie.
    #[must_use]
    pub fn is_alive(self) -> bool {
        ProcessStat::read(self.pid).is_some_and(|stat| stat.start_ticks == self.start_ticks)
            && has_live_thread(self.pid)
    }

    /// Sends SIGKILL to this very process; one that is gone is a success.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn kill(self) -> Result<(), Errno> {
        if self.is_alive() { kill_pid(self.pid) } else { Ok(()) }
    }

    /// Sends a signal to the process group of this process, if it is still this very process (a zombie keeps its pid
    /// and its group's number from being used again).
    pub fn signal_group(self, signal: Signal) -> bool {
        Self::of(self.pid) == Some(self) && kill(Pid::from_raw(-self.pid), signal).is_ok()
    }
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// `R`, `S`, `D`, `T`, `Z`, ...
    pub state: char,
    /// The parent's pid.
    pub parent: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// Processor time of its own and of its children that were waited for, in clock ticks.
    pub processor_ticks: u64,
}

impl ProcessStat {
    /// Reads it for a pid; `None` when there is no such process.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may hold spaces and parentheses itself, so fields are counted from the last one.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let mut times = fields.by_ref().skip(9).take(4).map(str::parse::<u64>);
        let mut processor_ticks = 0_u64;
        for _ in 0..4 {
            processor_ticks = processor_ticks.saturating_add(times.next()?.ok()?);
        }
        let start_ticks = fields.nth(4)?.parse().ok()?;
        Some(Self { state, parent, start_ticks, processor_ticks })
    }

    /// Returns whether nothing but the exit status is left of the process.
    #[must_use]
    pub const fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// The next child that has ended and how; `None`: there is one, and none has ended, which `flags` with `WNOHANG` asks.
/// Any signal may have ended it, also one that has no name.
///
/// # Errors
/// `ECHILD` without a child.
#[allow(unsafe_code)]
pub fn reap(flags: libc::c_int) -> io::Result<Option<(i32, ExitStatus)>> {
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to an integer of this function.
        match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
            0 => return Ok(None),
            pid if pid > 0 => return Ok(Some((pid, ExitStatus::from_raw(status)))),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Returns whether any thread of the process is alive: the first thread may be a zombie while others run on.
#[must_use]
pub fn has_live_thread(pid: i32) -> bool {
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        // Only a process that is not there is gone; one that cannot be looked at counts as alive (law L2).
        Err(error) => return error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(libc::ESRCH),
    };
    threads.flatten().any(|thread| {
        fs::read_to_string(thread.path().join("stat"))
            .ok()
            .and_then(|line| ProcessStat::parse(&line))
            .is_some_and(|stat| !stat.is_dead())
    })
}

/// The live descendants of a process, found by walking `/proc`. For a subreaper these are all that it ever caused.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn live_descendants(ancestor: i32) -> io::Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in all_pids()? {
        if let Some(stat) = ProcessStat::read(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![ancestor];
    while let Some(pid) = open.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            open.push(child);
            found.push(child);
        }
    }
    found.retain(|pid| has_live_thread(*pid));
    Ok(found)
}

/// The pids of all processes.
///
/// # Errors
/// When `/proc` cannot be listed to its end.
pub fn all_pids() -> io::Result<Vec<i32>> {
    let pid = |name: &OsStr| name.to_str()?.parse().ok();
    fs::read_dir("/proc")?.filter_map(|entry| entry.map(|entry| pid(&entry.file_name())).transpose()).collect()
}

/// Sends SIGKILL to one pid; a process that is already gone is a success.
pub fn kill_pid(pid: i32) -> Result<(), Errno> {
    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Err(Errno::ESRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_fields() {
        let line = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 3 4 5 6 20 0 1 0 4242 0 0";
        assert_eq!(
            ProcessStat::parse(line),
            Some(ProcessStat { state: 'S', parent: 1, start_ticks: 4242, processor_ticks: 18 })
        );
        assert_eq!(ProcessStat::parse("7 (cut"), None);
        assert_eq!(ProcessStat::parse("7 (cut) S 1"), None);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let own = i32::try_from(std::process::id()).expect("pids fit into i32");
        let me = ProcessId::of(own).expect("this process exists");
        assert!(me.is_alive());
        let before = ProcessId { start_ticks: me.start_ticks - 1, ..me };
        assert!(!before.is_alive());
        assert!(!before.signal_group(Signal::SIGCONT));
    }

    #[test]
    fn a_zombie_is_no_living_process() {
        let mut child = Command::new("true").spawn().expect("it is everywhere");
        let pid = i32::try_from(child.id()).expect("pids fit into i32");
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(Pid::from_raw(pid)), ended).expect("a child");
        let zombie = ProcessId::of(pid).expect("nobody has collected it");
        assert!(!zombie.is_alive());
        child.wait().expect("a child");
    }
}
