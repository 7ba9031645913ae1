//! A crowd before an agent's door: thousands of connections that say nothing, and a thousand clients that follow the
//! output of its workers. The leader's count of the age of the agent's heartbeats shows what that does to the pool.

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_api::v1::worker_service_client::WorkerServiceClient;
use tessera_api::v1::{GetJobRequest, ListNodesRequest, LogStream, ReadLogsRequest, WorkerRef};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::distribution::{Distribution, Percentiles, milliseconds};
use crate::options::Common;
use crate::report::{Report, ms};
use crate::tessera::{Cards, Pool, get};
use crate::trio::Trio;

/// The oldest age of a heartbeat, as a member counts it.
const AGE: &str = "tessera_node_heartbeat_age_seconds";
/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Pause of a client that was refused, or closed, before it comes again.
const COMES_AGAIN: Duration = Duration::from_millis(500);
/// Followers that share a connection.
const FOLLOWERS_PER_CONNECTION: usize = 50;
/// Time that the crowd has to be there.
const GATHERING: Duration = Duration::from_secs(10);
/// Longest time that an agent may take to take a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Has a crowd stand before an agent: silent connections, and followers of outputs
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Connections that say nothing
    #[arg(long, default_value_t = 10_000)]
    pub connections: usize,
    /// Clients that follow outputs
    #[arg(long, default_value_t = 1_000)]
    pub followers: usize,
    /// Time that counts, of each run
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Fail if a heartbeat is later, by more than this, than the latest without the crowd
    #[arg(long, value_parser = humantime::parse_duration)]
    pub expect_within: Option<Duration>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    crowd: bool,
    /// Connections and followers that were there at the end.
    silent: u64,
    followers: u64,
    age: Percentiles,
}

/// Runs it.
///
/// # Errors
/// Something does not start, the report cannot be written, or a heartbeat was later than it may be.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("crowd")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: 1, per_node: 4, tflops: 4, turns: false };
    let mut pool = Pool::start(options.common.tessera()?, &folder.path().join("tessera"), cards, 4, 4, None).await?;
    let leader = pool.members.healthy().await?;
    let page = pool.members.page(leader)?;
    let door = Door::of(&pool).await?;

    report.section("nobody at the door").await?;
    let calm = Run { crowd: false, silent: 0, followers: 0, age: ages(&page, options.duration).await? };
    report.line("run", &calm)?;
    report.section("a crowd at the door").await?;
    let crowd = Crowd::gather(&door, options);
    sleep(GATHERING).await;
    let age = ages(&page, options.duration).await?;
    let run = Run { crowd: true, silent: crowd.silent(), followers: crowd.followers(), age };
    report.line("run", &run)?;
    drop(crowd);
    let disturbed = pool.residents.disturbed().await?;
    pool.stop().await?;
    print(&mut report, &[&calm, &run])?;
    ensure!(disturbed == 0, "{disturbed} workers were disturbed");
    let later = run.age.max_ms - calm.age.max_ms;
    match options.expect_within {
        Some(most) if later > milliseconds(most) => anyhow::bail!("a heartbeat was {later:.0} ms later than without"),
        _ => Ok(()),
    }
}

/// The agent at whose address the crowd stands, and its workers.
#[derive(Clone, Debug)]
struct Door {
    address: String,
    workers: Vec<WorkerRef>,
}

impl Door {
    async fn of(pool: &Pool) -> Result<Self> {
        let nodes = pool.client().list_nodes(ListNodesRequest::default()).await?.nodes;
        let address = nodes.into_iter().next().context("a pool without nodes")?.address;
        let mut workers = Vec::new();
        for job_id in pool.residents.jobs() {
            let read = pool.client().get_job(GetJobRequest { job_id, ..GetJobRequest::default() }).await?;
            let allocation = read.job.and_then(|job| job.allocation).context("a job that does not run")?;
            workers.push(WorkerRef { allocation_id: allocation.id, epoch: allocation.epoch, rank: 0 });
        }
        Ok(Self { address, workers })
    }
}

