//! Previews of a job without submitting it: it would start, preempt others, wait or be refused.

use tessera_api::job_spec::job_of_request;
use tessera_api::{job_view, v1};
use tessera_explain::{Preview, PreviewedVictim};
use tessera_foresight::{Whom, terms};
use tessera_ledger::wire::{WireEnum, duration_to_wire};
use tessera_ledger::{JobSpec, State};
use tokio::time::Instant;
use tonic::Status;

use super::{when, why};
use crate::services::{Desk, refusal};

/// Tries a job against the pool as it is.
pub(super) async fn answer(
    desk: &Desk,
    deadline: Instant,
    request: v1::PlanJobRequest,
) -> Result<v1::PlanJobResponse, Status> {
    let spec = job_of_request(request.spec)?;
    let assumed_limit = when::limit_of(request.assumed_limit)?;
    let reading = desk.read(request.consistency, deadline).await?;
    let whom = request.when.then(|| Whom::Submitted(Box::new(spec.clone())));
    let previewed = desk.pool.preview(spec.clone(), deadline).await;
    let preview = previewed.map_err(|error| refusal::of_placement(&desk.pool, &error))?;
    let answer = verdict_of(&reading.state, &spec, &preview);
    let nodes = nodes_of(&reading.state, &spec, &preview);
    let estimate = match whom {
        Some(whom) => Some(when::estimate(desk, &reading, deadline, whom, assumed_limit).await?),
        None => None,
    };
    Ok(v1::PlanJobResponse { read: reading.read_state(), estimate, nodes, ..answer })
}

fn verdict_of(state: &State, spec: &JobSpec, preview: &Preview) -> v1::PlanJobResponse {
    let answer = |verdict: v1::PlanVerdict| v1::PlanJobResponse { verdict: verdict.into(), ..Default::default() };
    match preview {
        Preview::Starts { workers } => v1::PlanJobResponse {
            workers: job_view::planned_workers(state, spec, workers),
            ..answer(v1::PlanVerdict::Starts)
        },
        Preview::Preempts { workers, victims } => v1::PlanJobResponse {
            workers: job_view::planned_workers(state, spec, workers),
            victims: victims.iter().filter_map(|victim| victim_of(state, victim)).collect(),
            ..answer(v1::PlanVerdict::Preempts)
        },
        Preview::Waits(explanation) => {
            v1::PlanJobResponse { explanation: Some(why::explanation(explanation)), ..answer(v1::PlanVerdict::Waits) }
        }
        Preview::Refused(rejection) => {
            v1::PlanJobResponse { refusal: Some(job_view::refusal(rejection)), ..answer(v1::PlanVerdict::Refused) }
        }
    }
}

/// The score terms of the nodes that the job would go to.
fn nodes_of(state: &State, spec: &JobSpec, preview: &Preview) -> Vec<v1::PlannedNode> {
    let (Preview::Starts { workers, .. } | Preview::Preempts { workers, .. }) = preview else { return Vec::new() };
    let told = terms(state, spec, workers).into_iter().filter(|node| !node.terms.is_empty());
    told.map(|judged| v1::PlannedNode {
        node_id: judged.node.0,
        node_name: state.node(judged.node).map(|node| node.description.name.clone()).unwrap_or_default(),
        terms: judged
            .terms
            .into_iter()
            .map(|term| v1::ScoreTerm { name: term.name.to_owned(), score: term.score, sentence: term.sentence })
            .collect(),
    })
    .collect()
}

/// A victim; `None` when it has ended since the plan was made.
fn victim_of(state: &State, victim: &PreviewedVictim) -> Option<v1::PlannedVictim> {
    let job = state.job(victim.job)?;
    let loss = victim.loss;
    Some(v1::PlannedVictim {
        job_id: victim.job.0,
        priority: job.spec.priority,
        blocks: loss.compute.0 / state.config().block_size.0.max(1),
        checkpoint_mode: loss.mode.to_wire(),
        work_lost: Some(duration_to_wire(loss.work)),
        tflops_seconds_lost: loss.tflops_seconds(),
    })
}
