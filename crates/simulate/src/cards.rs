//! Cards saved: how many cards the shares of a trace need when each gets a card of its own, when cards are cut
//! into tenths, and when they are cut into blocks of one TFLOPS; all at once, and over the trace's own arrivals
//! and departures.

use std::fmt;

use serde::Serialize;
use tessera_ledger::{BlockCount, CardKind};
use tessera_placement::Limits;

use crate::engine::{Engine, EngineError, Scale};
use crate::placer::Choice;
use crate::timeline::{self, RunSummary, TimelineError, TimelineOptions};
use crate::trace::{Ask, TraceJob, TraceNode, WHOLE_CARD, made_up};

/// Cards of one node of the cluster that is made up for the count.
const CARDS_PER_NODE: u32 = 8;

/// The cards that are counted.
#[derive(Clone, Copy, Debug)]
pub struct CardsOptions {
    /// TFLOPS of one card, which is how many blocks it has.
    pub card_tflops: u32,
    /// Memory of one card in MiB; used where the trace says how much jobs need.
    pub card_memory_mib: Option<u64>,
}

/// A count that had to be given up.
#[derive(Debug, thiserror::Error)]
pub enum CardsError {
    /// No job of the trace asks for a part of a card.
    #[error("no job of this list asks for a part of a card, so there is nothing to save")]
    NoShares,
    /// The card has no blocks.
    #[error("a card must have 1 to 100000 TFLOPS, not {0}")]
    BadCard(u32),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A run over time failed.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    /// Some did not fit.
    #[error("{0} of the jobs were not placed on the cards that there were")]
    NotPlaced(u64),
}

/// Cards needed with one way of dividing them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardsRow {
    /// The way in which cards are divided.
    pub division: String,
    /// No fewer cards could do: the sum of all shares, rounded up to what the division can give.
    pub lower_bound: u64,
    /// The fewest cards found that hold all at once, submitted in the order of the list.
    pub at_once_listed: u64,
    /// The same, submitted with the largest first.
    pub at_once_largest_first: u64,
    /// Cards needed over the trace's own arrivals and departures: the most at once, where the trace has times.
    pub over_time_peak: Option<u64>,
    /// The mean over time.
    pub over_time_mean: Option<f64>,
    /// The same with compaction: the most at once.
    pub compacted_peak: Option<u64>,
    /// The mean over time.
    pub compacted_mean: Option<f64>,
    /// Moves that compaction made.
    pub moves: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardsResult {
    /// Jobs that ask for a part of a card.
    pub jobs: u64,
    /// TFLOPS of one card.
    pub card_tflops: u32,
    /// True if memory was counted too: where the trace says what jobs need.
    pub memory_counted: bool,
    pub rows: Vec<CardsRow>,
}

/// Counts cards for the jobs of a list that ask for a part of one.
///
/// # Errors
/// [`CardsError`].
pub fn count(jobs: &[TraceJob], options: CardsOptions) -> Result<CardsResult, CardsError> {
    if !(1..=100_000).contains(&options.card_tflops) {
        return Err(CardsError::BadCard(options.card_tflops));
    }
    let shares: Vec<TraceJob> = jobs.iter().filter(|job| job.ask.is_fraction()).map(on_cards_alone).collect();
    if shares.is_empty() {
        return Err(CardsError::NoShares);
    }
    let memory_counted = shares.iter().any(|job| job.ask.card_memory_mib > 0) && options.card_memory_mib.is_some();
    let divisions = [
        ("whole cards".to_owned(), 1),
        ("tenths of a card".to_owned(), 10),
        ("blocks of 1 TFLOPS".to_owned(), options.card_tflops),
    ];
    let rows = divisions.into_iter().map(|(division, blocks)| row(division, blocks, &shares, options));
    let rows: Result<Vec<CardsRow>, CardsError> = rows.collect();
    Ok(CardsResult { jobs: shares.len() as u64, card_tflops: options.card_tflops, memory_counted, rows: rows? })
}

