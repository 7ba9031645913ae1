//! Lists of jobs: `openb` pods, Philly jobs, and our own.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::table::Table;
use super::{Ask, DEFAULT_PRIORITY, DEFAULT_QUEUE, TraceError, TraceJob, WHOLE_CARD};

/// Most cards that a job of Philly has on one node; larger ones are gangs of nodes.
const PHILLY_NODE: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFormat {
    /// Alibaba `cluster-trace-gpu-v2023`.
    Openb,
    /// Microsoft Philly, as prepared by siasosp23/artifacts.
    Philly,
    /// Our own.
    Plain,
}

/// A list of jobs in order of submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobList {
    pub format: JobFormat,
    /// Its jobs; in the order of the file where the trace has no times.
    pub jobs: Vec<TraceJob>,
    /// True if the list says when jobs came and how long they ran.
    pub timed: bool,
}

impl JobList {
    /// The same jobs, all in one queue.
    #[must_use]
    pub fn in_one_queue(mut self) -> Self {
        self.jobs.iter_mut().for_each(|job| DEFAULT_QUEUE.clone_into(&mut job.queue));
        self
    }
}

/// A row of `openb_pod_list_*.csv`; the short lists end with `gpu_milli`.
#[derive(Deserialize)]
struct OpenbPod {
    name: String,
    cpu_milli: u64,
    memory_mib: u64,
    num_gpu: u32,
    gpu_milli: u32,
    #[serde(default)]
    gpu_spec: String,
    #[serde(default)]
    creation_time: Option<u64>,
    #[serde(default)]
    deletion_time: Option<u64>,
    #[serde(default)]
    scheduled_time: Option<u64>,
}

/// A row of `philly_jobs.csv`; its `gpu_time` is the product of two others and not used.
#[derive(Deserialize)]
struct PhillyJob {
    timestamp: String,
    duration: f64,
    num_gpus: u32,
    cluster: String,
}

/// A row of our own format; all but the first five columns may be left out.
#[derive(Deserialize)]
struct PlainJob {
    job: String,
    cards: u32,
    card_milli: u32,
    cpu_milli: u64,
    memory_mib: u64,
    #[serde(default)]
    submitted_s: Option<f64>,
    #[serde(default)]
    runtime_s: Option<f64>,
    #[serde(default)]
    limit_s: Option<f64>,
    #[serde(default)]
    workers: Option<u32>,
    #[serde(default)]
    card_memory_mib: Option<u64>,
    #[serde(default)]
    models: String,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    priority: Option<u32>,
    #[serde(default)]
    preemptible: Option<bool>,
}

/// Reads a list of jobs.
///
/// # Errors
/// [`TraceError`].
pub fn read_jobs(path: &Path) -> Result<JobList, TraceError> {
    let mut table = Table::open(path)?;
    if table.has(&["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"]) {
        openb(&mut table)
    } else if table.has(&["timestamp", "duration", "num_gpus", "cluster"]) {
        philly(&mut table)
    } else if table.has(&["job", "cards", "card_milli", "cpu_milli", "memory_mib"]) {
        plain(&mut table)
    } else {
        Err(table.unknown(
            "jobs",
            "`name,cpu_milli,memory_mib,num_gpu,gpu_milli`, `timestamp,duration,num_gpus,cluster` or \
             `job,cards,card_milli,cpu_milli,memory_mib`",
        ))
    }
}

/// Models written as `A|B`.
pub(crate) fn models(text: &str) -> BTreeSet<String> {
    text.split('|').map(str::trim).filter(|model| !model.is_empty()).map(str::to_owned).collect()
}

/// Checks shares of cards; answers what is wrong with them.
pub(crate) fn check_cards(cards: u32, milli: u32) -> Result<(), String> {
    match (cards, milli) {
        (0, _) => Ok(()),
        (1, 1..=WHOLE_CARD) | (_, WHOLE_CARD) => Ok(()),
        (1, _) => Err(format!("{milli} is no share of a card; it must be 1 to {WHOLE_CARD}")),
        _ => Err(format!("several cards must be whole ({WHOLE_CARD}), not {milli}")),
    }
}

fn openb(table: &mut Table) -> Result<JobList, TraceError> {
    let timed = table.has(&["creation_time", "deletion_time"]);
    let rows = table.rows::<OpenbPod>()?;
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        let pod = row.value;
        check_cards(pod.num_gpu, pod.gpu_milli).map_err(|problem| table.wrong(row.line, "gpu_milli", problem))?;
        // A pod that the real cluster never placed would have run no longer than it was wanted.
        let began = pod.scheduled_time.or(pod.creation_time);
        let runtime = pod.deletion_time.zip(began).map(|(end, began)| end.saturating_sub(began).saturating_mul(1000));
        let ask = Ask {
            cpu_milli: pod.cpu_milli,
            memory_mib: pod.memory_mib,
            cards: pod.num_gpu,
            card_milli: if pod.num_gpu == 0 { 0 } else { pod.gpu_milli },
            card_memory_mib: 0,
            models: if pod.num_gpu == 0 { BTreeSet::new() } else { models(&pod.gpu_spec) },
        };
        jobs.push(TraceJob {
            submitted_ms: pod.creation_time.map_or(0, |at| at.saturating_mul(1000)),
            runtime_ms: runtime,
            ..TraceJob::of(pod.name, ask)
        });
    }
    Ok(in_order(JobFormat::Openb, jobs, timed))
}

