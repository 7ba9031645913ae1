//! Lists of jobs, newest first.

use std::sync::Arc;

use tessera_api::job_filter::JobFilter;
use tessera_api::page::Page;
use tessera_api::{job_view, v1};
use tessera_ledger::{Job, JobId, State, WorkerState};
use tokio::time::Instant;
use tonic::Status;

use crate::services::{Desk, scan};

/// One page of the jobs that a request asks for.
pub(super) async fn jobs(
    desk: &Desk,
    deadline: Instant,
    request: &v1::ListJobsRequest,
) -> Result<v1::ListJobsResponse, Status> {
    let filter = JobFilter::of_list(request.filter.as_ref())?;
    let page = Page::<JobId>::of(request)?;
    let reading = desk.read(request.consistency, deadline).await?;
    let state = &reading.state;
    let last = page.after.map_or(JobId(u64::MAX), |after| JobId(after.0.saturating_sub(1)));
    let view = |job: &&Arc<Job>| filter.takes(state, job).then(|| job_view::job(state, job));
    let key = |job: &&Arc<Job>| job.id;
    let (jobs, next_page_token) = match candidates(state, &filter) {
        Some(ids) => {
            let named = ids.iter().rev().filter(|id| **id <= last).filter_map(|id| state.job(*id));
            scan::page(&page, named, key, view)
        }
        None => scan::page(&page, state.jobs_back_from(last), key, view),
    };
    Ok(v1::ListJobsResponse { jobs, next_page_token, read: reading.read_state() })
}

/// The jobs that alone can match, in order of number, when the filter says so: those that are named, or those on
/// a node.
fn candidates(state: &State, filter: &JobFilter) -> Option<Vec<JobId>> {
    if !filter.jobs.is_empty() {
        return Some(filter.jobs.iter().copied().collect());
    }
    if filter.node_name.is_empty() {
        return None;
    }
    let node = state.node_by_name(&filter.node_name).map(|node| node.id);
    let holds = |worker: &tessera_ledger::Worker| Some(worker.node) == node && worker.state != WorkerState::Stopped;
    let mut jobs: Vec<JobId> = node
        .into_iter()
        .flat_map(|node| state.allocations_on(node))
        .filter(|allocation| allocation.workers.iter().any(holds))
        .map(|allocation| allocation.job)
        .collect();
    jobs.sort_unstable();
    jobs.dedup();
    Some(jobs)
}
