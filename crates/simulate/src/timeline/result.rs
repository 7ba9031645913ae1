//! The result of a run, for people and for programs.

use std::fmt;

use serde::Serialize;

use super::events::JobEvent;
use crate::stats::Distribution;

/// A quantity over all jobs; times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spread {
    pub(super) fn of(values: &Distribution) -> Self {
        Self {
            mean: values.mean(),
            p50: values.quantile(0.5),
            p90: values.quantile(0.9),
            p99: values.quantile(0.99),
            max: values.max(),
        }
    }
}

/// The cluster at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the first submission.
    pub at_s: f64,
    /// Share of all cards that is allocated.
    pub allocated_percent: f64,
    /// Share of all cards that is free and, for the mean job of the trace, of no use where it is.
    pub fragmented_percent: f64,
    /// Cards that somebody is on.
    pub cards_in_use: u64,
    pub running: u64,
    pub waiting: u64,
}

/// The result of a run. Means and percentiles are over the time in which jobs arrived; what follows is only the
/// emptying.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunSummary {
    /// The placer.
    pub policy: String,
    pub nodes: u64,
    pub cards: u64,
    pub jobs: u64,
    /// Jobs that ended.
    pub completed: u64,
    /// Jobs that were refused because the pool could never hold them.
    pub refused: u64,
    /// Jobs that still waited when nothing ran any more.
    pub never_started: u64,
    /// Seconds from the first submission to the last end.
    pub duration_s: f64,
    /// Seconds from the first submission to the last.
    pub arrivals_s: f64,
    /// Share of all cards that was allocated: the mean over time.
    pub allocated_mean_percent: f64,
    /// The median over time.
    pub allocated_p50_percent: f64,
    /// The 90th percentile over time.
    pub allocated_p90_percent: f64,
    /// The most.
    pub allocated_max_percent: f64,
    /// Share of all cards that was free: the mean over time.
    pub unallocated_mean_percent: f64,
    /// Share of all cards that was free and of no use to the mean job: the mean over time.
    pub fragmented_mean_percent: f64,
    /// Cards that somebody was on: the mean over time.
    pub cards_needed_mean: f64,
    /// The most at once.
    pub cards_needed_peak: u64,
    /// All time in which a job neither made progress nor was over: until its first start, suspended, and going on after
    /// suspensions and moves. Of jobs that ended.
    pub waiting: Spread,
    /// The time until the first start, of jobs that started.
    pub first_waiting: Spread,
    /// The time from submission to end.
    pub completion: Spread,
    /// Completion time by length, each taken as ten seconds at least.
    pub stretch: Spread,
    /// Share of all cards' time that lay free while somebody waited who would have fitted as everybody lay.
    pub fitting_idle_percent: f64,
    /// Suspensions of a job that started: the mean.
    pub suspensions_mean: f64,
    /// The most of one job.
    pub suspensions_max: f64,
    /// Share of what jobs held, in cards' time, that went into going on after suspensions and moves.
    pub suspension_cost_percent: f64,
    /// Suspensions in favour of others.
    pub preemptions: u64,
    pub moves: u64,
    /// Parts of plans that the ledger refused; more than none is a fault of placement.
    pub plan_refusals: u64,
    pub decisions: u64,
    /// Time of one decision in microseconds: the median.
    pub decision_p50_us: f64,
    pub decision_p99_us: f64,
    /// The waiting time of each job, in seconds, in ascending order.
    #[serde(skip)]
    pub waits_s: Vec<f64>,
    /// The cluster over time.
    pub samples: Vec<Sample>,
    /// The events of all jobs, in order.
    #[serde(skip)]
    pub events: Vec<JobEvent>,
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, nodes, cards, jobs, completed, refused, never_started, .. } = self;
        writeln!(f, "policy        {policy} on {nodes} nodes with {cards} cards")?;
        writeln!(f, "jobs          {jobs}: {completed} completed, {refused} refused, {never_started} never started")?;
        writeln!(f, "time          {}; jobs arrived for {}", duration(self.duration_s), duration(self.arrivals_s))?;
        writeln!(
            f,
            "allocated     mean {:.2} %, p50 {:.2} %, p90 {:.2} %, max {:.2} %",
            self.allocated_mean_percent,
            self.allocated_p50_percent,
            self.allocated_p90_percent,
            self.allocated_max_percent
        )?;
        writeln!(
            f,
            "unallocated   mean {:.2} %, of that fragmented {:.2} % of all cards",
            self.unallocated_mean_percent, self.fragmented_mean_percent
        )?;
        writeln!(f, "cards needed  mean {:.1}, peak {}", self.cards_needed_mean, self.cards_needed_peak)?;
        for (name, times) in
            [("waiting", &self.waiting), ("first start", &self.first_waiting), ("completion", &self.completion)]
        {
            let Spread { mean, p50, p90, p99, max } = *times;
            let [mean, p50, p90, p99, max] = [mean, p50, p90, p99, max].map(duration);
            writeln!(f, "{name:13} mean {mean}, p50 {p50}, p90 {p90}, p99 {p99}, max {max}")?;
        }
        let Spread { mean, p50, p90, p99, max } = self.stretch;
        writeln!(f, "stretch       mean {mean:.1}, p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, max {max:.1}")?;
        writeln!(f, "free for one  {:.3} % of all cards' time, while one waited who fits", self.fitting_idle_percent)?;
        writeln!(
            f,
            "preemptions   {}: {:.2} a job, most {}, for {:.3} % of what jobs held",
            self.preemptions, self.suspensions_mean, self.suspensions_max, self.suspension_cost_percent
        )?;
        writeln!(f, "moves         {}", self.moves)?;
        if self.plan_refusals > 0 {
            writeln!(f, "refused       {} parts of plans, by the ledger", self.plan_refusals)?;
        }
        write!(
            f,
            "decisions     {}, p50 {:.1} us, p99 {:.1} us",
            self.decisions, self.decision_p50_us, self.decision_p99_us
        )
    }
}

/// Seconds for people.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 3600.0 * 2.0 => format!("{:.1} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86400.0),
    }
}
