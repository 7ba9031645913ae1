//! Submitting on streams: many jobs each, answered as they are durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use futures::stream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::jobs::Submitter;
use crate::load::{Plan, Seen, Throughput, throughput};

/// Time at which each unanswered job was handed in, by its request id.
type HandedIn = Arc<Mutex<HashMap<String, Instant>>>;

/// Submits on one stream for each client, each with so many jobs unanswered at once. Clients take the submitters in
/// turn.
///
/// # Errors
/// A stream ends badly, or not one job was acknowledged.
pub async fn stream(submitters: &[Submitter], plan: Plan, unanswered: usize) -> Result<Throughput> {
    let counts_from = Instant::now() + plan.warm_up;
    let end = counts_from + plan.duration;
    let mut streams = JoinSet::new();
    for submitter in submitters.iter().cycle().take(plan.clients).cloned() {
        streams.spawn(submit_until(submitter, unanswered, counts_from, end));
    }
    let mut seen = Vec::new();
    while let Some(one) = streams.join_next().await {
        seen.push(one.context("a client broke")??);
    }
    throughput(seen, plan)
}

async fn submit_until(submitter: Submitter, unanswered: usize, counts_from: Instant, end: Instant) -> Result<Seen> {
    let (client, job) = submitter.parts();
    let (client, job) = (client.clone(), job.clone());
    let handed_in = HandedIn::default();
    let jobs = {
        let (client, handed_in) = (client.clone(), Arc::clone(&handed_in));
        std::iter::from_fn(move || {
            let now = Instant::now();
            let request = (now < end).then(|| job.request(&client))?;
            handed_in.lock().unwrap_or_else(PoisonError::into_inner).insert(request.request_id.clone(), now);
            Some(request)
        })
    };
    let mut submissions = client.submit_jobs(stream::iter(jobs)).with_unanswered(unanswered);
    let mut seen = Seen::default();
    while let Some(submission) = submissions.next().await? {
        let began = handed_in.lock().unwrap_or_else(PoisonError::into_inner).remove(&submission.request_id);
        let began = began.context("a job was answered that was not handed in")?;
        let ended = Instant::now();
        match submission.outcome {
            Ok(_) if ended >= counts_from && ended < end => seen.latencies.push(ended - began),
            Ok(_) => {}
            Err(refused) => {
                seen.failed += 1;
                seen.failure = Some(refused.to_string());
            }
        }
    }
    Ok(seen)
}
