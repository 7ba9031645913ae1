//! The arguments of every command that talks to the control plane.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::duration;

/// Shape of the output. JSON and YAML have stable names of fields; tables may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// One JSON object per line
    Jsonl,
    /// Names only, one per line
    Name,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Whom to talk to and how to print.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection and output")]
pub struct ClientArgs {
    /// Members of the control plane; one that answers is enough [env: TESSERA_SERVER] [default: 127.0.0.1:7400]
    #[arg(short, long, global = true, value_name = "HOST:PORT", value_delimiter = ',')]
    pub server: Vec<String>,
    /// Context of the configuration file to use [env: TESSERA_CONTEXT]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// File with the contexts [env: TESSERA_CONFIG] [default: tessera/config.toml in the user's configuration folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub contexts_file: Option<PathBuf>,
    /// Time for one request with all its retries, and for an outage in commands that stay [env: TESSERA_TIMEOUT]
    /// [default: 10s, and no limit for an outage]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Read what the asked member knows, without asking for a quorum; how old it may be is said
    #[arg(long, global = true)]
    pub stale: bool,
    /// Shape of the output [env: TESSERA_OUTPUT] [default: table]
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", hide_possible_values = false)]
    pub output: Option<Format>,
    /// When to use colours [default: auto]
    #[arg(long, global = true, value_enum, value_name = "WHEN")]
    pub color: Option<ColorChoice>,
    /// Say more about what is done and why it failed; twice: everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}
