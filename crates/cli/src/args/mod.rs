//! The tree of commands: everything that can be typed, with its help. Nothing here does anything.

mod client;
mod cluster;
mod compact;
mod daemon;
mod idle;
mod job;
mod operator;
mod order;
mod pool;
mod queue;
mod run;
mod simulate;
mod top;
mod usage;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

pub use client::{ClientArgs, ColorChoice, Format};
pub use cluster::{
    AddMemberArgs, ClusterCommand, ClusterVerb, FounderArgs, InitArgs, LeaseArgs, MemberVerb, RecoverArgs, SnapshotVerb,
};
pub use compact::{CardsOrCount, CompactArgs, WhatIfVerb};
pub use daemon::{AgentArgs, DevArgs, LogArgs, LogFormat, RunAsWord, ServerArgs};
pub use idle::{IdleChoice, idle_text};
pub use job::{
    EventsArgs, JobCommand, JobVerb, ListJobsArgs, LogsArgs, ManyJobs, MoveArgs, OneJob, PlanArgs, StateChoice,
    SubmitArgs, WaitArgs, WaitFor, WhenArgs, WhyArgs,
};
pub use operator::{DebugArgs, DoctorArgs, HostArgs, OperatorCommand, OperatorVerb, ReplayArgs};
pub use order::{OrderChoice, order_text};
pub use pool::{
    BlockArgs, CardCommand, CardVerb, ConfigVerb, MapArgs, NodeCommand, NodeVerb, PoolCommand, PoolVerb,
    PrecisionChoice, SetConfigArgs,
};
pub use queue::{QueueCommand, QueuePacking, QueueVerb, SetQueueArgs};
pub use run::{KindChoice, PackingChoice, RunArgs, RunCommand, SpanChoice};
pub use simulate::{CardsArgs, Order, PlacerArgs, Queues, SaturateArgs, SimulateCommand, SimulateVerb};
pub use top::{TopArgs, TopCommand, TopTab};
pub use usage::{By, MOST_ROWS, UsageArgs, UsageCommand};
pub use values::{CardRef, JobNumber};

/// The exit codes, as they stand in every help text.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed
  2    wrong usage, or a file with an error in it
  3    there is no such thing
  4    denied, or not acceptable
  5    no member answers, or the control plane has no quorum
  6    in conflict with the present state
  7    accepted, but it cannot run now (job plan, job submit --wait)
  8    the output cannot be written
  124  the time given to wait has passed
  129, 130, 143  told to end by SIGHUP, Ctrl-C, SIGTERM
  141  nobody reads the output any more
`job run` and `job wait` end with the exit code of the job itself; 128 + N when signal N ended it.";

/// Pools the accelerators of a datacenter and puts them together as virtual cards of the size a job needs.
#[derive(Debug, Parser)]
#[command(name = "tessera", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, infer_subcommands = false, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Submits jobs, shows where they are and why they wait, and steers them
    Job(JobCommand),
    /// Runs a command with virtual cards and stays with it, as `job run` does; with --here on this host
    Run(Box<RunCommand>),
    /// Shows the pool and who holds which blocks
    Pool(PoolCommand),
    /// Shows nodes, and takes them out of and into service
    Node(NodeCommand),
    /// Shows cards
    Card(CardCommand),
    /// Shows and sets queues
    Queue(QueueCommand),
    /// Usage: what jobs held, for how long, and what it costs
    Usage(UsageCommand),
    /// Creates the control plane and changes its members
    Cluster(ClusterCommand),
    /// Shows the pool live in the terminal: nodes, cards, jobs and queues, and who uses what
    Top(TopCommand),
    /// Runs a whole pool on this machine: members and agents on loopback
    Dev(DevArgs),
    /// Runs a member of the control plane
    Server(Box<ServerArgs>),
    /// Runs the agent of a node
    Agent(Box<AgentArgs>),
    /// Plays traces through the real placement, and measures what comes of it
    Simulate(Box<SimulateCommand>),
    /// Looks after members and hosts: what they have on their disks, and whether they are fit
    Operator(OperatorCommand),
    /// Chooses the control plane that the other commands talk to
    Context(ContextCommand),
    /// Prints the JSON Schema of job files
    Schema,
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Writes manual pages, one per command
    Man {
        /// Folder to write them into
        dir: PathBuf,
    },
    /// Prints the version
    Version,
    /// Supervises one worker (used by the agent)
    #[command(hide = true)]
    Supervise {
        /// Folder of the worker
        folder: PathBuf,
    },
}

/// `tessera context`.
#[derive(Debug, Args)]
pub struct ContextCommand {
    /// File with the contexts [env: TESSERA_CONFIG] [default: tessera/config.toml in the user's configuration folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub contexts_file: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: ContextVerb,
}

/// What can be done with contexts.
#[derive(Debug, Subcommand)]
pub enum ContextVerb {
    /// Uses a context from now on; with --server, makes or changes it first
    Use {
        /// Name of the context
        name: String,
        /// Members of its control plane
        #[arg(short, long, value_name = "HOST:PORT", value_delimiter = ',')]
        server: Vec<String>,
    },
    /// Lists the contexts
    #[command(visible_alias = "ls")]
    List,
    /// Shows which control plane would be talked to, and where each setting comes from
    Show,
}

/// The command as clap sees it, for completions, manual pages and the reference.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
