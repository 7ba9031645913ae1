//! Options that all benchmarks have.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use tempfile::TempDir;
use tokio::time::Duration;

use crate::quiet::Wanted;
use crate::report::Report;

/// Options that all benchmarks have.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The `tessera` binary to measure; build it with --release
    #[arg(long, env = "TESSERA_BIN")]
    pub binary: Option<PathBuf>,
    /// Folder on the disk to measure; a folder below it is made and removed again
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Leave data and logs of all processes where they are
    #[arg(long)]
    pub keep: bool,
    /// File that one JSON object a line is appended to
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Wait until the machine is idle for this share of time, in percent, before each section
    #[arg(long, default_value_t = 85.0)]
    pub idle: f64,
    /// Longest wait for a quiet machine
    #[arg(long, default_value = "5min", value_parser = humantime::parse_duration)]
    pub patience: Duration,
    /// End the whole benchmark after this time, whatever it is doing
    #[arg(long, default_value = "40min", value_parser = humantime::parse_duration)]
    pub limit: Duration,
}

/// Which etcd to measure beside.
#[derive(Clone, Debug, Args)]
pub struct Beside {
    /// Measure etcd in the same run: its binary, looked for in PATH when no path is given (see chaos/get-etcd.sh)
    #[arg(long, num_args = 0..=1, default_missing_value = "etcd")]
    pub etcd: Option<PathBuf>,
}

/// How the submissions wait, so that they do not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// On hold: nothing looks at them.
    Held,
    /// Behind a full pool: placement looks at them.
    Queued,
}

impl Common {
    /// The binary of Tessera.
    ///
    /// # Errors
    /// None was given.
    pub fn tessera(&self) -> Result<&Path> {
        self.binary.as_deref().context("no --binary was given, and TESSERA_BIN is not set: there is nothing to measure")
    }

    /// The folder for data and logs of all processes of this run.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn folder(&self) -> Result<TempDir> {
        let mut made = tempfile::Builder::new()
            .prefix("tessera-chaos-")
            .tempdir_in(&self.dir)
            .with_context(|| format!("cannot make a folder in {}", self.dir.display()))?;
        made.disable_cleanup(self.keep);
        Ok(made)
    }

    /// A report that goes where the options say.
    ///
    /// # Errors
    /// The file for JSON cannot be opened.
    pub fn report(&self, bench: &'static str) -> Result<Report> {
        let quiet = Wanted { idle_percent: self.idle, patience: self.patience };
        Report::new(bench, self.json.as_deref(), quiet)
    }
}
