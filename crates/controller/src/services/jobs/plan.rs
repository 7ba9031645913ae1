//! What would become of a job, without submitting it.

use tessera_api::job_spec::job_of_request;
use tessera_api::{job_view, v1};
use tessera_ledger::wire::{WireEnum, duration_to_wire};
use tessera_ledger::{LogTime, MilliTflops, State};
use tessera_placement::{Loss, Preview, PreviewedVictim, Whom};
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
    let reading = desk.read(request.consistency, deadline).await?;
    let whom = request.when.then(|| Whom::Submitted(Box::new(spec.clone())));
    let previewed = desk.pool.preview(spec, deadline).await;
    let preview = previewed.map_err(|error| refusal::of_placement(&desk.pool, &error))?;
    let answer = verdict_of(&reading.state, &preview, desk.clock.now());
    let estimate = match whom {
        Some(whom) => Some(when::estimate(desk, &reading, deadline, whom, request.assumed_limit).await?),
        None => None,
    };
    Ok(v1::PlanJobResponse { read: reading.read_state(), estimate, ..answer })
}

fn verdict_of(state: &State, preview: &Preview, now: LogTime) -> v1::PlanJobResponse {
    let answer = |verdict: v1::PlanVerdict| v1::PlanJobResponse { verdict: verdict.into(), ..Default::default() };
    match preview {
        Preview::Starts { workers } => v1::PlanJobResponse {
            workers: job_view::planned_workers(state, workers),
            ..answer(v1::PlanVerdict::Starts)
        },
        Preview::Preempts { workers, victims } => v1::PlanJobResponse {
            workers: job_view::planned_workers(state, workers),
            victims: victims.iter().filter_map(|victim| victim_of(state, victim, now)).collect(),
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

/// A victim; `None` when it has ended since the plan was made.
fn victim_of(state: &State, victim: &PreviewedVictim, now: LogTime) -> Option<v1::PlannedVictim> {
    let job = state.job(victim.job)?;
    let MilliTflops(compute) = victim.compute;
    Some(v1::PlannedVictim {
        job_id: victim.job.0,
        priority: job.spec.priority,
        blocks: compute / state.config().block_size.0.max(1),
        checkpoint_mode: job.spec.checkpoint.mode.to_wire(),
        work_lost: Some(duration_to_wire(Loss::of(state, job, now).work)),
    })
}
