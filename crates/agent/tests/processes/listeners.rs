//! The listener of an agent among callers that want too much of it.

use std::future::poll_fn;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::future::join_all;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tessera_api::error::reason_of;
use tessera_api::reflect::descriptors;
use tessera_api::v1 as wire;
use tessera_connection::seats::SeatLimits;
use tessera_connection::{Outbound, Terms};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{interval, timeout};
use tonic::codegen::{Service as _, http};
use tonic::{Code, Status};
use wire::WorkerDesire;

use super::agent::{client, config, follow_until, get, start};
use super::leader::{Leader, order, reference};
use super::support::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_keep_nobody_from_an_output_and_are_closed() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut config = config(data.path(), &leader);
    // At most 16 of them may wait to say something.
    config.limits.seats = SeatLimits { connections: 8, silence: Duration::from_secs(2) };
    let running = start(config).await;
    let address = leader.welcome().await.address;
    leader.order(true, vec![order(1, WorkerDesire::Run, "echo here; exec sleep 1000")]).await;
    let mut silent = Vec::new();
    for _ in 0..24 {
        silent.push(TcpStream::connect(&address).await.expect("the kernel takes it"));
    }
    follow_until(&address, 1, "here").await;
    for mut connection in silent {
        // With an error or without; what matters is the end.
        let _ = timeout(PATIENCE, connection.read_to_end(&mut Vec::new())).await.expect("it is closed");
    }
    leader.order(true, Vec::new()).await;
    leader.report_of(1, wire::WorkerPhase::Stopped).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_followers_than_may_be_are_refused_until_one_leaves() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut config = config(data.path(), &leader);
    config.limits.log_streams = 1;
    let running = start(config).await;
    let address = leader.welcome().await.address;
    leader.order(true, vec![order(1, WorkerDesire::Run, "echo here; exec sleep 1000")]).await;
    follow_until(&address, 1, "here").await;
    let request = || wire::ReadLogsRequest { worker: Some(reference(1)), follow: true, ..Default::default() };
    let mut caller = client(&address).await;
    // The one before leaves when its agent hears of it.
    let first = timeout(PATIENCE, async {
        loop {
            match caller.read_logs(request()).await {
                Ok(first) => break first,
                Err(refused) => assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}"),
            }
        }
    });
    let first = first.await.expect("it may follow");
    let refused = caller.read_logs(request()).await.expect_err("one follows");
    assert!(refused.message().contains("1 outputs are read"), "{refused}");
    drop(first);
    timeout(PATIENCE, async { while caller.read_logs(request()).await.is_err() {} }).await.expect("it has left");
    leader.order(true, Vec::new()).await;
    leader.report_of(1, wire::WorkerPhase::Stopped).await;
    running.stop().await;
}

/// Whoever crowds at the listener keeps no heartbeat back: those go out over a connection of their own, and few outputs
/// are looked at at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_the_listener_ends_no_session() {
    const SILENT: usize = 1_000;
    const CALLERS: usize = 10;
    const FOLLOWED_BY_EACH: usize = 20;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("it is known");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("that far everybody may go");
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    // The agent leaves a leader that does not answer for half of that.
    leader.lease = (Duration::from_secs(20), Duration::from_secs(30));
    let running = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    leader.order(true, vec![order(1, WorkerDesire::Run, "echo here; exec sleep 1000")]).await;
    follow_until(&address, 1, "here").await;
    let mut followers = Vec::new();
    for _ in 0..CALLERS {
        let mut caller = client(&address).await;
        for _ in 0..FOLLOWED_BY_EACH {
            let request = wire::ReadLogsRequest { worker: Some(reference(1)), follow: true, ..Default::default() };
            let mut output = caller.read_logs(request).await.expect("there is room").into_inner();
            let piece = timeout(PATIENCE, output.message()).await.expect("it comes").expect("readable");
            assert!(piece.is_some_and(|piece| piece.data.starts_with(b"here")));
            followers.push(output);
        }
    }
    let silent = join_all((0..SILENT).map(|_| TcpStream::connect(&address)));
    let silent = timeout(PATIENCE, silent).await.expect("the kernel takes them");
    assert_eq!((silent.iter().filter(|one| one.is_ok()).count(), followers.len()), (SILENT, 200));
    leader.hears_heartbeats(30).await;
    assert!(!leader.has_callers(), "the session goes on");
    let page = get(&running.http, "/metrics").await;
    assert!(page.contains("tessera_agent_sessions_total 1\n"), "{page}");
    drop((silent, followers));
    leader.order(true, Vec::new()).await;
    leader.report_of(1, wire::WorkerPhase::Stopped).await;
    running.stop().await;
}

