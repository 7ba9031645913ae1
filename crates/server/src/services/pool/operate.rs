//! Operations on nodes by an operator.

use std::time::Duration;

use tessera_api::error::Refusal;
use tessera_api::fields::{duration, line};
use tessera_api::pool_view::node_of_ref;
use tessera_api::request_id::Mutation;
use tessera_api::{limits, v1};
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
    let node = node_of_ref("node", &state, node(request.get_ref()))?;
    drop(state);
    let made = mutation::make(&desk.pool, caller, key, command(node)).await?;
    Ok(made.revision.0)
}

/// Nobody means more than that.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The reason that an operator gives, for people.
pub(super) fn reason(text: &str) -> Result<String, Refusal> {
    line("reason", text)?;
    Ok(text.to_owned())
}

/// Reads the time that an operator allows; `None`: no deadline is given.
pub(super) fn deadline(deadline: Option<prost_types::Duration>) -> Result<Option<Duration>, Refusal> {
    let read = |deadline| duration("deadline", &deadline, &(limits::SHORTEST..=LONGEST));
    Ok(deadline.map(read).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_says_of_a_node_is_bounded() {
        assert!(reason(&"x".repeat(limits::NAME)).is_ok());
        let refused = reason(&"x".repeat(limits::NAME + 1)).expect_err("it is too long");
        assert!(refused.message().starts_with("reason: must have at most 253 bytes in one line"), "{refused}");
        assert!(reason("two\nlines").is_err() && reason("\u{202e}").is_err());
        let within = |seconds, nanos| deadline(Some(prost_types::Duration { seconds, nanos })).ok().flatten();
        assert_eq!(within(366 * 86_400, 0), Some(LONGEST));
        let wrong = [(0, 0), (-1, 0), (366 * 86_400 + 1, 0), (i64::MAX, 0), (0, 1), (5, -1), (5, 1_500_000_000)];
        for (seconds, nanos) in wrong {
            assert_eq!(within(seconds, nanos), None, "{seconds} s and {nanos} ns");
        }
    }
}