/// The ages of the agent's last heartbeat for a while.
async fn ages(page: &str, duration: Duration) -> Result<Percentiles> {
    let (mut seen, until) = (Vec::new(), Instant::now() + duration);
    while Instant::now() < until {
        let metrics = get(page, "/metrics").await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(AGE)).context("the leader says no age")?;
        let age: f64 = line.trim().parse().with_context(|| format!("{AGE}{line} is no number"))?;
        seen.push(Duration::from_secs_f64(age));
        sleep(LOOK_EVERY).await;
    }
    Distribution::of(seen).percentiles().context("no age was seen")
}

/// Clients of an agent that mean harm, or know no better.
#[derive(Debug)]
struct Crowd {
    silent: watch::Sender<u64>,
    followers: watch::Sender<u64>,
    _clients: JoinSet<()>,
}

impl Crowd {
    fn gather(door: &Door, options: &Options) -> Self {
        let (silent, followers) = (watch::Sender::new(0), watch::Sender::new(0));
        let mut clients = JoinSet::new();
        for _ in 0..options.connections {
            clients.spawn(stand(door.address.clone(), silent.clone()));
        }
        for first in (0..options.followers).step_by(FOLLOWERS_PER_CONNECTION) {
            let some = FOLLOWERS_PER_CONNECTION.min(options.followers - first);
            clients.spawn(follow(door.clone(), some, followers.clone()));
        }
        Self { silent, followers, _clients: clients }
    }

    fn silent(&self) -> u64 {
        *self.silent.borrow()
    }

    fn followers(&self) -> u64 {
        *self.followers.borrow()
    }
}

/// A client is counted as long as it has what it wants.
struct Present<'a>(&'a watch::Sender<u64>);

impl<'a> Present<'a> {
    fn at(count: &'a watch::Sender<u64>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Opens a connection and says nothing, again and again.
async fn stand(address: String, count: watch::Sender<u64>) {
    loop {
        if let Ok(Ok(mut stream)) = timeout(CONNECT, TcpStream::connect(&address)).await {
            let _present = Present::at(&count);
            // Nothing but the end comes.
            let _ = stream.read(&mut [0; 64]).await;
        }
        sleep(COMES_AGAIN).await;
    }
}

/// Follows outputs over one connection, again and again.
async fn follow(door: Door, streams: usize, count: watch::Sender<u64>) {
    loop {
        let connected = Endpoint::from_shared(format!("http://{}", door.address));
        if let Ok(endpoint) = connected
            && let Ok(channel) = endpoint.connect_timeout(CONNECT).connect().await
        {
            let mut followers = JoinSet::new();
            for place in 0..streams {
                let worker = door.workers[place % door.workers.len()];
                followers.spawn(follow_one(channel.clone(), worker, count.clone()));
            }
            followers.join_all().await;
        }
        sleep(COMES_AGAIN).await;
    }
}

async fn follow_one(channel: Channel, worker: WorkerRef, count: watch::Sender<u64>) {
    let request = ReadLogsRequest { worker: Some(worker), stream: LogStream::Stdout.into(), offset: 0, follow: true };
    if let Ok(answer) = WorkerServiceClient::new(channel).read_logs(request).await {
        let _present = Present::at(&count);
        let mut answer = answer.into_inner();
        while let Ok(Some(_)) = answer.message().await {}
    }
}

fn print(report: &mut Report, runs: &[&Run]) -> Result<()> {
    println!("\nage of the last heartbeat of an agent, as its leader counts it:");
    let rows = runs.iter().map(|run| {
        let who = if run.crowd { "a crowd" } else { "nobody" };
        let Run { silent, followers, age, .. } = run;
        [who.to_owned(), silent.to_string(), followers.to_string(), ms(age.p50_ms), ms(age.p99_ms), ms(age.max_ms)]
    });
    report.table(["at the door", "silent connections", "followers", "p50", "p99", "max"], rows.collect())
}
