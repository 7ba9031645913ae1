//! Measures the time to suspend a job with a state of some size, to resume it, and to move it to another node: real
//! agents, real files, fsync on. One program ([`super::saver`]) writes its state when it is told to stop, and looks at
//! it when it goes on; one also saves while it runs, so that most of its state is where it goes before it stops; and
//! one knows of nothing and is dumped.

use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_api::v1::{
    self, CancelJobRequest, GetJobRequest, JobState, MoveJobRequest, ResumeJobRequest, SuspendJobRequest,
};
use tokio::time::Duration;

use super::saver::{Saves, ended, gaps};
use crate::distribution::{Distribution, Percentiles};
use crate::options::Common;
use crate::poll;
use crate::report::{cells, mib};
use crate::tessera::{Cards, Job, Pool, Submitter};
use crate::witness::{between, unix_nanos};

/// Longest wait for any step of a run.
const BOUND: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(2);

/// Suspends, resumes and moves jobs with states of some sizes, and takes the times
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Sizes of the state, in MiB
    #[arg(long, value_delimiter = ',', default_value = "1,64,1024")]
    pub sizes: Vec<u64>,
    /// Sizes of the memory of a program that is dumped, in MiB; it takes root and CRIU in PATH
    #[arg(long, value_delimiter = ',', default_value = "64,1024")]
    pub dumped: Vec<u64>,
    /// How often each is done
    #[arg(long, default_value_t = 5)]
    pub times: usize,
}

/// The figures of one size of state.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    mode: &'static str,
    bytes: u64,
    /// From the call until the job holds nothing, the writing of its program included.
    suspend: Option<Percentiles>,
    /// From the end of the program until the job holds nothing: what keeping the state takes.
    keep: Option<Percentiles>,
    /// From the call until the program runs and has its state.
    resume: Option<Percentiles>,
    /// Downtime of a move to another node: from the end of the program until it runs there and has its state.
    downtime: Option<Percentiles>,
}

impl Summary {
    fn of(mode: &'static str, bytes: u64, times: Times) -> Self {
        let figures = |times: Vec<Duration>| Distribution::of(times).percentiles();
        let Times { suspend, keep, resume, downtime } = times;
        let [suspend, keep, resume, downtime] = [suspend, keep, resume, downtime].map(figures);
        Self { mode, bytes, suspend, keep, resume, downtime }
    }

    fn row(&self) -> [String; 6] {
        let median = |figures: Option<Percentiles>| {
            let [median, ..] = cells(figures);
            median
        };
        let Self { mode, bytes, suspend, keep, resume, downtime } = *self;
        let [suspend, keep, resume, downtime] = [suspend, keep, resume, downtime].map(median);
        [mode.to_owned(), mib(bytes), suspend, keep, resume, downtime]
    }
}

#[derive(Default)]
struct Times {
    suspend: Vec<Duration>,
    keep: Vec<Duration>,
    resume: Vec<Duration>,
    downtime: Vec<Duration>,
}

/// Runs it.
///
/// # Errors
/// Something does not start, a program does not find what it wrote, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("motion")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: 2, per_node: 1, tflops: 16, turns: false };
    let pool = Pool::start(options.common.tessera()?, &folder.path().join("tessera"), cards, 0, 1, None).await?;
    report.section("tessera").await?;
    let mut rows = Vec::new();
    let mut seen = |summary: Summary| -> Result<()> {
        rows.push(summary.row());
        report.line("summary", &summary)
    };
    for bytes in options.sizes.iter().map(|size| size << 20) {
        seen(Summary::of("cooperative", bytes, stopped_and_moved(&pool, bytes, options.times).await?))?;
        seen(Summary::of("cooperative, copied ahead", bytes, moved_ahead(&pool, bytes, options.times).await?))?;
    }
    for bytes in options.dumped.iter().map(|size| size << 20) {
        seen(Summary::of("transparent", bytes, dumped_and_moved(&pool, bytes, options.times).await?))?;
    }
    pool.stop().await?;
    println!("\n{} times each, medians:", options.times);
    report.table(["mode", "state", "suspend", "of it to keep it", "resume", "downtime of a move"], rows)
}

/// A program that saves only when it is stopped, and all of its state anew.
async fn stopped_and_moved(pool: &Pool, bytes: u64, times: usize) -> Result<Times> {
    let mut of = Times::default();
    let job = submit(pool, bytes, Saves::Whole).await?;
    for round in 0..times {
        let runs = 1 + 2 * round;
        let (called, suspended) = suspend(pool, job).await?;
        let ended = ends(pool, job, runs)?;
        of.suspend.push(between(called, suspended));
        of.keep.push(between(ended, suspended));
        let called = resume(pool, job).await?;
        of.resume.push(between(called, starts(pool, job, runs + 1).await?));
        of.downtime.push(moved(pool, job, runs + 1).await?);
    }
    cancel(pool, job).await?;
    Ok(of)
}

/// A program that also saves while it runs: it is moved when it has.
async fn moved_ahead(pool: &Pool, bytes: u64, times: usize) -> Result<Times> {
    let mut of = Times::default();
    let job = submit(pool, bytes, Saves::Little).await?;
    for run in 1..=times {
        poll::until("a program to have saved", BOUND, LOOK, || has_saved(pool, job, run)).await?;
        of.downtime.push(moved(pool, job, run).await?);
    }
    cancel(pool, job).await?;
    Ok(of)
}

