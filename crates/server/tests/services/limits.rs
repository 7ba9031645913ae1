//! Limits on the resources that clients may have open or under way at once: each limit is met with its own reason,
//! hurts nobody else, and a refused request is taken once there is room again.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use tessera_api::error::{LIMIT, USED, reason_of};
use tessera_api::v1::{self, ErrorReason};
use tessera_server::grpc::GrpcSettings;
use tessera_server::limits::MemberLimits;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower::ServiceExt;

use crate::services::support::fixture::{node, spec, submission, submit};
use crate::services::support::{Clients, Cluster, TestMember, assert_refused, channel, id, within};

async fn limited(limits: MemberLimits) -> Cluster {
    Cluster::with(1, GrpcSettings { limits, ..GrpcSettings::default() }).await
}

/// Asks again until it is taken.
async fn taken_in_the_end<T, F: Future<Output = Result<T, Status>>>(mut ask: impl FnMut() -> F) -> T {
    within("there is room again", async {
        loop {
            if let Ok(answer) = ask().await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn metadata(status: &Status, key: &str) -> Option<String> {
    status.get_details_error_info()?.metadata.get(key).cloned()
}

fn metric(member: &TestMember, line: &str) -> bool {
    member.pool.metrics().encode().expect("text").contains(line)
}

/// A call of which only the beginning ever comes, on a connection of its own.
pub(crate) async fn stalled(member: &TestMember, method: &str, timeout: &'static str) -> JoinHandle<Status> {
    let frames = futures::stream::iter([Bytes::from_static(b"\0\0\0\0\x09\x0a")]);
    raw(member, method, timeout, frames.chain(futures::stream::pending())).await
}

/// A call with these bytes for its body, on a connection of its own; answers how it is refused.
pub(crate) async fn raw(
    member: &TestMember,
    method: &str,
    timeout: &'static str,
    bytes: impl futures::Stream<Item = Bytes> + Send + 'static,
) -> JoinHandle<Status> {
    let body = Body::new(StreamBody::new(bytes.map(|bytes| Ok::<_, Status>(http_body::Frame::data(bytes)))));
    let channel = channel(&member.address);
    let request = http::Request::post(format!("http://{}/{method}", member.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(body)
        .expect("a request");
    tokio::spawn(async move {
        let (head, body) = channel.oneshot(request).await.expect("an answer").into_parts();
        let trailers = body.collect().await.expect("it ends in order").trailers().cloned();
        let said = Status::from_header_map(&head.headers);
        said.or_else(|| Status::from_header_map(&trailers?)).expect("a refusal")
    })
}

#[tokio::test]
async fn a_member_keeps_only_so_many_watches_open() {
    let cluster = limited(MemberLimits { watches: 1, ..MemberLimits::default() }).await;
    let member = &cluster.members[0];
    let watch = || async { member.clients.jobs.clone().watch_jobs(v1::WatchJobsRequest::default()).await };
    let first = watch().await.expect("there is room");
    let refused = assert_refused(watch().await.map(drop), Code::ResourceExhausted, ErrorReason::TooManyWatches);
    assert_eq!(metadata(&refused, LIMIT).as_deref(), Some("1"));
    let of_pool = member.clients.pool.clone().watch_pool(v1::WatchPoolRequest::default()).await.map(drop);
    assert_refused(of_pool, Code::ResourceExhausted, ErrorReason::TooManyWatches);
    assert!(metric(member, "tessera_limit_used{limit=\"watches\"} 1"));
    assert!(metric(member, "tessera_limit_refused_total{limit=\"watches\"} 2"));
    drop(first);
    taken_in_the_end(watch).await;
}

#[tokio::test]
async fn a_member_keeps_only_so_many_streams_of_output_open() {
    let cluster = limited(MemberLimits { log_streams: 1, ..MemberLimits::default() }).await;
    node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let job_id = submit(clients, 1).await.0;
    let request = v1::StreamLogsRequest { job_id, follow: true, ..Default::default() };
    let follow = || async { clients.jobs.clone().stream_logs(request).await };
    let first = follow().await.expect("there is room");
    assert_refused(follow().await.map(drop), Code::ResourceExhausted, ErrorReason::TooManyLogStreams);
    clients.jobs.clone().watch_jobs(v1::WatchJobsRequest::default()).await.expect("watches have their own limit");
    drop(first);
    taken_in_the_end(follow).await;
}

#[tokio::test]
async fn a_member_answers_only_so_many_calls_at_once() {
    let cluster = limited(MemberLimits { requests: 1, ..MemberLimits::default() }).await;
    let member = &cluster.members[0];
    let read = || async { member.clients.pool.clone().get_pool(v1::GetPoolRequest::default()).await };
    taken_in_the_end(read).await;
    let stalled = stalled(member, "tessera.v1.JobService/SubmitJob", "60S").await;
    within("the stalled call is under way", async {
        while !metric(member, "tessera_limit_used{limit=\"requests\"} 1") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = assert_refused(read().await, Code::ResourceExhausted, ErrorReason::TooManyRequests);
    assert!(refused.get_details_retry_info().is_some(), "it passes by itself");
    stalled.abort();
    taken_in_the_end(read).await;
}

#[tokio::test]
async fn a_request_that_does_not_arrive_is_let_go_whatever_its_deadline() {
    let cluster = limited(MemberLimits { silence: Duration::from_millis(100), ..MemberLimits::default() }).await;
    for method in ["tessera.v1.JobService/SubmitJob", "tessera.v1.JobService/GetJob"] {
        let stalled = stalled(&cluster.members[0], method, "1H").await;
        let status = within("it is let go", stalled).await.expect("no panic");
        assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded), "{method}: {status:?}");
    }
    let stalled = stalled(&cluster.members[0], "grpc.health.v1.Health/Check", "1H").await;
    let status = within("it is let go", stalled).await.expect("no panic");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
}

#[tokio::test]
async fn a_member_holds_only_so_many_bytes_of_requests() {
    let cluster = limited(MemberLimits { request_bytes: 64 << 10, ..MemberLimits::default() }).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    let long = v1::JobSpec { script: "#".repeat(100 << 10), ..spec(1) };
    for _ in 0..3 {
        let request = v1::SubmitJobRequest { request_id: id(), spec: Some(long.clone()) };
        let refused = member.clients.jobs.clone().submit_job(request).await;
        let refused = assert_refused(refused, Code::ResourceExhausted, ErrorReason::TooManyRequestBytes);
        assert_eq!(metadata(&refused, LIMIT).as_deref(), Some("65536"));
    }
    // What reads no request, but has one, is held to the same.
    let list = v1::ListJobsRequest { page_token: "x".repeat(100 << 10), ..Default::default() };
    let refused = member.clients.jobs.clone().list_jobs(list).await;
    assert_refused(refused, Code::ResourceExhausted, ErrorReason::TooManyRequestBytes);
    submit(&member.clients, 1).await;
    within("all is given back", async {
        while !metric(member, "tessera_limit_used{limit=\"request_bytes\"} 0") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn clients_have_so_many_connections_and_agents_need_none_of_them() {
    let cluster = limited(MemberLimits { connections: 1, ..MemberLimits::default() }).await;
    let member = &cluster.members[0];
    let read = |clients: &Clients| {
        let mut pool = clients.pool.clone();
        async move { pool.get_pool(v1::GetPoolRequest::default()).await }
    };
    read(&member.clients).await.expect("it is the first");
    let another = Clients::of(&member.address);
    let refused = assert_refused(read(&another).await, Code::ResourceExhausted, ErrorReason::TooManyConnections);
    assert_eq!(metadata(&refused, LIMIT).as_deref(), Some("1"));
    read(&member.clients).await.expect("who is in stays in");

    // An agent is let through to the service, which takes none in this test.
    let mut agent = v1::agent_service_client::AgentServiceClient::new(channel(&member.address));
    let answer = agent.session(futures::stream::pending::<v1::SessionRequest>()).await.expect_err("it takes no agents");
    assert_eq!((answer.code(), answer.message()), (Code::Unavailable, "this member takes no agents"));
}

#[tokio::test]
async fn connections_that_say_nothing_are_closed_and_take_no_place() {
    let silence = Duration::from_millis(100);
    let cluster = limited(MemberLimits { connections: 4, silence, ..MemberLimits::default() }).await;
    let member = &cluster.members[0];
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(&member.address).await.expect("it is accepted"));
    }
    let answer = Clients::of(&member.address).pool.get_pool(v1::GetPoolRequest::default()).await;
    answer.expect("silent connections take no place of a client");
    for mut stream in silent {
        let mut said = Vec::new();
        // Reset or ended, it is over; what HTTP/2 says first may come before.
        let _ = within("it is closed", stream.read_to_end(&mut said)).await;
    }
    let answer = member.clients.pool.clone().get_pool(v1::GetPoolRequest::default()).await;
    answer.expect("who has spoken may be silent");
}

#[tokio::test]
async fn a_list_of_large_jobs_comes_whole_through_little_room() {
    let limits = MemberLimits { watch_bytes: 64 << 10, ..MemberLimits::default() };
    let cluster = limited(limits).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    for _ in 0..6 {
        let spec = v1::JobSpec { script: "#".repeat(300 << 10), held: true, ..spec(1) };
        let request = v1::SubmitJobRequest { request_id: id(), spec: Some(spec) };
        member.clients.jobs.clone().submit_job(request).await.expect("it is accepted");
    }
    let mut stream =
        member.clients.jobs.clone().watch_jobs(v1::WatchJobsRequest::default()).await.expect("it begins").into_inner();
    let mut listed = 0;
    loop {
        let next = within("the list comes", stream.message()).await.expect("it is not cut").expect("it goes on");
        match next.message.expect("a message") {
            v1::watch_jobs_response::Message::Listed(_) => listed += 1,
            _ => break,
        }
    }
    assert_eq!(listed, 6);
}

#[tokio::test]
async fn many_that_ask_for_a_check_at_once_all_get_an_answer() {
    let cluster = limited(MemberLimits::default()).await;
    node(&cluster, "n0", &[10]).await;
    let job = submit(&cluster.members[0].clients, 1).await;
    let clients = &cluster.members[0].clients;
    let asked = (0..32).map(|_| async { clients.pool.clone().verify_pool(v1::VerifyPoolRequest::default()).await });
    for answer in futures::future::join_all(asked).await {
        let answer = answer.expect("it is answered").into_inner();
        assert!(answer.violations.is_empty());
        assert_eq!(answer.blocks.expect("counted").free, 10);
        let submitted = cluster.members[0].pool.view().current().job(job).expect("it is there").revision;
        assert!(answer.read.expect("said").revision >= submitted.0, "no answer is older than the question");
    }
}

async fn set_limits(member: &TestMember, change: impl FnOnce(&mut v1::PoolLimits)) {
    let mut pool = member.clients.pool.clone();
    let read = pool.get_pool_config(v1::GetPoolConfigRequest::default()).await.expect("it is read").into_inner();
    let mut config = read.config.expect("settings");
    change(config.limits.as_mut().expect("limits are shown"));
    let request = v1::SetPoolConfigRequest { request_id: id(), config: Some(config), expected: None };
    pool.set_pool_config(request).await.expect("it is set");
}

#[tokio::test]
async fn the_pool_holds_only_so_many_bytes_of_jobs_and_so_many_queues() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    set_limits(member, |limits| (limits.spec_bytes, limits.queues) = (250 << 10, 2)).await;
    let long = || {
        let spec = v1::JobSpec { script: "#".repeat(100 << 10), held: true, ..spec(1) };
        v1::SubmitJobRequest { request_id: id(), spec: Some(spec) }
    };
    let jobs = || member.clients.jobs.clone();
    let first = jobs().submit_job(long()).await.expect("it fits").into_inner().job_id;
    jobs().submit_job(long()).await.expect("it fits");
    let refused = jobs().submit_job(long()).await;
    let refused = assert_refused(refused, Code::ResourceExhausted, ErrorReason::SpecBudgetExhausted);
    let used: u64 = metadata(&refused, USED).expect("said").parse().expect("a number");
    assert!((200 << 10..250 << 10).contains(&used), "{used}");
    assert_eq!(metadata(&refused, LIMIT).as_deref(), Some("256000"));
    jobs().submit_job(submission(1)).await.expect("a small one still fits");
    let cancel = v1::CancelJobRequest { request_id: id(), job_id: first };
    jobs().cancel_job(cancel).await.expect("it can be");
    jobs().submit_job(long()).await.expect("an ended job makes room");
    let gone = jobs().get_job(v1::GetJobRequest { job_id: first, ..Default::default() }).await;
    assert_refused(gone, Code::NotFound, ErrorReason::JobUnknown);

    let set = |name: &str| {
        let queue = Some(v1::QueueSettings { name: name.to_owned(), weight: 1, ..Default::default() });
        let mut queues = member.clients.queues.clone();
        async move { queues.set_queue(v1::SetQueueRequest { request_id: id(), queue }).await }
    };
    set("one").await.expect("there is room beside the default one");
    let refused = assert_refused(set("two").await, Code::ResourceExhausted, ErrorReason::TooManyQueues);
    assert_eq!(metadata(&refused, LIMIT).as_deref(), Some("2"));
    set("one").await.expect("one that is there can be changed");
}
