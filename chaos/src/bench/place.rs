//! Measures the placement throughput of the control plane: from submission through decision and commit, durable on two
//! of three members, to the order that reaches the node. Nodes hold sessions only and start no process, so that the
//! figures are the control plane's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_client::{Address, Client, Settings};
use tokio::time::{Duration, Instant};

use super::submit::{Ask, connections, putters};
use crate::distribution::{Distribution, Percentiles};
use crate::effort::{Effort, Meter};
use crate::etcd::{Etcd, Times};
use crate::load::{self, Plan, Throughput};
use crate::options::{Beside, Common};
use crate::poll;
use crate::report::{Report, cells};
use crate::tessera::{Cards, Job, Members, Nodes, Ordered, Submitter};
use crate::trio::{Seat, Trio};
use crate::writer::Writer;

/// Longest wait for the last orders once nobody submits any more.
const LAST_ORDERS: Duration = Duration::from_secs(60);
/// The name of all of them.
const JOB: &str = "placed";
/// Submits jobs that fit, as fast as members take them, and takes the time until each one's order is at its node
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// etcd.
    #[command(flatten)]
    pub beside: Beside,
    /// Clients at the same time, one run for each
    #[arg(long, value_delimiter = ',', default_value = "1,64")]
    pub clients: Vec<usize>,
    /// Time that counts, of each run
    #[arg(long, default_value = "8s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Time before it, of each run
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    pub warm_up: Duration,
    /// Nodes
    #[arg(long, default_value_t = 1_213)]
    pub nodes: u32,
    /// Cards of each node
    #[arg(long, default_value_t = 5)]
    pub cards: u32,
    /// Blocks of each card
    #[arg(long, default_value_t = 100)]
    pub blocks: u32,
    /// Workers end as soon as they run, instead of staying
    #[arg(long)]
    pub ends: bool,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    /// Acknowledgements of submissions.
    submissions: Throughput,
    /// Orders that came to nodes while it counted, per second.
    placements_per_second: f64,
    /// From just before the call of the submission until its order was at the node.
    submit_to_order: Percentiles,
    effort: Effort,
}

/// Runs it.
///
/// # Errors
/// Something does not start, a job is ordered twice or never, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("place")?;
    report.machine(folder.path())?;
    let mut rows = Vec::new();
    for clients in options.clients.iter().copied() {
        let folder = folder.path().join(clients.to_string());
        let puts = match &options.beside.etcd {
            Some(etcd) => Some(puts(options, etcd, clients, &folder.join("etcd"), &mut report).await?),
            None => None,
        };
        let run = one(options, clients, &folder, &mut report).await?;
        report.line("run", &run)?;
        let [p50, p99, max] = cells(Some(run.submit_to_order));
        let effort = run.effort;
        println!(
            "  {clients} clients: {:.0} placements/s ({:.0} submissions/s), submission to order p50 {p50}, p99 {p99}, max {max}; \
             processor time per job: leader {:.0} us, followers {:.0} us, clients and nodes {:.0} us",
            run.placements_per_second,
            run.submissions.per_second,
            effort.leader_us,
            effort.followers_us,
            effort.clients_us
        );
        let ratio = puts.as_ref().map(|puts| run.placements_per_second / puts.per_second);
        let [rate, ratio] =
            [puts.map(|puts| format!("{:.0}", puts.per_second)), ratio.map(|ratio| format!("{ratio:.2}"))]
                .map(|figure| figure.unwrap_or_else(|| "-".to_owned()));
        rows.push([clients.to_string(), format!("{:.0}", run.placements_per_second), p50, p99, max, rate, ratio]);
    }
    println!("\njobs placed per second, and from submission to the order at the node:");
    report.table(["clients", "placements/s", "p50", "p99", "max", "etcd's puts/s", "placements : puts"], rows)
}

/// Puts into etcd of as many bytes as a submission has, by as many clients.
async fn puts(
    options: &Options,
    etcd: &Path,
    clients: usize,
    folder: &Path,
    report: &mut Report,
) -> Result<Throughput> {
    let mut members = Etcd::start(etcd, folder, Times::DEFAULT, None).await?;
    report.section(&format!("etcd, {clients} clients")).await?;
    let leader = members.healthy().await?;
    let putters = putters(&members, Ask::Leader, leader, clients, Job::idle(JOB).request_bytes())?;
    let puts = load::run(&putters, plan(options, clients)).await?;
    members.stop().await?;
    let [p50, p99, _] = cells(Some(puts.latency));
    println!("  etcd, {clients} clients: {:.0} puts/s, p50 {p50}, p99 {p99}", puts.per_second);
    report.line("puts", &puts)?;
    Ok(puts)
}

fn plan(options: &Options, clients: usize) -> Plan {
    Plan { clients, warm_up: options.warm_up, duration: options.duration }
}