fn philly(table: &mut Table) -> Result<JobList, TraceError> {
    let rows = table.rows::<PhillyJob>()?;
    let mut jobs = Vec::with_capacity(rows.len());
    for (number, row) in rows.into_iter().enumerate() {
        let job = row.value;
        let time: jiff::civil::DateTime = job
            .timestamp
            .parse()
            .map_err(|error: jiff::Error| table.wrong(row.line, "timestamp", error.to_string()))?;
        let since = time.duration_since(jiff::civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
        if job.num_gpus == 0 {
            return Err(table.wrong(row.line, "num_gpus", "a job has at least one card"));
        }
        let runtime = millis(job.duration).map_err(|problem| table.wrong(row.line, "duration", problem))?;
        let cards = (1..=PHILLY_NODE.min(job.num_gpus)).rev().find(|cards| job.num_gpus.is_multiple_of(*cards));
        let cards = cards.unwrap_or(1);
        let ask = Ask { cards, card_milli: WHOLE_CARD, ..Ask::default() };
        jobs.push(TraceJob {
            submitted_ms: u64::try_from(since.as_millis()).unwrap_or(0),
            runtime_ms: Some(runtime),
            workers: job.num_gpus / cards,
            queue: if job.cluster.is_empty() { DEFAULT_QUEUE.to_owned() } else { job.cluster },
            ..TraceJob::of(format!("philly-{number}"), ask)
        });
    }
    Ok(in_order(JobFormat::Philly, jobs, true))
}

fn plain(table: &mut Table) -> Result<JobList, TraceError> {
    let timed = table.has(&["submitted_s", "runtime_s"]);
    let rows = table.rows::<PlainJob>()?;
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        let (line, job) = (row.line, row.value);
        check_cards(job.cards, job.card_milli).map_err(|problem| table.wrong(line, "card_milli", problem))?;
        let time = |column: &str, seconds: Option<f64>| {
            seconds.map(millis).transpose().map_err(|problem| table.wrong(line, column, problem))
        };
        let priority = job.priority.unwrap_or(DEFAULT_PRIORITY);
        if priority > 100 {
            return Err(table.wrong(line, "priority", format!("must be 0 to 100, not {priority}")));
        }
        let workers = job.workers.unwrap_or(1);
        if workers == 0 {
            return Err(table.wrong(line, "workers", "a job has at least one worker"));
        }
        let limit_ms = time("limit_s", job.limit_s)?;
        if limit_ms == Some(0) {
            return Err(table.wrong(line, "limit_s", "a time limit is positive; leave it empty where there is none"));
        }
        jobs.push(TraceJob {
            name: job.job,
            submitted_ms: time("submitted_s", job.submitted_s)?.unwrap_or(0),
            runtime_ms: time("runtime_s", job.runtime_s)?,
            limit_ms,
            workers,
            ask: Ask {
                cpu_milli: job.cpu_milli,
                memory_mib: job.memory_mib,
                cards: job.cards,
                card_milli: if job.cards == 0 { 0 } else { job.card_milli },
                card_memory_mib: job.card_memory_mib.unwrap_or(0),
                models: if job.cards == 0 { BTreeSet::new() } else { models(&job.models) },
            },
            queue: if job.queue.is_empty() { DEFAULT_QUEUE.to_owned() } else { job.queue },
            priority,
            preemptible: job.preemptible.unwrap_or(true),
        });
    }
    Ok(in_order(JobFormat::Plain, jobs, timed))
}

/// Seconds as milliseconds; ten years at most, so that sums of them stay numbers.
fn millis(seconds: f64) -> Result<u64, String> {
    const LONGEST: f64 = 10.0 * 366.0 * 24.0 * 3600.0;
    if !(0.0..=LONGEST).contains(&seconds) {
        return Err(format!("{seconds} is no number of seconds from 0 to {LONGEST}"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
    Ok((seconds * 1000.0).round() as u64)
}

/// The jobs in order of submission, the first of which is at 0.
fn in_order(format: JobFormat, mut jobs: Vec<TraceJob>, timed: bool) -> JobList {
    let first = jobs.iter().map(|job| job.submitted_ms).min().unwrap_or(0);
    jobs.iter_mut().for_each(|job| job.submitted_ms -= first);
    jobs.sort_by_key(|job| job.submitted_ms);
    JobList { format, jobs, timed }
}
