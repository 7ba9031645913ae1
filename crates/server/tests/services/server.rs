//! The server around the services: health, reflection, meters, pages, deadlines.

use std::sync::Arc;
use std::time::Duration;

use tessera_api::v1::{self, ErrorReason};
use tessera_connection::Inbound;
use tessera_controller::metrics::Metrics;
use tessera_server::phase::Phase;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::services::support::fixture::{node, submission, submit};
use crate::services::support::{Cluster, assert_refused, channel, within};

#[tokio::test]
async fn health_says_alive_and_ready() {
    let mut cluster = Cluster::of(3).await;
    let last = cluster.follower().await.id;
    let member = cluster.members.iter().find(|member| member.id == last).expect("it is there");
    let mut health = HealthClient::new(channel(&member.address));
    let mut becomes = async |service: &str, wanted: ServingStatus| {
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut watch = health.watch(request).await.expect("it is watched").into_inner();
        within("health changes", async {
            while let Some(said) = watch.message().await.expect("it goes on") {
                if said.status() == wanted {
                    break;
                }
            }
        })
        .await;
    };
    becomes("", ServingStatus::Serving).await;
    becomes("tessera.ready", ServingStatus::Serving).await;
    for id in [1, 2, 3].into_iter().filter(|id| *id != last) {
        cluster.kill(id);
    }
    becomes("tessera.ready", ServingStatus::NotServing).await;
    becomes("", ServingStatus::Serving).await;
}

#[tokio::test]
async fn the_services_can_be_asked_for_their_names() {
    let cluster = Cluster::of(1).await;
    let mut client = ServerReflectionClient::new(channel(&cluster.members[0].address));
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers =
        client.server_reflection_info(futures::stream::iter([request])).await.expect("it answers").into_inner();
    let answer = answers.message().await.expect("no error").expect("an answer").message_response;
    let Some(MessageResponse::ListServicesResponse(services)) = answer else { panic!("not a list: {answer:?}") };
    let names: Vec<String> = services.service.into_iter().map(|service| service.name).collect();
    assert!(names.iter().any(|name| name == "tessera.v1.JobService"), "{names:?}");
}

/// Asks one of the plain pages.
async fn page(address: std::net::SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    answer
}

#[tokio::test]
async fn calls_are_counted_and_the_pages_tell() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    submit(&member.clients, 1).await;
    let get = v1::GetJobRequest { job_id: 99, ..Default::default() };
    assert_refused(member.clients.jobs.clone().get_job(get).await, Code::NotFound, ErrorReason::JobUnknown);

    let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let address = inbound.local_address().expect("an address");
    let (shown, seen) = watch::channel(Phase::default());
    let metrics: Arc<Metrics> = Arc::clone(member.pool.metrics());
    let end = CancellationToken::new();
    let server = tokio::spawn(tessera_server::http::serve(inbound, seen, metrics, member.json.clone(), end.clone()));
    assert!(page(address, "/livez", "*/*").await.contains(" 200 "));
    let says = async |path: &str, words: [&str; 2]| {
        let answer = page(address, path, "*/*").await;
        assert!(words.iter().all(|words| answer.contains(words)), "{path} does not say {words:?}: {answer}");
    };
    // Advice to found a cluster would be a second one, of a member that is only starting.
    says("/readyz", [" 503 ", "is starting"]).await;
    says("/v1/map", [" 503 ", "MEMBER_STARTING"]).await;
    shown.send_replace(Phase::Nobody(None));
    says("/readyz", [" 503 ", "not been admitted"]).await;
    says("/v1/map", [" 400 ", "tessera cluster init"]).await;
    shown.send_replace(Phase::Member(member.pool.clone()));
    within("it becomes ready", async {
        while !page(address, "/readyz", "*/*").await.contains(" 200 ") {
            tokio::task::yield_now().await;
        }
    })
    .await;

    let open = page(address, "/metrics", "application/openmetrics-text").await;
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.contains("grpc_method=\"SubmitJob\",grpc_code=\"OK\"} 1"), "{open}");
    assert!(open.contains("grpc_method=\"GetJob\",grpc_code=\"NotFound\"} 1"), "{open}");
    assert!(open.trim_end().ends_with("# EOF"));
    let classic = page(address, "/metrics", "text/plain").await;
    assert!(classic.contains("content-type: text/plain; version=0.0.4"), "{classic}");
    assert!(classic.contains("# TYPE grpc_server_handled_total counter") && !classic.contains("# EOF"), "{classic}");
    member.pool.stops();
    says("/readyz", [" 503 ", "is stopping"]).await;
    end.cancel();
    within("the pages end", server).await.expect("no panic");
}

#[tokio::test]
async fn a_call_whose_deadline_is_too_short_is_refused_with_a_reason() {
    let mut cluster = Cluster::of(3).await;
    let last = cluster.follower().await.id;
    for id in [1, 2, 3].into_iter().filter(|id| *id != last) {
        cluster.kill(id);
    }
    let mut request = Request::new(submission(1));
    request.set_timeout(Duration::from_secs(2));
    let began = tokio::time::Instant::now();
    let refused = cluster.members[0].clients.jobs.clone().submit_job(request).await.expect_err("nobody leads");
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_profile_is_made_at_a_time_and_a_second_is_refused() {
    let cluster = Cluster::of(1).await;
    let clients = &cluster.members[0].clients;
    let profile = || {
        let (mut client, profile) = (clients.cluster.clone(), prost_types::Duration { seconds: 1, nanos: 0 });
        async move { client.diagnose(v1::DiagnoseRequest { profile: Some(profile), node: None }).await }
    };
    let (made, refused) = loop {
        match tokio::join!(profile(), profile()) {
            // On a machine that is busy one may come when the other is done.
            (Ok(_), Ok(_)) => {}
            (Ok(made), refused) | (refused, Ok(made)) => break (made.into_inner(), refused),
            neither => panic!("{neither:?}"),
        }
    };
    assert_refused(refused, Code::ResourceExhausted, ErrorReason::Overloaded);
    let part = made.parts.iter().find(|part| part.name == "process/profile.folded").expect("it is there");
    assert_eq!(part.missing, "");
}
