//! The address of the device of a job whose program is on a host of its own: requested from the agent that runs its
//! slice server.
//!
//! Whoever may ask for it may compute there; the answer is never kept, and never written to a log.

use std::time::Duration;

use tessera_api::error::reason_of;
use tessera_api::v1::worker_service_client::WorkerServiceClient;
use tessera_api::v1::{self, ErrorReason};
use tessera_connection::Terms;
use tessera_controller::pool::Consistency;
use tessera_ledger::{Access, Job, JobId, JobState, Rank};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::services::logs::{Location, Wanted, locate};
use crate::services::{Desk, refusal};

/// The longest time that an agent may take to accept a connection.
const TERMS: Terms = Terms { connect_timeout: Some(Duration::from_secs(2)), keep_alive: None, window_bytes: None };

pub(super) async fn answer(
    desk: &Desk,
    deadline: Instant,
    request: &v1::GetJobDeviceRequest,
) -> Result<v1::GetJobDeviceResponse, Status> {
    let id = JobId(request.job_id);
    let read = desk.pool.read(Consistency::Linearizable, deadline).await;
    let (state, _) = read.map_err(|error| refusal::of_read(&desk.pool, &error))?;
    let job = state.job(id).ok_or_else(|| refusal::job_unknown(id))?;
    check(job)?;
    let wanted = Wanted { job: id, attempt: 0, rank: Rank(0), follow: false };
    let located = locate(&state, &wanted)?.ok_or_else(|| not_ready(format!("job {id} was never started")))?;
    drop(state);
    let asked = timeout_at(deadline, ask(desk, &located)).await;
    let v1::ReadDeviceResponse { address, token, lease } = asked.map_err(|_elapsed| refusal::too_late())??;
    Ok(v1::GetJobDeviceResponse { address, token, lease, epoch: located.worker.epoch, attempt: located.attempt })
}

fn check(job: &Job) -> Result<(), Status> {
    if job.spec.virtual_card.access != Access::Remote {
        return Err(not_ready(format!(
            "job {} has no program on a host of its own, so its device is reached from nowhere else (`access` is not remote)",
            job.id
        )));
    }
    if job.state != JobState::Running {
        return Err(not_ready(format!("job {} does not run now: {}", job.id, job.reason)));
    }
    Ok(())
}

fn not_ready(sentence: String) -> Status {
    refusal::because(ErrorReason::DeviceNotReady, sentence)
}

async fn ask(desk: &Desk, located: &Location) -> Result<v1::ReadDeviceResponse, Status> {
    let unreachable = |error: &dyn std::error::Error| {
        let sentence = format!("node {:?} at {} does not answer: {error}", located.node, located.address);
        refusal::because(ErrorReason::NodeUnreachable, sentence)
    };
    let channel = desk.pool.outbound().connect(&located.address, &TERMS).await.map_err(|error| unreachable(&error))?;
    let request = v1::ReadDeviceRequest { worker: Some(located.worker) };
    match WorkerServiceClient::new(channel).read_device(request).await {
        Ok(answer) => Ok(answer.into_inner()),
        // The order may still be on its way.
        Err(status) if reason_of(&status) == Some(ErrorReason::WorkerUnknown) => {
            Err(not_ready(status.message().to_owned()))
        }
        Err(status) if reason_of(&status).is_some() => Err(status),
        Err(status) => Err(unreachable(&status)),
    }
}
