//! Measures the cost of losing the leader: it is lost again and again, in one of four ways, while a steady stream of
//! writes continues, and the time from the loss until a write that was started after it is acknowledged is taken.
//! Everything acknowledged is read back at the end, and long-running workers must not have noticed.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use crate::distribution::{Distribution, Percentiles, milliseconds};
use crate::etcd::{Etcd, Put, Putter, Times, size_of_value};
use crate::hosts::Hosts;
use crate::options::{Beside, Common};
use crate::readback::{Findings, Written, compare};
use crate::report::{Report, cells, ms};
use crate::stream::{Outcome, Stream, longest_silence};
use crate::tessera::{Cards, Job, Pool, Submitter, read_back};
use crate::trio::{Loss, MEMBERS, Trio};
use crate::writer::Writer;

/// Longest wait for a write after a loss.
const BOUND: Duration = Duration::from_secs(30);
/// Time for one put into etcd; the stream starts another one long before. The same for all times, as for its users.
const PUT: Duration = Duration::from_millis(150);
/// Errors of abandoned writes that are printed per summary; the JSON has them all.
const SHOWN: usize = 3;
/// Name of the submitted jobs.
const STREAM: &str = "stream";

/// Loses the leader again and again under load
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// etcd.
    #[command(flatten)]
    pub beside: Beside,
    /// How the leader is lost, one run for each; to cut it off takes root
    #[arg(long, value_enum, value_delimiter = ',', default_value = "killed")]
    pub loss: Vec<Loss>,
    /// Time for which a hung leader stands still, one run for each; without it, until a write got through
    #[arg(long, value_delimiter = ',', value_parser = humantime::parse_duration)]
    pub hang: Vec<Duration>,
    /// How often the leader is lost, of each system in each way
    #[arg(long, default_value_t = 20)]
    pub times: usize,
    /// Time between two writes
    #[arg(long, default_value = "5ms", value_parser = humantime::parse_duration)]
    pub every: Duration,
    /// Time between the members being healthy again and the next loss
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub settle: Duration,
    /// Agents
    #[arg(long, default_value_t = 4)]
    pub nodes: u32,
    /// Workers that stay, and must not notice
    #[arg(long, default_value_t = 8)]
    pub residents: u32,
    /// Heartbeat and election time of etcd in ms, one run for each; 40/200 is the nearest to Tessera's that
    /// etcd accepts
    #[arg(long, value_delimiter = ',', default_value = "100/1000,40/200", value_parser = times)]
    pub etcd_times: Vec<Times>,
}

/// The results of one system.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Name of the system, with the times that it is configured with.
    pub system: String,
    /// The way in which its leader was lost.
    pub way: String,
    /// Number of losses.
    pub times: usize,
    /// From the loss to the acknowledgement of a write started after it.
    pub loss_to_accepted: Percentiles,
    /// Longest time without any acknowledgement around each loss.
    pub silence: Percentiles,
    /// Longest wait of one write for its acknowledgement.
    pub longest_write_ms: f64,
    /// Writes acknowledged.
    pub acknowledged: usize,
    /// Writes that were given up.
    pub failed: usize,
    /// The errors of the writes that were given up, each message once.
    pub said: BTreeSet<String>,
    pub read_back: Findings,
    /// Workers that stayed, and how many of them were disturbed; absent for etcd.
    pub workers: Option<Workers>,
}

impl Summary {
    fn unharmed(&self) -> Result<()> {
        let harm =
            self.read_back.lost + self.read_back.duplicated + self.workers.map_or(0, |workers| workers.disturbed);
        ensure!(
            harm == 0,
            "{}, {}: the loss of the leader did harm: {:?}, {:?}",
            self.system,
            self.way,
            self.read_back,
            self.workers
        );
        Ok(())
    }
}

/// The workers that stayed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Workers {
    /// Number of workers.
    pub watched: usize,
    /// Number of workers that were disturbed.
    pub disturbed: usize,
}

#[derive(Clone, Copy, Debug)]
struct Outage {
    lost: Instant,
    accepted: Instant,
}

/// Runs it.
///
/// # Errors
/// Something does not start, nothing is accepted for half a minute, or the report cannot be written; and at the end,
/// when something acknowledged was lost or doubled or a worker was disturbed.
pub async fn run(options: &Options) -> Result<()> {
    ensure!(
        options.hang.is_empty() || options.loss.contains(&Loss::Hung),
        "--hang says how long a hung leader stands still: add `hung` to --loss"
    );
    let folder = options.common.folder()?;
    let mut report = options.common.report("failover")?;
    report.machine(folder.path())?;
    let mut summaries = Vec::new();
    for way in Way::all(options) {
        let folder = folder.path().join(way.to_string().replace(' ', "-"));
        let run = Run { options, way, folder: &folder };
        if let Some(binary) = &options.common.binary {
            summaries.push(run.tessera(binary, &mut report).await?);
        }
        if let Some(binary) = &options.beside.etcd {
            for times in &options.etcd_times {
                summaries.push(run.etcd(binary, *times, &mut report).await?);
            }
        }
    }
    ensure!(!summaries.is_empty(), "neither --binary nor --etcd was given: there is nothing to measure");
    print(&mut report, &summaries)?;
    summaries.iter().try_for_each(Summary::unharmed)
}

