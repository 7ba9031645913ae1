//! The API as JSON: the same calls, with the same answers and refusals.

use http::StatusCode;
use serde_json::{Value, json};
use tessera_api::v1;
use tessera_gateway::routes::{ROUTES, Route, Verb};
use tessera_server::grpc::GrpcSettings;
use tessera_server::limits::MemberLimits;

use crate::services::support::fixture::{node, submit};
use crate::services::support::http::{Events, PlainPages, ask, get, post};
use crate::services::support::{Cluster, id, within};

fn spec() -> Value {
    json!({ "name": "train", "command": ["python", "train.py"], "virtualCard": { "milliTflops": "2000" } })
}

async fn submitted(address: &str) -> u64 {
    let answer = post(address, "/v1/jobs", &json!({ "requestId": id(), "spec": spec() })).await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.text);
    answer.json()["jobId"].as_str().expect("64 bits are text").parse().expect("a number")
}

/// A body that a route takes, or the query.
fn question(route: &Route) -> Value {
    match route.method {
        "JobService/SubmitJob" | "JobService/PlanJob" => json!({ "spec": spec() }),
        "QueueService/SetQueue" => json!({ "queue": { "weight": 2 } }),
        "PoolService/WhatIf" => json!({ "drain": { "nodes": [{ "name": "n0" }] } }),
        _ => json!({}),
    }
}

#[tokio::test]
async fn every_route_reaches_its_method_through_the_layers_that_grpc_calls_pass() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    submit(&member.clients, 1).await;
    for route in ROUTES.iter().filter(|route| route.method != "ClusterService/TransferLeadership") {
        let path = route.path.replace("{job_id}", "1").replace("{node.name}", "n0").replace("{index}", "0");
        let path = path.replace("{name}", "spare").replace("{queue.name}", "spare").replace("{member_id}", "1");
        if route.resume != tessera_gateway::routes::Resume::Never && route.method != "JobService/StreamLogs" {
            Events::open(&member.address, &path, &[]).await;
        } else {
            let body = if route.takes_body() { question(route).to_string() } else { String::new() };
            let verb = route.verb.name();
            let answer = ask(&member.address, verb, &path, &[("content-type", "application/json")], body).await;
            if answer.code != StatusCode::OK {
                let (code, reason) = (answer.code.as_u16(), answer.reason());
                assert!(
                    ![404, 405, 415, 500, 501].contains(&code) || reason.ends_with("_UNKNOWN"),
                    "{path}: {answer:?}"
                );
            }
        }
        let (_, method) = route.method.split_once('/').expect("a service");
        let label = format!("grpc_method=\"{method}\"");
        let counted = |line: &str| line.starts_with("grpc_server_handled_total") && line.contains(&label);
        // A stream is counted when it is over: when the server has seen that nobody reads it any more.
        within(method, async {
            while !member.pool.metrics().encode().expect("metrics").lines().any(counted) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_job_is_submitted_seen_and_cancelled_at_any_member() {
    let cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[10]).await;
    let follower = cluster.follower().await;
    let job = submitted(&follower.address).await;
    let read = follower.clients.jobs.clone().get_job(v1::GetJobRequest { job_id: job, ..Default::default() }).await;
    let read = read.expect("it is there").into_inner().job.expect("a job");
    let answer = get(&follower.address, &format!("/v1/jobs/{job}")).await;
    let shown = &answer.json()["job"];
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(shown["id"], job.to_string());
    assert_eq!(shown["spec"]["name"], read.spec.expect("a spec").name);
    assert_eq!((&shown["state"], &shown["attempts"]), (&Value::from("JOB_STATE_PENDING"), &Value::from(0)));
    let cancelled = post(&follower.address, &format!("/v1/jobs/{job}:cancel"), &json!({})).await;
    assert_eq!(cancelled.code, StatusCode::OK, "{}", cancelled.text);
    let again = get(&follower.address, &format!("/v1/jobs/{job}")).await;
    assert_eq!(again.json()["job"]["state"], "JOB_STATE_CANCELLED");
}

#[tokio::test]
async fn a_request_sent_again_is_made_once() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    let request = json!({ "requestId": id(), "spec": spec() });
    let first = post(&member.address, "/v1/jobs", &request).await.json();
    assert_eq!(post(&member.address, "/v1/jobs", &request).await.json(), first);
}

#[tokio::test]
async fn lists_come_page_by_page_by_the_filter_of_the_query() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    for _ in 0..5 {
        submitted(&member.address).await;
    }
    post(&member.address, "/v1/jobs/2:cancel", &json!({})).await;
    let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let path = format!("/v1/jobs?states=pending&queue=default&page_size=3&page_token={token}");
        let page = get(&member.address, &path).await.json();
        let jobs = page["jobs"].as_array().expect("jobs").iter();
        seen.extend(jobs.map(|job| job["id"].as_str().expect("a number").to_owned()));
        token = page["nextPageToken"].as_str().expect("a token").to_owned();
        pages += 1;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((seen.join(" "), pages), ("5 4 3 1".to_owned(), 2));
    let other = get(&member.address, "/v1/jobs?states=running&page_token=nonsense").await;
    assert_eq!((other.code, other.reason().as_str()), (StatusCode::BAD_REQUEST, "PAGE_TOKEN_INVALID"));
    let labelled = get(&member.address, "/v1/nodes?labels.name=n0&states=NODE_STATE_READY").await.json();
    assert_eq!(labelled["nodes"].as_array().map(Vec::len), Some(1));
    assert!(get(&member.address, "/v1/nodes?labels.name=other").await.json()["nodes"] == json!([]));
}

