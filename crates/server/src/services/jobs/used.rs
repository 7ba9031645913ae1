//! The use that jobs make of their holdings, by the readings that agents send to the leader.

use tessera_api::fields::count;
use tessera_api::{Refusal, job_view, limits, v1};
use tessera_controller::job_use::{JobUse, SliceUse, WorkerUse};
use tessera_ledger::wire::duration_to_wire;
use tessera_ledger::{JobId, State};
use tonic::Status;

use crate::services::Desk;

/// Says what each of some jobs uses.
pub(super) fn answer(desk: &Desk, request: &v1::ListUseRequest) -> Result<v1::ListUseResponse, Status> {
    count("job_ids", request.job_ids.len(), limits::FILTER).map_err(Refusal::from)?;
    let state = desk.pool.view().current();
    let known = request.job_ids.iter().filter_map(|id| state.job(JobId(*id)));
    let uses = known.filter_map(|job| {
        let used = JobUse::of(&state, desk.pool.telemetry(), job)?;
        Some(view(&state, job.id, &used, request.by_worker))
    });
    Ok(v1::ListUseResponse { uses: uses.collect() })
}

fn view(state: &State, job: JobId, used: &JobUse, by_worker: bool) -> v1::JobUse {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let shown = if by_worker { used.workers.as_slice() } else { &[] };
    v1::JobUse {
        job_id: job.0,
        blocks: used.blocks(),
        utilization_ratio: used.utilization_ratio(),
        memory_held_bytes: used.memory_held_bytes(),
        memory_used_bytes: used.memory_used_bytes(),
        processors: used.processors(),
        host_memory_bytes: used.host_memory_bytes(),
        workers: number(used.workers.len()),
        measured_workers: number(used.workers.iter().filter(|worker| worker.at.is_some()).count()),
        age: used.oldest().map(|at| duration_to_wire(at.elapsed())),
        device: used.device(),
        by_worker: shown.iter().map(|worker| of_worker(state, worker)).collect(),
    }
}

fn of_worker(state: &State, used: &WorkerUse) -> v1::WorkerUse {
    let slice = |(card_index, slice): (&u32, &SliceUse)| v1::SliceUse {
        card_index: *card_index,
        blocks: slice.blocks,
        utilization_ratio: slice.used.utilization_ratio,
        memory_held_bytes: slice.memory_held_bytes,
        memory_used_bytes: slice.used.memory_used_bytes,
        device: slice.used.device,
    };
    v1::WorkerUse {
        rank: used.rank.0,
        node_name: job_view::node_name(state, used.node),
        measured: used.at.is_some(),
        processors: used.processors,
        host_memory_bytes: used.host_memory_bytes,
        slices: used.slices.iter().map(slice).collect(),
    }
}
