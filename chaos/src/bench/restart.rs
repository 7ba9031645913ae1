//! Measures the cost of a large state to a member: resident memory with many queued jobs, and the time from restarting
//! its process after SIGKILL until it answers a linearizable read with all of them in it.

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_api::v1::{GetPoolRequest, JobState};
use tessera_client::Client;
use tokio::time::{Duration, Instant};

use crate::distribution::{Percentiles, milliseconds};
use crate::load::fill;
use crate::options::{Common, Waiting};
use crate::poll;
use crate::report::{Report, mib};
use crate::tessera::{Cards, Job, Pool, Submitter};
use crate::trio::{Loss, Seat, Trio};

/// Blocks of the pool; one job holds them all.
const BLOCKS: u32 = 16;
/// Longest wait for a member to serve.
const SERVING: Duration = Duration::from_secs(120);
/// Pause before a starting member is asked again, and the time limit of each request.
const ASK_EVERY: Duration = Duration::from_millis(5);
const ASK: Duration = Duration::from_millis(500);

/// Starts a member again that has many queued jobs to remember
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Jobs
    #[arg(long, default_value_t = 100_000)]
    pub jobs: u64,
    /// Clients that submit them
    #[arg(long, default_value_t = 64)]
    pub clients: usize,
    /// How they wait
    #[arg(long, value_enum, default_value = "queued")]
    pub waiting: Waiting,
    /// How often each kind of restart is done
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
}

/// The members that are killed and started again.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Who {
    Follower,
    Leader,
    All,
}

#[derive(Clone, Debug, Serialize)]
struct Restart {
    who: Who,
    jobs: u64,
    to_serving: Percentiles,
    resident_before_bytes: u64,
    resident_after_bytes: u64,
}

/// Runs it.
///
/// # Errors
/// Something does not start, a member does not come back, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("restart")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: 1, per_node: 1, tflops: BLOCKS, turns: false };
    let resident = u32::from(options.waiting == Waiting::Queued);
    let mut pool =
        Pool::start(options.common.tessera()?, &folder.path().join("tessera"), cards, resident, BLOCKS, None).await?;
    let job = Job::idle("queued").held(options.waiting == Waiting::Held);
    let submitters: Vec<Submitter> =
        (0..options.clients.div_ceil(16)).map(|_| Submitter::new(pool.client().clone(), job.clone())).collect();
    let took = fill(&submitters, options.clients, options.jobs).await.context("the jobs cannot be submitted")?;
    println!("{} jobs, {:?}, submitted in {:.1} s", options.jobs, options.waiting, took.as_secs_f64());
    report.section("restarts").await?;
    let mut all = Vec::new();
    for who in [Who::Follower, Who::Leader, Who::All] {
        for _ in 0..options.rounds {
            all.push(restart(&mut pool, who, options.jobs, &mut report).await?);
        }
    }
    pool.stop().await?;
    print(&mut report, &all)
}

async fn restart(pool: &mut Pool, who: Who, jobs: u64, report: &mut Report) -> Result<Restart> {
    let leader = pool.members.healthy().await?;
    let seats = match who {
        Who::Follower => vec![leader.next()],
        Who::Leader => vec![leader],
        Who::All => Seat::ALL.to_vec(),
    };
    let asked = seats[0];
    let resident_before_bytes = pool.members.seats().resident_bytes(asked)?;
    for seat in &seats {
        pool.members.seats_mut().lose(*seat, Loss::Killed).await?;
    }
    let client = pool.members.client_of(asked)?.with_deadline(ASK);
    let began = Instant::now();
    for seat in &seats {
        pool.members.seats_mut().bring_back(*seat, Loss::Killed).await?;
    }
    poll::until("the member to serve", SERVING, ASK_EVERY, || serves(&client, jobs)).await?;
    let took = began.elapsed();
    let resident_after_bytes = pool.members.seats().resident_bytes(asked)?;
    let to_serving = Percentiles::of_one(took);
    println!("  {who:?}: {:.0} ms", milliseconds(took));
    let restart = Restart { who, jobs, to_serving, resident_before_bytes, resident_after_bytes };
    report.line("restart", &restart)?;
    Ok(restart)
}

/// Fails unless the member answers a linearizable read with all jobs in it.
pub(super) async fn serves(client: &Client, jobs: u64) -> Result<()> {
    let answer = client.get_pool(GetPoolRequest::default()).await?;
    let pool = answer.pool.context("an answer without a pool")?;
    let waiting: u64 =
        pool.jobs.iter().filter(|count| count.state() == JobState::Pending).map(|count| count.count).sum();
    ensure!(waiting >= jobs, "{waiting} of {jobs} jobs are there");
    Ok(())
}

fn print(report: &mut Report, all: &[Restart]) -> Result<()> {
    let rows = all.iter().map(|one| {
        [
            format!("{:?}", one.who),
            format!("{:.2} s", one.to_serving.max_ms / 1e3),
            mib(one.resident_before_bytes),
            mib(one.resident_after_bytes),
        ]
    });
    println!("\nfrom starting the process to a linearizable read, at the member that was killed:");
    report.table(["killed", "serving after", "resident before", "resident after"], rows.collect())
}
