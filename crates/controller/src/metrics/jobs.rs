//! The page that tells job by job. It is made while somebody asks for it, from what the ledger and the newest readings
//! say, and never longer than its limit.

use std::cmp::Reverse;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use tessera_ledger::{Job, JobId, JobState, LogTime, State, WorkerState};
use tessera_metrics::{Scrape, table};

use crate::job_use::JobUse;
use crate::telemetry::Telemetry;

/// Jobs on the page unless somebody asks for another number.
pub const JOBS: usize = 1_000;
/// Most jobs that can be asked for.
pub const MOST_JOBS: usize = 5_000;

/// A selection of jobs; an empty field selects all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsWanted {
    pub queue: String,
    pub submitter: String,
    pub state: Option<JobState>,
    /// Submitted so long ago.
    pub min_age: Duration,
    pub limit: usize,
}

impl Default for JobsWanted {
    fn default() -> Self {
        Self { queue: String::new(), submitter: String::new(), state: None, min_age: Duration::ZERO, limit: JOBS }
    }
}

impl JobsWanted {
    fn takes(&self, job: &Job, now: LogTime) -> bool {
        u128::from(now.0.saturating_sub(job.submitted_at.0)) >= self.min_age.as_millis()
            && !job.state.is_terminal()
            && (self.queue.is_empty() || self.queue == job.spec.queue)
            && (self.submitter.is_empty() || self.submitter == job.submitter)
            && self.state.is_none_or(|state| state == job.state)
    }
}

/// The page in OpenMetrics text.
///
/// # Errors
/// When it cannot be written, which is a bug.
pub fn page(state: &State, telemetry: &Telemetry, now: LogTime, wanted: &JobsWanted) -> Result<String, fmt::Error> {
    let mut found: Vec<&Arc<Job>> = state.jobs_from(JobId(0)).filter(|job| wanted.takes(job, now)).collect();
    // What they use is looked up of those that are shown: there may be many others.
    found.sort_by_cached_key(|job| (Reverse(held(state, job)), job.id));
    let left_out = found.len().saturating_sub(wanted.limit);
    found.truncate(wanted.limit);
    let of = |job: &Arc<Job>| Row::of(job, JobUse::of(state, telemetry, job).unwrap_or_default(), now);
    let rows = found.into_iter().map(of).collect();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Rows(Mutex::new((rows, left_out)))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Blocks that a job was granted.
fn held(state: &State, job: &Job) -> u64 {
    let allocation = job.allocation.and_then(|id| state.allocation(id));
    let workers = allocation.into_iter().flat_map(|allocation| allocation.workers.iter());
    let slices = workers.filter(|worker| worker.state != WorkerState::Stopped).flat_map(|worker| worker.slices.iter());
    slices.map(|slice| u64::from(slice.length.0)).sum()
}

/// A job on the page.
#[derive(Debug)]
struct Row {
    job: String,
    name: String,
    queue: String,
    submitter: String,
    state: &'static str,
    age: f64,
    attempts: u32,
    used: JobUse,
}

impl Row {
    fn of(job: &Job, used: JobUse, now: LogTime) -> Self {
        Self {
            job: job.id.0.to_string(),
            name: job.spec.name.clone(),
            queue: job.spec.queue.clone(),
            submitter: job.submitter.clone(),
            state: job.state.name(),
            age: now.0.saturating_sub(job.submitted_at.0) as f64 / 1000.0,
            attempts: job.attempts,
            used,
        }
    }
}

#[derive(Debug)]
struct Rows(Mutex<(Vec<Row>, usize)>);

impl Collector for Rows {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, left_out) = &*held;
        let mut scrape = Scrape::new(encoder);
        let info = rows.iter().map(|row| {
            let Row { job, name, queue, submitter, state, .. } = row;
            ([job.as_str(), name, queue, submitter, state], 1)
        });
        scrape.gauges(&table::JOB_INFO, info)?;
        let number =
            |pick: fn(&Row) -> f64| rows.iter().map(move |row| ([row.job.as_str(), row.queue.as_str()], pick(row)));
        scrape.gauges(&table::JOB_AGE, number(|row| row.age))?;
        scrape.gauges(&table::JOB_ATTEMPTS, number(|row| f64::from(row.attempts)))?;
        scrape.gauges(&table::JOB_GRANTED, number(|row| row.used.blocks() as f64))?;
        scrape.gauges(&table::JOB_MEMORY_GRANTED, number(|row| row.used.memory_held_bytes() as f64))?;
        scrape.gauges(&table::JOB_WORKERS, number(|row| row.used.workers.len() as f64))?;
        scrape.gauges(&table::JOB_UTILIZATION, number(|row| row.used.utilization_ratio()))?;
        scrape.gauges(&table::JOB_MEMORY_USED, number(|row| row.used.memory_used_bytes() as f64))?;
        scrape.gauges(&table::JOB_PROCESSORS, number(|row| row.used.processors()))?;
        scrape.gauges(&table::JOB_HOST_MEMORY, number(|row| row.used.host_memory_bytes() as f64))?;
        scrape.gauge(&table::JOBS_LEFT_OUT, i64::try_from(*left_out).unwrap_or(i64::MAX))
    }
}
