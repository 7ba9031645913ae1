//! The books of a run: where every job is, on the plain model and independently of who decided it, and what that adds
//! up to.

use std::collections::BTreeMap;
use std::time::Duration;

use super::events::{JobEvent, JobEventKind};
use super::result::{RunSummary, Sample, Spread};
use super::{MOST_SAMPLES, SAMPLES, SuspendCost, TimelineError, seconds};
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
    /// Milliseconds of the present run that go by before it makes progress.
    unpaid: u64,
    /// The number of times that it was started or moved: its end is that of the last.
    runs: u32,
    suspensions: u32,
    first_start: Option<u64>,
    end: Option<u64>,
}

/// The shortest length of which a stretch is counted, as of ten seconds: what is shorter is stretched by anything.
const SHORTEST_MS: u64 = 10_000;

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
    /// All that was allocated, also after the last submission.
    held: u128,
    /// The part of that which went into going on after suspensions and moves.
    cost: u128,
    /// All that was free while somebody waited who would have fitted.
    wasted: u128,
}

pub(super) struct Books<'a> {
    jobs: &'a [TraceJob],
    cost: SuspendCost,
    events: Vec<JobEvent>,
    cluster: PlainCluster,
    /// Jobs that wait for cards, by what they ask for.
    demand: BTreeMap<(Request, u32), u64>,
    /// True if none of them fits, since nothing has ended and nobody has come to wait for something else.
    nobody_fits: bool,
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
    pub(super) fn new(nodes: &[TraceNode], jobs: &'a [TraceJob], cost: SuspendCost) -> Self {
        let cluster = PlainCluster::new(nodes);
        let entry = |job: &TraceJob| Entry {
            standing: Standing::Absent,
            request: cluster.request(&job.ask),
            left: job.length_ms(),
            unpaid: 0,
            runs: 0,
            suspensions: 0,
            first_start: None,
            end: None,
        };
        // To work on hosts alone every free card would be of no use, which says nothing of cards.
        let asks: Vec<Ask> = jobs.iter().map(|job| job.ask.clone()).filter(|ask| ask.cards > 0).collect();
        let shapes = shapes(&asks).into_iter().map(|(ask, weight)| (cluster.request(&ask), weight)).collect();
        let horizon = jobs.iter().map(|job| job.submitted_ms + job.length_ms()).max().unwrap_or(0);
        Self {
            entries: jobs.iter().map(entry).collect(),
            capacity: cluster.capacity_milli(),
            cards: cluster.nodes.iter().map(|node| node.cards.len() as u64).sum(),
            cluster,
            jobs,
            cost,
            events: Vec::new(),
            demand: BTreeMap::new(),
            nobody_fits: true,
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
        let passed = u128::from(now - self.now);
        self.sums.held += u128::from(allocated) * passed;
        if passed > 0 && self.does_somebody_fit() {
            self.sums.wasted += u128::from(self.capacity - allocated) * passed;
        }
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

    /// Returns whether somebody waits for whom there is room as everybody lies.
    fn does_somebody_fit(&mut self) -> bool {
        let fits = |(request, workers): &(Request, u32)| self.cluster.holds(request, *workers);
        self.nobody_fits = self.nobody_fits || !self.demand.keys().any(fits);
        !self.nobody_fits
    }

    /// A job begins to wait.
    fn waits(&mut self, job: usize) {
        self.counts.waiting += 1;
        let request = self.entries[job].request;
        if request.cards > 0 {
            let same = self.demand.entry((request, self.jobs[job].workers)).or_default();
            self.nobody_fits &= *same > 0;
            *same += 1;
        }
    }

    /// A job waits no more.
    fn waited(&mut self, job: usize) {
        self.counts.waiting -= 1;
        let key = (self.entries[job].request, self.jobs[job].workers);
        if let Some(count) = self.demand.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.demand.remove(&key);
            }
        }
    }

    fn note(&mut self, job: usize, kind: JobEventKind, places: &[Place]) {
        self.events.push(JobEvent { at_ms: self.now, job, kind, places: places.to_vec() });
    }

    /// The cost of going on elsewhere or later.
    fn cost_of(&self, job: usize) -> u64 {
        let TraceJob { ask, workers, .. } = &self.jobs[job];
        self.cost.of(u64::from(ask.cards) * u64::from(*workers))
    }

    fn entry(&mut self, job: usize) -> &mut Entry {
        &mut self.entries[job]
    }

    pub(super) fn submitted(&mut self, job: usize, accepted: bool) {
        if accepted {
            self.waits(job);
            self.entry(job).standing = Standing::Waiting;
        } else {
            self.counts.refused += 1;
            self.entry(job).standing = Standing::Refused;
        }
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
        let first = self.entry(job).first_start.is_none();
        self.waited(job);
        self.counts.running += 1;
        let (kind, cost) = if first { (JobEventKind::Start, 0) } else { (JobEventKind::Resume, self.cost_of(job)) };
        let now = self.now;
        self.entry(job).first_start.get_or_insert(now);
        self.runs_on(job, places, kind, cost)
    }

    /// A job runs on from now on, once it has paid for it; answers when it will end, and the number of this run.
    fn runs_on(
        &mut self,
        job: usize,
        places: Vec<Place>,
        kind: JobEventKind,
        cost: u64,
    ) -> Result<(u64, u32), TimelineError> {
        self.take(job, &places)?;
        self.note(job, kind, &places);
        let now = self.now;
        let entry = self.entry(job);
        entry.standing = Standing::Running { since: now, places };
        entry.runs += 1;
        entry.unpaid = cost;
        Ok((now + cost + entry.left, entry.runs))
    }

    pub(super) fn finished(&mut self, job: usize) -> Result<(), TimelineError> {
        self.stop(job, "finished", Standing::Over)?;
        self.note(job, JobEventKind::End, &[]);
        self.counts.completed += 1;
        self.counts.running -= 1;
        self.entry(job).end = Some(self.now);
        Ok(())
    }

    pub(super) fn suspended(&mut self, job: usize) -> Result<(), TimelineError> {
        self.stop(job, "suspended", Standing::Waiting)?;
        self.note(job, JobEventKind::Suspend, &[]);
        self.counts.suspended += 1;
        self.entry(job).suspensions += 1;
        self.counts.running -= 1;
        self.waits(job);
        Ok(())
    }

    /// A job goes on elsewhere; answers as [`started`](Self::started) does.
    pub(super) fn moved(&mut self, job: usize, to: Vec<Place>) -> Result<(u64, u32), TimelineError> {
        self.stop(job, "moved", Standing::Waiting)?;
        self.counts.moves += 1;
        let cost = self.cost_of(job);
        self.runs_on(job, to, JobEventKind::Move, cost)
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
        let ran = now - since;
        let paid = ran.min(entry.unpaid);
        entry.left = entry.left.saturating_sub(ran - paid);
        let request = entry.request;
        places.iter().for_each(|place| self.cluster.give(&request, place));
        self.nobody_fits = false;
        self.sums.cost += u128::from(paid) * u128::from(request.all_cards_milli() * places.len() as u64);
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
        let of_each = |value: fn(&Entry, &TraceJob) -> Option<f64>| {
            let jobs = self.entries.iter().zip(self.jobs);
            Distribution::new(jobs.filter_map(|(entry, job)| value(entry, job)).collect())
        };
        let waits = of_each(|entry, job| entry.end.map(|end| seconds(end - job.submitted_ms - job.length_ms())));
        let first_waits = of_each(|entry, job| entry.first_start.map(|start| seconds(start - job.submitted_ms)));
        let completion = of_each(|entry, job| entry.end.map(|end| seconds(end - job.submitted_ms)));
        let stretch = of_each(|entry, job| {
            let at_least = |millis: u64| real(millis.max(SHORTEST_MS));
            entry.end.map(|end| at_least(end - job.submitted_ms) / at_least(job.length_ms()))
        });
        let suspensions = of_each(|entry, _| entry.first_start.map(|_| f64::from(entry.suspensions)));
        let during: Vec<&Sample> =
            self.samples.iter().filter(|sample| sample.at_s <= seconds(self.last_submission)).collect();
        let allocated = Distribution::new(during.iter().map(|sample| sample.allocated_percent).collect());
        let fragmented = Distribution::new(during.iter().map(|sample| sample.fragmented_percent).collect());
        let span = real(self.last_submission.max(1));
        #[allow(clippy::cast_precision_loss, reason = "the result has a few digits")]
        let mean = |sum: u128| sum as f64 / span;
        #[allow(clippy::cast_precision_loss, reason = "the result has a few digits")]
        let share = |part: u128, whole: u128| part as f64 * 100.0 / whole.max(1) as f64;
        let all = u128::from(self.capacity) * u128::from(self.now);
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
            waiting: Spread::of(&waits),
            first_waiting: Spread::of(&first_waits),
            completion: Spread::of(&completion),
            stretch: Spread::of(&stretch),
            fitting_idle_percent: share(self.sums.wasted, all),
            suspensions_mean: suspensions.mean(),
            suspensions_max: suspensions.max(),
            suspension_cost_percent: share(self.sums.cost, self.sums.held),
            preemptions: self.counts.suspended,
            moves: self.counts.moves,
            plan_refusals: self.counts.plan_refusals,
            decisions: times.values().len() as u64,
            decision_p50_us: times.quantile(0.5),
            decision_p99_us: times.quantile(0.99),
            waits_s: waits.values().to_vec(),
            samples: self.samples,
            events: self.events,
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
