//! `tessera run` and `tessera job run`: a command, and what it asks of the pool.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::client::ClientArgs;
use super::values::{cpus, duration, memory, pair, tflops, weighted_pair};

/// How far a virtual card may spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SpanChoice {
    /// On one card
    #[default]
    Card,
    /// Over the cards of one node
    Node,
    /// Over nodes
    Pool,
}

/// Kind of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KindChoice {
    /// Graphics processors
    Gpu,
    /// Neural processors
    Npu,
    /// Field-programmable gate arrays
    Fpga,
    /// Processors of the host
    Cpu,
}

/// How virtual cards are laid over the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PackingChoice {
    /// Beside what runs already, so that whole cards and nodes stay free
    Stack,
    /// Over cards and nodes that have the most room
    Spread,
}

/// `tessera run`.
#[derive(Debug, Args)]
pub struct RunCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `tessera job run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Compute of each virtual card in TFLOPS; one block of the pool when not given
    #[arg(long, value_name = "TFLOPS", value_parser = tflops)]
    pub tflops: Option<u64>,
    /// Card memory of each virtual card, such as 16GiB
    #[arg(long, value_name = "SIZE", value_parser = memory, default_value = "0")]
    pub memory: u64,
    /// How far a virtual card may spread
    #[arg(long, value_enum, default_value_t)]
    pub span: SpanChoice,
    /// Kinds of cards that may be used; any when not given
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<KindChoice>,
    /// Let one virtual card be made of several kinds
    #[arg(long)]
    pub mixed: bool,
    /// Number of virtual cards that start together or not at all
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub gang: u32,
    /// Start with this number of virtual cards at least when there is no room for --gang
    #[arg(long, visible_alias = "min-workers", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub gang_min: Option<u32>,
    /// Take whole cards, on which nobody else computes
    #[arg(long)]
    pub whole_cards: bool,
    /// Least memory on each card that a virtual card takes something of, such as 16GiB
    #[arg(long, value_name = "SIZE", value_parser = memory, default_value = "0")]
    pub slice_memory: u64,
    /// Take time of its cards that nobody else uses just now; else it gets its share and no more
    #[arg(long)]
    pub elastic: bool,
    /// Give the program its virtual card as one device of PyTorch; needs --memory
    #[arg(long)]
    pub device: bool,
    /// Run the program on this host, which need not be in the pool: it has its virtual card as one device of PyTorch,
    /// over the network. The card is given back when the program ends, and when this host is not heard of any more;
    /// needs --memory
    #[arg(long, conflicts_with_all = ["device", "detach", "gang", "gang_min", "workdir", "retries", "min_runtime"])]
    pub here: bool,
    /// With --here: how often what is on the card is saved, so that it outlives the loss of its node [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "here")]
    pub checkpoint_every: Option<Duration>,
    /// Processors of the host for each worker, such as 8 or 500m
    #[arg(long, value_name = "N", value_parser = cpus, default_value = "0")]
    pub cpus: u64,
    /// Host memory for each worker, such as 32GiB
    #[arg(long, value_name = "SIZE", value_parser = memory, default_value = "0")]
    pub host_memory: u64,
    /// Only on nodes that have this label
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub node_label: Vec<(String, String)>,
    /// Node label that is better to have than not, with a weight of 1 to 100
    #[arg(long, value_name = "KEY=VALUE[:WEIGHT]", value_parser = weighted_pair)]
    pub prefer: Vec<(String, String, u32)>,
    /// Node label of which all workers must have the same value; `node`: all on one node
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    pub together: String,
    /// Node label over whose values workers are spread; `node`: over nodes
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    pub spread: String,
    /// No worker on a node that runs a job with these labels
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub avoid: Vec<(String, String)>,
    /// Data set, model weights or image that the job reads: nodes that have it on their disks are better
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub data: Vec<String>,
    /// How virtual cards are laid over the pool; as the queue or the pool says when not given
    #[arg(long, value_enum)]
    pub packing: Option<PackingChoice>,
    /// Having run so long with fewer virtual cards than --gang, start it again with more when there is room
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub grow_after: Option<Duration>,
    /// When it may run, such as "0 20 * * mon-fri for 10h in Europe/Berlin"; given again for more windows
    #[arg(long = "window", value_name = "WINDOW")]
    pub windows: Vec<String>,
    /// Do not preempt it before it has run so long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub min_runtime: Option<Duration>,
    /// Name for people; the program's name when not given
    #[arg(long)]
    pub name: Option<String>,
    /// Queue
    #[arg(short, long)]
    pub queue: Option<String>,
    /// 0 to 100; higher goes first
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub priority: Option<u32>,
    /// Longest run
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// Retries after failures
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// Environment variable of the job
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = pair)]
    pub env: Vec<(String, String)>,
    /// Label of the job
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = pair)]
    pub label: Vec<(String, String)>,
    /// Folder on the node where the program starts; a fresh one when not given
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Print the job's number and leave
    #[arg(short, long)]
    pub detach: bool,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