/// A program that knows of nothing: it only finds that no time should have passed, and did.
async fn dumped_and_moved(pool: &Pool, bytes: u64, times: usize) -> Result<Times> {
    let mut of = Times::default();
    let job = submit(pool, bytes, Saves::Never).await?;
    for round in 0..times {
        let attempts = 1 + 2 * u32::try_from(round)?;
        poll::until("a job to run", BOUND, LOOK, || runs_as(pool, job, attempts)).await?;
        let (called, suspended) = suspend(pool, job).await?;
        let again = resume(pool, job).await?;
        let (from, to) = gap(pool, job, called, again).await?;
        of.suspend.push(between(called, suspended));
        of.keep.push(between(from, suspended));
        of.resume.push(between(again, to));
        poll::until("a job to run", BOUND, LOOK, || runs_as(pool, job, attempts + 1)).await?;
        let called = unix_nanos();
        pool.client().move_job(MoveJobRequest { job_id: job, ..Default::default() }).await?;
        let stopped = poll::until("a job to have left its place", BOUND, LOOK, || runs_as(pool, job, attempts + 2));
        stopped.await?;
        let (from, to) = gap(pool, job, called, called).await?;
        of.downtime.push(between(from, to));
    }
    cancel(pool, job).await?;
    Ok(of)
}

/// Suspends a job; when that was called, and when it held nothing any more.
async fn suspend(pool: &Pool, job_id: u64) -> Result<(u64, u64)> {
    let called = unix_nanos();
    pool.client().suspend_job(SuspendJobRequest { job_id, ..Default::default() }).await?;
    poll::until("a job to be suspended", BOUND, LOOK, || is(pool, job_id, JobState::Suspended)).await?;
    Ok((called, unix_nanos()))
}

/// Resumes a job; when that was called.
async fn resume(pool: &Pool, job_id: u64) -> Result<u64> {
    let called = unix_nanos();
    pool.client().resume_job(ResumeJobRequest { job_id, ..Default::default() }).await?;
    Ok(called)
}

/// The longest time in which a program did nothing of those that began after `began` and ended after `ended`.
async fn gap(pool: &Pool, job: u64, began: u64, ended: u64) -> Result<(u64, u64)> {
    poll::until("a program to go on", BOUND, LOOK, || async {
        let text = fs::read_to_string(gaps(pool.stand.folder(), job)).context("it was never interrupted")?;
        let times = text.lines().filter_map(|line| line.split_once(' '));
        let numbers = times.filter_map(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        let meant = numbers.filter(|(from, to): &(u64, u64)| *from >= began && *to >= ended);
        meant.max_by_key(|(from, to)| to - from).context("it has not gone on")
    })
    .await
}

/// Succeeds if the job is running, in attempt number `attempts`.
async fn runs_as(pool: &Pool, job_id: u64, attempts: u32) -> Result<()> {
    let job = job(pool, job_id).await?;
    ensure!(
        job.state() == JobState::Running && job.attempts == attempts,
        "job {job_id} is in attempt {}",
        job.attempts
    );
    Ok(())
}

async fn submit(pool: &Pool, bytes: u64, saves: Saves) -> Result<u64> {
    let job = Job::saving("motion", pool.stand.folder(), bytes, saves)?;
    let id = Submitter::new(pool.client().clone(), job).submit().await?.id;
    starts(pool, id, 1).await?;
    Ok(id)
}

/// Moves a job to another node; from the end of its run of this number until it runs there.
async fn moved(pool: &Pool, job: u64, run: usize) -> Result<Duration> {
    poll::until("a job to run", BOUND, LOOK, || is(pool, job, JobState::Running)).await?;
    pool.client().move_job(MoveJobRequest { job_id: job, ..Default::default() }).await?;
    let again = starts(pool, job, run + 1).await?;
    let downtime = between(ends(pool, job, run)?, again);
    poll::until("a job to run", BOUND, LOOK, || is(pool, job, JobState::Running)).await?;
    Ok(downtime)
}

async fn cancel(pool: &Pool, job_id: u64) -> Result<()> {
    pool.client().cancel_job(CancelJobRequest { job_id, ..Default::default() }).await?;
    poll::until("a job to be over", BOUND, LOOK, || is(pool, job_id, JobState::Cancelled)).await
}

async fn has_saved(pool: &Pool, job_id: u64, run: usize) -> Result<()> {
    let job = job(pool, job_id).await?;
    let saved = job.checkpoints.iter().any(|checkpoint| checkpoint.attempt as usize == run);
    ensure!(saved, "job {job_id} has not saved in run {run}");
    Ok(())
}

async fn job(pool: &Pool, job_id: u64) -> Result<v1::Job> {
    let answer = pool.client().get_job(GetJobRequest { job_id, ..Default::default() }).await?;
    answer.job.context("an answer without a job")
}

async fn is(pool: &Pool, job_id: u64, state: JobState) -> Result<()> {
    let job = job(pool, job_id).await?;
    ensure!(job.state() == state, "job {job_id} is {}: {:?}", job.state().as_str_name(), job.reason);
    Ok(())
}

/// Waits for the run of this number to start, and returns its start in nanoseconds since 1970.
async fn starts(pool: &Pool, job: u64, run: usize) -> Result<u64> {
    let what = format!("run {run} of job {job}");
    poll::until(&what, BOUND, LOOK, || async {
        pool.stand.heard(job, 0)?.get(run - 1).map(|said| said.unix_nanos).context("it has not started")
    })
    .await
}

/// The time, in nanoseconds since 1970, at which the run of this number had written its state and ended.
fn ends(pool: &Pool, job: u64, run: usize) -> Result<u64> {
    let text = fs::read_to_string(ended(pool.stand.folder(), job)).context("no run has ended")?;
    let line = text.lines().nth(run - 1).with_context(|| format!("run {run} of job {job} has not ended"))?;
    line.parse().context("it says no time")
}
