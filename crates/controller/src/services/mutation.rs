//! Mutations: proposed under their request id, so that each is made once and answered the same however often it is sent
//! (law L3).

use tessera_api::request_id::{Mutation, check_age, request_key};
use tessera_consensus::Leadership;
use tessera_ledger::{Command, Outcome, Request, RequestKey, Revision, State};
use tokio::time::timeout_at;
use tonic::Status;

use super::caller::Caller;
use super::refusal;
use crate::pool::PoolHandle;

/// A mutation that was made, now or when its request id was seen first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// Revision of the entry that made it.
    pub revision: Revision,
    /// What the ledger answered; never a refusal.
    pub outcome: Outcome,
}

/// The name under which a request is made once.
pub(crate) fn key_of<M: Mutation>(request: &M) -> Result<RequestKey, Status> {
    Ok(request_key(request)?)
}

/// The answer that a request was given before, as far as this state knows.
pub(crate) fn made_before(state: &State, key: RequestKey) -> Option<Made> {
    let answered = state.answered(key.id).filter(|answered| answered.fingerprint == key.fingerprint)?;
    Some(Made { revision: answered.revision, outcome: answered.job.map_or(Outcome::Done, Outcome::Submitted) })
}

/// Waits until a leader that was just elected has applied what the ones before it acknowledged. Who does not lead goes
/// on, and is refused by consensus.
async fn knows_all_that_was_answered(pool: &PoolHandle, caller: &Caller) -> Result<(), Status> {
    let mut leadership = pool.leadership();
    let known = leadership.wait_for(|now| !matches!(now, Leadership::Leading { ready: false, .. }));
    match timeout_at(caller.deadline, known).await {
        Ok(_) => Ok(()),
        Err(_) => Err(refusal::too_late()),
    }
}

/// Makes a mutation, or answers as it was answered before. It is never made again after its id was forgotten: an id
/// that is not remembered and is no newer than one that was forgotten is refused.
///
/// What is not remembered when it is judged was not answered by then, or it would be above the floor no more. From then
/// to its being applied it cannot be answered *and* forgotten: that takes as many further ids as are remembered, or as
/// long.
pub(crate) async fn make(pool: &PoolHandle, caller: Caller, key: RequestKey, command: Command) -> Result<Made, Status> {
    knows_all_that_was_answered(pool, &caller).await?;
    let state = pool.view().current();
    if let Some(made) = made_before(&state, key) {
        return Ok(made);
    }
    if state.answered(key.id).is_none() {
        check_age(key.id, state.request_floor(), pool.right_time())?;
    }
    drop(state);
    let request = Request { key: Some(key), actor: caller.actor, command };
    let committed = pool.propose(request, caller.deadline).await.map_err(|error| refusal::of_propose(pool, &error))?;
    if let Outcome::Rejected(rejection) = &committed.outcome {
        return Err(refusal::of_rejection(rejection));
    }
    // A request that was made before has its first revision; the view shows what was just applied.
    let revision = pool.view().current().answered(key.id).map_or(committed.revision, |answered| answered.revision);
    Ok(Made { revision, outcome: committed.outcome })
}
