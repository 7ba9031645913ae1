//! `tessera operator`.

use std::path::PathBuf;

use std::time::Duration;

use clap::{Args, Subcommand};

use super::client::ClientArgs;
use super::values::{JobNumber, duration};

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
    /// Looks whether this host and the control plane are fit: clock, disk, ports, members, kernel, limits, drivers
    #[command(after_help = DOCTOR_EXIT_CODES)]
    Doctor(Box<DoctorArgs>),
    /// Writes what somebody who helps from afar wants to see into one file, without anything secret
    Debug(Box<DebugArgs>),
}

/// The exit codes of the doctor.
const DOCTOR_EXIT_CODES: &str = "\
Exit codes:
  0    all is well
  1    a warning
  2    a failure, or wrong usage";

/// `tessera operator doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What runs on this host.
    #[command(flatten)]
    pub host: HostArgs,
}

/// The files of what runs on this host.
#[derive(Clone, Debug, Args)]
pub struct HostArgs {
    /// Configuration file of the member of this host [default: /etc/tessera/controller.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "TESSERA_SERVER_CONFIG")]
    pub member_config: Option<PathBuf>,
    /// Configuration file of the agent of this host [default: /etc/tessera/agent.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "TESSERA_AGENT_CONFIG")]
    pub agent_config: Option<PathBuf>,
}

/// `tessera operator debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// The file to be made (tar.gz); only its owner can read it. It must not be there yet
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Members of the control plane; one that answers is enough [env: TESSERA_SERVER] [default: those of this host's
    /// files, or 127.0.0.1:7400]
    #[arg(short, long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub server: Vec<String>,
    /// Context of the configuration file to use [env: TESSERA_CONTEXT]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Time for one request with all its retries [env: TESSERA_TIMEOUT] [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Where members and agents serve their metrics, beside those of this host's files
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub http: Vec<String>,
    /// A file of logs; its newest 4 MiB are taken, as they are
    #[arg(long, value_name = "FILE")]
    pub log: Vec<PathBuf>,
    /// Has members and agents look for so long, a minute at most, at what their processors do, and takes the stacks
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub profile: Option<Duration>,
    /// What runs on this host.
    #[command(flatten)]
    pub host: HostArgs,
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
