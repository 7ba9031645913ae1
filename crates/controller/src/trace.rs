//! The spans of a job's trace that members tell: `submit`, with `propose` and `commit` in it, and `place`. Those of
//! what happens on nodes are told by agents. docs/traces.md has all of them with what they say.

use std::fmt::Display;

use tessera_api::v1::submit_jobs_result::Outcome as Submission;
use tessera_api::v1::{SubmitJobResponse, SubmitJobsResponse};
use tessera_consensus::Applied;
use tessera_ledger::{AllocationId, EntryEvents, Event, Job, JobState, LogTime, Outcome, Reason, State};
use tessera_otlp::span::{ago, at_millis, is_collected, number};
use tessera_otlp::{Draft, Span, SpanIdentity};
use tonic::Status;

/// Ends the span of a submission.
pub fn submitted(span: Option<Span>, answer: &Result<SubmitJobResponse, Status>) {
    let Some(span) = span else { return };
    match answer {
        Ok(answer) => span.set("tessera.job.id", number(answer.job_id)),
        Err(refused) => span.fail(refused.message().to_owned()),
    }
}

/// Ends the span of a message of a stream of submissions.
pub fn submitted_some(span: Option<Span>, answer: &Result<SubmitJobsResponse, Status>) {
    let Some(span) = span else { return };
    match answer {
        Ok(answer) => {
            let refused = answer.results.iter().filter(|result| matches!(result.outcome, Some(Submission::Refused(_))));
            let refused = refused.count();
            span.set("tessera.jobs.submitted", number((answer.results.len() - refused) as u64));
            span.set("tessera.jobs.refused", number(refused as u64));
        }
        Err(ended) => span.fail(ended.message().to_owned()),
    }
}

/// Ends the span of a proposal, and tells of the part of it during which its entry, or each of its entries, was on its
/// way through the log.
pub fn proposed<E: Display>(span: Option<Span>, applied: &[Result<Applied<Outcome>, E>]) {
    let Some(span) = span else { return };
    let entry = |of: &Result<Applied<Outcome>, E>| of.as_ref().ok().map(|applied| applied.index);
    for together in applied.chunk_by(|one, next| entry(one) == entry(next)) {
        match &together[0] {
            Ok(applied) => {
                let commit = span.draft("commit").since(ago(applied.entered.elapsed()));
                let commit = commit.with("tessera.raft.index", number(applied.index.0));
                commit.with("tessera.raft.term", number(applied.term.0)).until(ago(std::time::Duration::ZERO));
            }
            Err(error) => span.fail(error.to_string()),
        }
    }
    let refused = applied.iter().flatten().find_map(|applied| match &applied.outcome {
        Outcome::Rejected(refusal) => Some(refusal),
        _ => None,
    });
    if let Some(refusal) = refused {
        span.fail(refusal.to_string());
    }
}

/// Tells how long a job waited for its allocation, when it is over: from when it began to wait to the entry that
/// granted it, or that ended it.
pub fn waited(state: &State, entry: &EntryEvents, event: &Event) {
    if !is_collected() {
        return;
    }
    let Event::Job { job, from: Some(from), to, reason, allocation } = event else { return };
    let waits = matches!(from, JobState::Pending | JobState::Suspended);
    let gives_up = *from == JobState::Pending && to.is_terminal();
    let Some(job) = state.job(*job).filter(|_| waits && (*to == JobState::Starting || gives_up)) else { return };
    let Some(place) = Draft::following("place", &job.traceparent) else { return };
    let began = job.waiting_since().min(entry.time);
    let place = describe(place, job, entry, reason).since(at(began));
    let place = match allocation {
        Some(allocation) => describe_allocation(place, state, job, *allocation),
        None => place,
    };
    place.failed(gives_up.then(|| reason.to_string())).until(at(entry.time));
}

fn describe(place: Draft, job: &Job, entry: &EntryEvents, reason: &Reason) -> Draft {
    place
        // A leader that tells it once more tells of the same span.
        .known_as(SpanIdentity::of("place", &[job.id.0, entry.revision.0]))
        .with("tessera.job.id", number(job.id.0))
        .with("tessera.job.name", job.spec.name.clone())
        .with("tessera.queue", job.spec.queue.clone())
        .with("tessera.reason", reason.code())
        .with("tessera.raft.index", number(entry.revision.0))
}

fn describe_allocation(place: Draft, state: &State, job: &Job, id: AllocationId) -> Draft {
    let place = place.with("tessera.allocation.id", number(id.0));
    let attempt = job.history.iter().find(|attempt| attempt.allocation == id);
    let nodes = attempt.into_iter().flat_map(|attempt| attempt.nodes.iter()).filter_map(|node| state.node(*node));
    let nodes = nodes.map(|node| node.description.name.clone()).collect();
    let workers = state.allocation(id).map(|allocation| allocation.workers.iter());
    let blocks = workers
        .map(|workers| workers.flat_map(|worker| &worker.slices).map(|slice| u64::from(slice.length.0)).sum::<u64>());
    place
        .with_some("tessera.job.attempt", attempt.map(|attempt| i64::from(attempt.number)))
        .with_list("tessera.nodes", nodes)
        .with_some("tessera.blocks", blocks.map(number))
}

fn at(time: LogTime) -> std::time::SystemTime {
    at_millis(time.0)
}
