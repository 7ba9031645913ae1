//! Mutations: proposed under their request id, so that each is made once and answered the same however often it is sent
//! (law L3).

use std::sync::Arc;

use tessera_api::request_id::{Mutation, check_age, request_key};
use tessera_consensus::Leadership;
use tessera_ledger::{AnsweredRequest, Command, LogTime, Outcome, Request, RequestKey, Revision, State};
use tokio::time::timeout_at;
use tonic::Status;

use super::caller::Caller;
use super::refusal;
use tessera_controller::pool::{Committed, PoolHandle};

/// A mutation that was made, now or when its request id was seen first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// Revision of the entry that made it.
    pub revision: Revision,
    /// The ledger's outcome; never a refusal.
    pub outcome: Outcome,
}

/// The name under which a request is made once.
pub(crate) fn key_of<M: Mutation>(request: &M) -> Result<RequestKey, Status> {
    Ok(request_key(request)?)
}

/// The answer that a request was given before, as far as this state knows.
pub(crate) fn made_before(state: &State, key: RequestKey) -> Option<Made> {
    answer_of(state.answered(key.id)?, key)
}

/// The answer given under a request's id, if that was the same request and it was made. A refused request is the
/// ledger's to refuse again.
fn answer_of(answered: &AnsweredRequest, key: RequestKey) -> Option<Made> {
    let outcome = answered.job.map_or(Outcome::Done, Outcome::Submitted);
    let was_made = answered.fingerprint == key.fingerprint && !answered.refused;
    was_made.then_some(Made { revision: answered.revision, outcome })
}

/// The knowledge of a leader about requests as it judges them.
struct Known {
    state: Arc<State>,
    /// The time with which the clocks of requests are compared.
    now: LogTime,
}

impl Known {
    /// Waits until a leader that was just elected has applied what the ones before it acknowledged. Who does not lead
    /// goes on, and is refused by consensus.
    async fn all_that_was_answered(pool: &PoolHandle, caller: &Caller) -> Result<Self, Status> {
        let mut leadership = pool.leadership();
        let known = leadership.wait_for(|now| !matches!(now, Leadership::Leading { ready: false, .. }));
        match timeout_at(caller.deadline, known).await {
            Ok(_) => Ok(Self { state: pool.view().current(), now: pool.right_time() }),
            Err(_) => Err(refusal::too_late()),
        }
    }

    /// The answer that a request was given before; `None` when it may be made. It is never made again after its id was
    /// forgotten: an id that is not remembered and is no newer than one that was forgotten is refused.
    ///
    /// What is not remembered when it is judged was not answered by then, or it would be above the floor no more. From
    /// then to its being applied it cannot be answered *and* forgotten: that takes as many further ids as are
    /// remembered, or as long.
    fn answer(&self, key: RequestKey) -> Result<Option<Made>, Status> {
        match self.state.answered(key.id) {
            // Another request under the same id is the ledger's to refuse.
            Some(answered) => Ok(answer_of(answered, key)),
            None => {
                check_age(key.id, self.state.request_floor(), self.now)?;
                Ok(None)
            }
        }
    }
}

/// The result of a request that was committed; `state` has it applied.
fn made(state: &State, key: RequestKey, committed: Committed) -> Result<Made, Status> {
    if let Outcome::Rejected(rejection) = &committed.outcome {
        return Err(refusal::of_rejection(rejection));
    }
    // A request that was made before has its first revision; the view shows what was just applied.
    let revision = state.answered(key.id).map_or(committed.revision, |answered| answered.revision);
    Ok(Made { revision, outcome: committed.outcome })
}

/// Makes a mutation, or answers as it was answered before.
pub(crate) async fn make(pool: &PoolHandle, caller: Caller, key: RequestKey, command: Command) -> Result<Made, Status> {
    if let Some(made) = Known::all_that_was_answered(pool, &caller).await?.answer(key)? {
        return Ok(made);
    }
    let request = Request { key: Some(key), actor: caller.actor, command };
    let committed = pool.propose(request, caller.deadline).await.map_err(|error| refusal::of_propose(pool, &error))?;
    made(&pool.view().current(), key, committed)
}

/// Makes mutations, each as [`make`] does and whatever becomes of the others; answers one result for each, in their
/// order.
///
/// # Errors
/// What says nothing about any of them, such as that another member leads now. Some may have been made then.
pub(crate) async fn make_all(
    pool: &PoolHandle,
    caller: &Caller,
    wanted: Vec<(RequestKey, Command)>,
) -> Result<Vec<Result<Made, Status>>, Status> {
    let known = Known::all_that_was_answered(pool, caller).await?;
    let (mut answers, mut keys, mut requests) = (Vec::with_capacity(wanted.len()), Vec::new(), Vec::new());
    for (key, command) in wanted {
        let answer = known.answer(key).transpose();
        if answer.is_none() {
            keys.push(key);
            requests.push(Request { key: Some(key), actor: caller.actor.clone(), command });
        }
        answers.push(answer);
    }
    drop(known);
    let committed = pool.propose_all(requests, caller.deadline).await;
    let state = pool.view().current();
    let mut proposed = keys.into_iter().zip(committed);
    let open = answers.iter_mut().filter(|answer| answer.is_none());
    for (answer, (key, committed)) in open.zip(proposed.by_ref()) {
        *answer = Some(match committed {
            Ok(committed) => made(&state, key, committed),
            Err(error) if error.is_of_the_command() => Err(refusal::of_propose(pool, &error)),
            Err(error) => return Err(refusal::of_propose(pool, &error)),
        });
    }
    Ok(answers.into_iter().flatten().collect())
}
