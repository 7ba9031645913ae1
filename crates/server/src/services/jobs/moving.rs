//! Moving one job to other cards, because an operator says so.

use tessera_api::pool_view::node_of_ref;
use tessera_api::v1::ErrorReason;
use tessera_api::{job_view, v1};
use tessera_foresight::{MoveRefusal, move_job};
use tessera_ledger::wire::{WireEnum, duration_to_wire};
use tessera_ledger::{Command, JobId, Outcome, Plan, State};
use tessera_placement::PlannedMove;
use tonic::{Request, Status};

use crate::services::caller::Caller;
use crate::services::mutation::{self, made_before};
use crate::services::{Desk, refusal};

/// Plans the move against a current state and proposes it. A request that was answered before moves nothing again.
pub(super) async fn answer(desk: &Desk, request: Request<v1::MoveJobRequest>) -> Result<v1::MoveJobResponse, Status> {
    let caller = Caller::of(&request)?;
    let key = mutation::key_of(request.get_ref())?;
    let reading = desk.read(v1::Consistency::Linearizable.into(), caller.deadline).await?;
    let asked = request.get_ref();
    let id = JobId(asked.job_id);
    if let Some(made) = made_before(&reading.state, key) {
        return Ok(v1::MoveJobResponse { planned: None, revision: made.revision.0 });
    }
    let to = asked.node.as_ref().map(|node| node_of_ref("node", &reading.state, Some(node))).transpose()?;
    let found = desk.rehearse(&reading, caller.deadline, move |state, now| move_job(state, now, id, to)).await?;
    let found = found.map_err(|error| refused(&error))?;
    let planned = Some(planned_move(&reading.state, &found));
    if asked.plan_only {
        return Ok(v1::MoveJobResponse { planned, revision: 0 });
    }
    let plan = Plan { revision: reading.state.revision(), parts: found.parts() };
    let made = mutation::make(&desk.pool, caller, key, Command::CommitPlan { plan }).await?;
    if let Outcome::Planned(parts) = &made.outcome
        && let Some(Err(rejection)) = parts.last()
    {
        return Err(refusal::of_rejection(rejection));
    }
    Ok(v1::MoveJobResponse { planned, revision: made.revision.0 })
}

fn refused(error: &MoveRefusal) -> Status {
    match error {
        MoveRefusal::UnknownJob(job) => refusal::job_unknown(*job),
        _ => refusal::because(ErrorReason::MoveImpossible, error.to_string()),
    }
}

/// A move as the API shows it.
pub(in crate::services) fn planned_move(state: &State, planned: &PlannedMove) -> v1::PlannedMove {
    let job = state.job(planned.job);
    let source = job.and_then(|job| state.allocation(job.allocation?));
    v1::PlannedMove {
        job_id: planned.job.0,
        from: source.map(|source| job_view::allocation(state, source).workers).unwrap_or_default(),
        to: job.map(|job| job_view::planned_workers(state, &job.spec, &planned.workers)).unwrap_or_default(),
        checkpoint_mode: planned.loss.mode.to_wire(),
        work_lost: Some(duration_to_wire(planned.loss.work)),
        makes_room_for: planned.makes_room_for.map_or(0, |job| job.0),
    }
}