#[tokio::test]
async fn refusals_name_what_is_wrong() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let unknown = get(&member.address, "/v1/jobs/99").await;
    assert_eq!((unknown.code, unknown.reason().as_str()), (StatusCode::NOT_FOUND, "JOB_UNKNOWN"));
    assert_eq!(unknown.json()["code"], 5);
    for (path, named) in [
        ("/v1/jobs/seven", "jobId"),
        ("/v1/jobs?colour=red", "colour"),
        ("/v1/jobs?page_size=1&page_size=2", "page_size"),
        ("/v1/jobs?states=sleeping", "states"),
        ("/v1/cards?node=n0", "node"),
    ] {
        let refused = get(&member.address, path).await;
        assert_eq!((refused.code, refused.reason().as_str()), (StatusCode::BAD_REQUEST, "INVALID_FIELD"), "{path}");
        assert!(refused.text.contains(named), "{path}: {}", refused.text);
    }
    for (body, named) in [(json!({ "spek": {} }), "spek"), (json!([1]), "object"), (json!({ "spec": 7 }), "spec")] {
        let refused = post(&member.address, "/v1/jobs", &body).await;
        assert_eq!((refused.code, refused.reason().as_str()), (StatusCode::BAD_REQUEST, "INVALID_FIELD"), "{body}");
        assert!(refused.text.contains(named), "{body}: {}", refused.text);
    }
    let invalid = post(&member.address, "/v1/jobs", &json!({ "spec": { "name": "nothing to run" } })).await;
    let fields = &invalid.json()["details"][1]["fieldViolations"];
    assert!(fields[0]["field"].as_str().is_some_and(|field| field.starts_with("spec.")), "{}", invalid.text);
    let differs = ask(
        &member.address,
        "PUT",
        "/v1/queues/a",
        &[("content-type", "application/json")],
        json!({ "queue": { "name": "b" } }).to_string(),
    );
    assert_eq!(differs.await.reason(), "INVALID_FIELD");
    assert_eq!(get(&member.address, "/v1/nothing").await.code, StatusCode::NOT_FOUND);
    let other = ask(&member.address, "DELETE", "/v1/pool", &[], String::new()).await;
    assert_eq!((other.code, other.headers["allow"].to_str().ok()), (StatusCode::METHOD_NOT_ALLOWED, Some("GET")));
}

#[tokio::test]
async fn what_a_web_page_asks_for_is_not_done() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    let job = submitted(&member.address).await;
    let path = format!("/v1/jobs/{job}:cancel");
    let kind = ("content-type", "application/json");
    for page in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-origin")]
    {
        let refused = ask(&member.address, "POST", &path, &[kind, page], "{}".to_owned()).await;
        assert_eq!((refused.code, refused.reason().as_str()), (StatusCode::FORBIDDEN, "ASKED_BY_WEB_PAGE"), "{page:?}");
    }
    let form = ask(&member.address, "POST", &path, &[("content-type", "text/plain")], "{}".to_owned()).await;
    assert_eq!(form.code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let shown = get(&member.address, &format!("/v1/jobs/{job}")).await.json();
    assert_eq!(shown["job"]["state"], "JOB_STATE_PENDING");
}

#[tokio::test]
async fn a_web_page_cannot_call_grpc_either() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    // What `fetch` with `no-cors` sends of a frame of gRPC: a simple request, which no browser asks permission for.
    let frame = "\0\0\0\0\0".to_owned();
    let path = "/tessera.v1.JobService/SubmitJob";
    let refused = ask(&member.address, "POST", path, &[("origin", "http://evil.example")], frame.clone()).await;
    assert_eq!((refused.code, refused.reason().as_str()), (StatusCode::FORBIDDEN, "ASKED_BY_WEB_PAGE"));
    for kind in ["text/plain", "application/grpc"] {
        let refused = ask(&member.address, "POST", path, &[("content-type", kind)], frame.clone()).await;
        assert_eq!(refused.reason(), "PROTOCOL_VIOLATION", "{kind} by HTTP/1");
    }
}

