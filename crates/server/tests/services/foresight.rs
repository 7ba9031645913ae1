//! Moves, compaction, what-if and when, through the services.

use tessera_api::v1::node_ref::Ref;
use tessera_api::v1::what_if_request::Change;
use tessera_api::v1::{self, CardKind, CompactionPhase, ErrorReason, JobState, MovePhase};
use tessera_ledger::{JobId, Observation};
use tonic::Code;

use crate::services::support::fixture::{grant, node, report, spec, submit};
use crate::services::support::{Clients, Cluster, assert_refused, id};

fn named(name: &str) -> v1::NodeRef {
    v1::NodeRef { r#ref: Some(Ref::Name(name.to_owned())) }
}

/// A job that saves itself, on a limit.
async fn saving(clients: &Clients, tflops: u64) -> JobId {
    let checkpoint = v1::CheckpointPolicy { mode: v1::CheckpointMode::Cooperative.into(), ..Default::default() };
    let time_limit = Some(prost_types::Duration { seconds: 3600, nanos: 0 });
    let spec = v1::JobSpec { checkpoint: Some(checkpoint), time_limit, ..spec(tflops) };
    let request = v1::SubmitJobRequest { request_id: id(), spec: Some(spec) };
    JobId(clients.jobs.clone().submit_job(request).await.expect("it is accepted").into_inner().job_id)
}

/// Two nodes with a card of ten each, on both of which a job of four runs.
async fn scattered() -> (Cluster, [JobId; 2]) {
    let cluster = Cluster::of(1).await;
    let places = [node(&cluster, "n0", &[10]).await, node(&cluster, "n1", &[10]).await];
    let clients = &cluster.members[0].clients;
    let jobs = [saving(clients, 4).await, saving(clients, 4).await];
    for (job, place) in jobs.into_iter().zip(places) {
        let allocation = grant(&cluster, job, place, 4).await;
        report(&cluster, place, allocation, Observation::Running).await;
    }
    (cluster, jobs)
}

#[tokio::test]
async fn a_job_is_moved_once_per_request() {
    let (cluster, [job, _]) = scattered().await;
    let mut jobs = cluster.members[0].clients.jobs.clone();
    let request = |node: Option<&str>, plan_only| v1::MoveJobRequest {
        request_id: id(),
        job_id: job.0,
        node: node.map(named),
        plan_only,
    };
    let planned = jobs.move_job(request(None, true)).await.expect("there is room").into_inner();
    let shown = planned.planned.expect("it says where");
    assert_eq!((planned.revision, shown.from[0].node_name.as_str(), shown.to[0].node_name.as_str()), (0, "n0", "n1"));
    assert_eq!(shown.to[0].slices[0].first_block_number, 15, "behind the four blocks of the job that is there");
    let nowhere = jobs.move_job(request(Some("n0"), false)).await;
    let refused = assert_refused(nowhere, Code::FailedPrecondition, ErrorReason::MoveImpossible);
    assert!(refused.message().contains("no other card that it may go on with"), "{refused}");
    assert_refused(jobs.move_job(request(Some("n9"), false)).await, Code::NotFound, ErrorReason::NodeUnknown);
    let unknown = v1::MoveJobRequest { job_id: 99, ..request(None, false) };
    assert_refused(jobs.move_job(unknown).await, Code::NotFound, ErrorReason::JobUnknown);

    let once = request(Some("n1"), false);
    let moved = jobs.move_job(once.clone()).await.expect("there is room").into_inner();
    let get = v1::GetJobRequest { job_id: job.0, ..Default::default() };
    let seen = jobs.get_job(get).await.expect("it exists").into_inner().job.expect("a job");
    assert_eq!((seen.state(), seen.r#move.map(|of| of.phase())), (JobState::Moving, Some(MovePhase::Reserved)));
    let again = jobs.move_job(once).await.expect("it was asked before").into_inner();
    assert_eq!(again.revision, moved.revision);
    let twice = jobs.move_job(request(None, false)).await;
    assert_refused(twice, Code::FailedPrecondition, ErrorReason::MoveImpossible);
}

#[tokio::test]
async fn compaction_is_previewed_begun_watched_and_stopped() {
    let (cluster, jobs) = scattered().await;
    let clients = &cluster.members[0].clients;
    let waiting = submit(clients, 10).await;
    let mut pool = clients.pool.clone();
    let plan = pool.plan_compaction(v1::PlanCompactionRequest::default()).await.expect("a plan").into_inner();
    assert_eq!(plan.moves.len(), 1);
    assert!(jobs.iter().any(|job| job.0 == plan.moves[0].job_id));
    assert_eq!(plan.moves[0].makes_room_for, waiting.0);
    let (before, after) = (plan.before.expect("measured"), plan.after.expect("measured"));
    assert_eq!((before.startable_jobs, after.startable_jobs), (0, 1));
    let largest = |of: &v1::PoolMeasure| of.kinds[0].largest_on_card.expect("measured").milli_tflops;
    assert_eq!((largest(&before), largest(&after)), (6_000, 10_000));

    let order = |moves| Some(v1::CompactionOrder { moves, ..Default::default() });
    let too_many = v1::PlanCompactionRequest { order: order(1_001), ..Default::default() };
    assert_refused(pool.plan_compaction(too_many).await, Code::InvalidArgument, ErrorReason::InvalidField);
    let idle = pool.get_compaction(v1::GetCompactionRequest {}).await.expect("it leads").into_inner();
    assert_eq!(idle.status.expect("a status").phase(), CompactionPhase::Idle);
    let start = v1::StartCompactionRequest { order: order(3), at_once: 1 };
    let begun = pool.start_compaction(start).await.expect("it leads").into_inner();
    assert!(begun.started);
    assert_eq!(begun.status.map(|status| (status.phase(), status.budget)), Some((CompactionPhase::Running, 3)));
    let again = pool.start_compaction(start).await.expect("it leads").into_inner();
    assert!(!again.started, "a run is under way");
    let stopped = pool.stop_compaction(v1::StopCompactionRequest {}).await.expect("it leads").into_inner();
    assert_eq!(stopped.status.expect("a status").phase(), CompactionPhase::Stopped);
}

#[tokio::test]
async fn changes_are_thought_through_and_not_made() {
    let (cluster, [first, _]) = scattered().await;
    let clients = &cluster.members[0].clients;
    let waiting = submit(clients, 10).await;
    let mut pool = clients.pool.clone();
    let revision = cluster.members[0].pool.view().current().revision();
    let mut ask = async |change: Option<Change>| {
        pool.what_if(v1::WhatIfRequest { change, ..Default::default() }).await.map(tonic::Response::into_inner)
    };
    let drain = |names: &[&str]| {
        Some(Change::Drain(v1::DrainedNodes { nodes: names.iter().map(|name| named(name)).collect() }))
    };
    let one = ask(drain(&["n0"])).await.expect("it exists");
    assert_eq!((one.displaced.len(), one.displaced[0].job_id), (1, first.0));
    assert_eq!((one.displaced[0].from[0].as_str(), one.displaced[0].to[0].node_name.as_str()), ("n0", "n1"));
    assert_eq!((one.capacity[0].cards_before, one.capacity[0].cards_after), (2, 1));
    let both = ask(drain(&["n0", "n1"])).await.expect("they exist");
    assert_eq!(both.displaced.len(), 2);
    assert!(both.displaced.iter().all(|job| job.explanation.is_some()), "nothing is left");
    assert_refused(ask(drain(&["n7"])).await, Code::NotFound, ErrorReason::NodeUnknown);
    assert_refused(ask(drain(&[])).await, Code::InvalidArgument, ErrorReason::InvalidField);
    assert_refused(ask(None).await, Code::InvalidArgument, ErrorReason::InvalidField);

    let add = |cards: v1::AddedCards| {
        Some(Change::Add(v1::AddedNodes { cards: vec![cards], nodes: 1, ..Default::default() }))
    };
    let like = v1::AddedCards { model: "a1".to_owned(), count: 1, ..Default::default() };
    let more = ask(add(like.clone())).await.expect("the pool has such a card");
    assert_eq!((more.started.len(), more.started[0].job_id), (1, waiting.0));
    assert_eq!((more.started[0].to[0].node_name.as_str(), more.like_node.as_str()), ("what-if-0", "n0"));
    let at = |node: &str, host_milli_cpus| {
        let (cards, node) = (vec![like.clone()], Some(named(node)));
        Some(Change::Add(v1::AddedNodes { cards, like: node, host_milli_cpus, ..Default::default() }))
    };
    assert_eq!(ask(at("n1", 0)).await.expect("it exists").like_node, "n1");
    assert_refused(ask(at("n7", 0)).await, Code::NotFound, ErrorReason::NodeUnknown);
    assert_refused(ask(at("n1", 8_000)).await, Code::InvalidArgument, ErrorReason::InvalidField);
    let described = v1::AddedCards {
        model: "new".to_owned(),
        kind: CardKind::Npu.into(),
        milli_tflops: 4_000,
        memory_mib: 1024,
        count: 2,
    };
    let small = ask(add(described)).await.expect("it is described");
    assert!(small.started.is_empty(), "two cards of four are no card of ten");
    assert_eq!(small.capacity.len(), 2);
    let unknown = v1::AddedCards { model: "unheard".to_owned(), ..like };
    assert_refused(ask(add(unknown)).await, Code::InvalidArgument, ErrorReason::InvalidField);

    let too_much = |added: v1::AddedNodes| Some(Change::Add(v1::AddedNodes { nodes: 10_000, ..added }));
    let cards = |count| vec![v1::AddedCards { model: "a1".to_owned(), count, ..Default::default() }; 2];
    let labels = |count: u32, value: &str| (0..count).map(|number| (number.to_string(), value.to_owned())).collect();
    for (change, field) in [
        (too_much(v1::AddedNodes { cards: cards(501), ..Default::default() }), "add.cards"),
        (too_much(v1::AddedNodes { cards: cards(1), labels: labels(65, ""), ..Default::default() }), "add.labels"),
        (
            too_much(v1::AddedNodes { cards: cards(1), labels: labels(1, &"x".repeat(254)), ..Default::default() }),
            "add.labels[\"0\"]",
        ),
        (drain(&["n0"; 10_001]), "drain.nodes"),
    ] {
        let refused = assert_refused(ask(change).await, Code::InvalidArgument, ErrorReason::InvalidField);
        let (named, problem) = refused.message().split_once(": ").expect("a field and what would be right");
        assert!(named == field && (problem.starts_with("must be at most") || problem.starts_with("must have at most")));
    }

    let queue = v1::QueueSettings { name: "default".to_owned(), weight: 1, ..Default::default() };
    let same = ask(Some(Change::Queue(queue))).await.expect("it exists");
    assert!(same.started.is_empty() && same.displaced.is_empty());
    assert_eq!(cluster.members[0].pool.view().current().revision(), revision, "nothing is written");
}

#[tokio::test]
async fn a_start_is_estimated_and_says_what_it_rests_on() {
    let (cluster, _) = scattered().await;
    let clients = &cluster.members[0].clients;
    let waiting = submit(clients, 10).await;
    let mut jobs = clients.jobs.clone();
    let request = v1::WhyRequest { job_id: waiting.0, when: true, ..Default::default() };
    let why = jobs.why(request).await.expect("it exists").into_inner();
    let estimate = why.estimate.expect("it was asked for");
    assert!(estimate.start.is_some() && estimate.unknown.is_empty());
    assert_eq!(why.explanation.expect("it waits").estimated_start, estimate.start);
    assert_eq!((estimate.ends_at_limits, estimate.without_limit), (1, 0));
    assert_eq!(estimate.assumptions[1], "jobs end at their time limits and not before");

    let spec = Some(spec(10));
    let plan = v1::PlanJobRequest { spec: spec.clone(), when: true, ..Default::default() };
    let planned = jobs.plan_job(plan).await.expect("it can be tried").into_inner();
    let unknown = planned.estimate.expect("it was asked for");
    assert!(unknown.start.is_some(), "it goes on the card that is free an hour after the first: {unknown:?}");
    let plain = v1::PlanJobRequest { spec: spec.clone(), ..Default::default() };
    assert!(jobs.plan_job(plain).await.expect("it can be tried").into_inner().estimate.is_none());
    let nothing = Some(prost_types::Duration::default());
    let wrong = v1::PlanJobRequest { spec, when: true, assumed_limit: nothing, ..Default::default() };
    assert_refused(jobs.plan_job(wrong).await, Code::InvalidArgument, ErrorReason::InvalidField);
}