/// The job without what it needs of hosts, and on any model.
fn on_cards_alone(job: &TraceJob) -> TraceJob {
    let ask = Ask { cpu_milli: 0, memory_mib: 0, models: Default::default(), ..job.ask.clone() };
    TraceJob { ask, ..job.clone() }
}

/// A share rounded up to whole blocks, in thousandths of a card.
fn rounded(milli: u32, blocks: u32) -> u32 {
    let needed = (u64::from(milli) * u64::from(blocks)).div_ceil(u64::from(WHOLE_CARD));
    let share = (needed * u64::from(WHOLE_CARD)).div_ceil(u64::from(blocks));
    u32::try_from(share).unwrap_or(WHOLE_CARD).min(WHOLE_CARD)
}

fn row(division: String, blocks: u32, shares: &[TraceJob], options: CardsOptions) -> Result<CardsRow, CardsError> {
    let needed = |job: &TraceJob| (u64::from(job.ask.card_milli) * u64::from(blocks)).div_ceil(u64::from(WHOLE_CARD));
    let listed: Vec<&TraceJob> = shares.iter().collect();
    let mut largest_first = listed.clone();
    largest_first.sort_by_key(|job| std::cmp::Reverse(job.ask.card_milli));
    let timed = shares.iter().all(|job| job.runtime_ms.is_some());
    // A card for each that ever runs at the same time: nobody waits.
    let enough = made_up(most_at_once(shares).div_ceil(CARDS_PER_NODE), CARDS_PER_NODE, options.card_memory_mib);
    let played = if timed { Some(over_time(&enough, shares, blocks, None)?) } else { None };
    // Whole cards cannot lie closer together.
    let compaction = Some(timeline::Compaction::default());
    let compacted = if timed && blocks > 1 { Some(over_time(&enough, shares, blocks, compaction)?) } else { None };
    let lower_bound = shares.iter().map(needed).sum::<u64>().div_ceil(u64::from(blocks));
    let at_once = |jobs: &[&TraceJob]| at_once(lower_bound, jobs, blocks, options.card_memory_mib);
    Ok(CardsRow {
        division,
        lower_bound,
        at_once_listed: at_once(&listed)?,
        at_once_largest_first: at_once(&largest_first)?,
        over_time_peak: played.as_ref().map(|run| run.cards_needed_peak),
        over_time_mean: played.as_ref().map(|run| run.cards_needed_mean),
        compacted_peak: compacted.as_ref().map(|run| run.cards_needed_peak),
        compacted_mean: compacted.as_ref().map(|run| run.cards_needed_mean),
        moves: compacted.as_ref().map(|run| run.moves),
    })
}

