//! `tessera job`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::client::ClientArgs;
use super::run::RunArgs;
use super::values::{JobNumber, duration, pair};

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

/// State of a job, for filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// Show only the last COUNT events of the past; 10 when all jobs are followed, otherwise all
    #[arg(long, value_name = "COUNT")]
    pub last: Option<usize>,
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
