//! Measures the capacity of the control plane: submissions per second and their latency with some clients at a time,
//! three members, fsync on, beside three members of etcd taking puts of the same size on the same disk in the same run.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use tessera_client::{Address, Client, Settings};
use tokio::time::Duration;

use crate::distribution::median;
use crate::effort::{Effort, Meter};
use crate::etcd::{Etcd, Put, Putter, Times, size_of_value};
use crate::load::{Plan, Throughput, run as load};
use crate::neighbours::Neighbours;
use crate::options::{Beside, Common, Waiting};
use crate::report::{Report, cells};
use crate::tessera::{Cards, Job, Pool, Submitter, stream};
use crate::trio::{MEMBERS, Seat, Trio};

/// Blocks of the pool: enough that one more job is never above its total.
const BLOCKS: u32 = 16;
/// Time for one put; nobody waits so long.
const PUT: Duration = Duration::from_secs(10);
/// Keys that each client of etcd writes again and again: its database stays small.
const KEYS: u64 = 1_000;
/// Bytes of jobs that the pool may hold where streams submit them: more than come.
const SPEC_BYTES: u64 = 8 << 30;
/// Clients that share one connection, roughly.
const CLIENTS_PER_CONNECTION: usize = 16;

/// Submits as fast as members take it
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// etcd.
    #[command(flatten)]
    pub beside: Beside,
    /// Clients at the same time, one run for each
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    pub clients: Vec<usize>,
    /// Time that counts, of each run
    #[arg(long, default_value = "8s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Time before it, of each run
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub warm_up: Duration,
    /// How often all of it is done
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// How the submitted jobs wait
    #[arg(long, value_enum, default_value = "held")]
    pub waiting: Waiting,
    /// Submit on streams of many jobs each, one stream for each client
    #[arg(long)]
    pub stream: bool,
    /// Jobs of each stream that are unanswered at once
    #[arg(long, default_value_t = 4_096)]
    pub unanswered: usize,
    /// Which members are asked
    #[arg(long, value_enum, value_delimiter = ',', default_value = "leader")]
    pub ask: Vec<Ask>,
    /// Other processes beside all of it that compute without end
    #[arg(long, default_value_t = 0)]
    pub neighbours: usize,
}

/// Which members are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// The leader, by all.
    Leader,
    /// All members, in turn: two of three forward.
    Any,
}

/// The parameters that identify a run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Which {
    system: &'static str,
    round: usize,
    ask: Ask,
    /// Jobs of each client that were unanswered at once.
    unanswered: usize,
    #[serde(skip)]
    leader: Seat,
}

/// The measurements of one run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    which: Which,
    #[serde(flatten)]
    seen: Throughput,
    effort: Effort,
}

/// Runs it.
///
/// # Errors
/// Something does not start, a run has no acknowledgement at all, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("submit")?;
    report.machine(folder.path())?;
    let bytes = job(options).request_bytes();
    println!("jobs are {:?}; a submission and a put are {bytes} bytes long", options.waiting);
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        let folder = folder.path().join(format!("round-{round}"));
        if let Some(binary) = &options.beside.etcd {
            runs.extend(etcd(options, binary, &folder.join("etcd"), round, bytes, &mut report).await?);
        }
        if let Some(binary) = &options.common.binary {
            runs.extend(tessera(options, binary, &folder.join("tessera"), round, &mut report).await?);
        }
    }
    ensure!(!runs.is_empty(), "neither --binary nor --etcd was given: there is nothing to measure");
    print(&mut report, &runs)
}

fn job(options: &Options) -> Job {
    Job::idle("submitted").held(options.waiting == Waiting::Held)
}

async fn tessera(
    options: &Options,
    binary: &Path,
    folder: &Path,
    round: usize,
    report: &mut Report,
) -> Result<Vec<Run>> {
    let cards = Cards { nodes: 1, per_node: 1, tflops: BLOCKS, turns: false };
    let residents = u32::from(options.waiting == Waiting::Queued);
    let mut pool = Pool::start(binary, folder, cards, residents, BLOCKS, None).await?;
    if options.stream {
        pool.holds(SPEC_BYTES).await?;
    }
    let mut runs = Vec::new();
    report.section(&format!("tessera, round {round}")).await?;
    let neighbours = Neighbours::start(options.neighbours, folder)?;
    for ask in options.ask.iter().copied() {
        for clients in options.clients.iter().copied() {
            let leader = pool.members.healthy().await?;
            let connections = if options.stream { clients } else { connections(clients) };
            let order = orders(ask, leader, connections).map(|seats| {
                let members: Vec<Address> = seats.map(|seat| pool.members.addresses()[seat.0].clone()).into();
                Ok(Submitter::new(Client::new(&members, Settings::default())?, job(options)))
            });
            let submitters: Vec<Submitter> = order.collect::<Result<_>>()?;
            let unanswered = if options.stream { options.unanswered } else { 1 };
            let run = Which { system: "tessera", round, ask, unanswered, leader };
            let seen = async {
                let plan = plan(clients, options);
                if options.stream { stream(&submitters, plan, unanswered).await } else { load(&submitters, plan).await }
            };
            runs.push(one(run, &pool.members, seen, clients, options, report).await?);
        }
    }
    let there = Seat::ALL.map(|seat| pool.members.seats().resident_bytes(seat).map(crate::report::mib));
    println!("resident memory of the members: {}", there.into_iter().collect::<Result<Vec<_>>>()?.join(", "));
    neighbours.stop().await?;
    pool.stop().await?;
    Ok(runs)
}

