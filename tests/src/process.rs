//! A process of the pool under test: its own group, its output in a file, ended by pid when the test is over.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running process of the pool.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; its output goes to `<name>.log` in `folder`, appended over restarts.
    ///
    /// # Errors
    /// When the log cannot be opened or the program not be started.
    pub fn start(name: &str, mut command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).context("opening a log file")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid fits")
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid()), signal).with_context(|| format!("signalling {}", self.name))
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        // A process that is gone already is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The exit code, if the process has ended by itself; -1 where it has none.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> Result<Option<i32>> {
        Ok(self.child.try_wait()?.map(|status| status.code().unwrap_or(-1)))
    }

    /// The output so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process must run again to be killed and reaped at once on every kernel.
        let _ = self.signal(Signal::SIGCONT);
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(25).collect();
            eprintln!("--- last lines of {}:", self.name);
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Live processes whose environment has a variable that begins like this.
#[must_use]
pub fn live_with_variable(beginning: &[u8]) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // A zombie has no environment any more, and computes nothing.
    pids.filter(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(beginning))
    })
    .collect()
}
