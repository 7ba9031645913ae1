//! `tessera-sim`: deterministic simulation of whole pools.
#![cfg_attr(clippy, deny(warnings))]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use planted::Bug;
use tessera_sim::many::{self, Plan, Run};
use tessera_sim::scenario::Scenario;
use tessera_sim::script::Script;
use tessera_sim::{corpus, machine, proof, single};

/// Simulates whole pools: one number decides everything.
#[derive(Parser)]
#[command(name = "tessera-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds, each in a process of its own, and says what they came to.
    Run {
        /// The seeds, `A..B` without B.
        #[arg(long, default_value = "0..100", value_parser = seeds)]
        seeds: std::ops::Range<u64>,
        /// Begins no further run after so many minutes.
        #[arg(long)]
        minutes: Option<u64>,
        /// Runs at once.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// First the seeds in this file.
        #[arg(long)]
        corpus: Option<PathBuf>,
    },
    /// Plants each bug in turn and says how many seeds it takes to catch it.
    Planted {
        /// Only these bugs.
        #[arg(long)]
        bug: Vec<Bug>,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Most seeds for each bug, in the place of what is stated for it.
        #[arg(long)]
        most: Option<u64>,
        /// Begins no further run after so many minutes.
        #[arg(long)]
        minutes: Option<u64>,
        /// Runs at once.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
    },
    /// Runs one seed and tells its story.
    Replay {
        /// The seed.
        seed: u64,
        /// Without faults, in the smallest pool.
        #[arg(long)]
        calm: bool,
        /// With these bugs.
        #[arg(long)]
        plant: Vec<Bug>,
        /// With this script in the place of drawn faults.
        #[arg(long)]
        script: Option<Script>,
    },
    /// Runs one seed and reports in JSON; what `run` starts.
    #[command(hide = true)]
    One {
        /// The seed.
        seed: u64,
        /// Without faults, in the smallest pool.
        #[arg(long)]
        calm: bool,
        /// With these bugs.
        #[arg(long)]
        plant: Vec<Bug>,
        /// With this script in the place of drawn faults.
        #[arg(long)]
        script: Option<Script>,
        /// Digests every line of every library.
        #[arg(long)]
        trace: bool,
    },
}

fn seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let parse = |number: &str| number.parse::<u64>().map_err(|error| format!("{number:?}: {error}"));
    match text.split_once("..") {
        Some((first, end)) => Ok(parse(first)?..parse(end)?),
        None => parse(text).map(|one| one..one + 1),
    }
}

fn main() -> ExitCode {
    // Before anything else: what is drawn from the system earlier is not decided by the seed.
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, seed, ..] = arguments.as_slice()
        && matches!(command.as_str(), "one" | "replay")
        && let Ok(seed) = seed.parse()
    {
        machine::begin(seed);
    }
    match carry_out(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Run { seeds, minutes, jobs, corpus } => {
            let mut all = corpus.as_deref().map(corpus::read).transpose()?.unwrap_or_default();
            all.extend(seeds);
            let runs = all.into_iter().map(Run::of).collect();
            let until = minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
            let summary = many::run(&Plan { program: std::env::current_exe()?, runs, until, jobs, progress: true })?;
            print!("{}", summary.text());
            Ok(summary.failed.is_empty())
        }
        Command::Planted { bug, first, most, minutes, jobs } => {
            let visible = || Bug::ALL.iter().copied().filter(|bug| proof::is_visible(*bug)).collect();
            let bugs = if bug.is_empty() { visible() } else { bug };
            let until = minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
            let proofs =
                proof::run(&proof::Plan { program: std::env::current_exe()?, bugs, first, most, until, jobs })?;
            print!("{}", proof::table(&proofs));
            Ok(proofs.iter().all(|proof| proof.caught.is_some()))
        }
        Command::Replay { seed, calm, plant, script } => {
            plant.into_iter().for_each(planted::plant);
            single::follow_log();
            let report = single::run(scenario(seed, calm, script), true);
            if let Some((oracle, what)) = &report.violation {
                println!("FAILED: {oracle}: {what}");
            }
            Ok(report.violation.is_none())
        }
        Command::One { seed, calm, plant, script, trace } => {
            plant.into_iter().for_each(planted::plant);
            let traced = trace.then(single::digest_log);
            let mut report = single::run(scenario(seed, calm, script), false);
            report.trace = traced.map(|traced| traced.digest());
            println!("{}", serde_json::to_string(&report).context("a report in JSON")?);
            Ok(report.violation.is_none())
        }
    }
}

fn scenario(seed: u64, calm: bool, script: Option<Script>) -> Scenario {
    let scenario = if calm { Scenario::calm(seed) } else { Scenario::of(seed) };
    match script {
        Some(script) => scenario.with(script),
        None => scenario,
    }
}
