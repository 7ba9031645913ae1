//! To whom a leader hands over when nobody is named.

use tokio::time::Instant;

use crate::ids::MemberId;
use crate::members::CAUGHT_UP;
use crate::shared::Shared;
use crate::status::{FollowerStatus, Status};

/// The voter to which leadership is handed when none is named: the one that is furthest.
pub(crate) fn heir(shared: &Shared, status: &Status) -> Option<MemberId> {
    let right = shared.time.right();
    // One whose clock is wrong would not keep it.
    let found = furthest_voter(status, shared.id(), |id| right.contains(&id));
    found.or_else(|| furthest_voter(status, shared.id(), |_| true))
}

/// The voter to which leadership can be handed without waiting: it acknowledged something since a moment, and lacks
/// little.
pub(crate) fn heir_at_hand(shared: &Shared, status: &Status, since: Instant) -> Option<MemberId> {
    let right = shared.time.right();
    furthest_voter(status, shared.id(), |id| {
        let follower = status.followers.get(&id);
        let is_at_hand = |follower: &FollowerStatus| follower.acknowledged_at.is_some_and(|at| at >= since);
        right.contains(&id) && follower.is_some_and(|follower| is_at_hand(follower) && follower.lag <= CAUGHT_UP)
    })
}

pub(crate) fn furthest_voter(status: &Status, own: MemberId, may: impl Fn(MemberId) -> bool) -> Option<MemberId> {
    let others = status.voters.iter().map(|voter| voter.id).filter(|id| *id != own && may(*id));
    others.max_by_key(|id| status.followers.get(id).map(|follower| follower.matched))
}
