//! `tessera queue`.

use clap::{Args, Subcommand, ValueEnum};

use super::client::ClientArgs;
use super::idle::{IdleChoice, idle};
use super::order::{OrderChoice, order};
use super::values::{memory, tflops};

/// `tessera queue`.
#[derive(Debug, Args)]
pub struct QueueCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: QueueVerb,
}

/// What can be done with queues.
#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    /// Lists queues
    #[command(visible_alias = "ls")]
    List,
    /// Shows a queue
    Show {
        /// The queue
        queue: String,
    },
    /// Makes a queue, or changes what is given of it
    Set(Box<SetQueueArgs>),
    /// Removes a queue without jobs and without queues below it
    Remove {
        /// The queue
        queue: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// `tessera queue set`.
#[derive(Debug, Args)]
pub struct SetQueueArgs {
    /// The queue
    pub queue: String,
    /// Queue above it; `none`: a top one
    #[arg(long)]
    pub parent: Option<String>,
    /// TFLOPS that its jobs can always have
    #[arg(long, value_name = "TFLOPS", value_parser = tflops)]
    pub guaranteed_tflops: Option<u64>,
    /// Card memory that its jobs can always have, such as 64GiB
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub guaranteed_memory: Option<u64>,
    /// TFLOPS that its jobs can have at most; needs --max-memory unless it is set already
    #[arg(long, value_name = "TFLOPS", value_parser = tflops)]
    pub max_tflops: Option<u64>,
    /// Card memory that its jobs can have at most; needs --max-tflops unless it is set already
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub max_memory: Option<u64>,
    /// Share of what is left over, against its neighbours
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub weight: Option<u32>,
    /// How virtual cards of its jobs are laid over the pool; `pool`: as the pool says
    #[arg(long, value_enum)]
    pub packing: Option<QueuePacking>,
    /// When its jobs may run, such as "0 20 * * mon-fri for 10h in Europe/Berlin"; given again for more windows, in the
    /// place of those that it has; `always`: at any time
    #[arg(long = "window", value_name = "WINDOW")]
    pub windows: Vec<String>,
    /// What follows for jobs that compute next to nothing, and after how long, such as "below 5% notify 30m preemptible
    /// 1h suspend 2h release 7d"; `never`: what the queue above says
    #[arg(long, value_name = "LADDER", value_parser = idle)]
    pub idle: Option<IdleChoice>,
    /// What checkpoints of its jobs take at most, such as 2TiB: above it older ones are given up, and the newest of
    /// each job never; 0: no bound
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub checkpoints: Option<u64>,
    /// The order among its own jobs: `fifo`, or `attained` (what each has had of cards: lower bands go first and
    /// suspend higher ones that can go on), such as "attained first 10m ratio 4 bands 8 guard 20%"
    #[arg(long, value_name = "ORDER", value_parser = order)]
    pub order: Option<OrderChoice>,
}

/// How virtual cards of a queue's jobs are laid over the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueuePacking {
    /// Beside what runs already, so that whole cards and nodes stay free
    Stack,
    /// Over cards and nodes that have the most room
    Spread,
    /// As the pool says
    Pool,
}
