//! Members are seen, added, promoted and removed, and leadership moves, at any member.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::v1::{self, ErrorReason, MemberRole};
use tessera_connection::{Inbound, Outbound};
use tessera_consensus::{Identity, MemberId, SystemClock};
use tessera_server::config::ServerConfig;
use tessera_server::founding::introduce;
use tessera_server::member::{Ground, run_on};
use tessera_store::memory::{Flushing, MemoryDisk};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::services::support::agent::FakeAgent;
use crate::services::support::fixture::{node, submit};
use crate::services::support::{Clients, Cluster, assert_refused, id, within};

#[tokio::test]
async fn members_are_seen_and_leadership_moves() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let mut client = cluster.follower().await.clients.cluster.clone();
    let members = client.list_members(v1::ListMembersRequest {}).await.expect("members").into_inner().members;
    assert_eq!(
        members.iter().map(|member| (member.id, member.voter)).collect::<Vec<_>>(),
        [(1, true), (2, true), (3, true)]
    );
    let mut asked = leader.clients.cluster.clone();
    let status = asked.get_cluster_status(v1::GetClusterStatusRequest {}).await.expect("a status").into_inner();
    assert_eq!((status.role(), status.member_id, status.cluster_id.as_str()), (MemberRole::Leader, leader.id, "test"));
    assert!(status.admitted && status.writable);

    let to = members.iter().map(|member| member.id).find(|id| *id != leader.id).expect("three members");
    let transfer = v1::TransferLeadershipRequest { request_id: id(), member_id: to };
    let moved = client.transfer_leadership(transfer).await.expect("it is a voter").into_inner();
    assert_eq!(moved.leader.expect("somebody leads").id, to);
    let unknown = v1::TransferLeadershipRequest { request_id: id(), member_id: 99 };
    assert_refused(client.transfer_leadership(unknown).await, Code::NotFound, ErrorReason::MemberUnknown);
    let promote = v1::PromoteMemberRequest { request_id: id(), member_id: to, ..Default::default() };
    assert_eq!(client.promote_member(promote).await.expect("it has a vote already").into_inner().members.len(), 3);
    let unknown = v1::RemoveMemberRequest { request_id: id(), member_id: 99, ..Default::default() };
    assert_refused(client.remove_member(unknown).await, Code::NotFound, ErrorReason::MemberUnknown);
    let remove = v1::RemoveMemberRequest { request_id: id(), member_id: leader.id, ..Default::default() };
    let left = client.remove_member(remove.clone()).await.expect("two voters are left").into_inner().members;
    assert!(left.iter().all(|member| member.id != leader.id), "{left:?}");

    let founders = |addresses: Vec<String>| v1::InitializeClusterRequest {
        request_id: id(),
        cluster_id: "test".to_owned(),
        members: addresses.into_iter().map(|address| v1::NewMember { name: String::new(), address }).collect(),
        pool: None,
    };
    let others = client.initialize_cluster(founders(vec!["127.0.0.1:1".to_owned()])).await;
    assert_refused(others, Code::FailedPrecondition, ErrorReason::AlreadyInitialized);
    let same: Vec<String> = left.iter().map(|member| member.address.clone()).collect();
    let second = v1::InitializeClusterRequest { cluster_id: "another".to_owned(), ..founders(same.clone()) };
    let second = client.initialize_cluster(second).await;
    assert_refused(second, Code::FailedPrecondition, ErrorReason::AlreadyInitialized);
    assert_eq!(
        client.initialize_cluster(founders(same)).await.expect("it is this cluster").into_inner().cluster_id,
        "test"
    );
}

/// The name that a process at this address was started with.
fn own_name(address: &str) -> String {
    format!("process at {address}")
}

/// Starts a process without identity; answers where it listens.
async fn process(end: &CancellationToken) -> String {
    let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let address = inbound.local_address().expect("an address");
    let ground = Ground {
        store: MemoryDisk::new(Flushing::AtOnce).open().expect("an empty disk"),
        outbound: Outbound::default(),
        clock: Arc::new(SystemClock),
        inbound,
        http: None,
        consensus: None,
        shown: watch::Sender::default(),
        seed: 4,
        onlooker: None,
        usage: None,
    };
    let mut config = ServerConfig::new("unused", address);
    config.name = own_name(&address.to_string());
    let end = end.clone();
    tokio::spawn(async move { run_on(ground, config, end).await.expect("it runs until it is ended") });
    address.to_string()
}

