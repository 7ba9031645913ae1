//! The saturation experiment: how full a cluster gets before work is turned away.
//!
//! All pods of a list arrive in random order, then more drawn from it with replacement, until what was offered (turned
//! away or not) is 130 % of the cluster's cards. Nothing departs; what does not fit is dropped. Measured is what is
//! allocated when 100 % and 130 % were offered, as a mean over random orders (Weng et al., USENIX ATC 2023).

mod arrivals;
mod judge;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::placer::{Placer, PlacerError};
use crate::stats::Distribution;
use crate::trace::{Ask, TraceNode};

pub use arrivals::Arrivals;
pub use judge::{Fault, Judge};
pub use table::render;

/// The final offer, in hundredths of what the cluster has.
const OFFERED_IN_THE_END: u64 = 130;

/// The result of one run of one placer.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// Seed of the order of arrivals.
    pub seed: u64,
    /// Allocated share of all cards in per cent when 100 % were offered.
    pub at_100: f64,
    /// The same when 130 % were offered.
    pub at_130: f64,
    pub arrivals: u64,
    /// Arrivals that were turned away.
    pub rejected: u64,
    /// The number of these that would have fitted.
    pub avoidable: u64,
    /// Earlier arrivals that were moved.
    pub moves: u64,
    /// Parts of plans that the ledger refused; more than none is a fault of placement.
    pub plan_refusals: u64,
    /// Decisions per second of the time that decisions took; carrying them out is not counted.
    pub decisions_per_second: f64,
    /// Time of one decision in microseconds: the median and the 99th percentile.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
}

/// A run that had to be given up.
#[derive(Debug, thiserror::Error)]
pub enum SaturateError {
    /// There is nothing to place, or nowhere to place it.
    #[error("{0}")]
    Empty(&'static str),
    /// The placer contradicted itself.
    #[error(transparent)]
    Placer(#[from] PlacerError),
    /// The placer put something where it does not fit.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The shapes of a list and how often each occurs: what a cluster knows from its past.
#[must_use]
pub fn shapes(asks: &[Ask]) -> BTreeMap<Ask, u64> {
    let mut shapes = BTreeMap::new();
    for ask in asks {
        *shapes.entry(Ask { memory_mib: 0, ..ask.clone() }).or_insert(0) += 1;
    }
    shapes
}

/// Runs one placer through one order of arrivals, with an independent judge beside it.
///
/// # Errors
/// [`SaturateError`].
pub fn run(nodes: &[TraceNode], asks: &[Ask], seed: u64, placer: &mut dyn Placer) -> Result<RunResult, SaturateError> {
    let mut judge = Judge::new(nodes);
    let capacity = judge.capacity_milli();
    if capacity == 0 || asks.iter().all(|ask| ask.cards == 0) {
        return Err(SaturateError::Empty("the experiment needs nodes with cards, and jobs that ask for cards"));
    }
    for (shape, weight) in shapes(asks) {
        placer.expect(&shape, weight);
    }
    let mut times = Vec::new();
    let (mut offered, mut at_100, mut plan_refusals) = (0u64, None, 0);
    for (number, ask) in (0u64..).zip(Arrivals::new(asks, seed)) {
        let answer = placer.arrive(number, ask)?;
        times.push(answer.took);
        plan_refusals += answer.refused;
        judge.hear(number, ask, &answer)?;
        offered += ask.all_cards_milli();
        if at_100.is_none() && offered >= capacity {
            at_100 = Some(judge.allocated_percent());
        }
        if offered * 100 >= capacity * OFFERED_IN_THE_END {
            break;
        }
    }
    let spent: Duration = times.iter().sum();
    let count = times.len();
    let micros = Distribution::new(times.into_iter().map(|time| time.as_secs_f64() * 1e6).collect());
    let at_130 = judge.allocated_percent();
    #[allow(clippy::cast_precision_loss, reason = "counts of arrivals are small")]
    let decisions_per_second = count as f64 / spent.as_secs_f64().max(1e-9);
    Ok(RunResult {
        seed,
        at_100: at_100.unwrap_or(at_130),
        at_130,
        arrivals: count as u64,
        rejected: judge.rejected,
        avoidable: judge.avoidable,
        moves: judge.moves,
        plan_refusals,
        decisions_per_second,
        p50_us: micros.quantile(0.5),
        p99_us: micros.quantile(0.99),
    })
}
