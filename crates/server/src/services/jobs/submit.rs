//! Submissions, one by one or many together: by the same rules.

use tessera_api::job_spec::job_of_request;
use tessera_api::v1;
use tessera_ledger::{Command, Outcome, RequestKey};
use tessera_otlp::Span;
use tessera_otlp::span::within;
use tonic::{Request, Status};

use crate::services::caller::{Caller, context_of};
use crate::services::mutation::{self, Made};
use crate::services::{Desk, refusal};
use tessera_controller::trace;

/// Takes a job in.
pub(super) async fn one(desk: &Desk, request: Request<v1::SubmitJobRequest>) -> Result<v1::SubmitJobResponse, Status> {
    let span = Span::here("submit");
    let submitted = within(span.as_ref(), take(desk, request)).await;
    trace::submitted(span, &submitted);
    submitted
}

/// Takes a job in. Its trace goes on from the span that is current.
async fn take(desk: &Desk, request: Request<v1::SubmitJobRequest>) -> Result<v1::SubmitJobResponse, Status> {
    let caller = Caller::of(&request)?;
    let traceparent = context_of(&request);
    let (key, command) = wanted(request.into_inner(), &traceparent)?;
    answer(mutation::make(&desk.pool, caller, key, command).await?)
}

/// Takes jobs in, each by itself; answers one result for each, in their order.
///
/// # Errors
/// What says nothing about any of them.
pub(super) async fn many(
    desk: &Desk,
    caller: &Caller,
    jobs: Vec<v1::SubmitJobRequest>,
    traceparent: &str,
) -> Result<Vec<Result<v1::SubmitJobResponse, Status>>, Status> {
    let mut acceptable = Vec::with_capacity(jobs.len());
    let mut refused = Vec::with_capacity(jobs.len());
    for job in jobs {
        refused.push(wanted(job, traceparent).map(|wanted| acceptable.push(wanted)).err());
    }
    let mut made = mutation::make_all(&desk.pool, caller, acceptable).await?.into_iter();
    let mut next = || made.next().map(|made| made.and_then(answer));
    Ok(refused.into_iter().filter_map(|refused| refused.map(Err).or_else(&mut next)).collect())
}

/// Converts a submission into its request key and command.
fn wanted(request: v1::SubmitJobRequest, traceparent: &str) -> Result<(RequestKey, Command), Status> {
    let key = mutation::key_of(&request)?;
    let spec = job_of_request(request.spec)?;
    let secret = spec.virtual_card.serves_across_nodes().then(rand::random);
    Ok((key, Command::SubmitJob { spec: spec.into(), traceparent: traceparent.to_owned(), secret }))
}

fn answer(made: Made) -> Result<v1::SubmitJobResponse, Status> {
    match made {
        Made { revision, outcome: Outcome::Submitted(job) } => {
            Ok(v1::SubmitJobResponse { job_id: job.0, revision: revision.0 })
        }
        Made { outcome, .. } => Err(refusal::unexpected(&outcome)),
    }
}
