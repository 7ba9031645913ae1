//! Processes that the benchmarks start: each in its own process group, with its output in a file, ended by its pid.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};
use tokio::process::{Child, Command};
use tokio::time::{Duration, timeout};

/// Longest time for a process to be gone after SIGKILL.
const REAP: Duration = Duration::from_secs(10);

/// A program to start.
#[derive(Clone, Debug)]
pub struct Program {
    pub binary: PathBuf,
    pub arguments: Vec<OsString>,
    /// Variables beside those inherited.
    pub environment: Vec<(OsString, OsString)>,
    /// The file that its output is appended to.
    pub log: PathBuf,
    /// The file of the network that it lives in; that of this process unless set.
    pub network: Option<PathBuf>,
}

/// A running process. Killed when dropped, and by the system when this process dies without a chance to do so.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// The log cannot be opened, or the binary cannot be run.
    pub fn start(&self) -> Result<Process> {
        if let Some(folder) = self.log.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot open {}", self.log.display()))?;
        let child = self
            .command()
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        Ok(Process { child, log: self.log.clone() })
    }
}

impl Program {
    /// The program, reached through two others that become it: the pid stays the same.
    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(network) = &self.network {
            let mut net = OsString::from("--net=");
            net.push(network);
            command.arg("nsenter").arg(net);
        }
        command.arg(&self.binary);
        command
    }
}

impl Process {
    /// Its pid; `None` once it is over.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal, without waiting.
    ///
    /// # Errors
    /// The process is over already.
    pub fn send(&mut self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.with_context(|| format!("already over; see {}", self.log.display()))?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("cannot send {signal}"))
    }

    /// Waits until a process ends that was asked to.
    ///
    /// # Errors
    /// It has not ended within `patience`.
    pub async fn ended(&mut self, patience: Duration) -> Result<ExitStatus> {
        let waited = timeout(patience, self.child.wait()).await;
        waited.with_context(|| format!("not ended in time; see {}", self.log.display()))?.context("cannot wait")
    }

    /// Waits until a killed process is gone.
    ///
    /// # Errors
    /// It is not gone within ten seconds.
    pub async fn gone(&mut self) -> Result<ExitStatus> {
        let waited = timeout(REAP, self.child.wait()).await.context("a killed process is still there")?;
        waited.context("cannot wait for a process")
    }

    /// Asks it to end, and kills it when it has not ended within `grace`.
    ///
    /// # Errors
    /// It is not gone even after SIGKILL.
    pub async fn stop(&mut self, grace: Duration) -> Result<()> {
        if self.pid().is_none() || (self.send(Signal::SIGTERM).is_ok() && self.ended(grace).await.is_ok()) {
            return Ok(());
        }
        if self.child.id().is_some() {
            self.child.start_kill().context("cannot kill")?;
            self.gone().await?;
        }
        Ok(())
    }

    /// Fails when the process has ended by itself, with the end of its log.
    ///
    /// # Errors
    /// It has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot look at a process")? {
            None => Ok(()),
            Some(status) => {
                bail!("a process ended with {status}; the end of {}:\n{}", self.log.display(), tail(&self.log))
            }
        }
    }

    /// Resident memory.
    ///
    /// # Errors
    /// The process is over, or `/proc` cannot be read.
    pub fn resident_bytes(&self) -> Result<u64> {
        let pid = self.pid().context("the process is over")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read /proc")?;
        resident_bytes(&status).context("/proc/PID/status has no VmRSS")
    }
}

/// Processor time that all threads of `pid` have used, in user and kernel mode.
///
/// # Errors
/// There is no such process.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("cannot read /proc")?;
    let ticks = processor_ticks(&stat).context("/proc/PID/stat is not as expected")?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u32::try_from(ticks).ok());
    Ok(Duration::from_secs(ticks) / per_second.filter(|ticks| *ticks > 0).unwrap_or(100))
}

/// `utime` and `stime` are the twelfth and thirteenth field after the name.
fn processor_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let [user, kernel]: [u64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    Some(user + kernel)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Start time of the process `pid`, in clock ticks since boot: with the pid, the identity of a process. `None` when
/// there is no such process, or only its remains.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    ticks_of_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns whether a process runs that started at `started`, in clock ticks since boot, and has the pid `own` in its
/// own PID namespace.
#[must_use]
pub fn runs_as(own: u32, started: u64) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let mut pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.any(|pid| start_ticks(pid) == Some(started) && own_pid(pid) == Some(own))
}

/// The pid that a process has in its own PID namespace: the last of those that `NSpid` names.
fn own_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// The name, which may hold anything, ends at the last `)`; the state is the first field after it, the start
/// the twentieth.
fn ticks_of_stat(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(folder: &Path, script: &str) -> Program {
        Program {
            binary: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            log: folder.join("log"),
            network: None,
        }
    }

    #[tokio::test]
    async fn a_killed_process_is_gone_and_its_identity_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = program(folder.path(), "exec sleep 60").start().expect("starts");
        let pid = process.pid().expect("runs");
        assert!(start_ticks(pid).is_some());
        assert!(process.resident_bytes().expect("readable") > 0);
        process.send(Signal::SIGKILL).expect("alive");
        let status = process.gone().await.expect("gone");
        assert!(!status.success());
        assert_eq!(start_ticks(pid), None);
    }

    #[tokio::test]
    async fn a_process_that_ends_by_itself_is_reported_with_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = program(folder.path(), "echo it is broken; exit 3").start().expect("starts");
        process.gone().await.expect("ends");
        let error = process.check_alive().expect_err("over").to_string();
        assert!(error.contains("it is broken") && error.contains('3'), "{error}");
    }

    #[tokio::test]
    async fn one_that_ignores_sigterm_is_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "trap '' TERM; echo up; while :; do sleep 1; done";
        let mut process = program(folder.path(), script).start().expect("starts");
        while !fs::read_to_string(folder.path().join("log")).expect("there").contains("up") {
            tokio::task::yield_now().await;
        }
        process.stop(Duration::from_millis(50)).await.expect("stopped");
        assert_eq!(process.pid(), None);
    }

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(ticks_of_stat(stat), Some(4242));
        assert_eq!(ticks_of_stat(&stat.replace(" S ", " Z ")), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 0 0 0 30 12 0 0 20 0 1 0 4242 1 1";
        assert_eq!(processor_ticks(stat), Some(42));
    }
}
