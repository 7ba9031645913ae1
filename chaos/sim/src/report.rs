//! The report of a run to whoever started it, and the summary of many runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::interruptions::Pair;
use crate::oracle::coverage::{Coverage, legal};
use crate::oracle::sights;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub seed: u64,
    /// The violation: the oracle, and its message.
    pub violation: Option<(String, String)>,
    pub simulated_ms: u64,
    /// Digest of the story, and its number of lines.
    pub story: (u64, u64),
    /// Digest of every line of every library, at the finest level, when that was asked for.
    pub trace: Option<u64>,
    /// Transitions that were seen.
    pub coverage: Coverage,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Programs that computed.
    pub computations: u64,
    /// Submissions that were accepted.
    pub accepted: u64,
    /// The last lines of the story, when something was broken.
    pub ending: String,
}

/// Many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub runs: u64,
    /// Seeds that failed, with what was broken.
    pub failed: Vec<(u64, String)>,
    simulated_ms: u64,
    coverage: Coverage,
    faults: BTreeMap<String, u64>,
    computations: u64,
    accepted: u64,
}

fn add(to: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (name, count) in more {
        *to.entry(name).or_default() += count;
    }
}

impl Summary {
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.simulated_ms += report.simulated_ms;
        self.computations += report.computations;
        self.accepted += report.accepted;
        add(&mut self.coverage.hits, report.coverage.hits.clone());
        add(&mut self.faults, report.faults.clone());
        if let Some((oracle, what)) = &report.violation {
            self.failed.push((report.seed, format!("{oracle}: {what}")));
        }
    }

    /// Simulated hours.
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn hours(&self) -> f64 {
        self.simulated_ms as f64 / 3_600_000.0
    }

    /// Transitions that may happen and were not seen.
    pub fn never_hit(&self) -> Vec<String> {
        legal().into_iter().filter(|name| !self.coverage.hits.contains_key(name)).collect()
    }

    /// The sights that workloads are there for and that were not seen.
    pub fn unseen(&self) -> Vec<&'static str> {
        sights::ALL.into_iter().filter(|sight| !self.coverage.hits.contains_key(&sights::named(sight))).collect()
    }

    /// The pairs of a moment and a victim that were never made on purpose.
    pub fn never_hit_on_purpose(&self) -> Vec<String> {
        Pair::all().map(Pair::name).filter(|name| !self.faults.contains_key(name)).collect()
    }

    /// The same runs and others, together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.runs += other.runs;
        self.simulated_ms += other.simulated_ms;
        self.computations += other.computations;
        self.accepted += other.accepted;
        self.failed.extend(other.failed);
        add(&mut self.coverage.hits, other.coverage.hits);
        add(&mut self.faults, other.faults);
        self
    }

    /// Everything, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "{} seeds, {:.2} simulated hours, {} jobs accepted, {} workers computed, {} failed",
            self.runs,
            self.hours(),
            self.accepted,
            self.computations,
            self.failed.len()
        );
        let _ = writeln!(text, "\nfaults:");
        for (kind, count) in &self.faults {
            let _ = writeln!(text, "  {count:>8} {kind}");
        }
        let _ = writeln!(text, "\ntransitions, and what was seen:");
        for (name, count) in &self.coverage.hits {
            let _ = writeln!(text, "  {count:>8} {name}");
        }
        let missed = self.never_hit();
        if !missed.is_empty() {
            let _ = writeln!(text, "\nnever hit: {}", missed.join(", "));
        }
        let unseen = self.unseen();
        if !unseen.is_empty() {
            let _ = writeln!(text, "\nnever seen: {}", unseen.join(", "));
        }
        for (seed, what) in &self.failed {
            let _ = writeln!(text, "\nseed {seed} FAILED: {what}\n  replay: cargo run -- replay {seed}");
        }
        text
    }
}
