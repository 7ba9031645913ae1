//! Measures the time from submitting a job until its process runs, on a pool that is lightly loaded: the worker writes
//! down the time at which it came to run.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use prost_types::Timestamp;
use serde::Serialize;
use tessera_api::v1::{GetJobRequest, Job as JobView};
use tokio::task::JoinSet;
use tokio::time::{Duration, MissedTickBehavior, interval};

use crate::distribution::{Distribution, Percentiles};
use crate::options::Common;
use crate::poll;
use crate::report::cells;
use crate::tessera::{Cards, Job, Pool, Submitter};
use crate::witness::{Stand, Testimony, between, unix_nanos};

/// Longest wait for a job to be over.
const OVER: Duration = Duration::from_secs(60);

/// Submits jobs at a steady, low rate and takes the time until each one's process runs
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Jobs
    #[arg(long, default_value_t = 200)]
    pub jobs: u64,
    /// Time between two submissions
    #[arg(long, default_value = "200ms", value_parser = humantime::parse_duration)]
    pub every: Duration,
    /// Agents
    #[arg(long, default_value_t = 4)]
    pub nodes: u32,
}

/// One job, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Times {
    job: u64,
    submitted: u64,
    answered: u64,
    ran: u64,
    granted: Option<u64>,
}

/// The figures of the benchmark.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    jobs: usize,
    every_ms: u128,
    /// From just before the call until the worker ran.
    submit_to_run: Percentiles,
    /// From just before the call until its answer.
    submit_to_answer: Percentiles,
    /// From just before the call until the log time of the grant.
    submit_to_grant: Option<Percentiles>,
    /// From the log time of the grant until the worker ran.
    grant_to_run: Option<Percentiles>,
}

/// Runs it.
///
/// # Errors
/// Something does not start, a job starts twice or not at all, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("start")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: options.nodes, per_node: 1, tflops: 16, turns: false };
    let pool = Pool::start(options.common.tessera()?, &folder.path().join("tessera"), cards, 0, 1, None).await?;
    report.section("tessera").await?;
    let submitter = Submitter::new(pool.client().clone(), Job::short("start", pool.stand.folder())?);
    let submitted = submit(&submitter, options).await?;
    let mut all = Vec::new();
    for one in submitted {
        all.push(follow(&pool, one).await?);
    }
    pool.stop().await?;
    ensure!(!all.is_empty(), "no job was submitted");
    let summary = summarize(&all, options)?;
    report.line("summary", &summary)?;
    let row = |name: &str, of: Option<Percentiles>| {
        let [p50, p99, max] = cells(of);
        [name.to_owned(), p50, p99, max]
    };
    let rows = vec![
        row("submission to process", Some(summary.submit_to_run)),
        row("  to the answer", Some(summary.submit_to_answer)),
        row("  to the grant (log time)", summary.submit_to_grant),
        row("  from the grant to the process", summary.grant_to_run),
    ];
    println!("\n{} jobs, one each {}:", summary.jobs, humantime::format_duration(options.every));
    report.table(["", "p50", "p99", "max"], rows)
}

/// One submission at each tick, whatever became of those before.
async fn submit(submitter: &Submitter, options: &Options) -> Result<Vec<Times>> {
    let mut ticks = interval(options.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    for _ in 0..options.jobs {
        ticks.tick().await;
        let submitter = submitter.clone();
        under_way.spawn(async move {
            let submitted = unix_nanos();
            let job = submitter.submit().await?.id;
            anyhow::Ok(Times { job, submitted, answered: unix_nanos(), ran: 0, granted: None })
        });
    }
    let mut all = Vec::new();
    while let Some(one) = under_way.join_next().await {
        all.push(one.context("a submission broke")??);
    }
    Ok(all)
}

/// Waits until the job is over, and adds what its worker and the ledger say.
async fn follow(pool: &Pool, one: Times) -> Result<Times> {
    let every = Duration::from_millis(50);
    let view = poll::until("a job to be over", OVER, every, || over(pool, one.job)).await?;
    let said = pool.stand.only_start(one.job, 0)?;
    let attempt = view.history.last().context("a job without attempt is over")?;
    Ok(Times { ran: said.unix_nanos, granted: attempt.granted_at.as_ref().and_then(nanos), ..one })
}

async fn over(pool: &Pool, job_id: u64) -> Result<JobView> {
    let answer = pool.client().get_job(GetJobRequest { job_id, ..GetJobRequest::default() }).await?;
    let job = answer.job.context("an answer without a job")?;
    ensure!(job.ended_at.is_some(), "job {job_id} is {}", job.state().as_str_name());
    Ok(job)
}

fn nanos(time: &Timestamp) -> Option<u64> {
    let seconds = u64::try_from(time.seconds).ok()?;
    Some(seconds * 1_000_000_000 + u64::try_from(time.nanos).ok()?)
}

fn summarize(all: &[Times], options: &Options) -> Result<Summary> {
    let of = |figure: fn(&Times) -> Option<Duration>| {
        Distribution::of(all.iter().filter_map(figure).collect()).percentiles()
    };
    Ok(Summary {
        jobs: all.len(),
        every_ms: options.every.as_millis(),
        submit_to_run: of(|one| Some(between(one.submitted, one.ran))).context("no job ran")?,
        submit_to_answer: of(|one| Some(between(one.submitted, one.answered))).context("no job was answered")?,
        submit_to_grant: of(|one| Some(between(one.submitted, one.granted?))),
        grant_to_run: of(|one| Some(between(one.granted?, one.ran))),
    })
}

/// Runs a worker: it testifies that it has been running since `began`, in nanoseconds since 1970, and stays if `stay`
/// is set.
///
/// # Errors
/// It has no job, or the stand cannot be written.
pub fn worker(stand: &Path, stay: bool, began: u64) -> Result<()> {
    let said = Testimony::of(began)?;
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set: not run as a worker"));
    let job = variable("TESSERA_JOB_ID")?.parse().context("TESSERA_JOB_ID is no number")?;
    let rank = variable("RANK")?.parse().context("RANK is no number")?;
    said.append_to(&Stand::file(stand, job, rank))?;
    if !stay {
        return Ok(());
    }
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_ledger_are_compared_in_nanoseconds() {
        assert_eq!(nanos(&Timestamp { seconds: 2, nanos: 5 }), Some(2_000_000_005));
        assert_eq!(nanos(&Timestamp { seconds: -2, nanos: 5 }), None);
    }
}
