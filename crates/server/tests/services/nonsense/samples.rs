//! Valid messages of each kind.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, MessageDescriptor, Value};
use tessera_api::reflect::reflected;
use tessera_api::v1;

use crate::services::support::fixture::spec;
use crate::services::support::id;

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn labels(key: &str) -> BTreeMap<String, String> {
    [(key.to_owned(), "a".to_owned())].into()
}

/// A job that says something in each of its fields.
fn job() -> v1::JobSpec {
    let card = v1::VirtualCardRequest {
        kinds: vec![1],
        vendors: vec!["acme".to_owned()],
        milli_tflops: 1_000,
        ..Default::default()
    };
    let checkpoint = v1::CheckpointPolicy {
        mode: v1::CheckpointMode::Cooperative.into(),
        grace: seconds(30),
        every: seconds(60),
        keep: 2,
        ..Default::default()
    };
    let preferred = v1::PreferredLabel { key: "rack".to_owned(), value: "a".to_owned(), weight: 1 };
    v1::JobSpec {
        virtual_card: Some(card),
        gang: 2,
        gang_min: Some(1),
        grow_after: seconds(60),
        checkpoint: Some(checkpoint),
        retry: Some(v1::RetryPolicy { max_retries: 1, backoff: seconds(1), max_backoff: seconds(60) }),
        affinity: Some(v1::Affinity { preferred: vec![preferred], avoid: labels("team"), ..Default::default() }),
        windows: vec!["0 0 * * * for 1h".to_owned()],
        ..spec(1)
    }
}

/// Valid messages of a kind, beside what [`samples`] fills in: one for each message that can be chosen in it.
fn particular(name: &str, member: &str, config: &v1::PoolConfig) -> Vec<DynamicMessage> {
    use v1::what_if_request::Change;
    let made = |message: Result<DynamicMessage, String>| message.expect("a message of the API");
    let idle = v1::IdlePolicy { below_percent: 5, notify_after: seconds(60), ..Default::default() };
    let attained = v1::AttainedOrder { first_band: seconds(600), ratio: 4, bands: 8, guard_percent: Some(20) };
    let attained = Some(attained);
    let queue = v1::QueueSettings { name: "q".to_owned(), idle: Some(idle), attained, ..Default::default() };
    let queue = || queue.clone();
    let named = || v1::NodeRef { r#ref: Some(v1::node_ref::Ref::Name("n0".to_owned())) };
    let what_if = |change| made(reflected(&v1::WhatIfRequest { change: Some(change), consistency: 0 }));
    match name {
        "SubmitJobRequest" => vec![made(reflected(&v1::SubmitJobRequest { spec: Some(job()), ..Default::default() }))],
        "PlanJobRequest" => vec![made(reflected(&v1::PlanJobRequest { spec: Some(job()), ..Default::default() }))],
        "SetQueueRequest" => vec![made(reflected(&v1::SetQueueRequest { queue: Some(queue()), ..Default::default() }))],
        "SetPoolConfigRequest" => {
            let whole = v1::Oversubscription { kind: v1::CardKind::Gpu.into(), percent: 100 };
            let config = v1::PoolConfig { oversubscription: vec![whole], ..config.clone() };
            let (config, expected) = (Some(config.clone()), Some(config));
            vec![made(reflected(&v1::SetPoolConfigRequest { config, expected, ..Default::default() }))]
        }
        "AddMemberRequest" => {
            let member = Some(v1::NewMember { name: "m1".to_owned(), address: member.to_owned() });
            vec![made(reflected(&v1::AddMemberRequest { member, ..Default::default() }))]
        }
        "WhatIfRequest" => {
            let card = v1::AddedCards { model: "a1".to_owned(), count: 1, ..Default::default() };
            let like = Some(named());
            let add = v1::AddedNodes { cards: vec![card], like, labels: labels("rack"), ..Default::default() };
            let drain = v1::DrainedNodes { nodes: vec![named()] };
            vec![what_if(Change::Drain(drain)), what_if(Change::Add(add)), what_if(Change::Queue(queue()))]
        }
        _ => Vec::new(),
    }
}

/// Valid messages of a kind: with the job, the node, the queue and the member that there are.
pub fn samples(message: &MessageDescriptor, job: u64, member: &str, config: &v1::PoolConfig) -> Vec<DynamicMessage> {
    let mut samples = particular(message.name(), member, config);
    if samples.is_empty() {
        samples.push(DynamicMessage::new(message.clone()));
    }
    for sample in &mut samples {
        for field in message.fields() {
            match field.name() {
                "request_id" => sample.set_field(&field, Value::String(id())),
                "job_id" => sample.set_field(&field, Value::U64(job)),
                // A member that there is not: it stays as it is.
                "member_id" => sample.set_field(&field, Value::U64(9)),
                "node" => {
                    let node = v1::NodeRef { r#ref: Some(v1::node_ref::Ref::Name("n0".to_owned())) };
                    sample.set_field(&field, Value::Message(reflected(&node).expect("a message of the API")));
                }
                _ => {}
            }
        }
    }
    samples
}

/// A hello with a card and a worker.
pub fn hello() -> DynamicMessage {
    let worker = v1::WorkerReport {
        worker: Some(v1::WorkerRef { allocation_id: 1, epoch: 2, rank: 0 }),
        phase: v1::WorkerPhase::Stopped.into(),
        cause: v1::StopCause::Exited.into(),
        saved: Some(v1::SavedCheckpoint {
            hash: vec![7; 32].into(),
            ticket: vec![7; 16].into(),
            mode: v1::CheckpointMode::Cooperative.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let rating = v1::Rating { precision: v1::Precision::Fp16.into(), milli_tflops: 1_000 };
    let link = v1::Link { peer_index: 0, kind: v1::LinkKind::Node.into(), megabytes_per_second: 1 };
    let card = v1::CardDescription {
        kind: v1::CardKind::Gpu.into(),
        isolation: v1::Isolation::Soft.into(),
        health: v1::CardHealth::Healthy.into(),
        rated: vec![rating],
        measured: vec![rating],
        links: vec![link],
        ..Default::default()
    };
    let hello = v1::Hello {
        node_name: "n0".to_owned(),
        node_uid: "u0".to_owned(),
        address: "10.0.0.1:7410".to_owned(),
        worker_host: "10.0.0.1".to_owned(),
        cards: vec![card],
        workers: vec![worker],
        ..Default::default()
    };
    reflected(&hello).expect("a message of the API")
}
