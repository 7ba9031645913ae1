//! The books of a run: where every job is, on the plain model and independently of who decided it, and what that adds
//! up to.

use std::time::Duration;

use super::result::{RunSummary, Sample, Waiting};
use super::{MOST_SAMPLES, SAMPLES, TimelineError, seconds};
use crate::plain::{Place, PlainCluster, Request};
use crate::policy::fragmented_milli;
use crate::saturate::shapes;
use crate::stats::Distribution;
use crate::trace::{Ask, TraceJob, TraceNode, WHOLE_CARD};

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Absent,
    Refused,
    Waiting,
    Running { since: u64, places: Vec<Place> },
    Over,
}

/// One job.
#[derive(Clone, Debug)]
struct Entry {
    standing: Standing,
    request: Request,
    /// Milliseconds that it still has to run.
    left: u64,
    /// The number of times that it was started.
    runs: u32,
    waited: Option<u64>,
}

/// Everything that is counted.
#[derive(Debug, Default)]
struct Counts {
    completed: u64,
    refused: u64,
    suspended: u64,
    moves: u64,
    plan_refusals: u64,
    running: u64,
    waiting: u64,
}

/// Sums over time, in milliseconds times the amount.
#[derive(Debug, Default)]
struct Sums {
    allocated: u128,
    cards_in_use: u128,
}

pub(super) struct Books<'a> {
    jobs: &'a [TraceJob],
    cluster: PlainCluster,
    capacity: u64,
    cards: u64,
    entries: Vec<Entry>,
    shapes: Vec<(Request, u64)>,
    now: u64,
    /// The time at which the last job is submitted: what comes later is only the emptying of the cluster.
    last_submission: u64,
    sample_every: u64,
    next_sample: u64,
    samples: Vec<Sample>,
    counts: Counts,
    sums: Sums,
    peak_cards: u64,
    times: Vec<f64>,
}

impl<'a> Books<'a> {
    pub(super) fn new(nodes: &[TraceNode], jobs: &'a [TraceJob]) -> Self {
        let cluster = PlainCluster::new(nodes);
        let entry = |job: &TraceJob| Entry {
            standing: Standing::Absent,
            request: cluster.request(&job.ask),
            left: job.runtime_ms.unwrap_or(0),
            runs: 0,
            waited: None,
        };
        // To work on hosts alone every free card would be of no use, which says nothing of cards.
        let asks: Vec<Ask> = jobs.iter().map(|job| job.ask.clone()).filter(|ask| ask.cards > 0).collect();
        let shapes = shapes(&asks).into_iter().map(|(ask, weight)| (cluster.request(&ask), weight)).collect();
        let horizon = jobs.iter().map(|job| job.submitted_ms + job.runtime_ms.unwrap_or(0)).max().unwrap_or(0);
        Self {
            entries: jobs.iter().map(entry).collect(),
            capacity: cluster.capacity_milli(),
            cards: cluster.nodes.iter().map(|node| node.cards.len() as u64).sum(),
            cluster,
            jobs,
            shapes,
            now: 0,
            last_submission: jobs.iter().map(|job| job.submitted_ms).max().unwrap_or(0),
            sample_every: (horizon / SAMPLES).max(1),
            next_sample: 0,
            samples: Vec::new(),
            counts: Counts::default(),
            sums: Sums::default(),
            peak_cards: 0,
            times: Vec::new(),
        }
    }

    fn allocated(&self) -> u64 {
        self.capacity - self.cluster.free_milli()
    }

    fn cards_in_use(&self) -> u64 {
        let of_node = |cards: &[u32]| cards.iter().filter(|free| **free < WHOLE_CARD).count() as u64;
        self.cluster.nodes.iter().map(|node| of_node(&node.cards)).sum()
    }

    /// Lets time pass; samples that fall into it are taken of what was the case.
    pub(super) fn advance(&mut self, now: u64) {
        let (allocated, cards) = (self.allocated(), self.cards_in_use());
        self.peak_cards = self.peak_cards.max(cards);
        while self.next_sample < now && self.samples.len() < MOST_SAMPLES {
            let sample = self.sample(allocated, cards);
            self.samples.push(sample);
            self.next_sample += self.sample_every;
        }
        let counted = now.min(self.last_submission).saturating_sub(self.now.min(self.last_submission));
        self.sums.allocated += u128::from(allocated) * u128::from(counted);
        self.sums.cards_in_use += u128::from(cards) * u128::from(counted);
        self.now = now;
    }

    fn sample(&self, allocated: u64, cards_in_use: u64) -> Sample {
        let weight: u64 = self.shapes.iter().map(|(_, weight)| weight).sum();
        let nodes = self.cluster.nodes.iter();
        let fragmented: f64 = nodes
            .map(|node| real(fragmented_milli(node, self.shapes.iter().map(|(shape, weight)| (shape, weight)))))
            .sum();
        Sample {
            at_s: seconds(self.next_sample),
            allocated_percent: percent(real(allocated), self.capacity),
            fragmented_percent: percent(fragmented / real(weight.max(1)), self.capacity),
            cards_in_use,
            running: self.counts.running,
            waiting: self.counts.waiting,
        }
    }

    fn entry(&mut self, job: usize) -> &mut Entry {
        &mut self.entries[job]
    }

    pub(super) fn submitted(&mut self, job: usize, accepted: bool) {
        let counted = if accepted { &mut self.counts.waiting } else { &mut self.counts.refused };
        *counted += 1;
        self.entry(job).standing = if accepted { Standing::Waiting } else { Standing::Refused };
    }

