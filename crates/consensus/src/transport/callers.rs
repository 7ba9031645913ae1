//! Checks on the callers of a member, and on the claims in their messages.

use prost::Message;
use tokio::time::Instant;
use tonic::Status;

use super::PROTOCOL_VERSION;
use super::server::{Served, gone};
use crate::ids::{ClusterId, Identity, MemberId};
use crate::machine::Machine;
use crate::pb;
use crate::starts::Doubled;
use crate::types::Vote;

/// Most terms by which a vote may be ahead of this member's: more than elections, a few a second at most, can use up.
const MOST_TERMS_AHEAD: u64 = 1 << 32;

/// Refuses a message that is not meant for this member of this cluster; returns its header.
fn check_header<'a>(identity: &Identity, header: Option<&'a pb::Header>) -> Result<&'a pb::Header, Status> {
    let header = header.ok_or_else(|| Status::invalid_argument("a message without a header"))?;
    if header.version != PROTOCOL_VERSION {
        return Err(Status::failed_precondition(format!(
            "protocol version {} was spoken to {identity}, which speaks version {PROTOCOL_VERSION}",
            header.version
        )));
    }
    if header.cluster_id != identity.cluster.as_str() {
        return Err(Status::failed_precondition(format!(
            "a member of cluster {:?} called {identity}: one has a wrong address, or began anew without the other",
            header.cluster_id
        )));
    }
    if header.to != identity.member.0 {
        return Err(Status::failed_precondition(format!(
            "member {} was called, this is {identity}: the caller has a wrong address for it",
            header.to
        )));
    }
    Ok(header)
}

/// Returns the member as which a call addresses its receiver, by the beginning of its body; `None`: it is no call of
/// another member. A process that has lost its data folder learns so what the others take it for.
#[must_use]
pub fn addressee(body: &[u8]) -> Option<Identity> {
    // Before each message of gRPC stand a byte and its length, and all ours begin with the header.
    let header = pb::DigestsRequest::decode(body.get(5..)?).ok()?.header?;
    let cluster = ClusterId::new(&header.cluster_id).ok()?;
    (header.to > 0).then_some(Identity { cluster, member: MemberId(header.to) })
}

/// Turns the caller itself away, whatever it asks: it notes why.
fn turned_away(why: impl Into<String>) -> Status {
    Status::permission_denied(why)
}

pub(super) fn doubled(doubled: Doubled) -> Status {
    turned_away(doubled.to_string())
}

fn is_plausible(term: u64, own: u64) -> bool {
    term <= own.saturating_add(MOST_TERMS_AHEAD)
}

impl<M: Machine> Served<M> {
    pub(super) fn check<'a>(&self, header: Option<&'a pb::Header>) -> Result<&'a pb::Header, Status> {
        if let Some(reason) = self.inner.shared.stopper.reason() {
            return Err(gone(reason));
        }
        check_header(&self.inner.shared.identity, header)
    }

    /// For what only a member may do; returns the one that the caller says it is. A data folder that was never
    /// admitted under this id is either new or a member's that lost its data; letting it vote or acknowledge could
    /// elect a leader that lacks committed entries.
    pub(super) fn check_member(&self, header: Option<&pb::Header>) -> Result<MemberId, Status> {
        let header = self.check(header)?;
        let from = MemberId(header.from);
        self.inner.shared.starts.hear(from, header.start, Instant::now()).map_err(doubled)?;
        if self.inner.shared.admitted() {
            return Ok(from);
        }
        Err(Status::failed_precondition(format!(
            "{} has an empty data folder and was not admitted: if it lost its data, remove it and add a member under a \
             new id",
            self.inner.shared.identity
        )))
    }

    /// A term far above all that elections can have reached would, once taken up, leave no terms for later ones.
    pub(super) fn plausible(&self, vote: Vote) -> Result<Vote, Status> {
        let (term, own) = (vote.leader_id.term, self.own_vote().leader_id.term);
        if is_plausible(term, own) {
            return Ok(vote);
        }
        self.inner.shared.meters.term_refused();
        let why = format!("term {term} is implausible: this member is in term {own}");
        tracing::warn!(member = vote.leader_id.voted_for, "what came in its name was refused: {why}");
        Err(Status::invalid_argument(why))
    }

    /// For what a member asks for that does not know yet that it was removed. A caller this member has not heard of may
    /// be a later member, whose votes a cluster can depend on; only ids that are used up are refused.
    pub(super) fn check_present(&self, header: Option<&pb::Header>) -> Result<(), Status> {
        let from = self.check_member(header)?;
        if self.inner.shared.was_removed(from) {
            return Err(turned_away(format!(
                "member {from} was removed from this cluster and has no vote to ask for: stop it and remove its data \
                 folder; to have it back, start it with an empty one and add it with `tessera cluster member add`"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_no_elections_can_have_reached_is_not_believed() {
        assert!(is_plausible(1, 5), "an old term is raft's to judge");
        assert!(is_plausible(5 + MOST_TERMS_AHEAD, 5));
        assert!(!is_plausible(6 + MOST_TERMS_AHEAD, 5));
        assert!(is_plausible(u64::MAX, u64::MAX - 1));
    }
}
