//! The levels that members announce as applicable, requested from every member: a new level is proposed only when all
//! members can apply it (law L7).

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::handle::Consensus;
use crate::ids::MemberId;
use crate::machine::Machine;

impl<M: Machine> Consensus<M> {
    /// Asks every member, voters and learners, which [`level`](Machine::highest_level) it can apply now. `None` of one
    /// that did not answer in time, or could not be reached.
    pub async fn announced_levels(&self, deadline: Instant) -> BTreeMap<MemberId, Option<u32>> {
        let shared = &self.inner.shared;
        let asked = self.members().into_iter().map(|member| async move {
            if member.id == shared.id() {
                return (member.id, Some(shared.highest_level));
            }
            let announced = self.inner.links.announced(&member, deadline).await;
            let announced =
                announced.inspect_err(|error| tracing::debug!(%member, %error, "it does not say its level"));
            (member.id, announced.ok())
        });
        futures::future::join_all(asked).await.into_iter().collect()
    }
}
