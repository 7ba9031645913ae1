//! Workers that testify: each appends one line to a file of its own when it starts, so that a worker that was started
//! again, or that is not the process it was, is found out.
//!
//! The worker is this very binary (`tessera-chaos worker`): a shell would cost milliseconds that do not belong to what
//! is measured.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::process::{runs_as, start_ticks};

/// The statement of a worker that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testimony {
    /// Its pid, as it sees it: workers live in PID namespaces of their own.
    pub pid: u32,
    /// Start time of its process, in clock ticks since boot.
    pub start_ticks: u64,
    /// Time at which it came to run, in nanoseconds since 1970 (`CLOCK_REALTIME`).
    pub unix_nanos: u64,
}

impl Testimony {
    /// Makes the testimony of this process, which came to run at `unix_nanos` since 1970. Work that the process does
    /// before it reads that time counts as part of its start, so the time must be read first.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn of(unix_nanos: u64) -> Result<Self> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid).context("/proc does not know this process")?;
        Ok(Self { pid, start_ticks, unix_nanos })
    }

    /// Returns whether the process of this testimony still runs.
    #[must_use]
    pub fn still_runs(&self) -> bool {
        runs_as(self.pid, self.start_ticks)
    }

    /// Appends it to `file`, in one write.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append_to(&self, file: &Path) -> Result<()> {
        let line = serde_json::to_string(self).context("cannot encode")? + "\n";
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .with_context(|| format!("cannot open {}", file.display()))?;
        file.write_all(line.as_bytes()).context("cannot append")
    }
}

/// Nanoseconds since 1970.
#[must_use]
pub fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// From `earlier` to `later`, both in nanoseconds since 1970; zero when the clock was set back between.
#[must_use]
pub fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

/// The folder that workers testify in: one file per job and rank.
#[derive(Clone, Debug)]
pub struct Stand(PathBuf);

impl Stand {
    /// In `folder`, which is made.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    #[must_use]
    pub fn file(folder: &Path, job: u64, rank: u32) -> PathBuf {
        folder.join(format!("{job}.{rank}"))
    }

    /// The testimonies of the processes of one worker, oldest first; empty when it never started.
    ///
    /// # Errors
    /// The file is not what workers write.
    pub fn heard(&self, job: u64, rank: u32) -> Result<Vec<Testimony>> {
        let file = Self::file(&self.0, job, rank);
        if !file.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        parsed.with_context(|| format!("{} is not a testimony", file.display()))
    }

    /// The testimony of a worker that started once and only once.
    ///
    /// # Errors
    /// It did not start, or more than once.
    pub fn only_start(&self, job: u64, rank: u32) -> Result<Testimony> {
        let heard = self.heard(job, rank)?;
        ensure!(heard.len() == 1, "worker {rank} of job {job} started {} times", heard.len());
        Ok(heard[0])
    }

    /// Returns whether the worker that started as `before` says runs on and was never started again.
    ///
    /// # Errors
    /// The file is not what workers write.
    pub fn undisturbed(&self, job: u64, rank: u32, before: &Testimony) -> Result<bool> {
        Ok(self.heard(job, rank)? == [*before] && before.still_runs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_runs_on_is_undisturbed_and_one_started_again_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let stand = Stand::new(folder.path().join("stand")).expect("made");
        assert!(stand.only_start(1, 0).is_err(), "it has not started");

        let own = Testimony::of(unix_nanos()).expect("runs");
        own.append_to(&Stand::file(stand.folder(), 1, 0)).expect("written");
        assert_eq!(stand.only_start(1, 0).expect("once"), own);
        assert!(stand.undisturbed(1, 0, &own).expect("readable"));

        own.append_to(&Stand::file(stand.folder(), 1, 0)).expect("written");
        assert!(!stand.undisturbed(1, 0, &own).expect("readable"));
        assert!(stand.only_start(1, 0).is_err(), "it started twice");
    }

    #[test]
    fn another_process_under_the_same_pid_is_another_worker() {
        let folder = tempfile::tempdir().expect("a folder");
        let stand = Stand::new(folder.path().to_owned()).expect("made");
        let own = Testimony::of(unix_nanos()).expect("runs");
        let former = Testimony { start_ticks: own.start_ticks + 1, ..own };
        former.append_to(&Stand::file(stand.folder(), 2, 1)).expect("written");
        assert!(!stand.undisturbed(2, 1, &former).expect("readable"));
    }
}
