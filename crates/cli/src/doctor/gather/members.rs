//! How the members are, and the ways to them.

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
        address: member.address,
        error: member.error,
        role: member.role,
        version: member.version,
        highest_level: member.highest_level,
        committed_index: member.committed_index,
        applied_index: member.applied_index,
        clock_offset_seconds: member.clock_offset_seconds,
        clock_off: member.clock_off,
    });
    let members = members.collect();
    (ClusterFacts { writable: view.writable, voters: view.voters, level: view.level, members }, ways)
}