    /// Returns whether a job is running for the `run`-th time.
    pub(super) fn runs_as(&self, job: usize, run: u32) -> bool {
        let entry = &self.entries[job];
        entry.runs == run && matches!(entry.standing, Standing::Running { .. })
    }

    pub(super) const fn any_runs(&self) -> bool {
        self.counts.running > 0
    }

    pub(super) fn decided(&mut self, took: Duration, refused: u64) {
        self.times.push(took.as_secs_f64() * 1e6);
        self.counts.plan_refusals += refused;
    }

    /// A job starts or goes on; answers when it will end, and the number of this run.
    pub(super) fn started(&mut self, job: usize, places: Vec<Place>) -> Result<(u64, u32), TimelineError> {
        self.take(job, &places)?;
        let now = self.now;
        let submitted = self.jobs[job].submitted_ms;
        let entry = self.entry(job);
        entry.standing = Standing::Running { since: now, places };
        entry.runs += 1;
        entry.waited.get_or_insert(now.saturating_sub(submitted));
        let answer = (now + entry.left, entry.runs);
        self.counts.waiting -= 1;
        self.counts.running += 1;
        Ok(answer)
    }

    pub(super) fn finished(&mut self, job: usize) -> Result<(), TimelineError> {
        self.stop(job, "finished", Standing::Over)?;
        self.counts.completed += 1;
        Ok(())
    }

    pub(super) fn suspended(&mut self, job: usize) -> Result<(), TimelineError> {
        self.stop(job, "suspended", Standing::Waiting)?;
        self.counts.suspended += 1;
        self.counts.waiting += 1;
        Ok(())
    }

    pub(super) fn moved(&mut self, job: usize, to: Vec<Place>) -> Result<(), TimelineError> {
        let Standing::Running { since, places } = self.entry(job).standing.clone() else {
            return Err(self.not_running(job, "moved"));
        };
        let request = self.entry(job).request;
        places.iter().for_each(|place| self.cluster.give(&request, place));
        self.take(job, &to)?;
        self.entry(job).standing = Standing::Running { since, places: to };
        self.counts.moves += 1;
        Ok(())
    }

    fn not_running(&self, job: usize, what: &'static str) -> TimelineError {
        TimelineError::NotRunning { job: self.jobs[job].name.clone(), what }
    }

    fn stop(&mut self, job: usize, what: &'static str, next: Standing) -> Result<(), TimelineError> {
        let now = self.now;
        let entry = self.entry(job);
        let Standing::Running { since, places } = std::mem::replace(&mut entry.standing, next) else {
            return Err(self.not_running(job, what));
        };
        entry.left = entry.left.saturating_sub(now - since);
        let request = entry.request;
        places.iter().for_each(|place| self.cluster.give(&request, place));
        self.counts.running -= 1;
        Ok(())
    }

    fn take(&mut self, job: usize, places: &[Place]) -> Result<(), TimelineError> {
        let request = self.entry(job).request;
        for place in places {
            let taken = self.cluster.take(&request, place);
            taken.map_err(|why| TimelineError::Misplaced { job: self.jobs[job].name.clone(), why })?;
        }
        Ok(())
    }

    pub(super) fn close(self, policy: &str) -> RunSummary {
        let waited = |entry: &Entry| entry.waited.map(seconds);
        let waiting = Distribution::new(self.entries.iter().filter_map(waited).collect());
        let during: Vec<&Sample> =
            self.samples.iter().filter(|sample| sample.at_s <= seconds(self.last_submission)).collect();
        let allocated = Distribution::new(during.iter().map(|sample| sample.allocated_percent).collect());
        let fragmented = Distribution::new(during.iter().map(|sample| sample.fragmented_percent).collect());
        let span = real(self.last_submission.max(1));
        #[allow(clippy::cast_precision_loss, reason = "the result has a few digits")]
        let mean = |sum: u128| sum as f64 / span;
        let times = Distribution::new(self.times);
        RunSummary {
            policy: policy.to_owned(),
            nodes: self.cluster.nodes.len() as u64,
            cards: self.cards,
            jobs: self.jobs.len() as u64,
            completed: self.counts.completed,
            refused: self.counts.refused,
            never_started: self.counts.waiting,
            duration_s: seconds(self.now),
            arrivals_s: seconds(self.last_submission),
            allocated_mean_percent: percent(mean(self.sums.allocated), self.capacity),
            allocated_p50_percent: allocated.quantile(0.5),
            allocated_p90_percent: allocated.quantile(0.9),
            allocated_max_percent: allocated.max(),
            unallocated_mean_percent: 100.0 - percent(mean(self.sums.allocated), self.capacity),
            fragmented_mean_percent: fragmented.mean(),
            cards_needed_mean: mean(self.sums.cards_in_use),
            cards_needed_peak: self.peak_cards,
            waiting: Waiting::of(&waiting),
            preemptions: self.counts.suspended,
            moves: self.counts.moves,
            plan_refusals: self.counts.plan_refusals,
            decisions: times.values().len() as u64,
            decision_p50_us: times.quantile(0.5),
            decision_p99_us: times.quantile(0.99),
            waits_s: waiting.values().to_vec(),
            samples: self.samples,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
fn real(amount: u64) -> f64 {
    amount as f64
}

fn percent(part: f64, whole: u64) -> f64 {
    part * 100.0 / real(whole.max(1))
}
