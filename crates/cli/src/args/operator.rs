//! `tessera operator`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::JobNumber;

/// `tessera operator`.
#[derive(Debug, Args)]
pub struct OperatorCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: OperatorVerb,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum OperatorVerb {
    /// Makes every past decision of a pool again, from the log of a stopped member; exit code 1 when another plan
    /// comes out
    Replay(ReplayArgs),
}

/// `tessera operator replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Data folder of a stopped member, or a copy of it; nothing in it is changed
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Only decisions about this job, with where it went, and why it waited before
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobNumber>,
    /// Show every decision, not only those that come out otherwise
    #[arg(long)]
    pub all: bool,
}
