//! `tessera job`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::client::ClientArgs;
use super::values::{JobNumber, cpus, duration, memory, pair, tflops, weighted_pair};

/// `tessera job`.
#[derive(Debug, Args)]
pub struct JobCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: JobVerb,
}

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// Submits the job that a file describes
    Submit(SubmitArgs),
    /// Submits a command and stays with it: prints its output, ends with its exit code
    Run(Box<RunArgs>),
    /// Lists jobs, newest first
    #[command(visible_alias = "ls")]
    List(ListJobsArgs),
    /// Lists what jobs hold and what they use of it, those that hold most first
    Top {
        /// Jobs that are over too
        #[arg(short, long)]
        all: bool,
    },
    /// Shows everything about a job
    Show(OneJob),
    /// Lists what a job can go on from, newest first
    Checkpoints(OneJob),
    /// Says what keeps a job from starting, and the smallest change that would start it
    Why(WhyArgs),
    /// Says what would happen if a job was submitted now; submits nothing
    Plan(PlanArgs),
    /// Prints the output of a job
    Logs(LogsArgs),
    /// Prints what happened to a job, or to all
    Events(EventsArgs),
    /// Ends jobs, waiting or running
    Cancel {
        /// The jobs
        #[command(flatten)]
        jobs: ManyJobs,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Keeps waiting jobs from being started
    Hold(ManyJobs),
    /// Lets held jobs start
    Release(ManyJobs),
    /// Takes the blocks of running jobs until they are resumed; a cooperative job saves first and goes on from there,
    /// any other starts again from the beginning
    Suspend(ManyJobs),
    /// Lets suspended jobs go on
    Resume(ManyJobs),
    /// Moves a running job to other cards of the same class; a cooperative job saves first and goes on from there, any
    /// other starts again from the beginning
    Move(MoveArgs),
    /// Waits until a job is over, and ends with its exit code
    Wait(WaitArgs),
}

/// `tessera job move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// The job
    pub job: JobNumber,
    /// The node that it goes to; where it fits best when not given
    #[arg(long, value_name = "NODE")]
    pub to: Option<String>,
    /// Only show where it would go and what it would lose
    #[arg(long)]
    pub plan: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// Whether the start is estimated.
#[derive(Clone, Copy, Debug, Args)]
pub struct WhenArgs {
    /// Estimate the start too, from the time limits of the jobs that run
    #[arg(long)]
    pub when: bool,
    /// Take jobs without a time limit to run so long, for the estimate
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "when")]
    pub assume_limit: Option<Duration>,
}

/// `tessera job why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: JobNumber,
    /// Whether the start is estimated.
    #[command(flatten)]
    pub when: WhenArgs,
}

/// One job.
#[derive(Debug, Args)]
pub struct OneJob {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: JobNumber,
}

/// Several jobs.
#[derive(Debug, Args)]
pub struct ManyJobs {
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<JobNumber>,
}

/// `tessera job submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Job file: YAML, or TOML or JSON by its ending; `-` reads YAML from standard input
    pub file: PathBuf,
    /// Stay until the job runs; exit code 7 when it cannot run now
    #[arg(long)]
    pub wait: bool,
    /// Leave as soon as the job is submitted; so it is without --wait too
    #[arg(short, long, conflicts_with = "wait")]
    pub detach: bool,
    /// Longest stay of --wait
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait", default_value = "30s")]
    pub wait_timeout: Duration,
    /// Request id (a UUID): the same id with the same file submits the job once
    #[arg(long, value_name = "UUID")]
    pub request_id: Option<String>,
}

/// `tessera job plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Job file: YAML, or TOML or JSON by its ending; `-` reads YAML from standard input
    pub file: PathBuf,
    /// Whether the start is estimated.
    #[command(flatten)]
    pub when: WhenArgs,
}

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
    /// Compute of each virtual card in TFLOPS
    #[arg(long, value_name = "TFLOPS", value_parser = tflops, default_value = "1")]
    pub tflops: u64,
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

/// State of a job, for filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the states are described where they are defined, in states.proto")]
pub enum StateChoice {
    Pending,
    Starting,
    Running,
    Suspending,
    Suspended,
    Moving,
    Completing,
    Completed,
    Failed,
    Cancelled,
    Timeout,
}

/// `tessera job list`.
#[derive(Debug, Args)]
pub struct ListJobsArgs {
    /// Only jobs in one of these states
    #[arg(long, value_enum, value_delimiter = ',')]
    pub state: Vec<StateChoice>,
    /// Only jobs of this queue
    #[arg(short, long)]
    pub queue: Option<String>,
    /// Only jobs submitted by this person
    #[arg(short, long)]
    pub user: Option<String>,
    /// Only jobs with a worker on this node
    #[arg(long, conflicts_with = "watch")]
    pub node: Option<String>,
    /// Only jobs that carry this label
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = pair)]
    pub label: Vec<(String, String)>,
    /// Most jobs shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Show all jobs
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// With what each uses of what it holds
    #[arg(long, conflicts_with = "watch")]
    pub r#use: bool,
    /// Go on with every change
    #[arg(short, long)]
    pub watch: bool,
}

/// `tessera job logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The job
    pub job: JobNumber,
    /// Rank of the worker
    #[arg(short, long, default_value_t = 0)]
    pub rank: u32,
    /// Which try, from 1; the newest when not given
    #[arg(short, long)]
    pub attempt: Option<u32>,
    /// Standard error instead of standard output
    #[arg(long)]
    pub stderr: bool,
    /// Go on until the worker is over
    #[arg(short, long)]
    pub follow: bool,
    /// Begin at this byte
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub offset: u64,
}

/// `tessera job events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// The job; all when not given
    pub job: Option<JobNumber>,
    /// Go on with every change
    #[arg(short, long, visible_alias = "watch")]
    pub follow: bool,
}

/// What `tessera job wait` waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    /// That all workers run, or that the job is over
    Running,
    /// That the job is over
    #[default]
    End,
}

/// `tessera job wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The job
    pub job: JobNumber,
    /// What to wait for
    #[arg(long = "for", value_enum, default_value_t)]
    pub what: WaitFor,
    /// Longest wait; exit code 124 when it has passed
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub wait_timeout: Option<Duration>,
}
