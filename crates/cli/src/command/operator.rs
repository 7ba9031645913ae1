//! `tessera operator`. `replay` looks into what a member has on its disk and talks to no control plane.

use std::io::{self, Write};

use tessera_controller::past::{Past, PastError};
use tessera_ledger::{JobId, PlanPart, State};
use tessera_placement::Limits;
use tessera_simulate::replay::{Finding, PastDecision, Replay};

use crate::args::{OperatorCommand, OperatorVerb, ReplayArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::{Sheet, unwritten};

/// Runs the command.
///
/// # Errors
/// A [`Failure`] when what was asked for cannot be looked at.
pub async fn run(command: OperatorCommand) -> Result<Exit, Failure> {
    match command.verb {
        OperatorVerb::Replay(args) => replay(&args),
        OperatorVerb::Doctor(args) => super::doctor::run(&args).await,
        OperatorVerb::Debug(args) => super::debug::run(*args).await,
    }
}

/// The counts of the findings so far.
#[derive(Default)]
struct Tally {
    entries: u64,
    uncommitted: u64,
    decisions: u64,
    same: u64,
    fresh: u64,
    gone: u64,
    differ: u64,
    refused: u64,
}

impl Tally {
    fn count(&mut self, decision: &PastDecision) {
        self.decisions += 1;
        self.refused += decision.refused.iter().flatten().count() as u64;
        let counted = match decision.finding {
            Finding::Same => &mut self.same,
            Finding::SameFromFreshIndex => &mut self.fresh,
            Finding::StateGone => &mut self.gone,
            Finding::Differs(_) => &mut self.differ,
        };
        *counted += 1;
    }
}

fn replay(args: &ReplayArgs) -> Result<Exit, Failure> {
    let unread = |error: PastError| {
        let failure = Failure::from_error(Exit::Failed, "the past of this member cannot be read", &error);
        failure.next("stop the member first, or give a copy of its data folder")
    };
    let mut past = Past::open(&args.data_dir).map_err(unread)?;
    let job = args.job.map(|job| JobId(job.0));
    let mut replay = Replay::new(past.beginning().map_err(unread)?, Limits::default(), job);
    let mut out = Sheet;
    let mut tally = Tally::default();
    let first = replay.state().revision();
    loop {
        let entries = past.read_on().map_err(unread)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            tally.entries += 1;
            tally.uncommitted += u64::from(!entry.committed);
            for decision in replay.apply(entry.at, entry.requests.as_deref()) {
                tally.count(&decision);
                let shown = match job {
                    Some(job) => decision.concerns(job),
                    None => args.all || matches!(decision.finding, Finding::Differs(_)),
                };
                if shown {
                    show(&mut out, &decision, replay.state(), job).map_err(|error| unwritten(&error))?;
                }
            }
        }
    }
    summarize(&mut out, &tally, first.0, replay.state()).map_err(|error| unwritten(&error))?;
    Ok(if tally.differ > 0 { Exit::Failed } else { Exit::Done })
}

fn summarize(out: &mut impl Write, tally: &Tally, first: u64, state: &State) -> io::Result<()> {
    writeln!(
        out,
        "{} entries after revision {first}, up to revision {}; {} of them not known to be committed",
        tally.entries,
        state.revision(),
        tally.uncommitted
    )?;
    writeln!(
        out,
        "{} decisions: {} come out the same, {} the same as a new leader would decide, {} otherwise, \
         {} made before the log begins; {} parts were refused as stale",
        tally.decisions, tally.same, tally.fresh, tally.differ, tally.gone, tally.refused
    )
}

fn show(out: &mut impl Write, decision: &PastDecision, state: &State, job: Option<JobId>) -> io::Result<()> {
    let time = i64::try_from(decision.time.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    let time = time.map_or_else(|| decision.time.0.to_string(), |time| time.to_string());
    let finding = match &decision.finding {
        Finding::Same => "comes out the same".to_owned(),
        Finding::SameFromFreshIndex => "comes out the same as a new leader would decide".to_owned(),
        Finding::StateGone => "was made before the log begins".to_owned(),
        Finding::Differs(difference) => format!("comes out otherwise: {difference}"),
    };
    writeln!(
        out,
        "revision {} at {time}, made against revision {}: {} parts; {finding}",
        decision.revision,
        decision.made_against,
        decision.parts.len()
    )?;
    if let Some(explanation) = &decision.explanation {
        writeln!(out, "  before: {}", explanation.sentence)?;
    }
    for (place, part) in decision.parts.iter().enumerate() {
        if job.is_none_or(|job| about(part, job)) {
            let refusal = decision.refused.get(place).and_then(Option::as_ref);
            let refusal = refusal.map_or(String::new(), |why| format!(" (refused: {why})"));
            writeln!(out, "  {}{refusal}", sentence(part, state))?;
        }
    }
    Ok(())
}

fn about(part: &PlanPart, id: JobId) -> bool {
    match part {
        PlanPart::Grant { job, victims, .. } => *job == id || victims.contains(&id),
        PlanPart::Evict { job, .. } | PlanPart::Move { job, .. } => *job == id,
        PlanPart::Renumber { .. } => false,
    }
}

/// A part of a plan as a sentence.
fn sentence(part: &PlanPart, state: &State) -> String {
    match part {
        PlanPart::Grant { job, workers, victims } => {
            let preempted: Vec<String> = victims.iter().map(ToString::to_string).collect();
            let preempted =
                if preempted.is_empty() { String::new() } else { format!(", preempting {}", preempted.join(", ")) };
            format!("job {job} is granted {}{preempted}", places(workers, state))
        }
        PlanPart::Evict { job, node } => format!("job {job} is asked to leave {node}"),
        PlanPart::Renumber { card } => format!("{card} is renumbered"),
        PlanPart::Move { job, workers } => format!("job {job} is moved to {}", places(workers, state)),
    }
}

fn places(workers: &[tessera_ledger::PlannedWorker], state: &State) -> String {
    let slices = workers.iter().flat_map(|worker| &worker.slices);
    let place = |slice: &tessera_ledger::Slice| {
        let node = state
            .node(slice.card.node)
            .map_or_else(|| slice.card.node.to_string(), |node| node.description.name.clone());
        let (start, length) = (slice.start.0, slice.length.0);
        format!("{node}/{} blocks {start} to {}", slice.card.index, start.saturating_add(length).saturating_sub(1))
    };
    slices.map(place).collect::<Vec<_>>().join(" + ")
}
