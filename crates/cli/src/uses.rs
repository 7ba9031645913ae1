//! The use that jobs make of their allocations, for every row of a list.

use std::collections::BTreeMap;

use tessera_api::limits;
use tessera_api::v1::ListUseRequest;
use tessera_client::{Client, ClientError};

use crate::view::UseView;

/// The use of each of the jobs that holds something, by number.
///
/// # Errors
/// When no leader answers, who alone knows.
pub async fn of(client: &Client, jobs: &[u64], by_worker: bool) -> Result<BTreeMap<u64, UseView>, ClientError> {
    let mut uses = BTreeMap::new();
    for some in jobs.chunks(limits::FILTER) {
        let answer = client.list_use(ListUseRequest { job_ids: some.to_vec(), by_worker }).await?;
        uses.extend(answer.uses.into_iter().map(|used| (used.job_id, UseView::from(used))));
    }
    Ok(uses)
}
