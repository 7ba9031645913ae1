//! How long it takes to suspend a job with a state of some size, to resume it, and to move it to another node: real
//! agents, real files, fsync on. The program writes its state when it is told to stop, and looks at it when it goes on.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;
use tessera_api::v1::{GetJobRequest, JobState, MoveJobRequest, ResumeJobRequest, SuspendJobRequest};
use tokio::time::Duration;

use crate::distribution::{Distribution, Percentiles};
use crate::options::Common;
use crate::poll;
use crate::report::{cells, mib};
use crate::tessera::{Cards, Job, Pool, Submitter};
use crate::witness::{Stand, Testimony, between, unix_nanos};

/// How long anything may take.
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
    /// How often each is done
    #[arg(long, default_value_t = 5)]
    pub times: usize,
}

/// What was seen with one size.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    bytes: u64,
    /// From the call until the job holds nothing, the writing of its program included.
    suspend: Percentiles,
    /// From the end of the program until the job holds nothing: what keeping the state takes.
    keep: Percentiles,
    /// From the call until the program runs and has its state.
    resume: Percentiles,
    /// Of a move to another node: from the end of the program until it runs there and has its state.
    downtime: Percentiles,
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
    for size in &options.sizes {
        let summary = one_size(&pool, size << 20, options.times).await?;
        report.line("summary", &summary)?;
        let [suspend, ..] = cells(Some(summary.suspend));
        let [keep, ..] = cells(Some(summary.keep));
        let [resume, ..] = cells(Some(summary.resume));
        let [downtime, ..] = cells(Some(summary.downtime));
        rows.push([mib(summary.bytes), suspend, keep, resume, downtime]);
    }
    pool.stop().await?;
    println!("\n{} times each, medians:", options.times);
    report.table(["state", "suspend", "of it to keep it", "resume", "downtime of a move"], rows)
}

async fn one_size(pool: &Pool, bytes: u64, times: usize) -> Result<Summary> {
    let job =
        Submitter::new(pool.client().clone(), Job::saving("motion", pool.stand.folder(), bytes)?).submit().await?.id;
    let mut of = Times::default();
    starts(pool, job, 1).await?;
    for round in 0..times {
        let runs = 1 + 2 * round;
        let called = unix_nanos();
        pool.client().suspend_job(SuspendJobRequest { job_id: job, ..Default::default() }).await?;
        poll::until("a job to be suspended", BOUND, LOOK, || is(pool, job, JobState::Suspended)).await?;
        let (suspended, ended) = (unix_nanos(), ends(pool, job, runs)?);
        of.suspend.push(between(called, suspended));
        of.keep.push(between(ended, suspended));
        let called = unix_nanos();
        pool.client().resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
        of.resume.push(between(called, starts(pool, job, runs + 1).await?));
        poll::until("a job to run", BOUND, LOOK, || is(pool, job, JobState::Running)).await?;
        pool.client().move_job(MoveJobRequest { job_id: job, ..Default::default() }).await?;
        let again = starts(pool, job, runs + 2).await?;
        of.downtime.push(between(ends(pool, job, runs + 1)?, again));
        poll::until("a job to run", BOUND, LOOK, || is(pool, job, JobState::Running)).await?;
    }
    let cancel = tessera_api::v1::CancelJobRequest { job_id: job, ..Default::default() };
    pool.client().cancel_job(cancel).await?;
    poll::until("a job to be over", BOUND, LOOK, || is(pool, job, JobState::Cancelled)).await?;
    let figures = |times: Vec<Duration>| Distribution::of(times).percentiles().context("it was never done");
    Ok(Summary {
        bytes,
        suspend: figures(of.suspend)?,
        keep: figures(of.keep)?,
        resume: figures(of.resume)?,
        downtime: figures(of.downtime)?,
    })
}

async fn is(pool: &Pool, job_id: u64, state: JobState) -> Result<()> {
    let answer = pool.client().get_job(GetJobRequest { job_id, ..Default::default() }).await?;
    let job = answer.job.context("an answer without a job")?;
    ensure!(job.state() == state, "job {job_id} is {}: {:?}", job.state().as_str_name(), job.reason);
    Ok(())
}

/// When the run of this number started, once it has.
async fn starts(pool: &Pool, job: u64, run: usize) -> Result<u64> {
    let what = format!("run {run} of job {job}");
    poll::until(&what, BOUND, LOOK, || async {
        pool.stand.heard(job, 0)?.get(run - 1).map(|said| said.unix_nanos).context("it has not started")
    })
    .await
}

/// When the run of this number had written its state and ended.
fn ends(pool: &Pool, job: u64, run: usize) -> Result<u64> {
    let text = fs::read_to_string(ended(pool.stand.folder(), job)).context("no run has ended")?;
    let line = text.lines().nth(run - 1).with_context(|| format!("run {run} of job {job} has not ended"))?;
    line.parse().context("it says no time")
}

fn ended(stand: &Path, job: u64) -> PathBuf {
    stand.join(format!("{job}.ended"))
}

/// What a worker does: it says that it runs and has its state, and writes it when it is told to stop.
///
/// # Errors
/// It has not what it wrote, or something cannot be written.
pub fn worker(stand: &Path, bytes: u64) -> Result<()> {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTERM);
    stop.thread_block().context("cannot block a signal")?;
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set: not run as a worker"));
    let job: u64 = variable("TESSERA_JOB_ID")?.parse().context("TESSERA_JOB_ID is no number")?;
    let state = PathBuf::from(variable("TESSERA_CHECKPOINT_DIR")?).join("state");
    if variable("TESSERA_ATTEMPT")? != "1" {
        let found = fs::metadata(&state).context("what was written before is not there")?.len();
        ensure!(found == bytes, "{found} of {bytes} bytes are there");
    }
    Testimony::now()?.append_to(&Stand::file(stand, job, 0))?;
    stop.wait().context("cannot wait for a signal")?;
    write_noise(&state, bytes)?;
    let mut file = fs::OpenOptions::new().create(true).append(true).open(ended(stand, job))?;
    writeln!(file, "{}", unix_nanos()).context("cannot append")
}

/// Bytes that no compression makes fewer.
fn write_noise(path: &Path, bytes: u64) -> Result<()> {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    let mut state = unix_nanos() | 1;
    for _ in 0..bytes / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    Ok(file.flush()?)
}
