//! `tessera top`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::client::ClientArgs;
use super::values::duration;

/// `tessera top`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Keys: Tab and 1 to 4 change the list, arrows select, Enter opens, Esc goes back, / filters, s \
    sorts, r turns the order round, a shows ended jobs too, p pauses, ? shows all keys, q leaves."
)]
pub struct TopCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What is shown.
    #[command(flatten)]
    pub view: TopArgs,
}

/// What is shown, and how often.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// The list to begin with
    #[arg(long, value_enum, value_name = "LIST", default_value_t = TopTab::Jobs)]
    pub tab: TopTab,
    /// Pause between two readings
    #[arg(short, long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub interval: Duration,
    /// Show only rows with this text
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Show jobs that are over too
    #[arg(short, long)]
    pub all: bool,
    /// Print the numbers and the list once, and end; so it is with -o json, yaml, jsonl or name, and without a terminal
    #[arg(long)]
    pub once: bool,
}

/// A list of `tessera top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopTab {
    /// Jobs with the blocks that they hold and what they use of them
    Jobs,
    /// Nodes with their blocks
    Nodes,
    /// Cards with their blocks and readings
    Cards,
    /// Queues with what they use
    Queues,
}
