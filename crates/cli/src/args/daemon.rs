//! `tessera server`, `tessera agent` and `tessera dev`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::pool::BlockArgs;
use crate::daemon::logging::DEFAULT_FILTER;

use super::values::{duration, member_count, pair, signed_ms};

/// Shape of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere
    #[default]
    Auto,
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}

/// What a long-running process logs, and where its spans and metrics go.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Logs, traces and metrics")]
pub struct LogArgs {
    /// What is logged, such as `info` or `info,tessera_agent=debug`
    #[arg(long, value_name = "FILTER", env = "TESSERA_LOG")]
    pub log: Option<String>,
    /// Shape of log lines
    #[arg(long, value_enum, env = "TESSERA_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Collector of traces and metrics (OTLP over gRPC), such as `http://127.0.0.1:4317`; nothing is sent when
    /// not given
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
}

/// `tessera server`. What is given here goes before the configuration file.
#[derive(Debug, Default, Args)]
pub struct ServerArgs {
    /// Configuration file (TOML); `docs/configuration.md` describes it
    #[arg(short, long, value_name = "FILE", env = "TESSERA_SERVER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Folder for everything this member keeps; it belongs to one member for ever
    #[arg(long, value_name = "DIR", env = "TESSERA_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where members, agents and clients connect [default: 127.0.0.1:7400]
    #[arg(long, value_name = "HOST:PORT", env = "TESSERA_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// How others reach this member [default: the address of --listen]
    #[arg(long, value_name = "HOST:PORT", env = "TESSERA_ADVERTISE")]
    pub advertise: Option<String>,
    /// Name for people, unless `cluster init` or `cluster member add` gives one [default: none]
    #[arg(long, env = "TESSERA_NAME")]
    pub name: Option<String>,
    /// Where metrics and health are served over HTTP; nowhere when not given
    #[arg(long, value_name = "HOST:PORT", env = "TESSERA_HTTP")]
    pub http: Option<SocketAddr>,
    /// What is logged.
    #[command(flatten)]
    pub logging: LogArgs,
    /// The data folder was moved here from another place or host and is used nowhere else
    #[arg(long)]
    pub moved_data_dir: bool,
    /// Stop when standard input ends: for a parent that must not leave it behind
    #[arg(long, hide = true)]
    pub stop_with_stdin: bool,
    /// For drills: take this member's wall clock to be ahead by so much, or behind with `-`
    #[arg(long, value_name = "DURATION", value_parser = signed_ms, allow_hyphen_values = true, hide = true)]
    pub clock_offset: Option<i64>,
    /// Announce and apply the release level that stands for the next release, as tests of upgrades do. A pool that was
    /// raised to it is of no use to any release
    #[arg(long, hide = true)]
    pub drill_next_level: bool,
}

/// `tessera agent`. What is given here goes before the configuration file.
#[derive(Debug, Default, Args)]
pub struct AgentArgs {
    /// Configuration file (TOML); `docs/configuration.md` describes it
    #[arg(short, long, value_name = "FILE", env = "TESSERA_AGENT_CONFIG")]
    pub config: Option<PathBuf>,
    /// Name of the node, unique in the pool [default: that of the data folder's node, or the host's name when it is
    /// new]
    #[arg(long, env = "TESSERA_NODE")]
    pub name: Option<String>,
    /// Folder for the agent's identity, the workers and their output
    #[arg(long, value_name = "DIR", env = "TESSERA_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Members of the control plane; one that answers is enough
    #[arg(short, long = "server", value_name = "HOST:PORT", env = "TESSERA_SERVER", value_delimiter = ',')]
    pub members: Vec<String>,
    /// Where members read output from this node [default: the address from which this host speaks to the members, and
    /// any port]
    #[arg(long, value_name = "HOST:PORT", env = "TESSERA_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// How members reach --listen [default: the address of --listen, or --worker-host when that listens everywhere]
    #[arg(long, value_name = "HOST:PORT", env = "TESSERA_ADVERTISE")]
    pub advertise: Option<String>,
    /// Where metrics and health are served over HTTP; nowhere when not given
    #[arg(long, value_name = "HOST:PORT", env = "TESSERA_HTTP")]
    pub http: Option<SocketAddr>,
    /// How workers of other nodes reach this one (MASTER_ADDR) [default: the address from which this host speaks to
    /// the members]
    #[arg(long, value_name = "HOST", env = "TESSERA_WORKER_HOST")]
    pub worker_host: Option<String>,
    /// Label of the node
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub label: Vec<(String, String)>,
    /// Inventory file that declares the node's cards, simulated; the section of this node's name is used
    #[arg(long, value_name = "FILE", env = "TESSERA_INVENTORY", conflicts_with = "no_cards")]
    pub inventory: Option<PathBuf>,
    /// Offer no card: the node runs work on the cards of others only
    #[arg(long)]
    pub no_cards: bool,
    /// Whom workers run as: `range` (a user id for each job), `submitter` (the account of that name), `agent`
    #[arg(long, value_name = "WHO", env = "TESSERA_RUN_AS")]
    pub run_as: Option<RunAsWord>,
    /// The data folder was moved here from another place or host and is used nowhere else
    #[arg(long)]
    pub moved_data_dir: bool,
    /// The pool of this node was restored from a backup or recovered, and has this cluster id now: belong to it, and
    /// refuse the one before
    #[arg(long, value_name = "ID", env = "TESSERA_ACCEPT_POOL")]
    pub accept_pool: Option<String>,
    /// What is logged.
    #[command(flatten)]
    pub logging: LogArgs,
    /// Stop when standard input ends: for a parent that must not leave it behind
    #[arg(long, hide = true)]
    pub stop_with_stdin: bool,
}

/// Whom workers run as, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunAsWord {
    /// Those of each job as a user id of its own, from the range that the configuration names
    Range,
    /// As the account of this host that has the name of the job's submitter
    Submitter,
    /// As the agent: for hosts of one person
    Agent,
}

/// `tessera dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Members of the control plane: 1, 3 or 5
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = member_count)]
    pub members: u8,
    /// Agents; one per node of the inventory when one is given [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub agents: Option<u16>,
    /// Inventory file with simulated nodes; the processors of this machine when not given
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// What the blocks of the pool are; 0.01 TFLOPS fp32 when its cards are processors and nothing is said.
    #[command(flatten)]
    pub blocks: BlockArgs,
    /// Folder to keep everything in; a temporary one, removed at the end, when not given
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// First port to try for the members; any free ones are taken when it is in use
    #[arg(long, value_name = "PORT", default_value_t = 7400)]
    pub port: u16,
    /// Stop by itself after this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub stop_after: Option<Duration>,
    /// What members and agents log (into files of the folder)
    #[arg(long, value_name = "FILTER", default_value = DEFAULT_FILTER)]
    pub log: String,
}
