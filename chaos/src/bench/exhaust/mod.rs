//! Measures how a member bears a hundred clients that mean harm, or know no better: all at once they submit jobs as
//! large as the API takes, watch from the oldest revision by the thousand, never read what they asked for, have every
//! law checked, list the largest pages, and open connections that say nothing. Beside them one client submits small
//! jobs as people do.
//!
//! What counts: the most memory that the leader ever had, whether it still leads in the same term, and how long the
//! good client waited. The run is bounded in time, in number, and by a ceiling of memory at which it is called off.

mod attack;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_api::v1::{ErrorReason, GetClusterStatusRequest, GetClusterStatusResponse, SubmitJobRequest};
use tessera_client::{Client, ClientError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::distribution::{Distribution, Percentiles, milliseconds};
use crate::options::Common;
use crate::poll;
use crate::report::{Report, mib, ms};
use crate::tessera::{Cards, Job, Members, Nodes};
use crate::trio::{Seat, Trio};
use attack::{Account, Attack, Target};

/// Configuration of patient members ([`Options::patient`]).
const PATIENT: &str = "[consensus]\nheartbeat = '100ms'\nelection_timeout_min = '1s'\nelection_timeout_max = '1500ms'\n\
                       [timings]\npropose = '6s'\n";
/// Interval between two readings of the leader's memory.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time between two submissions of the client that means no harm, and how long one may take.
const SUBMIT_EVERY: Duration = Duration::from_millis(50);
const SUBMIT: Duration = Duration::from_secs(5);
/// Longest time for the leader to answer when the attack is over.
const ANSWERING: Duration = Duration::from_secs(30);
/// Longest time for the attackers to end.
const ENDING: Duration = Duration::from_secs(10);

/// Has many clients try to exhaust the leader at once
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Clients that attack; each kind of attack gets its share of them
    #[arg(long, default_value_t = 100)]
    pub clients: usize,
    /// How long they do
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Watches that they open in all, half of them never read
    #[arg(long, default_value_t = 10_000)]
    pub watches: usize,
    /// Connections that they open in all and say nothing on
    #[arg(long, default_value_t = 4_000)]
    pub connections: usize,
    /// Large jobs that they submit in all
    #[arg(long, default_value_t = 2_000)]
    pub jobs: u64,
    /// Small jobs that there are before
    #[arg(long, default_value_t = 20_000)]
    pub before: u64,
    /// Memory of the leader, in MiB, at which the attack is called off
    #[arg(long, default_value_t = 8_192)]
    pub ceiling: u64,
    /// Have members wait a second or more before they elect another leader: for machines that do other work beside
    #[arg(long)]
    pub patient: bool,
    /// Fail unless the leader stays below so many MiB and serves the client that means no harm
    #[arg(long)]
    pub expect_below: Option<u64>,
    /// Fail unless it leads on, in the same term
    #[arg(long)]
    pub expect_leader: bool,
}

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    clients: usize,
    patient: bool,
    seconds: f64,
    called_off: bool,
    peak_before_bytes: u64,
    peak_bytes: u64,
    term_before: u64,
    term_after: u64,
    leads_on: bool,
    good_before: Percentiles,
    good_during: Option<Percentiles>,
    good_failed: usize,
    good_failure: Option<String>,
    attacks: BTreeMap<&'static str, Account>,
}

/// The results of the client that means no harm.
#[derive(Debug, Default)]
struct Good {
    latencies: Vec<Duration>,
    failed: usize,
    failure: Option<String>,
}

/// Runs it.
///
/// # Errors
/// Something does not start, the report cannot be written, or the leader was brought down when that was not to be.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("exhaust")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: 1, per_node: 1, tflops: 16, turns: false };
    let config = if options.patient { PATIENT } else { "" };
    let mut members = Members::start(options.common.tessera()?, &folder.path().join("tessera"), config, None).await?;
    let client = members.client().clone();
    let nodes = Nodes::start(cards, false, members.addresses(), &client).await?;
    fill(&client, options.before).await?;
    report.section("attack").await?;
    let summary = attacked(&mut members, options).await?;
    report.line("summary", &summary)?;
    print(&mut report, &summary)?;
    let judged = judge(&summary, options);
    drop(nodes);
    members.stop().await?;
    judged
}