/// The most jobs that run at the same time when none waits.
fn most_at_once(shares: &[TraceJob]) -> u32 {
    let ends = |job: &TraceJob| job.submitted_ms.saturating_add(job.runtime_ms.unwrap_or(0));
    // At one time those that end go before those that come.
    let mut changes: Vec<(u64, bool)> =
        shares.iter().flat_map(|job| [(job.submitted_ms, true), (ends(job), false)]).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0u32, 0u32);
    for (_, comes) in changes {
        now = if comes { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}

/// The fewest cards found on which all are placed, between what could not do and a card for each. Placement knows how
/// many there are, and is more careful with few.
fn at_once(lower_bound: u64, jobs: &[&TraceJob], blocks: u32, card_memory_mib: Option<u64>) -> Result<u64, CardsError> {
    let used = |cards: u64| {
        let cards = u32::try_from(cards).unwrap_or(u32::MAX);
        let mut nodes = made_up(cards / CARDS_PER_NODE, CARDS_PER_NODE, card_memory_mib);
        let rest = made_up(1, cards % CARDS_PER_NODE, card_memory_mib).into_iter();
        nodes.extend(rest.filter(|node| node.cards > 0).map(|node| TraceNode { name: "rest".to_owned(), ..node }));
        cards_used(&nodes, jobs, blocks)
    };
    let (mut fewest, mut least) = (used(jobs.len() as u64)?, lower_bound);
    while least < fewest {
        let tried = u64::midpoint(least, fewest);
        match used(tried) {
            Ok(used) => fewest = used,
            Err(CardsError::NotPlaced(_)) => least = tried + 1,
            Err(error) => return Err(error),
        }
    }
    Ok(fewest)
}

/// Cards in use once all are placed.
fn cards_used(nodes: &[TraceNode], jobs: &[&TraceJob], blocks: u32) -> Result<u64, CardsError> {
    let queues: std::collections::BTreeSet<&str> = jobs.iter().map(|job| job.queue.as_str()).collect();
    let queues: Vec<&str> = queues.into_iter().collect();
    let scale = Scale { blocks_per_card: BlockCount(blocks) };
    let mut engine = Engine::new(nodes, &queues, scale, Limits::default())?;
    let mut refused = 0;
    for job in jobs {
        refused += u64::from(engine.submit(job).is_err());
    }
    while engine.decide()?.more {}
    let left = engine.waiting() + refused;
    if left > 0 {
        return Err(CardsError::NotPlaced(left));
    }
    let in_use = engine.state().cards().filter(|(_, card)| card.description.kind == CardKind::Gpu && card.slices > 0);
    Ok(in_use.count() as u64)
}

/// Plays the trace's own arrivals and departures.
fn over_time(
    nodes: &[TraceNode],
    shares: &[TraceJob],
    blocks: u32,
    compaction: Option<timeline::Compaction>,
) -> Result<RunSummary, CardsError> {
    let rounded = |job: &TraceJob| {
        let ask = Ask { card_milli: rounded(job.ask.card_milli, blocks), ..job.ask.clone() };
        TraceJob { ask, ..job.clone() }
    };
    let jobs: Vec<TraceJob> = shares.iter().map(rounded).collect();
    let options = TimelineOptions { compaction, ..TimelineOptions::new(Choice::Tessera) };
    Ok(timeline::play(nodes, &jobs, options)?)
}

impl fmt::Display for CardsResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} jobs that ask for a part of a card; a card has {} TFLOPS", self.jobs, self.card_tflops)?;
        let counted =
            if self.memory_counted { "compute and memory" } else { "compute only: the list has no card memory" };
        writeln!(f, "counted: {counted}")?;
        writeln!(
            f,
            "{:<20} {:>11} {:>10} {:>13} {:>11} {:>9} {:>14} {:>9} {:>7}",
            "cards divided into",
            "lower bound",
            "at once",
            "largest first",
            "peak",
            "mean",
            "compacted peak",
            "mean",
            "moves"
        )?;
        for row in &self.rows {
            let CardsRow { division, lower_bound, at_once_listed, at_once_largest_first, .. } = row;
            let count = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
            let mean = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            writeln!(
                f,
                "{division:<20} {lower_bound:>11} {at_once_listed:>10} {at_once_largest_first:>13} {:>11} {:>9} {:>14} \
                 {:>9} {:>7}",
                count(row.over_time_peak),
                mean(row.over_time_mean),
                count(row.compacted_peak),
                mean(row.compacted_mean),
                count(row.moves)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up_to_blocks_and_never_above_a_card() {
        assert_eq!([1, 100, 101, 810, 999].map(|milli| rounded(milli, 10)), [100, 100, 200, 900, 1000]);
        assert_eq!([1, 1000].map(|milli| rounded(milli, 1)), [1000, 1000]);
        assert_eq!([7, 8, 9].map(|milli| rounded(milli, 125)), [8, 8, 16]);
        assert!((1..=1000).all(|milli| (1..300).all(|blocks| rounded(milli, blocks) >= milli)));
    }
}
