//! Members as the API shows them.

use std::time::Duration;

use tessera_api::v1;
use tessera_consensus::{ClockStatus, Member, Role, Status, TAKES_PART};
use tessera_ledger::Level;
use tessera_ledger::wire::duration_to_wire;

/// Release levels as the asked member knows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    pub in_force: Level,
    /// The highest that it can apply.
    pub highest: Level,
    /// True if the settings hold the level.
    pub held: bool,
}

/// The status of the cluster and of the asked member, as the member sees them; `refused`: why it takes no part.
pub(super) fn status(
    status: &Status,
    cluster_id: &str,
    staleness: Option<Duration>,
    uptime: Duration,
    clock: ClockStatus,
    levels: Levels,
    refused: String,
) -> v1::GetClusterStatusResponse {
    let leads = status.role == Role::Leader;
    v1::GetClusterStatusResponse {
        cluster_id: cluster_id.to_owned(),
        member_id: status.id.0,
        admitted: status.admitted,
        role: role(status.role).into(),
        term: status.term.0,
        leader: status.leader.as_ref().map(|leader| member(status, leader)),
        writable: if leads {
            status.quorum_fresh
        } else {
            status.leader.is_some() && staleness.is_some_and(|age| age < TAKES_PART)
        },
        last_index: status.last.0,
        committed_index: status.committed.0,
        applied_index: status.applied.0,
        snapshot_index: status.snapshot.0,
        purged_index: status.purged.0,
        staleness: staleness.map(duration_to_wire),
        members: members(status),
        changing_voters: status.joint,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime: Some(duration_to_wire(uptime)),
        clock_offset: clock.offset_ms.map(signed),
        clock_off: clock.off,
        level: levels.in_force.number(),
        highest_level: levels.highest.number(),
        level_held: levels.held,
        refused,
    }
}

/// A time that may be negative, given in milliseconds.
fn signed(ms: i64) -> prost_types::Duration {
    let nanos = i32::try_from(ms % 1_000 * 1_000_000).expect("less than a second");
    prost_types::Duration { seconds: ms / 1_000, nanos }
}

/// All members, by id.
pub(super) fn members(status: &Status) -> Vec<v1::Member> {
    let mut members: Vec<v1::Member> =
        status.voters.iter().chain(&status.learners).map(|known| member(status, known)).collect();
    members.sort_by_key(|member| member.id);
    members
}

pub(super) fn member(status: &Status, member: &Member) -> v1::Member {
    let follower = status.followers.get(&member.id);
    v1::Member {
        id: member.id.0,
        name: member.name.clone(),
        address: member.address.clone(),
        voter: status.voters.iter().any(|voter| voter.id == member.id),
        leader: status.leader.as_ref().is_some_and(|leader| leader.id == member.id),
        matched: follower.map(|follower| follower.matched.0),
        lag: follower.map(|follower| follower.lag),
    }
}

fn role(role: Role) -> v1::MemberRole {
    match role {
        Role::Learner => v1::MemberRole::Learner,
        Role::Follower => v1::MemberRole::Follower,
        Role::Candidate => v1::MemberRole::Candidate,
        Role::Leader => v1::MemberRole::Leader,
    }
}
