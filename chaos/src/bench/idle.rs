//! Measures the cost of a pool that is not used: processor time of each member while agents only keep their sessions.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use tokio::time::{Duration, sleep};

use crate::options::Common;
use crate::process::processor_time;
use crate::report::Report;
use crate::tessera::{Cards, Pool};
use crate::trio::{Seat, Trio};

/// Measures members that have nothing to do
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// Agents, each with four simulated cards
    #[arg(long, default_value_t = 4)]
    pub nodes: u32,
    /// Time that counts
    #[arg(long, default_value = "20s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Member {
    leads: bool,
    percent_of_a_processor: f64,
}

/// Runs it.
///
/// # Errors
/// Something does not start, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("idle")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: options.nodes, per_node: 4, tflops: 100, turns: false };
    let mut pool =
        Pool::start(options.common.tessera()?, &folder.path().join("tessera"), cards, 0, cards.tflops, None).await?;
    report.section("idle").await?;
    let leader = pool.members.healthy().await?;
    let used = |pool: &Pool| -> Result<Vec<Duration>> {
        Seat::ALL.iter().map(|seat| processor_time(pool.members.seats().pid(*seat)?)).collect()
    };
    let before = used(&pool)?;
    sleep(options.duration).await;
    let after = used(&pool)?;
    pool.stop().await?;
    let mut members: Vec<Member> = Vec::new();
    for (seat, (before, after)) in Seat::ALL.iter().zip(before.iter().zip(&after)) {
        let percent_of_a_processor = 100.0 * (*after - *before).as_secs_f64() / options.duration.as_secs_f64();
        let member = Member { leads: *seat == leader, percent_of_a_processor };
        report.line("member", &member)?;
        members.push(member);
    }
    print(&mut report, &members)
}

fn print(report: &mut Report, members: &[Member]) -> Result<()> {
    let rows = members.iter().map(|member| {
        let role = if member.leads { "leader" } else { "follower" };
        [role.to_owned(), format!("{:.2} %", member.percent_of_a_processor)]
    });
    println!("\nprocessor time of members without work:");
    report.table(["member", "of a processor"], rows.collect())
}
