//! The view that every member has of itself and the cluster: each of them is asked, and the highest term is believed.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use tessera_api::v1::{GetClusterStatusRequest, GetClusterStatusResponse, MemberRole};
use tessera_client::{Address, Client, ClientError};

use crate::command::silence;
use crate::view::{ClusterView, MemberStatusView, MemberView};

/// Most time for asking one member how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer of each member.
pub struct Survey {
    /// By address, in the order in which they were found.
    pub answers: Vec<(Address, Result<GetClusterStatusResponse, ClientError>)>,
}

impl Survey {
    /// Asks the members that the client was told of, and those that they know.
    pub async fn take(client: &Client) -> Self {
        let mut asked: BTreeSet<Address> = BTreeSet::new();
        let mut answers = Vec::new();
        let mut next: BTreeSet<Address> = client.members().iter().cloned().collect();
        while !next.is_empty() {
            let found = join_all(next.iter().map(|address| ask(client, address.clone()))).await;
            asked.append(&mut next);
            for (_, answer) in &found {
                let members = answer.iter().flat_map(|answer| &answer.members);
                next.extend(members.filter_map(|member| member.address.parse().ok()).filter(|it| !asked.contains(it)));
            }
            answers.extend(found);
        }
        Self { answers }
    }

    /// The first error, when no member answered.
    #[must_use]
    pub fn nobody_answered(&self) -> Option<&ClientError> {
        match self.answers.first() {
            Some((_, Err(error))) if self.answers.iter().all(|(_, answer)| answer.is_err()) => Some(error),
            _ => None,
        }
    }

    /// The cluster, as those who answered see it.
    #[must_use]
    pub fn view(&self) -> ClusterView {
        let good = || self.answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        // Whoever leads knows best. It may be out of reach from here, and not for those who answer.
        let leader_answers = good().any(|status| status.role() == MemberRole::Leader);
        let newest = good().max_by_key(|status| (status.term, status.leader.is_some(), status.committed_index));
        let member = |(address, answer): &(Address, Result<GetClusterStatusResponse, ClientError>)| match answer {
            Ok(status) => MemberStatusView::answered(address.to_string(), status.clone()),
            Err(error) => MemberStatusView::silent(address.to_string(), silence(error)),
        };
        let mut members: Vec<MemberStatusView> = self.answers.iter().map(member).collect();
        members.sort_by_key(|member| (member.error.is_some(), member.status.member_id));
        ClusterView {
            cluster_id: good().map(|status| status.cluster_id.clone()).find(|id| !id.is_empty()).unwrap_or_default(),
            writable: good().any(|status| status.writable && (!leader_answers || status.role() == MemberRole::Leader)),
            leader: newest.and_then(|status| status.leader.clone()).map(MemberView::from),
            term: newest.map_or(0, |status| status.term),
            changing_voters: newest.is_some_and(|status| status.changing_voters),
            voters: newest.map_or(0, |status| status.members.iter().filter(|member| member.voter).count()),
            level: good().map(|status| status.level).max().unwrap_or_default(),
            level_held: newest.is_some_and(|status| status.level_held),
            members,
        }
    }
}

async fn ask(client: &Client, address: Address) -> (Address, Result<GetClusterStatusResponse, ClientError>) {
    let answer = match client.only(&address) {
        Ok(client) => client.with_deadline(PATIENCE).get_cluster_status(GetClusterStatusRequest {}).await,
        Err(error) => Err(error),
    };
    (address, answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_api::v1::Member;

    fn address(port: u16) -> Address {
        format!("127.0.0.1:{port}").parse().expect("a good address")
    }

    #[test]
    fn a_member_that_is_cut_off_does_not_decide_who_leads() {
        let says = |term, leader: u64, writable| GetClusterStatusResponse {
            role: MemberRole::Leader.into(),
            cluster_id: "c".to_owned(),
            member_id: leader,
            admitted: true,
            term,
            leader: Some(Member { id: leader, ..Member::default() }),
            writable,
            ..Default::default()
        };
        let answers = [
            (address(1), Ok(says(4, 1, false))),
            (address(2), Ok(says(5, 2, true))),
            (address(3), Err(ClientError::NoMembers)),
        ];
        let view = Survey { answers: answers.into() }.view();
        assert_eq!((view.leader.map(|leader| leader.id), view.term, view.writable), (Some(2), 5, true));
        assert_eq!(view.members.last().map(|member| member.role.as_str()), Some("unreachable"));
    }

    #[test]
    fn the_leader_says_whether_the_pool_can_be_written_when_it_answers() {
        let says = |role: MemberRole, writable| {
            let status = GetClusterStatusResponse { role: role.into(), writable, ..Default::default() };
            (address(status.role.unsigned_abs() as u16), Ok(status))
        };
        let cut_off = [says(MemberRole::Leader, false), says(MemberRole::Follower, true)];
        assert!(!Survey { answers: cut_off.into() }.view().writable);
        let out_of_reach = [says(MemberRole::Follower, true)];
        assert!(Survey { answers: out_of_reach.into() }.view().writable, "those who answer reach it");
    }
}
