//! Explanations of why a job waits, from the placement actor's own code.

use tessera_api::fields::count;
use tessera_api::{Refusal, job_view, limits, v1};
use tessera_explain::{Explanation, WaitCode};
use tessera_foresight::Whom;
use tessera_ledger::wire::WireEnum;
use tessera_ledger::{JobId, Rejection};
use tokio::time::Instant;
use tonic::Status;

use super::when;
use crate::services::{Desk, refusal};

/// Says why a job stands where it stands.
pub(super) async fn answer(
    desk: &Desk,
    deadline: Instant,
    request: &v1::WhyRequest,
) -> Result<v1::WhyResponse, Status> {
    let assumed_limit = when::limit_of(request.assumed_limit)?;
    let reading = desk.read(request.consistency, deadline).await?;
    let id = JobId(request.job_id);
    let job = reading.state.job(id).ok_or_else(|| reading.refuse(Rejection::UnknownJob(id)))?;
    let waits = matches!(job.state, tessera_ledger::JobState::Pending | tessera_ledger::JobState::Suspended);
    let explained = if waits {
        let explained = desk.pool.explain(id, deadline).await;
        explained.map_err(|error| refusal::of_placement(&desk.pool, &error))?.as_ref().map(explanation)
    } else {
        None
    };
    let estimate = match request.when {
        true => Some(when::estimate(desk, &reading, deadline, Whom::Job(id), assumed_limit).await?),
        false => None,
    };
    let explained = explained.map(|explained| v1::Explanation {
        estimated_start: estimate.as_ref().and_then(|estimate| estimate.start),
        ..explained
    });
    Ok(v1::WhyResponse {
        estimate,
        state: job.state.to_wire(),
        reason: Some(job_view::reason(&job.reason)),
        explanation: explained,
        read: reading.read_state(),
    })
}

/// Says in a word what each of some jobs waits for.
pub(super) async fn waits(
    desk: &Desk,
    deadline: Instant,
    request: &v1::ListWaitsRequest,
) -> Result<v1::ListWaitsResponse, Status> {
    count("job_ids", request.job_ids.len(), limits::FILTER).map_err(Refusal::from)?;
    let jobs = request.job_ids.iter().copied().map(JobId).collect();
    let waits = desk.pool.waits(jobs, deadline).await.map_err(|error| refusal::of_placement(&desk.pool, &error))?;
    let wait = |(job, code): (JobId, WaitCode)| v1::Wait { job_id: job.0, constraint: code.name().to_owned() };
    Ok(v1::ListWaitsResponse { waits: waits.into_iter().map(wait).collect() })
}

/// An explanation as the API shows it.
pub(in crate::services) fn explanation(explanation: &Explanation) -> v1::Explanation {
    let quantity = |(name, value): &(&'static str, u64)| v1::Quantity {
        name: (*name).to_owned(),
        value: precise(*value),
        unit: unit_of(name).to_owned(),
    };
    v1::Explanation {
        constraint: explanation.code.name().to_owned(),
        sentence: explanation.sentence.clone(),
        numbers: explanation.numbers.iter().map(quantity).collect(),
        smallest_change: explanation.change.clone().unwrap_or_default(),
        estimated_start: None,
    }
}

/// The number as a float; exact up to 2^53, beyond any quantity of a pool.
#[allow(clippy::cast_precision_loss)]
fn precise(value: u64) -> f64 {
    value as f64
}

/// The unit of a number by its name: placement counts compute in thousandths of a TFLOPS and memory in MiB.
fn unit_of(name: &str) -> &'static str {
    if name.ends_with("compute") {
        "milli TFLOPS"
    } else if name.ends_with("memory") {
        "MiB"
    } else {
        ""
    }
}
