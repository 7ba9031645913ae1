//! `tessera-chaos`: runs the benchmarks. Each is bounded in time and ends the processes it started by their pids, also
//! when it is interrupted.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use tessera_chaos::bench::saver::Saves;
use tessera_chaos::bench::{
    backup, crowd, exhaust, failover, idle, motion, place, preempt, restart, saver, slicing, start, submit, watched,
};
use tessera_chaos::hosts::enter_own_network;
use tessera_chaos::trio::Loss;
use tessera_chaos::witness::unix_nanos;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The clients share the processors with what they measure: what they use is taken from both systems.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmarks of Tessera with faults on real processes, beside etcd.
///
/// All processes run on loopback; figures are only as good as the machine is quiet, so each section waits for that and
/// says how quiet it was.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Failover(failover::Options),
    Submit(submit::Options),
    Place(place::Options),
    Start(start::Options),
    Preempt(preempt::Options),
    Motion(motion::Options),
    Slicing(slicing::Options),
    Restart(restart::Options),
    Backup(backup::Options),
    Exhaust(exhaust::Options),
    Crowd(crowd::Options),
    Watched(watched::Options),
    Idle(idle::Options),
    /// What workers run that save themselves
    #[command(hide = true)]
    Saver {
        /// Folder to testify in
        #[arg(long)]
        stand: PathBuf,
        /// Bytes of its state
        #[arg(long)]
        bytes: u64,
        /// How it does
        #[arg(long, value_enum)]
        saves: Saves,
    },
    /// What workers run that take turns
    #[command(hide = true)]
    Computer {
        /// Folder to count in
        #[arg(long)]
        stand: PathBuf,
        /// The file's name
        #[arg(long)]
        name: String,
    },
    /// What the workers of the benchmarks run
    #[command(hide = true)]
    Worker {
        /// Folder to testify in
        #[arg(long)]
        stand: PathBuf,
        /// Stay until killed
        #[arg(long)]
        stay: bool,
    },
}

fn main() -> Result<()> {
    // Before the commands of all benchmarks are made, which takes a worker a millisecond.
    let began = unix_nanos();
    let bench = Cli::parse().bench;
    if let Bench::Worker { stand, stay } = bench {
        return start::worker(&stand, stay, began);
    }
    if let Bench::Saver { stand, bytes, saves } = bench {
        return saver::worker(&stand, bytes, saves);
    }
    if let Bench::Computer { stand, name } = bench {
        return slicing::worker(&stand.join(name));
    }
    if let Bench::Failover(options) = &bench
        && options.loss.contains(&Loss::CutOff)
    {
        enter_own_network()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start a runtime")?;
    runtime.block_on(bounded(&bench))
}

/// Dropping a benchmark half way kills what it started.
async fn bounded(bench: &Bench) -> Result<()> {
    let limit = match bench {
        Bench::Failover(options) => options.common.limit,
        Bench::Submit(options) => options.common.limit,
        Bench::Place(options) => options.common.limit,
        Bench::Start(options) => options.common.limit,
        Bench::Preempt(options) => options.common.limit,
        Bench::Motion(options) => options.common.limit,
        Bench::Slicing(options) => options.common.limit,
        Bench::Restart(options) => options.common.limit,
        Bench::Backup(options) => options.common.limit,
        Bench::Exhaust(options) => options.common.limit,
        Bench::Crowd(options) => options.common.limit,
        Bench::Watched(options) => options.common.limit,
        Bench::Idle(options) => options.common.limit,
        Bench::Worker { .. } | Bench::Saver { .. } | Bench::Computer { .. } => return Ok(()),
    };
    let mut terminated = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    tokio::select! {
        done = timeout(limit, run(bench)) => {
            done.with_context(|| format!("not done within {}; give more with --limit", humantime::format_duration(limit)))?
        }
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("cannot wait for signals")?;
            bail!("interrupted")
        }
        _ = terminated.recv() => bail!("terminated"),
    }
}

async fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Failover(options) => failover::run(options).await,
        Bench::Submit(options) => submit::run(options).await,
        Bench::Place(options) => place::run(options).await,
        Bench::Start(options) => start::run(options).await,
        Bench::Preempt(options) => preempt::run(options).await,
        Bench::Motion(options) => motion::run(options).await,
        Bench::Slicing(options) => slicing::run(options).await,
        Bench::Restart(options) => restart::run(options).await,
        Bench::Backup(options) => backup::run(options).await,
        Bench::Exhaust(options) => exhaust::run(options).await,
        Bench::Crowd(options) => crowd::run(options).await,
        Bench::Watched(options) => watched::run(options).await,
        Bench::Idle(options) => idle::run(options).await,
        Bench::Worker { .. } | Bench::Saver { .. } | Bench::Computer { .. } => Ok(()),
    }
}