#[tokio::test]
async fn a_new_pool_has_the_blocks_that_its_founder_chose() {
    let end = CancellationToken::new();
    let _ended = end.clone().drop_guard();
    let founders = [process(&end).await, process(&end).await, process(&end).await];
    let request = |milli| v1::InitializeClusterRequest {
        request_id: id(),
        cluster_id: "small".to_owned(),
        members: founders.iter().map(|it| v1::NewMember { name: String::new(), address: it.clone() }).collect(),
        pool: Some(v1::NewPool { block_milli_tflops: milli, reference_precision: v1::Precision::Fp32.into() }),
    };
    let clients = Clients::of(&founders[0]);
    let mut cluster = clients.cluster.clone();
    let refused = cluster.initialize_cluster(request(2_000_000)).await;
    assert_refused(refused, Code::InvalidArgument, ErrorReason::InvalidField);
    let founded = within("it is founded", cluster.initialize_cluster(request(10))).await;
    let members = founded.expect("all three wait for this").into_inner().members;
    let names: Vec<String> = members.into_iter().map(|member| member.name).collect();
    assert_eq!(names, founders.each_ref().map(|founder| own_name(founder)), "nobody gave them others");
    for founder in &founders {
        let mut pool = Clients::of(founder).pool.clone();
        let config = pool.get_pool_config(v1::GetPoolConfigRequest::default()).await.expect("settings").into_inner();
        let config = config.config.expect("settings");
        assert_eq!((config.block_milli_tflops, config.reference_precision()), (10, v1::Precision::Fp32), "{founder}");
    }
    within("a retry", cluster.initialize_cluster(request(10))).await.expect("it is this cluster");
    let other = within("another pool", cluster.initialize_cluster(request(20))).await;
    let text = other.as_ref().map_err(|status| status.message().to_owned()).err().unwrap_or_default();
    assert!(text.contains("blocks of 0.01 TFLOPS fp32, not blocks of 0.02 TFLOPS fp32"), "{text}");
    assert_refused(other, Code::FailedPrecondition, ErrorReason::AlreadyInitialized);
}

#[tokio::test]
async fn a_process_is_added_through_a_follower_and_gets_a_vote() {
    let cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[10]).await;
    let end = CancellationToken::new();
    let _ended = end.clone().drop_guard();
    let address = process(&end).await;
    let follower = &cluster.follower().await.clients;
    let mut client = follower.cluster.clone();
    let add = || v1::AddMemberRequest {
        request_id: id(),
        member: Some(v1::NewMember { name: "fourth".to_owned(), address: address.clone() }),
    };
    let added = within("it is added", client.add_member(add())).await.expect("it waits to be added").into_inner();
    let member = added.member.expect("an answer has a member");
    assert_eq!((member.id, member.name.as_str(), member.voter), (4, "fourth", false));
    let again = client.add_member(add()).await.expect("it is in the cluster").into_inner().member.expect("a member");
    assert_eq!(again.id, 4);
    let promote = v1::PromoteMemberRequest { request_id: id(), member_id: 4, ..Default::default() };
    let members = client.promote_member(promote).await.expect("it has caught up").into_inner().members;
    assert!(members.iter().any(|member| member.id == 4 && member.voter), "{members:?}");
    let job = submit(&Clients::of(&address), 1).await;
    let get = v1::GetJobRequest { job_id: job.0, ..Default::default() };
    follower.jobs.clone().get_job(get).await.expect("what the new member took is everywhere");
}

#[tokio::test]
async fn a_member_that_nobody_names_is_called_as_its_process_was_started() {
    let cluster = Cluster::of(1).await;
    let end = CancellationToken::new();
    let _ended = end.clone().drop_guard();
    let address = process(&end).await;
    let mut client = cluster.members[0].clients.cluster.clone();
    let member = Some(v1::NewMember { name: String::new(), address: address.clone() });
    let add = v1::AddMemberRequest { request_id: id(), member };
    let added = within("it is added", client.add_member(add)).await.expect("it waits to be added").into_inner();
    assert_eq!(added.member.map(|member| member.name), Some(own_name(&address)));
}

