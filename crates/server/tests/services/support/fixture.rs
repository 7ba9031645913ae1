//! Nodes, jobs and allocations, made by commands.

use std::collections::BTreeMap;

use tessera_api::v1;
use tessera_ledger::{
    AllocationId, BlockCount, BlockIndex, CardDescription, CardId, CardKind, Command, Isolation, JobId, Mebibytes,
    NodeDescription, NodeId, Observation, Outcome, Plan, PlanPart, PlannedWorker, Rank, Slice, WorkerReport,
};

use super::{Clients, Cluster, id};

/// A job that asks for one virtual card of so many TFLOPS.
pub fn spec(tflops: u64) -> v1::JobSpec {
    v1::JobSpec {
        name: "train".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        virtual_card: Some(v1::VirtualCardRequest { milli_tflops: tflops * 1000, ..Default::default() }),
        ..Default::default()
    }
}

pub fn submission(tflops: u64) -> v1::SubmitJobRequest {
    v1::SubmitJobRequest { request_id: id(), spec: Some(spec(tflops)) }
}

/// Submits a job and answers its number.
pub async fn submit(clients: &Clients, tflops: u64) -> JobId {
    let answer = clients.jobs.clone().submit_job(submission(tflops)).await.expect("it is accepted");
    JobId(answer.into_inner().job_id)
}

/// Registers a node whose agent is at `address`, with one card of so many TFLOPS each.
pub async fn node_at(cluster: &Cluster, name: &str, address: &str, tflops: &[u64]) -> NodeId {
    let labels = BTreeMap::from([("name".to_owned(), name.to_owned())]);
    let node = NodeDescription { address: address.to_owned(), labels, ..tessera_testkit::node(name) };
    let cards = (0..).zip(tflops).map(|(index, tflops)| card(name, index, *tflops)).collect();
    match cluster.apply(Command::RegisterNode { node, cards }).await {
        Outcome::Registered { node, .. } => node,
        other => panic!("the node is not registered: {other:?}"),
    }
}

pub async fn node(cluster: &Cluster, name: &str, tflops: &[u64]) -> NodeId {
    node_at(cluster, name, "127.0.0.1:9", tflops).await
}

fn card(node: &str, index: u32, tflops: u64) -> CardDescription {
    let (uuid, model) = (format!("{node}-{index}"), "a1".to_owned());
    CardDescription {
        index,
        uuid,
        model,
        isolation: Isolation::Hard,
        ..tessera_testkit::card(CardKind::Gpu, tflops, 16_384)
    }
}

/// Grants a job the first blocks of the first card of a node.
pub async fn grant(cluster: &Cluster, job: JobId, node: NodeId, blocks: u32) -> AllocationId {
    let slice = Slice {
        card: CardId { node, index: 0 },
        start: BlockIndex(0),
        length: BlockCount(blocks),
        memory: Mebibytes(0),
        isolation: Isolation::Shared,
    };
    let worker = PlannedWorker { virtual_card: 0, node, slices: vec![slice] };
    let part = PlanPart::Grant { job, workers: vec![worker], victims: Vec::new() };
    let plan = Plan { revision: tessera_ledger::Revision(0), parts: vec![part] };
    match cluster.apply(Command::CommitPlan { plan }).await {
        Outcome::Planned(parts) => match parts.as_slice() {
            [Ok(Some(allocation))] => *allocation,
            other => panic!("the grant is not accepted: {other:?}"),
        },
        other => panic!("a plan is answered part by part: {other:?}"),
    }
}

/// Has the only worker of an allocation reported.
pub async fn report(cluster: &Cluster, node: NodeId, allocation: AllocationId, observation: Observation) {
    let leader = cluster.leader().await;
    let state = leader.pool.view().current();
    let worker = state.allocation(allocation).expect("it is in force").owner(Rank(0));
    let reports = vec![WorkerReport { worker, observation }];
    assert_eq!(leader.apply(Command::ReportWorkers { node, reports }).await, Outcome::Done);
}