async fn one(options: &Options, clients: usize, folder: &Path, report: &mut Report) -> Result<Run> {
    std::fs::create_dir_all(folder).context("cannot make a folder")?;
    let cards = Cards { nodes: options.nodes, per_node: options.cards, tflops: options.blocks, turns: false };
    let mut members = Members::start(options.common.tessera()?, folder, "", None).await?;
    let mut nodes = Nodes::start(cards, options.ends, members.addresses(), members.client()).await?;
    report.section(&format!("{} nodes, {clients} clients", options.nodes)).await?;
    let leader = members.healthy().await?;
    let begun = Begun::default();
    let order = [leader, leader.next(), leader.next().next()];
    let addresses: Vec<Address> = order.iter().map(|Seat(seat)| members.addresses()[*seat].clone()).collect();
    let timed = |_| {
        let submitter = Submitter::new(Client::new(&addresses, Settings::default())?, Job::idle(JOB));
        anyhow::Ok(Timed { submitter, begun: begun.clone() })
    };
    let writers: Vec<Timed> = (0..connections(clients)).map(timed).collect::<Result<_>>()?;
    let before = Meter::read(&members, leader)?;
    let began = Instant::now();
    let submissions = load::run(&writers, plan(options, clients)).await?;
    let all = begun.take()?;
    let ordered = last_orders(&mut nodes, all.len()).await?;
    let effort = before.effort(Meter::read(&members, leader)?, all.len());
    nodes.stop().await?;
    members.stop().await?;
    let counted = (began + options.warm_up)..(began + options.warm_up + options.duration);
    let placed = ordered.iter().filter(|order| counted.contains(&order.at)).count();
    let placements_per_second = placed as f64 / options.duration.as_secs_f64();
    Ok(Run { submissions, placements_per_second, submit_to_order: latencies(&all, &ordered, &counted)?, effort })
}

/// Waits until as many orders have come as there were submissions.
async fn last_orders(nodes: &mut Nodes, submitted: usize) -> Result<Vec<Ordered>> {
    let seen = Mutex::new((nodes, Vec::new()));
    poll::until("every job to be ordered", LAST_ORDERS, Duration::from_millis(50), || async {
        let (nodes, all) = &mut *seen.lock().expect("one waits at a time");
        all.extend(nodes.take_ordered()?);
        ensure!(all.len() >= submitted, "{} of {submitted} jobs are ordered", all.len());
        Ok(())
    })
    .await?;
    Ok(seen.into_inner().expect("nobody panicked").1)
}

/// From submission to order, of the submissions that began while it counted.
fn latencies(
    begun: &BTreeMap<u64, Instant>,
    ordered: &[Ordered],
    counted: &std::ops::Range<Instant>,
) -> Result<Percentiles> {
    let mut waiting = begun.clone();
    let mut all = Vec::new();
    for order in ordered {
        let began = waiting.remove(&order.job);
        let began = began.with_context(|| format!("job {} was ordered twice, or never submitted", order.job))?;
        if counted.contains(&began) {
            all.push(order.at.saturating_duration_since(began));
        }
    }
    ensure!(waiting.is_empty(), "{} jobs were never ordered", waiting.len());
    Distribution::of(all).percentiles().context("no submission began while it counted")
}

/// Start of the submission of each job.
#[derive(Clone, Debug, Default)]
struct Begun(Arc<Mutex<BTreeMap<u64, Instant>>>);

impl Begun {
    fn take(&self) -> Result<BTreeMap<u64, Instant>> {
        let all = std::mem::take(&mut *self.0.lock().expect("nobody panics while holding it"));
        ensure!(!all.is_empty(), "no job was submitted");
        Ok(all)
    }
}

/// Submits, and remembers when.
#[derive(Clone, Debug)]
struct Timed {
    submitter: Submitter,
    begun: Begun,
}

impl Writer for Timed {
    type Ack = ();

    async fn write(&self, _: u64) -> Result<()> {
        let began = Instant::now();
        let job = self.submitter.submit().await?.id;
        self.begun.0.lock().expect("nobody panics while holding it").insert(job, began);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_job_is_ordered_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let counted = at(0)..at(100);
        let begun = BTreeMap::from([(1, at(10)), (2, at(20)), (3, at(200))]);
        let order = |job, ms| Ordered { job, at: at(ms) };
        let all = [order(2, 30), order(1, 15), order(3, 201)];
        let seen = latencies(&begun, &all, &counted).expect("each once");
        assert_eq!((seen.count, seen.p50_ms, seen.max_ms), (2, 5.0, 10.0));
        assert!(latencies(&begun, &all[..2], &counted).is_err(), "one is missing");
        assert!(latencies(&begun, &[all[0], all[0], all[1]], &counted).is_err(), "one is there twice");
    }
}
