//! Bad input: each a clear error with a documented reason; none changes anything.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tessera_api::error::reason_of;
use tessera_api::reflect::descriptors;
use tessera_api::v1::node_ref::Ref;
use tessera_api::v1::{self, ErrorReason};
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower::ServiceExt;

use super::limits::raw;
use crate::services::support::fixture::{node, spec, submission};
use crate::services::support::{Cluster, TestMember, assert_refused, channel, id, within};

/// The counts that every refusal must leave unchanged.
fn fingerprint(member: &TestMember) -> (usize, usize, u64) {
    let state = member.pool.view().current();
    (state.jobs_from(Default::default()).count(), state.queues().count(), state.block_counts().total())
}

fn fields(status: &Status) -> Vec<String> {
    let details = status.get_error_details();
    details
        .bad_request()
        .map(|bad| bad.field_violations.iter().map(|field| field.field.clone()).collect())
        .unwrap_or_default()
}

#[tokio::test]
async fn a_job_that_makes_no_sense_is_refused_with_the_paths_of_its_fields() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    node(&cluster, "n0", &[10]).await;
    let before = fingerprint(member);
    let mut jobs = member.clients.jobs.clone();
    let bad = [
        (v1::JobSpec { command: vec![], ..spec(1) }, "spec.command"),
        (v1::JobSpec { command: vec![String::new()], ..spec(1) }, "spec.command[0]"),
        (spec(0), "spec.virtual_card.milli_tflops"),
        (v1::JobSpec { gang: 1_000_000, ..spec(1) }, "spec.gang"),
        (v1::JobSpec { priority: Some(101), ..spec(1) }, "spec.priority"),
        (v1::JobSpec { queue: "no such name!".to_owned(), ..spec(1) }, "spec.queue"),
        (
            v1::JobSpec { time_limit: Some(prost_types::Duration { seconds: -1, nanos: 0 }), ..spec(1) },
            "spec.time_limit",
        ),
        (v1::JobSpec { on_disconnect: 77, ..spec(1) }, "spec.on_disconnect"),
    ];
    for (spec, field) in bad {
        let answer = jobs.submit_job(v1::SubmitJobRequest { request_id: id(), spec: Some(spec) }).await;
        let status = assert_refused(answer, Code::InvalidArgument, ErrorReason::InvalidField);
        assert!(fields(&status).iter().any(|found| found == field), "{field}: {status:?}");
    }
    let missing = jobs.submit_job(v1::SubmitJobRequest { request_id: id(), spec: None }).await;
    assert_eq!(fields(&assert_refused(missing, Code::InvalidArgument, ErrorReason::InvalidField)), ["spec"]);
    assert_eq!(fingerprint(member), before);
}

#[tokio::test]
async fn a_demand_that_can_never_be_met_is_refused_at_once_naming_the_total() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    node(&cluster, "n0", &[10, 6]).await;
    let before = fingerprint(member);
    let mut jobs = member.clients.jobs.clone();
    let status =
        assert_refused(jobs.submit_job(submission(1_000)).await, Code::FailedPrecondition, ErrorReason::ExceedsPool);
    assert!(status.message().contains("16 TFLOPS"), "{}", status.message());
    assert_refused(jobs.submit_job(submission(12)).await, Code::FailedPrecondition, ErrorReason::ExceedsCard);
    let card = v1::VirtualCardRequest { milli_tflops: 1_000, memory_mib: 1 << 30, ..Default::default() };
    let spec = Some(v1::JobSpec { virtual_card: Some(card), ..spec(1) });
    let memory = jobs.submit_job(v1::SubmitJobRequest { request_id: id(), spec }).await;
    assert_refused(memory, Code::FailedPrecondition, ErrorReason::ExceedsMemory);
    let unknown = Some(v1::JobSpec { queue: "nobody".to_owned(), ..crate::services::support::fixture::spec(1) });
    let answer = jobs.submit_job(v1::SubmitJobRequest { request_id: id(), spec: unknown }).await;
    assert_refused(answer, Code::NotFound, ErrorReason::QueueUnknown);
    assert_eq!(fingerprint(member), before);
}