#[tokio::test]
async fn a_strangers_name_that_leads_here_is_told_nothing() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    submitted(&member.address).await;
    let pages = PlainPages::of(member).await;
    let rebound = [("host", "evil.example")];
    for address in [&member.address, &pages.address] {
        let refused = ask(address, "GET", "/v1/jobs/1", &rebound, String::new()).await;
        assert_eq!((refused.code, refused.reason().as_str()), (StatusCode::FORBIDDEN, "UNKNOWN_NAME"));
    }
    for path in ["/v1/map", "/console/", "/metrics", "/metrics/detail/jobs"] {
        assert_eq!(
            ask(&pages.address, "GET", path, &rebound, String::new()).await.code,
            StatusCode::FORBIDDEN,
            "{path}"
        );
    }
    let alive = ask(&pages.address, "GET", "/livez", &rebound, String::new()).await;
    assert_eq!(alive.code, StatusCode::OK, "what asks whether it lives may call it what it likes");
}

#[tokio::test]
async fn a_short_body_that_would_take_much_room_is_refused() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let body = format!(r#"{{"x": [{}{{}}]}}"#, r#"{"": 0},"#.repeat(200_000));
    let refused = ask(&member.address, "POST", "/v1/jobs:plan", &[("content-type", "application/json")], body).await;
    assert_eq!(refused.code, StatusCode::BAD_REQUEST, "{}", refused.text);
    assert!(refused.text.contains("values"), "{}", refused.text);
}

#[tokio::test]
async fn the_port_of_the_pages_answers_questions_and_changes_nothing() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    submitted(&member.address).await;
    let pages = PlainPages::of(member).await;
    assert_eq!(get(&pages.address, "/v1/jobs/1").await.json()["job"]["id"], "1");
    let refused = post(&pages.address, "/v1/jobs/1:cancel", &json!({})).await;
    assert_eq!((refused.code, refused.reason().as_str()), (StatusCode::FORBIDDEN, "READ_ONLY_ADDRESS"));
    for route in ROUTES.iter().filter(|route| route.changes && route.verb != Verb::Get) {
        let path = route.path.replace(['{', '}'], "1");
        let answer =
            ask(&pages.address, route.verb.name(), &path, &[("content-type", "application/json")], "{}".to_owned());
        assert_eq!(answer.await.code, StatusCode::FORBIDDEN, "{path}");
    }
    let home = get(&pages.address, "/").await;
    assert_eq!(
        (home.code, home.headers["location"].to_str().ok()),
        (StatusCode::TEMPORARY_REDIRECT, Some("/console/"))
    );
    let console = get(&pages.address, "/console/").await;
    assert!(console.text.contains("<main") && console.headers.contains_key("content-security-policy"));
    let described = get(&pages.address, "/v1/openapi.json").await.json();
    assert!(described["paths"]["/v1/jobs/{job_id}"]["get"].is_object());
}

#[tokio::test]
async fn limits_are_those_of_grpc_and_told_in_json() {
    let limits = MemberLimits { connections: 1, ..MemberLimits::default() };
    let cluster = Cluster::with(1, GrpcSettings { limits, ..GrpcSettings::default() }).await;
    let member = &cluster.members[0];
    member.clients.pool.clone().get_pool(v1::GetPoolRequest::default()).await.expect("the one that there may be");
    let refused = get(&member.address, "/v1/pool").await;
    assert_eq!((refused.code, refused.reason().as_str()), (StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_CONNECTIONS"));
    assert!(refused.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn a_watch_goes_on_after_the_event_that_was_seen_last() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    let path = "/v1/jobs:watch?after_revision=0";
    let mut first = Events::open(&member.address, path, &[]).await;
    submitted(&member.address).await;
    let changed = |wanted: &'static str| {
        move |event: &crate::services::support::http::Event| {
            event.data["event"]["jobId"] == wanted && !event.id.is_empty()
        }
    };
    let seen = first.next_like(changed("1")).await;
    drop(first);
    submitted(&member.address).await;
    let mut second = Events::open(&member.address, path, &[("last-event-id", &seen.id)]).await;
    let next = second.next_like(|event| event.data["event"].is_object()).await;
    assert_eq!(next.data["event"]["jobId"], "2", "what was seen is not sent again: {next:?}");
    let bad = ask(&member.address, "GET", path, &[("last-event-id", "nonsense")], String::new()).await;
    assert_eq!((bad.code, bad.reason().as_str()), (StatusCode::BAD_REQUEST, "RESUME_TOKEN_INVALID"));
}