async fn etcd(
    options: &Options,
    binary: &Path,
    folder: &Path,
    round: usize,
    bytes: usize,
    report: &mut Report,
) -> Result<Vec<Run>> {
    let mut members = Etcd::start(binary, folder, Times::DEFAULT, None).await?;
    let mut runs = Vec::new();
    report.section(&format!("etcd, round {round}")).await?;
    let neighbours = Neighbours::start(options.neighbours, folder)?;
    for ask in options.ask.iter().copied() {
        for clients in options.clients.iter().copied() {
            let leader = members.healthy().await?;
            let putters = putters(&members, ask, leader, clients, bytes)?;
            let run = Which { system: "etcd", round, ask, unanswered: 1, leader };
            let seen = load(&putters, plan(clients, options));
            runs.push(one(run, &members, seen, clients, options, report).await?);
        }
    }
    neighbours.stop().await?;
    members.stop().await?;
    Ok(runs)
}

/// Makes the clients of etcd: one for each connection that `clients` clients share, with requests of `bytes` bytes.
pub(super) fn putters(members: &Etcd, ask: Ask, leader: Seat, clients: usize, bytes: usize) -> Result<Vec<Putter>> {
    let put = Put { value: Bytes::from(vec![b'x'; size_of_value(bytes)]), keys: Some(KEYS), deadline: PUT };
    let asked = |seats: [Seat; MEMBERS]| Putter::new(&members.addresses()[seats[0].0..=seats[0].0], put.clone());
    orders(ask, leader, connections(clients)).map(asked).collect()
}

/// The number of connections that `clients` clients share: the same for both systems.
pub(super) fn connections(clients: usize) -> usize {
    clients.div_ceil(CLIENTS_PER_CONNECTION)
}

/// For each connection, the members in the order in which they are tried.
fn orders(ask: Ask, leader: Seat, connections: usize) -> impl Iterator<Item = [Seat; MEMBERS]> {
    (0..connections).map(move |connection| {
        let turns = if ask == Ask::Any { connection % MEMBERS } else { 0 };
        let first = (0..turns).fold(leader, |seat, _| seat.next());
        [first, first.next(), first.next().next()]
    })
}

fn plan(clients: usize, options: &Options) -> Plan {
    Plan { clients, warm_up: options.warm_up, duration: options.duration }
}

/// The warm-up costs too: it is counted among the writes, as far as the rate that was seen tells.
async fn one(
    which: Which,
    trio: &impl Trio,
    seen: impl Future<Output = Result<Throughput>>,
    clients: usize,
    options: &Options,
    report: &mut Report,
) -> Result<Run> {
    let Which { system, ask, .. } = which;
    let before = Meter::read(trio, which.leader)?;
    let seen = seen.await.with_context(|| format!("{system}, {clients} clients"))?;
    let writes = seen.per_second * (options.warm_up + options.duration).as_secs_f64();
    let effort = before.effort(Meter::read(trio, which.leader)?, writes as usize);
    let [p50, p99, max] = cells(Some(seen.latency));
    println!(
        "  {system}, {ask:?}, {clients} clients: {:.0}/s, p50 {p50}, p99 {p99}, max {max}, {} failed; processor time per \
         write: leader {:.0} us, followers {:.0} us, clients {:.0} us",
        seen.per_second, seen.failed, effort.leader_us, effort.followers_us, effort.clients_us
    );
    let run = Run { which, seen, effort };
    report.line("run", &run)?;
    Ok(run)
}

/// Medians over the rounds.
fn print(report: &mut Report, runs: &[Run]) -> Result<()> {
    let mut groups: BTreeMap<(Ask, usize), [Vec<&Run>; 2]> = BTreeMap::new();
    for run in runs {
        let of = usize::from(run.which.system == "tessera");
        groups.entry((run.which.ask, run.seen.clients)).or_default()[of].push(run);
    }
    let over =
        |runs: &[&Run], figure: fn(&Throughput) -> f64| median(runs.iter().map(|run| figure(&run.seen)).collect());
    let text =
        |figure: Option<f64>, digits: usize| figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"));
    let rows = groups.iter().map(|((ask, clients), [etcd, ours])| {
        let rates = [etcd, ours].map(|runs| over(runs, |seen| seen.per_second));
        let ratio = rates[0].zip(rates[1]).map(|(etcd, ours)| ours / etcd);
        [
            format!("{clients} ({ask:?})"),
            text(rates[0], 0),
            text(over(etcd, |seen| seen.latency.p50_ms), 2),
            text(over(etcd, |seen| seen.latency.p99_ms), 2),
            text(rates[1], 0),
            text(over(ours, |seen| seen.latency.p50_ms), 2),
            text(over(ours, |seen| seen.latency.p99_ms), 2),
            text(over(ours, |seen| seen.latency.max_ms), 1),
            text(ratio, 2),
        ]
    });
    println!("\nacknowledged writes per second, latencies in ms, median of {} rounds:", rounds(runs));
    let header = ["clients", "etcd/s", "p50", "p99", "tessera/s", "p50", "p99", "max", "tessera : etcd"];
    report.table(header, rows.collect())
}

fn rounds(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.which.round + 1).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ask_the_leader_or_each_member_is_asked() {
        let first = |ask| orders(ask, Seat(1), 4).map(|seats| seats[0].0).collect::<Vec<_>>();
        assert_eq!(first(Ask::Leader), [1, 1, 1, 1]);
        assert_eq!(first(Ask::Any), [1, 2, 0, 1]);
        let all = orders(Ask::Any, Seat(2), 2).next().expect("one");
        assert_eq!(all, [Seat(2), Seat(0), Seat(1)]);
    }

    #[test]
    fn connections_are_shared() {
        assert_eq!([1, 16, 64, 256].map(connections), [1, 1, 4, 16]);
    }
}
