//! `tessera simulate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tessera_ledger::Percent;
use tessera_simulate::timeline::SuspendCost;

use super::order::share;

/// `tessera simulate`.
///
/// Without a verb: plays jobs that come and go on a cluster, or talks with a judge line by line.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SimulateCommand {
    /// Answer arrivals on the standard input one by one, on the standard output (docs/simulate.md has the lines)
    #[arg(
        long,
        conflicts_with_all = ["cluster", "jobs", "suspend_cost", "queues", "order", "events", "report", "json"]
    )]
    pub online: bool,
    /// List of nodes, or a size such as 300x8 (nodes x cards)
    #[arg(long, value_name = "FILE", required_unless_present = "online")]
    pub cluster: Option<PathBuf>,
    /// List of jobs with times
    #[arg(long, value_name = "FILE", required_unless_present = "online")]
    pub jobs: Option<PathBuf>,
    /// What places.
    #[command(flatten)]
    pub placer: PlacerArgs,
    /// The cost of going on after a suspension or a move: seconds without progress with one card, up to eight, more
    #[arg(long, value_name = "S/S/S", default_value = "0/0/0")]
    pub suspend_cost: SuspendCost,
    /// The queues of the jobs: those that the list names, or one for all
    #[arg(long, value_enum, default_value_t = Queues::Listed)]
    pub queues: Queues,
    /// The order within each queue: by submission, or by what jobs have had of cards; for Tessera
    #[arg(long, value_enum, default_value_t = Order::Fifo)]
    pub order: Order,
    /// The share of the cards that goes to the oldest jobs, with `--order attained`, such as 0.2; 0: none
    #[arg(long, value_name = "SHARE", default_value = "20%", value_parser = share)]
    pub guard: Percent,
    /// Write what happened to each job into a CSV file: `time_s,job,event,places` (docs/simulate.md); for one policy
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Draw the runs into an HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub verb: Option<SimulateVerb>,
}

/// The queues that jobs are submitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Queues {
    Listed,
    One,
}

/// The order among the jobs of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    Fifo,
    Attained,
}

/// What places, and what it draws.
#[derive(Debug, Args)]
pub struct PlacerArgs {
    /// What places: `tessera`, or a policy to compare with (`random`, `dot-product`, `packing`, `best-fit`, `fgd`);
    /// several, or `all`
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "tessera")]
    pub policy: Vec<String>,
    /// Seed of what is drawn at random
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Let Tessera move earlier work: for arrivals one by one at most 3 of 100, over time every ten minutes at most 16
    #[arg(long)]
    pub moves: bool,
}

/// What else can be simulated.
#[derive(Debug, Subcommand)]
pub enum SimulateVerb {
    /// Fills a cluster until 130 % were offered: how much of it gets allocated before work is turned away
    Saturate(SaturateArgs),
    /// Counts the cards that parts of cards need: whole, in tenths, in blocks of one TFLOPS
    Cards(CardsArgs),
}

/// `tessera simulate saturate`.
#[derive(Debug, Args)]
pub struct SaturateArgs {
    /// List of nodes, or a size such as 300x8 (nodes x cards)
    #[arg(long, value_name = "FILE")]
    pub cluster: PathBuf,
    /// List of jobs; their times are not used
    #[arg(long, value_name = "FILE")]
    pub jobs: PathBuf,
    /// Number of random orders of arrival
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// What places.
    #[command(flatten)]
    pub placer: PlacerArgs,
    /// Print JSON, with every run
    #[arg(long)]
    pub json: bool,
}

/// `tessera simulate cards`.
#[derive(Debug, Args)]
pub struct CardsArgs {
    /// List of jobs
    #[arg(long, value_name = "FILE")]
    pub jobs: PathBuf,
    /// TFLOPS of one card, which is how many blocks it has
    #[arg(long, default_value_t = 125)]
    pub card_tflops: u32,
    /// Memory of one card, used where the list says how much jobs need
    #[arg(long, value_name = "SIZE", value_parser = super::values::memory)]
    pub card_memory: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