/// A way in which the leader is lost.
#[derive(Clone, Copy, Debug)]
struct Way {
    loss: Loss,
    /// The time for which it hangs; `None`: until a write got through.
    hang: Option<Duration>,
}

impl Way {
    fn all(options: &Options) -> Vec<Self> {
        let ways = options.loss.iter().flat_map(|loss| match loss {
            Loss::Hung if !options.hang.is_empty() => {
                options.hang.iter().map(|hang| Self { loss: *loss, hang: Some(*hang) }).collect()
            }
            _ => vec![Self { loss: *loss, hang: None }],
        });
        ways.collect()
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hang {
            Some(hang) => write!(f, "{:?} {} ms", self.loss, hang.as_millis()),
            None => write!(f, "{:?}", self.loss),
        }
    }
}

/// One way to lose the leader, over all systems.
struct Run<'a> {
    options: &'a Options,
    way: Way,
    folder: &'a Path,
}

impl Run<'_> {
    /// Hosts of their own for members that are to be cut off.
    fn hosts(&self) -> Result<Option<Hosts>> {
        (self.way.loss == Loss::CutOff).then(|| Hosts::make(MEMBERS)).transpose()
    }

    async fn tessera(&self, binary: &Path, report: &mut Report) -> Result<Summary> {
        let options = self.options;
        let cards = Cards { nodes: options.nodes, per_node: 1, tflops: options.residents.max(1), turns: false };
        let folder = self.folder.join("tessera");
        let mut pool = Pool::start(binary, &folder, cards, options.residents, 1, self.hosts()?).await?;
        report.section("tessera").await?;
        let stream = Stream::start(Submitter::new(pool.client().clone(), Job::idle(STREAM).held(true)), options.every);
        let outages = self.series("tessera", &mut pool.members, &stream, report).await?;
        let outcome = stream.finish().await?;
        let there = read_back(pool.client(), STREAM).await?;
        let workers = Workers { watched: pool.residents.len(), disturbed: pool.residents.disturbed().await? };
        pool.stop().await?;
        let summary = Summary { workers: Some(workers), ..summarize("tessera", self.way, &outages, &outcome, &there)? };
        report.line("summary", &summary)?;
        Ok(summary)
    }

    async fn etcd(&self, binary: &Path, times: Times, report: &mut Report) -> Result<Summary> {
        let name = format!("etcd {}/{} ms", times.heartbeat_ms, times.election_ms);
        let folder = self.folder.join(format!("etcd-{}-{}", times.heartbeat_ms, times.election_ms));
        let mut members = Etcd::start(binary, &folder, times, self.hosts()?).await?;
        report.section(&name).await?;
        let size = size_of_value(Job::idle(STREAM).held(true).request_bytes());
        let put = Put { value: Bytes::from(vec![b'x'; size]), keys: None, deadline: PUT };
        let putter = Putter::new(members.addresses(), put)?;
        let stream = Stream::start(putter.clone(), self.options.every);
        let outages = self.series(&name, &mut members, &stream, report).await?;
        let outcome = stream.finish().await?;
        members.healthy().await?;
        let there = putter.read_back().await?;
        members.stop().await?;
        let summary = summarize(&name, self.way, &outages, &outcome, &there)?;
        report.line("summary", &summary)?;
        Ok(summary)
    }

    /// Loses the leader as often as asked for.
    async fn series<T: Trio, W: Writer>(
        &self,
        system: &str,
        trio: &mut T,
        stream: &Stream<W>,
        report: &mut Report,
    ) -> Result<Vec<Outage>> {
        #[derive(Serialize)]
        struct Lost<'a> {
            system: &'a str,
            way: String,
            time: usize,
            loss_to_accepted_ms: f64,
        }
        let (Way { loss, hang }, settle) = (self.way, self.options.settle);
        let mut outages = Vec::new();
        for time in 0..self.options.times {
            let leader = trio.healthy().await?;
            sleep(settle).await;
            let lost = trio.seats_mut().lose(leader, loss).await?;
            let waking = async {
                let Some(hang) = hang else { return Ok(()) };
                sleep_until(lost + hang).await;
                trio.seats_mut().bring_back(leader, loss).await
            };
            let (accepted, woken) = tokio::join!(stream.first_started_after(lost, BOUND), waking);
            woken?;
            let accepted = accepted.with_context(|| format!("{system}, {}, time {time}", self.way))?;
            report.line(
                "loss",
                &Lost { system, way: self.way.to_string(), time, loss_to_accepted_ms: milliseconds(accepted - lost) },
            )?;
            outages.push(Outage { lost, accepted });
            sleep(settle).await;
            if hang.is_none() {
                trio.seats_mut().bring_back(leader, loss).await?;
            }
        }
        trio.healthy().await?;
        Ok(outages)
    }
}