/// Small jobs on hold: something to list, to watch and to verify.
async fn fill(client: &Client, jobs: u64) -> Result<()> {
    let submitter = crate::tessera::Submitter::new(client.clone(), Job::idle("before").held(true));
    if jobs > 0 {
        crate::load::fill(&[submitter], 64, jobs).await.context("the jobs cannot be submitted")?;
    }
    Ok(())
}

async fn attacked(members: &mut Members, options: &Options) -> Result<Summary> {
    let leader = members.healthy().await?;
    let pid = members.seats().pid(leader)?;
    let term_before = status(members, leader).await?.term;
    let good = members.client().with_deadline(SUBMIT);
    let calm = submit_for(&good, Duration::from_secs(3), &watch::channel(false).1).await;
    let peak_before_bytes = peak_bytes(pid)?;

    let (end, ended) = watch::channel(false);
    let target = Target::new(members.addresses()[leader.0].to_string(), ended.clone(), options);
    let mut attackers = JoinSet::new();
    for number in 0..options.clients {
        let attack = Attack::ALL[number % Attack::ALL.len()];
        let share = options.clients.div_ceil(Attack::ALL.len()).max(1);
        attackers.spawn(attack::run(attack, target.clone(), share));
    }
    let began = Instant::now();
    let harmless = {
        let (good, ended, duration) = (good.clone(), ended.clone(), options.duration);
        tokio::spawn(async move { submit_for(&good, duration, &ended).await })
    };
    let called_off = watch_memory(pid, options.duration, options.ceiling << 20).await;
    // Nobody listens only when all attackers are over already.
    let _ = end.send(true);
    let seconds = began.elapsed().as_secs_f64();
    let during = harmless.await.context("the client that means no harm broke")?;
    let mut attacks: BTreeMap<&'static str, Account> = BTreeMap::new();
    let joining = async {
        while let Some(one) = attackers.join_next().await {
            if let Ok((attack, account)) = one {
                attacks.entry(attack.name()).or_default().add(account);
            }
        }
    };
    // Whoever has not ended by then is dropped with the set.
    let _ = timeout(ENDING, joining).await;
    drop(attackers);
    let peak = peak_bytes(pid);
    let seen: &Members = members;
    let status = poll::until("the leader to answer", ANSWERING, LOOK_EVERY, || status(seen, leader)).await;
    let term_after = status.as_ref().map_or(0, |status| status.term);
    let leads = |status: &GetClusterStatusResponse| {
        status.writable && status.leader.as_ref().is_some_and(|known| known.id == status.member_id)
    };
    let leads_on = term_after == term_before && status.as_ref().is_ok_and(leads);
    Ok(Summary {
        clients: options.clients,
        patient: options.patient,
        seconds,
        called_off,
        peak_before_bytes,
        peak_bytes: peak.context("the leader is gone")?,
        term_before,
        term_after,
        leads_on,
        good_before: Distribution::of(calm.latencies).percentiles().context("nothing was taken before the attack")?,
        good_during: Distribution::of(during.latencies).percentiles(),
        good_failed: during.failed,
        good_failure: during.failure,
        attacks,
    })
}

/// The status that a member reports of the cluster.
async fn status(members: &Members, seat: Seat) -> Result<GetClusterStatusResponse> {
    let client = members.client_of(seat)?.with_deadline(SUBMIT);
    Ok(client.get_cluster_status(GetClusterStatusRequest {}).await?)
}

/// The most memory that a process ever had.
fn peak_bytes(pid: u32) -> Result<u64> {
    memory_of(pid, "VmHWM:")
}

