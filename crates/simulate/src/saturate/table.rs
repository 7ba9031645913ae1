//! The result of the experiment as a table for people.

use std::fmt::Write as _;

use super::RunResult;
use crate::stats::mean;

/// One line per policy: means over its runs, and the worst of the times.
#[must_use]
pub fn render(results: &[(String, Vec<RunResult>)]) -> String {
    let mut table = format!(
        "{:<14} {:>6} {:>9} {:>9} {:>9} {:>10} {:>8} {:>10} {:>12} {:>9} {:>9}\n",
        "policy",
        "runs",
        "at 100 %",
        "at 130 %",
        "rejected",
        "avoidable",
        "refused",
        "moves/100",
        "decisions/s",
        "p50 us",
        "p99 us"
    );
    for (name, runs) in results {
        let of = |value: fn(&RunResult) -> f64| mean(runs.iter().map(value));
        let worst = runs.iter().map(|run| run.p99_us).fold(0.0, f64::max);
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "{:<14} {:>6} {:>9.2} {:>9.2} {:>9.1} {:>10.1} {:>8.1} {:>10.2} {:>12.0} {:>9.1} {:>9.1}",
            name,
            runs.len(),
            of(|run| run.at_100),
            of(|run| run.at_130),
            of(|run| count(run.rejected)),
            of(|run| count(run.avoidable)),
            of(|run| count(run.plan_refusals)),
            of(|run| count(run.moves) * 100.0 / count(run.arrivals).max(1.0)),
            of(|run| run.decisions_per_second),
            of(|run| run.p50_us),
            worst,
        );
    }
    table
}

#[allow(clippy::cast_precision_loss, reason = "counts of arrivals are small")]
fn count(number: u64) -> f64 {
    number as f64
}
