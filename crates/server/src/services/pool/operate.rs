//! Operations on nodes by an operator.

use std::time::Duration;

use tessera_api::error::Refusal;
use tessera_api::pool_view::node_of_ref;
use tessera_api::request_id::Mutation;
use tessera_api::{limits, v1};
use tessera_ledger::wire::FieldError;
use tessera_ledger::{Command, NodeId};
use tonic::{Request, Status};

use crate::services::caller::Caller;
use crate::services::{Desk, mutation, refusal};
use tessera_controller::pool::Consistency;

/// Carries out a command on the node that a request names; answers the revision.
///
/// The name is looked up in a state that is current. A request that was answered before is answered from there: after a
/// node was forgotten its name may be another's.
pub(super) async fn on_node<M: Mutation>(
    desk: &Desk,
    request: Request<M>,
    node: impl Fn(&M) -> Option<&v1::NodeRef>,
    command: impl FnOnce(NodeId) -> Command,
) -> Result<u64, Status> {
    let caller = Caller::of(&request)?;
    let key = mutation::key_of(request.get_ref())?;
    let read = desk.pool.read(Consistency::Linearizable, caller.deadline).await;
    let (state, _) = read.map_err(|error| refusal::of_read(&desk.pool, &error))?;
    if let Some(made) = mutation::made_before(&state, key) {
        return Ok(made.revision.0);
    }
    let node = node_of_ref(&state, node(request.get_ref()))?;
    drop(state);
    let made = mutation::make(&desk.pool, caller, key, command(node)).await?;
    Ok(made.revision.0)
}

/// Nobody means more than that.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The reason that an operator gives, for people.
pub(super) fn reason(text: &str) -> Result<String, Status> {
    limits::check_length("reason", text).map_err(Refusal::from)?;
    Ok(text.to_owned())
}

/// Reads the time that an operator allows: more than zero and at most [`LONGEST`]; `None`: no deadline is given.
pub(super) fn deadline(deadline: Option<prost_types::Duration>) -> Result<Option<Duration>, Status> {
    let problem = || format!("must be more than nothing and at most {} days", LONGEST.as_secs() / 86_400);
    let wrong = || Status::from(Refusal::from(FieldError::invalid("deadline", problem())));
    let read = |deadline| Duration::try_from(deadline).ok().filter(|time| !time.is_zero() && *time <= LONGEST);
    deadline.map(|deadline| read(deadline).ok_or_else(wrong)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_says_of_a_node_is_bounded() {
        assert!(reason(&"x".repeat(limits::NAME)).is_ok());
        let refused = reason(&"x".repeat(limits::NAME + 1)).expect_err("it is too long");
        assert_eq!(refused.message(), "reason: must have at most 253 bytes, has 254");
        let within = |seconds| deadline(Some(prost_types::Duration { seconds, nanos: 0 })).ok().flatten();
        assert_eq!(within(366 * 86_400), Some(LONGEST));
        for wrong in [0, -1, 366 * 86_400 + 1, i64::MAX] {
            assert_eq!(within(wrong), None, "{wrong} s");
        }
    }
}
