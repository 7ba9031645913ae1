//! `tessera simulate`: reads the lists, runs the simulation, prints what came of it. It talks to no control plane.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use serde::Serialize;
use tessera_diagnostics::shown;
use tessera_ledger::AttainedOrder;
use tessera_simulate::cards::{self, CardsOptions};
use tessera_simulate::online::{self, OnlineError, OnlineOptions};
use tessera_simulate::placer::{Choice, Moves};
use tessera_simulate::timeline::{self, Compaction, TimelineOptions};
use tessera_simulate::trace::{self, JobList, TraceNode};
use tessera_simulate::{report, saturate};

use crate::args::{CardsArgs, Order, PlacerArgs, Queues, SaturateArgs, SimulateCommand, SimulateVerb};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::unwritten;

/// Runs the command.
///
/// # Errors
/// A [`Failure`] when a list cannot be read or a run had to be given up.
pub fn run(command: SimulateCommand) -> Result<Exit, Failure> {
    match command.verb {
        Some(SimulateVerb::Saturate(args)) => saturate(&args),
        Some(SimulateVerb::Cards(args)) => count_cards(&args),
        None if command.online => converse(&command.placer),
        None => play(&command),
    }
}

/// Several policies by name.
fn policies(args: &PlacerArgs) -> Result<Vec<Choice>, Failure> {
    let mut chosen = Vec::new();
    for name in &args.policy {
        match Choice::named(name) {
            Some(choice) => chosen.push(choice),
            None if name == "all" => chosen.extend(Choice::all()),
            None => {
                let known: Vec<&str> = Choice::all().into_iter().map(Choice::name).collect();
                let why = format!("{name:?} is no policy; there are {} and `all`", known.join(", "));
                return Err(Failure::new(Exit::Usage, "nothing was simulated", why));
            }
        }
    }
    Ok(chosen)
}

/// Most moves for each hundred arrivals, with `--moves`.
const MOVES_PER_HUNDRED: u64 = 3;

fn moves(args: &PlacerArgs) -> Moves {
    if args.moves { Moves::PerHundred(MOVES_PER_HUNDRED) } else { Moves::None }
}

fn converse(args: &PlacerArgs) -> Result<Exit, Failure> {
    let [policy] = policies(args)?[..] else {
        return Err(Failure::new(Exit::Usage, "nothing was simulated", "one policy answers one judge"));
    };
    let options = OnlineOptions { policy, seed: args.seed, moves: moves(args) };
    let talked = online::converse(io::stdin().lock(), io::stdout().lock(), options);
    talked.map_err(|error| match error {
        OnlineError::Unanswered(error) => unwritten(&error),
        error => Failure::from_error(Exit::Failed, "the conversation ended early", &error),
    })?;
    Ok(Exit::Done)
}

fn nodes(path: &Path) -> Result<Vec<TraceNode>, Failure> {
    let read = trace::read_cluster(path);
    read.map_err(|error| Failure::from_error(Exit::Usage, "the list of nodes cannot be read", &error))
}

fn jobs(path: &Path) -> Result<JobList, Failure> {
    let read = trace::read_jobs(path);
    read.map_err(|error| Failure::from_error(Exit::Usage, "the list of jobs cannot be read", &error))
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::from_error(Exit::Failed, "the simulation was given up", error)
}

/// Prints a result: as JSON, or as its text for people.
fn print(json: bool, value: &impl Serialize, text: &str) -> Result<(), Failure> {
    let told = if json {
        shown::json(&serde_json::to_string_pretty(value).map_err(|error| failed(&error))?).into_owned()
    } else {
        text.trim_end().to_owned()
    };
    crate::print::text(&format!("{told}\n"))
}

fn play(command: &SimulateCommand) -> Result<Exit, Failure> {
    let (Some(cluster), Some(list)) = (&command.cluster, &command.jobs) else {
        return Err(Failure::new(Exit::Usage, "nothing was simulated", "it needs --cluster and --jobs, or --online"));
    };
    let policies = policies(&command.placer)?;
    if command.events.is_some() && policies.len() > 1 {
        return Err(Failure::new(Exit::Usage, "nothing was simulated", "--events takes the events of one policy"));
    }
    let (nodes, jobs) = (nodes(cluster)?, jobs(list)?);
    let jobs = match command.queues {
        Queues::Listed => jobs,
        Queues::One => jobs.in_one_queue(),
    };
    let not_written = |error: &io::Error| Failure::from_error(Exit::Failed, "the events were not written", error);
    // Opened first: a path that cannot be written is found before a long run, not after it.
    let events = command.events.as_ref().map(File::create).transpose().map_err(|error| not_written(&error))?;
    let mut runs = Vec::new();
    let compaction = command.placer.moves.then(Compaction::default);
    let order =
        (command.order == Order::Attained).then(|| AttainedOrder { guard: command.guard, ..AttainedOrder::default() });
    for policy in policies {
        let options =
            TimelineOptions { policy, seed: command.placer.seed, compaction, cost: command.suspend_cost, order };
        runs.push(timeline::play(&nodes, &jobs.jobs, options).map_err(|error| failed(&error))?);
    }
    if let (Some(file), [run]) = (events, &runs[..]) {
        let written = timeline::write_events(BufWriter::new(file), &nodes, &jobs.jobs, &run.events);
        written.map_err(|error| not_written(&error))?;
    }
    if let Some(path) = &command.report {
        let page = report::html(&format!("{} on {}", list.display(), cluster.display()), &runs);
        let written = std::fs::write(path, page);
        written.map_err(|error| Failure::from_error(Exit::Failed, "the report was not written", &error))?;
    }
    let text: Vec<String> = runs.iter().map(ToString::to_string).collect();
    print(command.json, &runs, &text.join("\n\n"))?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct PolicyRuns<'a> {
    policy: &'a str,
    runs: &'a [saturate::RunResult],
}

fn saturate(args: &SaturateArgs) -> Result<Exit, Failure> {
    let (nodes, jobs) = (nodes(&args.cluster)?, jobs(&args.jobs)?);
    let asks: Vec<_> = jobs.jobs.into_iter().map(|job| job.ask).collect();
    let mut results = Vec::new();
    for policy in policies(&args.placer)? {
        let mut runs = Vec::new();
        for seed in args.placer.seed..args.placer.seed.saturating_add(args.seeds) {
            let mut placer = policy.placer(&nodes, seed, moves(&args.placer)).map_err(|error| failed(&error))?;
            runs.push(saturate::run(&nodes, &asks, seed, placer.as_mut()).map_err(|error| failed(&error))?);
        }
        results.push((policy.name().to_owned(), runs));
    }
    let all: Vec<PolicyRuns<'_>> = results.iter().map(|(policy, runs)| PolicyRuns { policy, runs }).collect();
    print(args.json, &all, &saturate::render(&results))?;
    Ok(Exit::Done)
}

fn count_cards(args: &CardsArgs) -> Result<Exit, Failure> {
    let jobs = jobs(&args.jobs)?;
    let options = CardsOptions { card_tflops: args.card_tflops, card_memory_mib: args.card_memory };
    let result = cards::count(&jobs.jobs, options).map_err(|error| failed(&error))?;
    print(args.json, &result, &result.to_string())?;
    Ok(Exit::Done)
}
