//! The constraints that waiting jobs wait for, for every row of a list.

use std::collections::BTreeMap;

use tessera_api::limits;
use tessera_api::v1::{Consistency, ListWaitsRequest};
use tessera_client::Client;

use crate::view::JobView;

/// Adds what waiting jobs wait for. Only the leader knows: where it does not say, and in answers of any age, the reason
/// that the ledger keeps is shown.
pub async fn add(client: &Client, consistency: i32, jobs: &mut [JobView]) {
    if consistency == i32::from(Consistency::Stale) {
        return;
    }
    let mut waiting: Vec<&mut JobView> = jobs.iter_mut().filter(|job| job.is_waiting()).collect();
    for some in waiting.chunks_mut(limits::FILTER) {
        let job_ids = some.iter().map(|job| job.id).collect();
        let Ok(answer) = client.list_waits(ListWaitsRequest { job_ids }).await else { return };
        let mut words: BTreeMap<u64, String> =
            answer.waits.into_iter().map(|wait| (wait.job_id, wait.constraint)).collect();
        some.iter_mut().for_each(|job| job.waits_for = words.remove(&job.id));
    }
}
