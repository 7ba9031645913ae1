//! Measures the cost to a leader of being watched: the same stream of jobs with nobody looking on, and with consoles
//! that watch and a Prometheus that scrapes, in turn and again and again, on a pool of many nodes that are sessions
//! only.

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use tessera_client::{Address, Client, Settings};
use tokio::time::{Duration, Instant, sleep};

use crate::distribution;
use crate::effort::{Effort, Meter};
use crate::load::{self, Plan, Throughput};
use crate::options::Common;
use crate::report::Report;
use crate::tessera::{Cards, Consoles, Job, Members, Nodes, Submitter};
use crate::trio::{Seat, Trio};

/// Clients that share one connection, roughly.
const CLIENTS_PER_CONNECTION: usize = 16;
/// Time between two scrapes, as `deploy/prometheus/prometheus.yml` has it.
const SCRAPE: Duration = Duration::from_secs(15);

/// Submits jobs as fast as members take them, with and without consoles and scrapes on the leader
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Consoles that are open on the leader
    #[arg(long, default_value_t = 50)]
    pub consoles: usize,
    /// Clients at the same time
    #[arg(long, default_value_t = 16)]
    pub clients: usize,
    /// Rounds, each with and without consoles
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Time that counts, of each run
    #[arg(long, default_value = "15s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Time before it, of each run
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    pub warm_up: Duration,
    /// Nodes
    #[arg(long, default_value_t = 1_000)]
    pub nodes: u32,
    /// Cards of each node
    #[arg(long, default_value_t = 10)]
    pub cards: u32,
    /// Only bring the pool up, say where its leader's pages are, and keep it until the limit or an interrupt
    #[arg(long)]
    pub hold: bool,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    consoles: usize,
    submissions: Throughput,
    /// Bytes that consoles and scrapes received.
    bytes: u64,
    effort: Effort,
}

/// Runs it.
///
/// # Errors
/// Something does not start, a console is cut, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("watched")?;
    report.machine(folder.path())?;
    let mut members = Members::start(options.common.tessera()?, folder.path(), "", None).await?;
    let cards = Cards { nodes: options.nodes, per_node: options.cards, tflops: 10, turns: false };
    let nodes = Nodes::start(cards, true, members.addresses(), members.client()).await?;
    let leader = members.healthy().await?;
    let page = members.page(leader)?;
    if options.hold {
        // They are in the ledger: what is looked at is the console, not their heartbeats.
        nodes.stop().await?;
        println!("pages of the leader: http://{page}/");
        sleep(options.common.limit).await;
        return members.stop().await;
    }
    let runs = rounds(options, &mut members, leader, &page, &mut report).await?;
    summary(options, &runs, &mut report)?;
    nodes.stop().await?;
    members.stop().await
}

async fn rounds(
    options: &Options,
    members: &mut Members,
    leader: Seat,
    page: &str,
    report: &mut Report,
) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        for consoles in [0, options.consoles] {
            report.section(&format!("round {round}, {consoles} consoles")).await?;
            let run = one(options, members, leader, page, consoles).await?;
            println!(
                "  {consoles} consoles: {:.0} submissions/s, p99 {:.1} ms; leader {:.0} us of processor time per job; {} MiB to consoles",
                run.submissions.per_second,
                run.submissions.latency.p99_ms,
                run.effort.leader_us,
                run.bytes >> 20
            );
            report.line("run", &run)?;
            runs.push(run);
        }
    }
    Ok(runs)
}

async fn one(options: &Options, members: &Members, leader: Seat, page: &str, consoles: usize) -> Result<Run> {
    let address: Address = members.addresses().get(leader.0).context("no such member")?.clone();
    let submitter = |_| {
        anyhow::Ok(Submitter::new(
            Client::new(std::slice::from_ref(&address), Settings::default())?,
            Job::idle("watched"),
        ))
    };
    let writers: Vec<Submitter> =
        (0..options.clients.div_ceil(CLIENTS_PER_CONNECTION)).map(submitter).collect::<Result<_>>()?;
    let plan = Plan { clients: options.clients, warm_up: options.warm_up, duration: options.duration };
    let open = match consoles {
        0 => None,
        some => Some(Consoles::open(page, some, SCRAPE).await?),
    };
    let (before, began) = (Meter::read(members, leader)?, Instant::now());
    let submissions = load::run(&writers, plan).await?;
    let share = began.elapsed().as_secs_f64() / submissions.seconds;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of jobs")]
    let all = (submissions.acknowledged as f64 * share) as usize;
    let effort = before.effort(Meter::read(members, leader)?, all.max(1));
    let bytes = open.map(Consoles::close).transpose()?.unwrap_or_default();
    Ok(Run { consoles, submissions, bytes, effort })
}

/// The medians of both, and what the one costs the other.
fn summary(options: &Options, runs: &[Run], report: &mut Report) -> Result<()> {
    let median = |consoles: usize, of: fn(&Run) -> f64| {
        let values = runs.iter().filter(|run| run.consoles == consoles).map(of);
        distribution::median(values.collect()).unwrap_or_default()
    };
    let row = |consoles: usize| {
        let rate = median(consoles, |run| run.submissions.per_second);
        let cost = 100.0 * (1.0 - rate / median(0, |run| run.submissions.per_second));
        [
            consoles.to_string(),
            format!("{rate:.0}"),
            format!("{:.1} ms", median(consoles, |run| run.submissions.latency.p99_ms)),
            format!("{:.0} us", median(consoles, |run| run.effort.leader_us)),
            if consoles == 0 { "-".to_owned() } else { format!("{cost:.1} %") },
        ]
    };
    println!(
        "\n{} nodes, {} cards; medians of {} rounds:",
        options.nodes,
        options.nodes * options.cards,
        options.rounds
    );
    let header = ["consoles and a scrape each 15 s", "submissions/s", "p99", "leader's time per job", "cost"];
    report.table(header, vec![row(0), row(options.consoles)])
}
