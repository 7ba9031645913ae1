//! Measures the time from submitting an urgent job until its process runs in the place of a less urgent one that holds
//! the whole card, and ends as soon as it is told to: the cost of preemption itself, without the grace of a victim.

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_api::v1::{CancelJobRequest, GetJobRequest};
use tokio::time::Duration;

use crate::distribution::{Distribution, Percentiles};
use crate::options::Common;
use crate::poll;
use crate::report::cells;
use crate::tessera::{Cards, Job, Pool, Submitter};
use crate::witness::{between, unix_nanos};

/// Longest wait for any step of a run.
const BOUND: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Blocks of the card, all of which each job wants.
const BLOCKS: u32 = 16;
const URGENT: u32 = 90;
const PATIENT: u32 = 10;

/// Submits urgent jobs while others hold the whole card, and takes the time until each one's process runs
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Urgent jobs
    #[arg(long, default_value_t = 100)]
    pub times: u64,
}

/// The figures of the benchmark.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    times: usize,
    /// From just before the call until the worker ran.
    submit_to_run: Percentiles,
}

/// Runs it.
///
/// # Errors
/// Something does not start, no victim is preempted, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("preempt")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: 1, per_node: 1, tflops: BLOCKS, turns: false };
    let pool = Pool::start(options.common.tessera()?, &folder.path().join("tessera"), cards, 0, 1, None).await?;
    report.section("tessera").await?;
    let mut waits = Vec::new();
    for _ in 0..options.times {
        waits.push(once(&pool).await?);
    }
    pool.stop().await?;
    let submit_to_run = Distribution::of(waits).percentiles().context("nothing was preempted")?;
    let summary = Summary { times: usize::try_from(options.times)?, submit_to_run };
    report.line("summary", &summary)?;
    println!("\n{} times:", summary.times);
    let [p50, p99, max] = cells(Some(submit_to_run));
    let row = ["submission to process, in the place of another job".to_owned(), p50, p99, max];
    report.table(["", "p50", "p99", "max"], vec![row])
}

/// Has one job take the place of another, which is cancelled afterwards: each may be preempted so often an hour.
async fn once(pool: &Pool) -> Result<Duration> {
    let stand = pool.stand.folder();
    let submitter = |job: Job, priority| Submitter::new(pool.client().clone(), job.on_blocks(BLOCKS).urgent(priority));
    let victim = submitter(Job::long("victim", stand)?, PATIENT).submit().await?.id;
    poll::until("the victim to run", BOUND, LOOK, || async { pool.stand.only_start(victim, 0) }).await?;
    let submitted = unix_nanos();
    let urgent = submitter(Job::short("urgent", stand)?, URGENT).submit().await?.id;
    let ran = poll::until("the urgent job to run", BOUND, LOOK, || async { pool.stand.only_start(urgent, 0) }).await?;
    pool.client().cancel_job(CancelJobRequest { job_id: victim, ..Default::default() }).await?;
    for job_id in [urgent, victim] {
        poll::until("both to be over", BOUND, LOOK, || async {
            let answer = pool.client().get_job(GetJobRequest { job_id, ..Default::default() }).await?;
            ensure!(answer.job.is_some_and(|job| job.ended_at.is_some()), "job {job_id} is not over");
            Ok(())
        })
        .await?;
    }
    Ok(between(submitted, ran.unix_nanos))
}