/// The leader that introduced it, or that had it admitted, was lost before the others knew of it.
#[tokio::test]
async fn a_member_that_is_introduced_again_keeps_the_name_of_its_process() {
    let cluster = Cluster::of(1).await;
    let end = CancellationToken::new();
    let _ended = end.clone().drop_guard();
    let address = process(&end).await;
    let own = Identity { member: MemberId(2), ..cluster.members[0].pool.consensus().identity().clone() };
    let in_time = || Instant::now() + Duration::from_secs(20);
    let outbound = Outbound::default();
    for time in ["the first time", "again"] {
        let name = introduce(&outbound, &address, &own, None, in_time()).await.expect("it is this member");
        assert_eq!(name, own_name(&address), "{time}");
    }
    let member = Some(v1::NewMember { name: String::new(), address: address.clone() });
    let add = v1::AddMemberRequest { request_id: id(), member };
    let mut client = cluster.members[0].clients.cluster.clone();
    let added = within("it is added", client.add_member(add)).await.expect("it has this id").into_inner();
    let added = added.member.expect("an answer has a member");
    assert_eq!((added.id, added.name), (2, own_name(&address)));
    let name = introduce(&outbound, &address, &own, None, in_time()).await.expect("it is this member");
    assert_eq!(name, own_name(&address), "it is admitted");
}

#[tokio::test]
async fn two_that_are_added_at_once_get_an_id_each() {
    let cluster = Cluster::of(1).await;
    let end = CancellationToken::new();
    let _ended = end.clone().drop_guard();
    let add = async |address: String| {
        let member = Some(v1::NewMember { name: String::new(), address });
        let request = v1::AddMemberRequest { request_id: id(), member };
        let added = cluster.members[0].clients.cluster.clone().add_member(request).await;
        added.expect("it waits to be added").into_inner().member.expect("an answer has a member").id
    };
    let (one, other) = (process(&end).await, process(&end).await);
    let (one, other) = within("both are added", async { tokio::join!(add(one), add(other)) }).await;
    assert_eq!([one.min(other), one.max(other)], [2, 3]);
}

#[tokio::test]
async fn what_cannot_become_a_member_is_refused_at_once_with_what_it_is() {
    let (cluster, other) = (Cluster::of(1).await, Cluster::of(1).await);
    let (agent, founder) = (FakeAgent::start(watch::channel(None).1), CancellationToken::new());
    let _ended = founder.clone().drop_guard();
    let elsewhere = process(&founder).await;
    let found = v1::InitializeClusterRequest {
        request_id: id(),
        cluster_id: "another".to_owned(),
        members: vec![v1::NewMember { name: String::new(), address: elsewhere.clone() }],
        pool: None,
    };
    let founded = Clients::of(&elsewhere).cluster.clone().initialize_cluster(found).await;
    founded.expect("it waits for this");
    // Nothing that it takes connections for speaks gRPC.
    let page = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let page_address = page.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let answers = page.incoming().flatten().map(|mut caller| caller.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        answers.count()
    });
    let cases = [
        ("127.0.0.1:1".to_owned(), "was not reached"),
        (elsewhere, "it is a member of the cluster another"),
        (other.members[0].address.clone(), "it was introduced as member 1 of this cluster already"),
        (agent.address.to_string(), "is no server of Tessera, but an agent"),
        (page_address, "127.0.0.1"),
    ];
    for (address, what) in cases {
        let member = Some(v1::NewMember { name: String::new(), address });
        let add = v1::AddMemberRequest { request_id: id(), member };
        let refused = within("an answer", cluster.members[0].clients.cluster.clone().add_member(add)).await;
        let status = assert_refused(refused, Code::FailedPrecondition, ErrorReason::MembershipRefused);
        assert!(status.message().contains(what), "{status:?} does not say {what:?}");
    }
}
