//! To whom a leader hands over when nobody is named.

use crate::ids::MemberId;
use crate::shared::Shared;
use crate::status::Status;

/// The voter to which leadership is handed when none is named: the one that is furthest.
pub(crate) fn heir(shared: &Shared, status: &Status) -> Option<MemberId> {
    let right = shared.time.right();
    // One whose clock is wrong would not keep it.
    let found = furthest_voter(status, shared.id(), |id| right.contains(&id));
    found.or_else(|| furthest_voter(status, shared.id(), |_| true))
}

pub(crate) fn furthest_voter(status: &Status, own: MemberId, may: impl Fn(MemberId) -> bool) -> Option<MemberId> {
    let others = status.voters.iter().map(|voter| voter.id).filter(|id| *id != own && may(*id));
    others.max_by_key(|id| status.followers.get(id).map(|follower| follower.matched))
}
