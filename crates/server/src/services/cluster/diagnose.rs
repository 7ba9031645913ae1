//! Diagnostics of this member, and those of the agents of nodes, which it requests for the caller: whoever reaches a
//! member need not reach the nodes.

use std::sync::Arc;
use std::time::Duration;

use tessera_api::agent::diagnostic_part;
use tessera_api::error::{Refusal, reason_of};
use tessera_api::fields::duration;
use tessera_api::limits;
use tessera_api::pool_view::node_of_ref;
use tessera_api::v1::worker_service_client::WorkerServiceClient;
use tessera_api::v1::{self, ErrorReason};
use tessera_diagnostics::{LONGEST, Part, Profiler};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::services::{Desk, logs, refusal};

pub(super) async fn answer(
    desk: &Desk,
    deadline: Instant,
    request: v1::DiagnoseRequest,
) -> Result<v1::DiagnoseResponse, Status> {
    let profile = request.profile.map(profile_time).transpose()?;
    let Some(node) = request.node else {
        let own = timeout_at(deadline, own(desk, profile)).await;
        return own.unwrap_or_else(|_| Err(refusal::too_late()));
    };
    let state = desk.pool.view().current();
    let id = node_of_ref("node", &state, Some(&node))?;
    let address = state.node(id).map(|node| node.description.address.clone()).unwrap_or_default();
    let asked = async {
        let channel = desk.pool.outbound().connect(&address, &logs::TERMS).await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        WorkerServiceClient::new(channel)
            .read_diagnostics(v1::ReadDiagnosticsRequest { profile: request.profile })
            .await
    };
    match timeout_at(deadline, asked).await {
        Ok(Ok(answer)) => Ok(v1::DiagnoseResponse { parts: answer.into_inner().parts }),
        Ok(Err(status)) if reason_of(&status).is_some() => Err(status),
        Ok(Err(status)) => Err(unreachable(&address, status.message())),
        Err(_) => Err(unreachable(&address, "it took too long")),
    }
}

fn profile_time(time: prost_types::Duration) -> Result<Duration, Refusal> {
    Ok(duration("profile", &time, &(limits::SHORTEST..=LONGEST))?)
}

async fn own(desk: &Desk, profile: Option<Duration>) -> Result<v1::DiagnoseResponse, Status> {
    let profiled = match profile {
        Some(time) => {
            let profiler = Profiler::take().ok_or_else(Refusal::already_profiled)?;
            Some(apart(move || profiler.part(time)).await?)
        }
        None => None,
    };
    // Nobody closes the semaphore.
    let place = Arc::clone(&desk.diagnoses).acquire_owned().await;
    let pool = desk.pool.clone();
    let own = apart(move || {
        let _place = place;
        let metrics = pool.metrics().encode();
        let metrics = Part::new("metrics.txt", metrics.map(String::into_bytes).map_err(|error| error.to_string()));
        tessera_diagnostics::own().into_iter().chain([metrics]).collect::<Vec<_>>()
    });
    let parts = own.await?.into_iter().chain(profiled).map(|part| diagnostic_part(part.name, part.content));
    Ok(v1::DiagnoseResponse { parts: parts.collect() })
}

/// Does something away from the threads that serve: the kernel is asked about every thread.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tessera_consensus::try_blocking(work).await.map_err(|error| {
        let sentence = format!("what this member tells of itself could not be put together: {error}; report it");
        refusal::because(ErrorReason::Internal, sentence)
    })
}

fn unreachable(address: &str, why: &str) -> Status {
    let sentence = format!("the agent at {address} does not answer: {why}; look at the node");
    Refusal::new(ErrorReason::NodeUnreachable, sentence).into()
}
