//! Measures a backup and a restore: saving the whole ledger to a file, inspecting the file for completeness, making a
//! member's data folder of it, and the time until a member that is started on that folder answers with everything in
//! it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_client::{Address, Client, Settings};
use tokio::process::Command;
use tokio::time::{Duration, Instant};

use super::restart::serves;
use crate::load::fill;
use crate::options::Common;
use crate::process::Program;
use crate::report::{Report, mib, ms};
use crate::tessera::{Cards, Job, Pool, Submitter};
use crate::{poll, ports};

/// Longest wait for the restored member to serve.
const SERVING: Duration = Duration::from_secs(120);
/// Interval between two requests to the restored member, and the deadline of each.
const ASK_EVERY: Duration = Duration::from_millis(5);
const ASK: Duration = Duration::from_millis(500);
/// Longest time for the restored member to end before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// Blocks of the pool.
const BLOCKS: u32 = 16;

/// Saves a ledger with many jobs to a file, and lets a pool begin anew from it
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
    /// How often it is done
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
}

/// One backup and one restore.
#[derive(Clone, Debug, Serialize)]
struct Round {
    jobs: u64,
    bytes: u64,
    save_ms: f64,
    inspect_ms: f64,
    restore_ms: f64,
    serving_ms: f64,
}

/// Runs it.
///
/// # Errors
/// Something does not start, a command fails, the restored member lacks jobs, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let binary = options.common.tessera()?;
    let mut report = options.common.report("backup")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: 1, per_node: 1, tflops: BLOCKS, turns: false };
    let pool = Pool::start(binary, &folder.path().join("tessera"), cards, 0, BLOCKS, None).await?;
    let job = Job::idle("saved").held(true);
    let submitters: Vec<Submitter> =
        (0..options.clients.div_ceil(16)).map(|_| Submitter::new(pool.client().clone(), job.clone())).collect();
    let took = fill(&submitters, options.clients, options.jobs).await.context("the jobs cannot be submitted")?;
    println!("{} jobs submitted in {:.1} s", options.jobs, took.as_secs_f64());
    let server = pool.members.addresses().first().context("no member")?.to_string();
    let file = folder.path().join("pool.backup");
    report.section("backups").await?;
    let mut all = Vec::new();
    for round in 0..options.rounds {
        let save = command(binary, ["cluster", "snapshot", "save", text(&file)?, "--server", &server]).await?;
        let inspect = command(binary, ["cluster", "snapshot", "inspect", text(&file)?]).await?;
        let restored = folder.path().join(format!("restored-{round}"));
        let (restore, serving) = restored_serves(binary, &file, &restored, options.jobs).await?;
        let bytes = std::fs::metadata(&file).context("the backup is not there")?.len();
        let [save_ms, inspect_ms, restore_ms, serving_ms] =
            [save, inspect, restore, serving].map(|took| took.as_secs_f64() * 1e3);
        let done = Round { jobs: options.jobs, bytes, save_ms, inspect_ms, restore_ms, serving_ms };
        report.line("round", &done)?;
        all.push(done);
    }
    pool.stop().await?;
    print(&mut report, &all)
}

/// Makes a data folder of the backup and starts a member on it: how long each takes.
async fn restored_serves(binary: &Path, file: &Path, data: &Path, jobs: u64) -> Result<(Duration, Duration)> {
    let address = ports::free(1)?.first().context("no free port")?.to_string();
    let restore =
        ["cluster", "snapshot", "restore", text(file)?, "--data-dir", text(data)?, "--address", &address, "--yes"];
    let restoring = command(binary, restore).await?;
    let known: Address = address.parse()?;
    let client = Client::new(&[known], Settings::default())?.with_deadline(ASK);
    let program = Program {
        binary: binary.to_owned(),
        arguments: ["server", "--data-dir", text(data)?, "--listen", &address].map(Into::into).to_vec(),
        environment: Vec::new(),
        log: data.with_extension("log"),
        network: None,
    };
    let began = Instant::now();
    let mut process = program.start()?;
    poll::until("the restored member to serve", SERVING, ASK_EVERY, || serves(&client, jobs)).await?;
    let serving = began.elapsed();
    process.stop(GRACE).await?;
    Ok((restoring, serving))
}

/// Runs a command, and says how long it took.
async fn command<'a>(binary: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Result<Duration> {
    let began = Instant::now();
    let mut command = Command::new(binary);
    command.args(arguments.into_iter().map(OsStr::new)).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("cannot run {}", binary.display()))?;
    ensure!(output.status.success(), "a command failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(began.elapsed())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path made here is text")
}

fn print(report: &mut Report, all: &[Round]) -> Result<()> {
    let rows = all
        .iter()
        .map(|one| [mib(one.bytes), ms(one.save_ms), ms(one.inspect_ms), ms(one.restore_ms), ms(one.serving_ms)]);
    println!(
        "\neach command from its start to its end, and the restored member from its start to a linearizable read:"
    );
    report.table(["backup", "save", "inspect", "restore", "serving after"], rows.collect())
}