/// Calls a method with these bytes for a body, and returns how that ends.
async fn called(address: &str, path: &str, body: Body) -> Status {
    let mut channel = Outbound::default().connect(address, &Terms::default()).await.expect("it listens");
    let request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body))
        .expect("a request");
    poll_fn(|cx| channel.poll_ready(cx)).await.expect("it is connected");
    let response = timeout(PATIENCE, channel.call(request)).await.expect("it ends").expect("an answer");
    Status::from_header_map(response.headers()).expect("it ends with a status")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_trickles_into_an_agent_is_ended() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut config = config(data.path(), &leader);
    config.limits.seats.silence = Duration::from_secs(2);
    let running = start(config).await;
    let address = leader.welcome().await.address;
    // A message of a mebibyte is announced, and comes byte by byte.
    let announced = futures::stream::iter([Bytes::from_static(&[0, 0, 16, 0, 0])]);
    let bytes = futures::stream::unfold(interval(Duration::from_millis(100)), |mut ticks| async move {
        ticks.tick().await;
        Some((Bytes::from_static(&[0]), ticks))
    });
    let trickling = futures::StreamExt::chain(announced, bytes);
    let body = Body::from_stream(futures::StreamExt::map(trickling, Ok::<_, Status>));
    let status = called(&address, "/tessera.v1.WorkerService/ReadDevice", body).await;
    assert_eq!(reason_of(&status), Some(wire::ErrorReason::DeadlineExceeded), "{status:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_gone_without_a_word_is_let_go_by_an_agent() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut config = config(data.path(), &leader);
    config.limits.seats.silence = Duration::from_secs(1);
    let running = start(config).await;
    let address = leader.welcome().await.address;
    let between = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let relayed = between.local_addr().expect("it is bound").to_string();
    let calling = tokio::spawn(async move {
        let mut caller = client(&relayed).await;
        let refused = caller.read_device(wire::ReadDeviceRequest::default()).await.expect_err("it names no worker");
        (caller, refused)
    });
    let (mut near, _) = between.accept().await.expect("it calls");
    let mut far = TcpStream::connect(&address).await.expect("it listens");
    let (_caller, refused) = tokio::select! {
        ended = copy_bidirectional(&mut near, &mut far) => panic!("the connection ended: {ended:?}"),
        called = calling => called.expect("calling does not panic"),
    };
    assert_eq!(reason_of(&refused), Some(wire::ErrorReason::InvalidField), "{refused:?}");
    // From here on nothing passes, and nobody closes anything but the agent.
    let _ = timeout(PATIENCE, far.read_to_end(&mut Vec::new())).await.expect("it is closed");
    drop(near);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_message_are_no_defect_of_an_agent() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    let address = leader.welcome().await.address;
    let garbage = || Body::from(&b"\0\0\0\0\x03\xff\xff\xff"[..]);
    let services = descriptors().expect("they were compiled in").services();
    for method in services.flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let served = method.parent_service().name() == "WorkerService";
        let reason = if served { wire::ErrorReason::ProtocolViolation } else { wire::ErrorReason::NotSupported };
        let status = called(&address, &path, garbage()).await;
        assert_eq!(reason_of(&status), Some(reason), "{path}: {status:?}");
    }
    for method in ["ListCheckpoints", "ReadManifest", "ReadChunk"] {
        let path = format!("/tessera.checkpoint.v1.CheckpointService/{method}");
        let status = called(&address, &path, garbage()).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_refuses_requests_that_name_no_worker_or_no_stream() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let running = start(config(data.path(), &leader)).await;
    let mut caller = client(&leader.welcome().await.address).await;
    let field = |answer: Result<(), tonic::Status>| {
        let refused = answer.expect_err("it makes no sense");
        assert_eq!(reason_of(&refused), Some(wire::ErrorReason::InvalidField), "{refused:?}");
        refused.message().split_once(": ").map(|(field, _)| field.to_owned()).unwrap_or_default()
    };
    assert_eq!(field(caller.read_logs(wire::ReadLogsRequest::default()).await.map(drop)), "worker");
    assert_eq!(field(caller.read_device(wire::ReadDeviceRequest::default()).await.map(drop)), "worker");
    let unknown = wire::ReadLogsRequest { worker: Some(reference(1)), stream: 99, ..Default::default() };
    assert_eq!(field(caller.read_logs(unknown).await.map(drop)), "stream");
    for (seconds, nanos) in [(-1, 0), (0, 1), (5, -1), (61, 0)] {
        let profile = Some(prost_types::Duration { seconds, nanos });
        let request = wire::ReadDiagnosticsRequest { profile };
        assert_eq!(field(caller.read_diagnostics(request).await.map(drop)), "profile", "{seconds} s and {nanos} ns");
    }
    running.stop().await;
}
