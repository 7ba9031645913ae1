//! The state of the members, and the ways to them.

use futures::future::join_all;
use tessera_client::Client;

use super::network;
use crate::doctor::facts::{ClusterFacts, MemberFacts, WayFacts};
use crate::survey::Survey;

/// Asks every member that is known.
pub(super) async fn ask(client: &Client) -> (ClusterFacts, Vec<WayFacts>) {
    let survey = Survey::take(client).await;
    let ways = join_all(survey.answers.iter().map(|(address, _)| network::way(address))).await;
    let view = survey.view();
    let members = view.members.into_iter().map(|member| MemberFacts {
        clock_offset_seconds: member.clock_offset(),
        address: member.address,
        error: member.error,
        role: member.role,
        version: member.status.version.clone(),
        highest_level: member.status.highest_level,
        committed_index: member.status.committed_index,
        applied_index: member.status.applied_index,
        clock_off: member.status.clock_off,
    });
    let members = members.collect();
    (ClusterFacts { writable: view.writable, voters: view.voters, level: view.level, members }, ways)
}