fn memory_of(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the leader is gone")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(field)).context("/proc/PID/status is not as expected")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("/proc/PID/status is not as expected")?;
    Ok(kib * 1024)
}

/// Waits until the time is over, or the leader is gone or beyond the ceiling; says whether it came to that.
async fn watch_memory(pid: u32, duration: Duration, ceiling: u64) -> bool {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        if memory_of(pid, "VmRSS:").map_or(true, |bytes| bytes > ceiling) {
            return true;
        }
        sleep(LOOK_EVERY).await;
    }
    false
}

/// Submits small jobs, one after the other, as somebody does who means no harm.
async fn submit_for(client: &Client, duration: Duration, ended: &watch::Receiver<bool>) -> Good {
    let (end, job) = (Instant::now() + duration, Job::idle("good").held(true));
    let mut good = Good::default();
    while Instant::now() < end && !*ended.borrow() {
        let request: SubmitJobRequest = job.request(client);
        let began = Instant::now();
        match client.submit_job(request).await {
            Ok(_) => good.latencies.push(began.elapsed()),
            Err(error) => {
                good.failed += 1;
                good.failure = Some(reason_of(&error));
            }
        }
        sleep(SUBMIT_EVERY.saturating_sub(began.elapsed())).await;
    }
    good
}

fn reason_of(error: &ClientError) -> String {
    error.reason().map_or_else(|| error.to_string(), |reason: ErrorReason| reason.as_str_name().to_owned())
}

/// Checks that the leader withstood the attack, as far as `options` expect it: it still leads, and its memory stayed
/// below the bound.
fn judge(summary: &Summary, options: &Options) -> Result<()> {
    let (before, after) = (summary.term_before, summary.term_after);
    ensure!(summary.leads_on || !options.expect_leader, "the leader lost its leadership: term {before} became {after}");
    let Some(below) = options.expect_below else { return Ok(()) };
    ensure!(
        !summary.called_off,
        "the attack had to be called off: the leader is gone or has more memory than the ceiling"
    );
    ensure!(
        summary.peak_bytes < below << 20,
        "the leader had {} at its peak, and was to stay below {below} MiB",
        mib(summary.peak_bytes)
    );
    ensure!(
        summary.good_during.is_some(),
        "the client that means no harm was never served, and failed {} times: {}",
        summary.good_failed,
        summary.good_failure.as_deref().unwrap_or("no reason")
    );
    Ok(())
}

fn print(report: &mut Report, summary: &Summary) -> Result<()> {
    println!(
        "leader: {} at its peak ({} before), term {} -> {}, {}",
        mib(summary.peak_bytes),
        mib(summary.peak_before_bytes),
        summary.term_before,
        summary.term_after,
        if summary.leads_on { "leads on" } else { "LEADERSHIP LOST" },
    );
    let before = summary.good_before;
    println!("a good client's submission before: p50 {}, p99 {}", ms(before.p50_ms), ms(before.p99_ms));
    match summary.good_during {
        Some(during) => println!(
            "during: {} accepted, {} failed, p50 {}, p99 {}, longest {}",
            during.count,
            summary.good_failed,
            ms(during.p50_ms),
            ms(during.p99_ms),
            ms(during.max_ms)
        ),
        None => println!("during: none accepted, {} failed", summary.good_failed),
    }
    let rows = summary.attacks.iter().map(|(name, account)| {
        let refused: Vec<String> = account.refused.iter().map(|(why, count)| format!("{why} {count}")).collect();
        [(*name).to_owned(), account.tried.to_string(), account.taken.to_string(), refused.join(", ")]
    });
    report.table(["attack", "tried", "taken", "refused"], rows.collect())?;
    if summary.called_off {
        println!(
            "called off after {} ms: the leader is gone or beyond the ceiling",
            milliseconds(Duration::from_secs_f64(summary.seconds))
        );
    }
    Ok(())
}