fn summarize(
    system: &str,
    way: Way,
    outages: &[Outage],
    outcome: &Outcome<Written>,
    there: &[Written],
) -> Result<Summary> {
    let ends: Vec<Instant> = outcome.acknowledged.iter().map(|one| one.ended).collect();
    let acknowledged: Vec<Written> = outcome.acknowledged.iter().map(|one| one.ack.clone()).collect();
    let margin = Duration::from_millis(100);
    let silence = |one: &Outage| longest_silence(&ends, one.lost - margin, one.accepted + margin);
    let of = |durations: Vec<Duration>| Distribution::of(durations).percentiles().context("nobody was lost");
    let longest = outcome.acknowledged.iter().map(|one| one.ended - one.started).max().unwrap_or_default();
    Ok(Summary {
        system: system.to_owned(),
        way: way.to_string(),
        times: outages.len(),
        loss_to_accepted: of(outages.iter().map(|one| one.accepted - one.lost).collect())?,
        silence: of(outages.iter().map(silence).collect())?,
        longest_write_ms: milliseconds(longest),
        acknowledged: acknowledged.len(),
        failed: outcome.failed.len(),
        said: outcome.failed.iter().cloned().collect(),
        read_back: compare(&acknowledged, there),
        workers: None,
    })
}

fn print(report: &mut Report, summaries: &[Summary]) -> Result<()> {
    let header = [
        "system",
        "loss",
        "times",
        "p50",
        "p99",
        "max",
        "silence p50",
        "longest write",
        "acknowledged",
        "given up",
        "lost",
        "doubled",
        "workers disturbed",
    ];
    let rows = summaries.iter().map(|one| {
        let [p50, p99, max] = cells(Some(one.loss_to_accepted));
        [
            one.system.clone(),
            one.way.clone(),
            one.times.to_string(),
            p50,
            p99,
            max,
            ms(one.silence.p50_ms),
            ms(one.longest_write_ms),
            one.acknowledged.to_string(),
            one.failed.to_string(),
            one.read_back.lost.to_string(),
            one.read_back.duplicated.to_string(),
            one.workers.map_or("-".to_owned(), |workers| format!("{} of {}", workers.disturbed, workers.watched)),
        ]
    });
    println!("\nfrom the loss of the leader to the acknowledgement of a write started after it:");
    report.table(header, rows.collect())?;
    for one in summaries {
        one.said.iter().take(SHOWN).for_each(|said| println!("{}, {}: given up: {said}", one.system, one.way));
    }
    Ok(())
}

/// `heartbeat/election`, in milliseconds.
fn times(text: &str) -> Result<Times, String> {
    let parse = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number of milliseconds"));
    let (heartbeat, election) = text.split_once('/').ok_or("write it as HEARTBEAT/ELECTION, such as 100/1000")?;
    Ok(Times { heartbeat_ms: parse(heartbeat)?, election_ms: parse(election)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Acknowledged;

    #[test]
    fn times_are_read_as_they_are_written() {
        assert_eq!(times("100/1000"), Ok(Times::DEFAULT));
        assert!(times("100").is_err() && times("a/b").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_summary_tells_the_outage_and_the_loss() {
        let killed = Instant::now() + Duration::from_secs(1);
        let at =
            |ended: Instant, id: u64| Acknowledged { started: ended, ended, ack: Written { name: id.to_string(), id } };
        let after = |ms: u64, id: u64| at(killed + Duration::from_millis(ms), id);
        let before = at(killed - Duration::from_millis(2), 1);
        let acknowledged = vec![before, after(180, 2), after(184, 3), after(189, 4)];
        let outcome = Outcome { acknowledged, failed: vec!["nobody leads".to_owned()] };
        let outages = [Outage { lost: killed, accepted: killed + Duration::from_millis(180) }];
        let there: Vec<Written> = [1, 2, 3].map(|id: u64| Written { name: id.to_string(), id }).into();
        let summary =
            summarize("it", Way { loss: Loss::Killed, hang: None }, &outages, &outcome, &there).expect("one outage");
        assert_eq!((summary.loss_to_accepted.max_ms, summary.silence.max_ms), (180.0, 182.0));
        assert_eq!((summary.read_back.lost, summary.failed, summary.acknowledged), (1, 1, 4));
    }
}
