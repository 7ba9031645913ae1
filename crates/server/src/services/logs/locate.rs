//! The place of a worker's output, as the ledger knows it.

use tessera_api::error::Refusal;
use tessera_api::v1::{self, ErrorReason};
use tessera_ledger::{Attempt, Job, JobId, Rank, Rejection, State, WorkerState};

/// The worker whose output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::services) struct Wanted {
    pub job: JobId,
    /// 0: the newest.
    pub attempt: u32,
    pub rank: Rank,
    /// True if the reader wants to wait for a first try.
    pub follow: bool,
}

impl Wanted {
    pub(in crate::services) fn of(request: &v1::StreamLogsRequest) -> Self {
        Self { job: JobId(request.job_id), attempt: request.attempt, rank: Rank(request.rank), follow: request.follow }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::services) struct Location {
    /// The worker's name on its node.
    pub worker: v1::WorkerRef,
    pub attempt: u32,
    /// Name of its node.
    pub node: String,
    /// The address of the node's agent, as `host:port`.
    pub address: String,
    /// True if its agent may not have heard of the worker yet.
    pub perhaps_unknown: bool,
    /// True if the worker has run and is over: an agent that knows nothing of it does not keep its output any more.
    pub has_ended: bool,
}

/// Finds the output of a worker; `None` when the job has not been tried yet and the reader wants to wait for that.
pub(in crate::services) fn locate(state: &State, wanted: &Wanted) -> Result<Option<Location>, Refusal> {
    let job = state.job(wanted.job).ok_or(Rejection::UnknownJob(wanted.job))?;
    let attempt = match wanted.attempt {
        0 => job.history.last(),
        number => job.history.iter().find(|attempt| attempt.number == number),
    };
    let Some(attempt) = attempt else {
        let first_to_come = wanted.attempt == 0 && wanted.follow && !job.state.is_terminal();
        return if first_to_come { Ok(None) } else { Err(no_attempt(job, wanted.attempt)) };
    };
    let node = usize::try_from(wanted.rank.0).ok().and_then(|rank| attempt.nodes.get(rank));
    let node = node.ok_or_else(|| no_rank(job, attempt, wanted.rank))?;
    let node = state.node(*node).ok_or(Rejection::UnknownNode(*node))?;
    Ok(Some(Location {
        worker: v1::WorkerRef { allocation_id: attempt.allocation.0, epoch: attempt.epoch.0, rank: wanted.rank.0 },
        attempt: attempt.number,
        node: node.description.name.clone(),
        address: node.description.address.clone(),
        perhaps_unknown: is_held(state, attempt, wanted.rank),
        has_ended: attempt.started_at.and(attempt.ended_at).is_some(),
    }))
}

/// Returns whether a worker was granted and is not confirmed to run.
fn is_held(state: &State, attempt: &Attempt, rank: Rank) -> bool {
    let worker = state.allocation(attempt.allocation).and_then(|allocation| allocation.worker(rank));
    worker.is_some_and(|worker| worker.state == WorkerState::Held)
}

fn no_attempt(job: &Job, number: u32) -> Refusal {
    let (oldest, newest) = (job.history.first(), job.history.last());
    let sentence = match (oldest, newest) {
        (Some(oldest), Some(newest)) => format!(
            "attempt {number} of job {} is not known; attempts {} to {} are",
            job.id, oldest.number, newest.number
        ),
        _ => format!("job {} has not been started yet, so it has no output; follow it to wait for that", job.id),
    };
    Refusal::new(ErrorReason::WorkerUnknown, sentence)
}

fn no_rank(job: &Job, attempt: &Attempt, rank: Rank) -> Refusal {
    let sentence = format!(
        "attempt {} of job {} has {} workers, with ranks from 0, and none of rank {rank}",
        attempt.number,
        job.id,
        attempt.nodes.len()
    );
    Refusal::new(ErrorReason::WorkerUnknown, sentence)
}