#[tokio::test]
async fn ids_that_are_none_or_name_nothing_are_refused() {
    let cluster = Cluster::of(1).await;
    let clients = cluster.members[0].clients.clone();
    let (mut jobs, mut pool, mut queues) = (clients.jobs, clients.pool, clients.queues);
    let cancel = |request_id: &str| v1::CancelJobRequest { request_id: request_id.to_owned(), job_id: 7 };
    assert_refused(jobs.cancel_job(cancel("7")).await, Code::InvalidArgument, ErrorReason::RequestIdInvalid);
    assert_refused(jobs.cancel_job(cancel(&id())).await, Code::NotFound, ErrorReason::JobUnknown);
    let get = v1::GetJobRequest { job_id: 7, consistency: 9 };
    assert_refused(jobs.get_job(get).await, Code::InvalidArgument, ErrorReason::InvalidField);
    let get = v1::GetJobRequest { job_id: 7, ..Default::default() };
    assert_refused(jobs.get_job(get).await, Code::NotFound, ErrorReason::JobUnknown);
    let why = v1::WhyRequest { job_id: 7, ..Default::default() };
    assert_refused(jobs.why(why).await, Code::NotFound, ErrorReason::JobUnknown);
    let logs = v1::StreamLogsRequest { job_id: 7, ..Default::default() };
    assert_refused(jobs.stream_logs(logs).await.map(drop), Code::NotFound, ErrorReason::JobUnknown);
    let logs = v1::StreamLogsRequest { job_id: 7, stream: 9, ..Default::default() };
    assert_refused(jobs.stream_logs(logs).await.map(drop), Code::InvalidArgument, ErrorReason::InvalidField);

    let node = Some(v1::NodeRef { r#ref: Some(Ref::Name("nowhere".to_owned())) });
    let get = v1::GetNodeRequest { node: node.clone(), ..Default::default() };
    assert_refused(pool.get_node(get).await, Code::NotFound, ErrorReason::NodeUnknown);
    let get = v1::GetNodeRequest { node: Some(v1::NodeRef { r#ref: None }), ..Default::default() };
    assert_refused(pool.get_node(get).await, Code::InvalidArgument, ErrorReason::InvalidField);
    let drain = v1::DrainNodeRequest { request_id: id(), node, reason: String::new(), deadline: None };
    assert_refused(pool.drain_node(drain).await, Code::NotFound, ErrorReason::NodeUnknown);
    let list = v1::ListNodesRequest { states: vec![42], ..Default::default() };
    assert_refused(pool.list_nodes(list).await, Code::InvalidArgument, ErrorReason::InvalidField);

    let remove = v1::RemoveQueueRequest { request_id: id(), name: "nobody".to_owned() };
    assert_refused(queues.remove_queue(remove).await, Code::NotFound, ErrorReason::QueueUnknown);
    let set = v1::SetQueueRequest { request_id: id(), queue: Some(v1::QueueSettings::default()) };
    assert_refused(queues.set_queue(set).await, Code::InvalidArgument, ErrorReason::InvalidField);
    let list = v1::ListQueuesRequest { page_token: "made up".to_owned(), ..Default::default() };
    assert_refused(queues.list_queues(list).await, Code::InvalidArgument, ErrorReason::PageTokenInvalid);
}

#[tokio::test]
async fn a_card_that_does_not_exist_and_settings_that_cannot_work_are_refused() {
    let cluster = Cluster::of(1).await;
    let place = node(&cluster, "n0", &[10]).await;
    let clients = cluster.members[0].clients.clone();
    let (mut pool, mut cluster_client) = (clients.pool, clients.cluster);
    let node = Some(v1::NodeRef { r#ref: Some(Ref::Id(place.0)) });
    let get = v1::GetCardRequest { node, index: 5, ..Default::default() };
    assert_refused(pool.get_card(get).await, Code::NotFound, ErrorReason::CardUnknown);
    let set = v1::SetPoolConfigRequest { request_id: id(), config: Some(v1::PoolConfig::default()), expected: None };
    assert_refused(pool.set_pool_config(set).await, Code::InvalidArgument, ErrorReason::InvalidField);
    let member = Some(v1::NewMember { name: String::new(), address: "nowhere".to_owned() });
    let add = v1::AddMemberRequest { request_id: id(), member };
    let status = assert_refused(cluster_client.add_member(add).await, Code::InvalidArgument, ErrorReason::InvalidField);
    assert_eq!(fields(&status), ["member.address"]);
}

/// Sends a body to a method and answers the refusal.
async fn send(member: &TestMember, method: &str, body: Bytes) -> Status {
    let channel = channel(&member.address);
    let request = http::Request::post(format!("http://{}/{method}", member.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Full::new(body)))
        .expect("a request");
    let response = channel.oneshot(request).await.expect("an answer");
    if let Some(status) = Status::from_header_map(response.headers()) {
        return status;
    }
    let collected = response.into_body().collect().await.expect("a whole answer");
    Status::from_header_map(collected.trailers().expect("trailers")).expect("a status")
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("small").to_be_bytes();
    Bytes::from([&[0], &length[..], message].concat())
}

#[tokio::test]
async fn frames_and_messages_that_are_damaged_or_too_large_are_refused() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let before = fingerprint(member);
    let garbage = framed(&[0x0a, 0xff, 0xff, 0xff]);
    let cut = Bytes::from_static(&[0, 0, 0, 0, 99, 1, 2]);
    for method in
        ["tessera.v1.JobService/SubmitJob", "tessera.v1.JobService/GetJob", "tessera.v1.PoolService/SetPoolConfig"]
    {
        for body in [garbage.clone(), cut.clone(), Bytes::new()] {
            let status = send(member, method, body).await;
            assert_eq!(reason_of(&status), Some(ErrorReason::ProtocolViolation), "{method}: {status:?}");
            assert_eq!(status.code(), Code::InvalidArgument);
        }
    }
    let huge = framed(&vec![0; 10 << 20]);
    for method in ["tessera.v1.JobService/SubmitJob", "tessera.v1.JobService/ListJobs"] {
        let status = send(member, method, huge.clone()).await;
        assert_eq!(reason_of(&status), Some(ErrorReason::RequestTooLarge), "{method}: {status:?}");
    }
    let unknown = send(member, "tessera.v1.JobService/TakeOver", framed(&[])).await;
    assert_eq!(reason_of(&unknown), Some(ErrorReason::NotSupported), "{unknown:?}");
    assert_eq!(fingerprint(member), before);
}

#[tokio::test]
async fn a_script_beyond_the_limit_is_refused_by_its_field() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let script = "x".repeat((1 << 20) + 1);
    let spec = Some(v1::JobSpec { script, ..spec(1) });
    let answer =
        cluster.members[0].clients.jobs.clone().submit_job(v1::SubmitJobRequest { request_id: id(), spec }).await;
    let status = assert_refused(answer, Code::InvalidArgument, ErrorReason::InvalidField);
    assert_eq!(fields(&status), ["spec.script"]);
}

#[tokio::test]
async fn a_full_disk_takes_no_more_jobs_and_says_so() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    node(&cluster, "n0", &[10]).await;
    let short = tessera_controller::disk::DiskSpace::Short { free_bytes: 10, reserve_bytes: 100 };
    member.room.send_replace(short);
    let answer = member.clients.jobs.clone().submit_job(submission(1)).await;
    let status = assert_refused(answer, Code::ResourceExhausted, ErrorReason::StorageFull);
    assert!(status.get_details_retry_info().is_some());
}

/// A body of which only the beginning ever comes.
fn stalled(beginning: Bytes) -> Body {
    let frames = futures::stream::iter([Ok::<_, Status>(http_body::Frame::data(beginning))]);
    let never = futures::stream::pending();
    Body::new(http_body_util::StreamBody::new(futures::StreamExt::chain(frames, never)))
}

#[tokio::test]
async fn a_client_that_stalls_in_the_middle_of_a_request_is_let_go() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    for method in ["tessera.v1.JobService/SubmitJob", "tessera.v1.JobService/GetJob"] {
        let channel = channel(&member.address);
        let request = http::Request::post(format!("http://{}/{method}", member.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "2S")
            .body(stalled(Bytes::from_static(&[0, 0, 0, 0, 9, 10])))
            .expect("a request");
        let response = within("it is answered", channel.oneshot(request)).await.expect("an answer");
        let status = Status::from_header_map(response.headers()).expect("a refusal");
        assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded), "{method}: {status:?}");
    }
}

/// Bodies of requests that no decoder takes: a number without an end, an unknown way of compression, half of a message,
/// nothing at all.
const GARBAGE: [&[u8]; 4] = [b"\0\0\0\0\x03\xff\xff\xff", b"\x09\0\0\0\0", b"\0\0\0\0\x09\x0a", b""];

async fn refused_garbage(member: &TestMember, method: &str, garbage: &'static [u8]) -> Status {
    let body = futures::stream::iter([Bytes::from_static(garbage)]);
    let call = raw(member, method, "10S", body).await;
    within("it is answered", call).await.expect("no panic")
}

#[tokio::test]
async fn bytes_that_are_no_message_are_the_fault_of_who_sent_them() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let services = descriptors().expect("they were compiled in").services();
    let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
    // Agents serve the one themselves, and of the other these members have none.
    let elsewhere = ["WorkerService", "AgentService"];
    for method in methods.filter(|method| !elsewhere.contains(&method.parent_service().name())) {
        let path = format!("{}/{}", method.parent_service().full_name(), method.name());
        for garbage in GARBAGE {
            let status = refused_garbage(member, &path, garbage).await;
            // A stream may end without having said anything.
            if !garbage.is_empty() || !method.is_client_streaming() {
                assert_eq!(reason_of(&status), Some(ErrorReason::ProtocolViolation), "{path} {garbage:?}: {status:?}");
            }
        }
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_are_no_defect_of_what_is_served_beside_the_api() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let (raft, health) = ("tessera.raft.v1.RaftService", "grpc.health.v1.Health");
    let of_raft = [
        "Vote",
        "PreVote",
        "TransferLeader",
        "OfferSnapshot",
        "InstallSnapshot",
        "ReadIndex",
        "Admit",
        "Digests",
        "Vouch",
        "Presence",
    ];
    let methods = of_raft.map(|method| format!("{raft}/{method}")).into_iter();
    for path in methods.chain(["Check", "Watch"].map(|method| format!("{health}/{method}"))) {
        let status = refused_garbage(member, &path, GARBAGE[0]).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
    }
    let reflection = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let status = refused_garbage(member, reflection, GARBAGE[0]).await;
    assert_ne!(status.code(), Code::Internal, "{status:?}");
}
