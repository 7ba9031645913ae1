//! Nonsense in each field of each request and of what agents say of themselves, found by the descriptors: a field that
//! is added is refused with its path when it holds the nonsense of its kind, or stands in [`rules`] with a reason.

mod breaker;
mod rules;
mod samples;

use std::collections::BTreeSet;

use bytes::Bytes;
use http_body_util::Full;
use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage, Value};
use tessera_api::error::reason_of;
use tessera_api::reflect::descriptors;
use tessera_api::v1::{self, ErrorReason};
use tessera_api::{Refusal, agent, pool_view};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic_types::StatusExt;
use tower::ServiceExt;

use breaker::{Breaker, Broken, keys_of};
use rules::{ELSEWHERE, RULES, Rule};
use samples::{hello, samples};

use crate::services::support::fixture::{grant, node, submit};
use crate::services::support::{Cluster, channel, id, within};

/// The path of a field, or of the list or map that it is in.
fn is_at(named: &str, path: &str) -> bool {
    named == path || named == format!("{path}[0]") || named.starts_with(&format!("{path}["))
}

/// A refusal, or `None`.
type Answer = Option<(Option<ErrorReason>, Vec<String>, String)>;

/// The complaint about an answer to nonsense, if it is the wrong one.
fn wrong(broken: &Broken, answer: &Answer) -> Option<String> {
    let right = match (broken.rule, answer) {
        (Some(Rule::Taken(_)), answer) => answer.is_none(),
        (_, None) => false,
        (Some(Rule::Says(reason)), Some((Some(said), _, _))) if *said == reason => true,
        (_, Some((Some(ErrorReason::InvalidField), fields, _))) => {
            fields.iter().any(|field| is_at(field, &broken.path))
        }
        // An agent's cards and workers: the field is in the text.
        (_, Some((Some(ErrorReason::CardInvalid | ErrorReason::ProtocolViolation), _, text))) => {
            let path = broken.path.replace("hello.cards", "cards").replace("hello.workers[0]", "worker_report");
            text.split_once(": ").is_some_and(|(named, _)| is_at(named, &path))
        }
        _ => false,
    };
    (!right).then(|| format!("{} ({:?}): {answer:?}", broken.path, broken.rule))
}

/// Calls a method with a message, and answers whether it was refused before anything was answered.
async fn call(channel: &Channel, address: &str, method: &str, message: &DynamicMessage) -> Answer {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).expect("small").to_be_bytes();
    let request = http::Request::post(format!("http://{address}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Full::new(Bytes::from([&[0], &length[..], &message].concat()))))
        .expect("a request");
    let response = within(method, channel.clone().oneshot(request)).await.expect("an answer");
    let status = Status::from_header_map(response.headers()).filter(|status| status.code() != tonic::Code::Ok)?;
    let bad = status.get_error_details().bad_request().cloned();
    let fields = bad.map(|bad| bad.field_violations.into_iter().map(|field| field.field).collect());
    Some((reason_of(&status), fields.unwrap_or_default(), status.message().to_owned()))
}

/// Gives a message an id of its own, so that it is no other request's again.
fn anew(message: &DynamicMessage, path: &str) -> DynamicMessage {
    let mut message = message.clone();
    if path != "request_id" && message.descriptor().get_field_by_name("request_id").is_some() {
        message.set_field_by_name("request_id", Value::String(id()));
    }
    message
}

/// Takes what an agent says of itself, as a session does.
fn greet(hello: &DynamicMessage) -> Result<(), Refusal> {
    let hello: v1::Hello = hello.transcode_to().expect("a hello");
    agent::node_of_hello(&hello)?;
    agent::cards(hello.cards)?;
    for report in hello.workers {
        report.saved.clone().map(agent::saved).transpose()?;
        agent::report(report)?;
    }
    Ok(())
}

#[tokio::test]
async fn nonsense_in_any_field_is_refused_with_the_path_of_the_field() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let place = node(&cluster, "n0", &[10]).await;
    let tried = submit(&member.clients, 1).await;
    grant(&cluster, tried, place, 1).await;
    let config = pool_view::config(member.pool.view().current().config());
    let channel = channel(&member.address);
    let (mut breaker, mut known, mut complaints, mut taken) =
        (Breaker::default(), BTreeSet::new(), Vec::new(), Vec::new());
    let counts = || {
        let state = member.pool.view().current();
        (state.jobs_from(Default::default()).count(), state.queues().count(), state.config().clone())
    };
    let before = counts();
    let descriptors = descriptors().expect("the descriptors are whole");
    let services = ["JobService", "PoolService", "QueueService", "ClusterService", "UsageService"];
    for name in services {
        let service = descriptors.get_service_by_name(&format!("tessera.v1.{name}")).expect("a service of the API");
        for method in service.methods().filter(|method| ELSEWHERE.iter().all(|(other, _)| *other != method.name())) {
            let (input, path) = (method.input(), format!("tessera.v1.{name}/{}", method.name()));
            known.extend(keys_of(input.name(), &input));
            for sample in samples(&input, tried.0, &member.address, &config) {
                breaker.break_all(input.name(), "", &sample, &|changed| changed);
                for broken in std::mem::take(&mut breaker.broken) {
                    let answer = call(&channel, &member.address, &path, &anew(&broken.message, &broken.path)).await;
                    complaints.extend(wrong(&broken, &answer).map(|complaint| format!("{path}: {complaint}")));
                }
                taken.push((path.clone(), sample));
            }
        }
    }
    let hello = hello();
    assert_eq!(greet(&hello), Ok(()), "the sample is valid");
    known.extend(keys_of("Hello", &hello.descriptor()));
    breaker.break_all("Hello", "hello", &hello, &|changed| changed);
    for broken in std::mem::take(&mut breaker.broken) {
        let answer = greet(&broken.message).err().map(|refusal| {
            let fields = refusal.fields().iter().map(|field| field.field.clone()).collect();
            (Some(refusal.reason()), fields, refusal.message().to_owned())
        });
        complaints.extend(wrong(&broken, &answer));
    }
    assert!(complaints.is_empty(), "{} fields:\n{}", complaints.len(), complaints.join("\n"));
    assert_eq!(counts(), before, "nothing of it has changed anything");
    assert_eq!(known.difference(&breaker.seen).collect::<Vec<_>>(), Vec::<&String>::new(), "no sample has them");
    let idle = (0..RULES.len()).filter(|place| !breaker.used.contains(place)).map(|place| RULES[place].0);
    assert_eq!(idle.collect::<Vec<_>>(), Vec::<&str>::new(), "rules of no field");
    // Last, because they change things: what the nonsense was put into is none itself.
    for (path, sample) in taken {
        let answer = call(&channel, &member.address, &path, &anew(&sample, "")).await;
        let refused = answer.as_ref().and_then(|(reason, _, _)| *reason);
        assert_ne!(refused, Some(ErrorReason::InvalidField), "{path}: {answer:?}");
    }
}
