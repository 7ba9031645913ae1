//! `tessera pool`, `tessera node` and `tessera card`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::client::ClientArgs;
use super::compact::{CompactArgs, WhatIfVerb};
use super::job::{KindChoice, PackingChoice};
use super::values::{CardRef, duration, kind_percent};

/// `tessera pool`.
#[derive(Debug, Args)]
pub struct PoolCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: PoolVerb,
}

/// What can be done with the pool.
#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    /// Shows the pool in numbers
    Show,
    /// Draws every block with its number, its state and the job that holds it
    Map(MapArgs),
    /// Shows or changes the pool's settings
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Brings free blocks together: renumbers within cards and moves jobs between them
    Compact(CompactArgs),
    /// Says what would become of the pool and its jobs after a change; changes nothing
    #[command(subcommand)]
    WhatIf(WhatIfVerb),
    /// Checks the laws of the ledger on every member and compares their states; exit code 1 when one does not hold
    Verify,
}

/// What can be done with the pool's settings.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Shows all settings
    Show,
    /// Changes the settings that are given, in one log entry
    Set(Box<SetConfigArgs>),
}

/// `tessera pool config set`.
#[derive(Debug, Default, Args)]
#[group(required = true, multiple = true)]
pub struct SetConfigArgs {
    /// How virtual cards are laid over the pool when neither job nor queue says
    #[arg(long, value_enum)]
    pub packing: Option<PackingChoice>,
    /// Blocks that cards of a kind offer in percent of those that they are rated for; above 100 they offer isolation `shared` only
    #[arg(long, value_name = "KIND=PERCENT", value_parser = kind_percent)]
    pub oversubscribe: Vec<(KindChoice, u32)>,
    /// After how long past use counts half in fair shares
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub fair_share_half_life: Option<Duration>,
    /// Most times that one job is preempted within an hour
    #[arg(long, value_name = "N")]
    pub preemptions_per_hour: Option<u32>,
    /// Whether jobs are moved without being asked so that free blocks come together
    #[arg(long, value_name = "BOOL")]
    pub automatic_compaction: Option<bool>,
    /// Share of the free blocks in pieces above which they are, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub compaction_threshold: Option<u32>,
    /// Most moves within an hour
    #[arg(long, value_name = "N")]
    pub moves_per_hour: Option<u32>,
    /// Most jobs that are not over
    #[arg(long, value_name = "N")]
    pub job_limit: Option<u64>,
    /// How long ended jobs stay in the ledger
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub job_retention: Option<Duration>,
    /// Most ended jobs kept
    #[arg(long, value_name = "N")]
    pub ended_job_limit: Option<u64>,
    /// How long output is kept on nodes when a job does not say
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub output_retention: Option<Duration>,
    /// Log entries that watches can go back
    #[arg(long, value_name = "N")]
    pub event_limit: Option<u64>,
    /// Whether the release level stays as it is although every member can apply a higher one, so that the release before can come
    /// back
    #[arg(long, value_name = "BOOL")]
    pub hold_level: Option<bool>,
}

/// `tessera pool map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Only this node
    #[arg(long)]
    pub node: Option<String>,
    /// Only cards of these kinds
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<KindChoice>,
}

/// `tessera node`.
#[derive(Debug, Args)]
pub struct NodeCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: NodeVerb,
}

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Lists nodes
    #[command(visible_alias = "ls")]
    List {
        /// Go on with every change
        #[arg(short, long)]
        watch: bool,
    },
    /// Shows a node with its cards
    Show {
        /// The node
        node: String,
    },
    /// No new work for a node, and what runs there leaves it
    Drain {
        /// The node
        node: String,
        /// Why, for people
        #[arg(short, long, default_value = "")]
        reason: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// No new work for a node; what runs goes on
    Cordon {
        /// The node
        node: String,
        /// Why, for people
        #[arg(short, long, default_value = "")]
        reason: String,
    },
    /// New work may go to a node again
    Uncordon {
        /// The node
        node: String,
    },
    /// Declares a node dead by your word: whatever ran there is over, its blocks are gone, its name is free
    Forget {
        /// The node
        node: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Declares by your word that workers of a node whose stop could not be confirmed are gone
    ConfirmStopped {
        /// The node
        node: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// `tessera card`.
#[derive(Debug, Args)]
pub struct CardCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: CardVerb,
}

/// What can be done with cards.
#[derive(Debug, Subcommand)]
pub enum CardVerb {
    /// Lists cards
    #[command(visible_alias = "ls")]
    List {
        /// Only cards of this node
        #[arg(long)]
        node: Option<String>,
        /// Only cards of these kinds
        #[arg(long, value_enum, value_delimiter = ',')]
        kind: Vec<KindChoice>,
    },
    /// Shows a card with its blocks
    Show {
        /// The card, as NODE/INDEX
        card: CardRef,
    },
}
