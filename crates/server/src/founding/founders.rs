//! The founders of a cluster.

use std::collections::BTreeSet;

use tessera_api::Refusal;
use tessera_api::fields::{address, line};
use tessera_api::v1::{self, ErrorReason};
use tessera_client::Address;
use tessera_client::reach::Scope;
use tessera_connection::Outbound;
use tessera_consensus::{ClusterId, Identity, Member, MemberId};
use tessera_ledger::wire::FieldError;
use tokio::time::Instant;

use super::introduction::{IntroduceError, call, introduce, reach};
use tessera_controller::new_pool::NewPool;

/// The cluster to be founded and its founders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Founders {
    pub cluster: ClusterId,
    pub own: MemberId,
    pub members: Vec<Member>,
    /// The settings of the pool, if any are given.
    pub pool: Option<NewPool>,
}

impl Founders {
    /// Tells the other founders who they are, and learns the names of those that the request did not name. It can be
    /// said again: a founding that was interrupted is taken up where it stands.
    pub async fn introduce(&mut self, outbound: &Outbound, deadline: Instant) -> Result<(), Refusal> {
        let refuse = |member: &Member, error: IntroduceError| {
            let text = format!("{member} cannot be a founder: {error}; when all are waiting, try again");
            Refusal::new(ErrorReason::MembershipRefused, text)
        };
        let own = self.own;
        for member in self.members.iter().filter(|member| member.id != own) {
            reach(outbound, &member.address, deadline).await.map_err(|error| refuse(member, error))?;
        }
        for member in self.members.iter_mut().filter(|member| member.id != own) {
            let identity = Identity { cluster: self.cluster.clone(), member: member.id };
            let pool = self.pool.map(NewPool::to_wire);
            let name = introduce(outbound, &member.address, &identity, pool, deadline)
                .await
                .map_err(|error| refuse(member, error))?;
            call(member, name);
        }
        Ok(())
    }
}

/// Checks a request to found a cluster and numbers its members.
pub(crate) fn founders(request: v1::InitializeClusterRequest, advertise: &str) -> Result<Founders, Refusal> {
    let refusal = |field: &str, problem: String| Refusal::from(FieldError::invalid(field, problem));
    let id = match request.cluster_id.as_str() {
        "" => uuid::Uuid::new_v4().to_string(),
        id => id.to_owned(),
    };
    let cluster = ClusterId::new(&id).map_err(|error| refusal("cluster_id", error.to_string()))?;
    let pool = request.pool.as_ref().map(NewPool::of_request).transpose()?;
    if !matches!(request.members.len(), 1 | 3 | 5) {
        return Err(refusal("members", format!("must be one, three or five, are {}", request.members.len())));
    }
    let mut addresses = BTreeSet::new();
    for (place, member) in request.members.iter().enumerate() {
        line(&format!("members[{place}].name"), &member.name)?;
        address(&format!("members[{place}].address"), &member.address)?;
        if !addresses.insert(member.address.clone()) {
            let problem = "must be another for each".to_owned();
            return Err(refusal(&format!("members[{place}].address"), problem));
        }
    }
    let scope = |member: &v1::NewMember| member.address.parse::<Address>().map(|address| Scope::of(address.host()));
    let same_host = |member: &&v1::NewMember| scope(member) == Ok(Scope::SameHost);
    if let Some(place) = request.members.iter().position(|member| same_host(&member))
        && !request.members.iter().all(|member| same_host(&member))
    {
        let address = &request.members[place].address;
        let problem = format!(
            "{address} leads each of the others to itself; start that server with --advertise as others reach it"
        );
        return Err(refusal(&format!("members[{place}].address"), problem));
    }
    let members: Vec<Member> = (1u64..)
        .zip(request.members)
        .map(|(id, member)| Member { id: MemberId(id), name: member.name, address: member.address })
        .collect();
    let Some(own) = members.iter().find(|member| member.address == advertise) else {
        let problem = format!("must name the asked process by the address it advertises, {advertise}");
        return Err(refusal("members", problem));
    };
    Ok(Founders { cluster, own: own.id, members, pool })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cluster: &str, addresses: &[&str]) -> v1::InitializeClusterRequest {
        let members = addresses
            .iter()
            .map(|address| v1::NewMember { name: String::new(), address: (*address).to_owned() })
            .collect();
        v1::InitializeClusterRequest { cluster_id: cluster.to_owned(), members, ..Default::default() }
    }

    #[test]
    fn founders_are_numbered_in_the_order_they_are_named() {
        let founders = founders(request("prod", &["a:1", "b:1", "c:1"]), "b:1").expect("they fit");
        assert_eq!(founders.own, MemberId(2));
        assert_eq!(founders.members.iter().map(|member| member.id.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(founders.cluster.as_str(), "prod");
    }

    #[test]
    fn a_cluster_without_a_name_gets_one() {
        let one = founders(request("", &["a:1"]), "a:1").expect("it fits");
        let other = founders(request("", &["a:1"]), "a:1").expect("it fits");
        assert_ne!(one.cluster, other.cluster);
    }

    #[test]
    fn founders_that_cannot_be_right_are_refused_with_the_field() {
        let field = |request| {
            let refusal = founders(request, "a:1").expect_err("it must be refused");
            refusal.fields().first().map(|field| field.field.clone()).unwrap_or_default()
        };
        assert_eq!(field(request("a b", &["a:1"])), "cluster_id");
        assert_eq!(field(request("x", &["a:1", "b:1"])), "members");
        assert_eq!(field(request("x", &["b:1"])), "members");
        assert_eq!(field(request("x", &["a:1", "b:1", "b:1"])), "members[2].address");
        assert_eq!(field(request("x", &["a:1", "10.0.0.2:1", "127.0.0.1:1"])), "members[2].address");
        assert_eq!(field(request("x", &[&format!("{}:1", "h".repeat(252))])), "members[0].address");
        for nowhere in ["", "a", "a:0", "a b:1", "a\n:1", "\"a\":1"] {
            assert_eq!(field(request("x", &[nowhere])), "members[0].address", "{nowhere:?}");
        }
        let mut named = request("x", &["a:1"]);
        named.members[0].name = "n".repeat(254);
        assert_eq!(field(named), "members[0].name");
        let huge = Some(v1::NewPool { block_milli_tflops: u64::MAX, reference_precision: 0 });
        let huge = v1::InitializeClusterRequest { pool: huge, ..request("x", &["a:1"]) };
        assert_eq!(field(huge), "pool.block_milli_tflops");
    }
}
