//! Checking the ledger's laws on a live pool.

use std::sync::Arc;

use tessera_api::pool_view::block_counts;
use tessera_api::v1;
use tessera_consensus::blocking;
use tessera_ledger::{BlockCounts, State, laws};
use tokio::time::Instant;
use tonic::Status;

use crate::services::Desk;

/// Checks every law against the whole state of this member (law L1), away from the threads that serve calls.
pub(super) async fn answer(
    desk: &Desk,
    deadline: Instant,
    request: &v1::VerifyPoolRequest,
) -> Result<v1::VerifyPoolResponse, Status> {
    let reading = desk.read(request.consistency, deadline).await?;
    let state = Arc::clone(&reading.state);
    let (broken, counts) = blocking(move || (laws::check(&state), counted(&state))).await;
    for violation in &broken {
        tracing::error!(law = violation.law, problem = violation.problem, "a law of the ledger does not hold");
    }
    let violations = broken
        .into_iter()
        .map(|violation| v1::LawViolation { law: violation.law.to_owned(), sentence: violation.problem })
        .collect();
    Ok(v1::VerifyPoolResponse {
        violations,
        blocks: Some(block_counts(counts)),
        digest: format!("{:032x}", reading.state.digest()),
        read: reading.read_state(),
    })
}

/// All blocks by state, extent by extent.
fn counted(state: &State) -> BlockCounts {
    let mut counts = BlockCounts::default();
    for extent in state.cards().flat_map(|(_, card)| card.extents.as_slice()) {
        counts.count(extent.state, extent.length, false);
    }
    counts
}
