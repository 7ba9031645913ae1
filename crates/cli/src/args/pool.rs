//! `tessera pool`, `tessera node` and `tessera card`.

use std::time::Duration;

use clap::{Args, Command, Id, Subcommand, ValueEnum};
use tessera_api::v1::{NewPool, Precision};

use super::client::ClientArgs;
use super::cluster::LeaseArgs;
use super::compact::{CompactArgs, WhatIfVerb};
use super::run::{KindChoice, PackingChoice};
use super::values::{CardRef, duration, kind_percent, tflops};

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

/// What the blocks of a pool are.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct BlockArgs {
    /// Size of a block, such as `10GFLOPS` or `0.01` (TFLOPS); fixed once a card is registered [default: 1 TFLOPS; of
    /// `dev` without inventory 0.01]
    #[arg(long, value_name = "SIZE", value_parser = tflops)]
    pub block_size: Option<u64>,
    /// Precision in which blocks are counted; fixed once a card is registered [default: fp16; of `dev` without
    /// inventory fp32]
    #[arg(long, value_enum, value_name = "PRECISION")]
    pub reference_precision: Option<PrecisionChoice>,
}

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionChoice {
    /// 32-bit floating point
    Fp32,
    /// TF32 tensor operations
    Tf32,
    /// 16-bit floating point
    Fp16,
    /// bfloat16
    Bf16,
    /// 8-bit floating point
    Fp8,
    /// 8-bit integers
    Int8,
}

impl From<PrecisionChoice> for Precision {
    fn from(choice: PrecisionChoice) -> Self {
        match choice {
            PrecisionChoice::Fp32 => Self::Fp32,
            PrecisionChoice::Tf32 => Self::Tf32,
            PrecisionChoice::Fp16 => Self::Fp16,
            PrecisionChoice::Bf16 => Self::Bf16,
            PrecisionChoice::Fp8 => Self::Fp8,
            PrecisionChoice::Int8 => Self::Int8,
        }
    }
}

impl BlockArgs {
    /// The settings of a new pool; `None` when neither option is given.
    #[must_use]
    pub fn new_pool(self) -> Option<NewPool> {
        let said = self.block_size.is_some() || self.reference_precision.is_some();
        said.then(|| NewPool {
            block_milli_tflops: self.block_size.unwrap_or_default(),
            reference_precision: self.reference_precision.map_or(0, |choice| Precision::from(choice).into()),
        })
    }
}

/// What can be done with the pool's settings.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Shows all settings
    Show,
    /// Changes the settings that are given, in one log entry
    #[command(mut_group("settings", |settings| settings.args(options_of::<SetConfigArgs>())))]
    Set(Box<SetConfigArgs>),
}

/// `tessera pool config set`.
#[derive(Debug, Default, Args)]
// Its members are named where it is used: those of flattened parts do not come into a group by themselves.
#[group(id = "settings", required = true, multiple = true)]
pub struct SetConfigArgs {
    /// Size of a block, such as `10GFLOPS` or `0.01` (TFLOPS); refused once a card is registered
    #[arg(long, value_name = "SIZE", value_parser = tflops)]
    pub block_size: Option<u64>,
    /// Precision in which blocks are counted; refused once a card is registered
    #[arg(long, value_enum, value_name = "PRECISION")]
    pub reference_precision: Option<PrecisionChoice>,
    /// How virtual cards are laid over the pool when neither job nor queue says
    #[arg(long, value_enum)]
    pub packing: Option<PackingChoice>,
    /// Blocks that cards of a kind offer in percent of those that they are rated for; above 100 they offer isolation
    /// `shared` only
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
    /// Most bytes of all jobs, ended ones included; the oldest ended ones go before a submission is refused
    #[arg(long, value_name = "BYTES")]
    pub spec_bytes: Option<u64>,
    /// Most queues
    #[arg(long, value_name = "N")]
    pub queue_limit: Option<u64>,
    /// Most nodes, forgotten ones included
    #[arg(long, value_name = "N")]
    pub node_limit: Option<u64>,
    /// Most cards of all nodes together
    #[arg(long, value_name = "N")]
    pub card_limit: Option<u64>,
    /// Most events that watches can go back, over all log entries
    #[arg(long, value_name = "N")]
    pub history_limit: Option<u64>,
    /// Log entries that watches can go back
    #[arg(long, value_name = "N")]
    pub event_limit: Option<u64>,
    /// For how long leases are granted.
    #[command(flatten)]
    pub leases: LeaseArgs,
    /// Whether the release level stays as it is although every member can apply a higher one, so that the release
    /// before can come back
    #[arg(long, value_name = "BOOL")]
    pub hold_level: Option<bool>,
}

/// The options of a command.
fn options_of<T: Args>() -> Vec<Id> {
    T::augment_args(Command::new("")).get_arguments().map(|option| option.get_id().clone()).collect()
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
        /// Move jobs that save themselves away one after the other while they run, and suspend what is left after this
        /// time, such as 30m; without it all of them are suspended at once
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        deadline: Option<Duration>,
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

#[cfg(test)]
mod tests {
    use crate::args::command;

    #[test]
    fn settings_are_changed_by_any_option_and_by_none_without() {
        let set = |options: &[&str]| {
            command().try_get_matches_from(["tessera", "pool", "config", "set"].iter().chain(options)).map(drop)
        };
        for options in [["--lease-heartbeat", "2s"], ["--job-limit", "7"], ["--hold-level", "true"]] {
            assert!(set(&options).is_ok(), "{options:?}");
        }
        let refused = set(&[]).expect_err("nothing is to be set");
        assert_eq!(refused.kind(), clap::error::ErrorKind::MissingRequiredArgument);
    }
}
