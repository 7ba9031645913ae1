//! The output of workers comes through any member, from any offset, over restarts of the agent.

use tessera_api::v1::{self, ErrorReason};
use tessera_ledger::{AllocationId, JobId, NodeId, Observation, StopCause};
use tokio::sync::watch;
use tonic::{Code, Status, Streaming};

use crate::services::support::agent::{FakeAgent, Output};
use crate::services::support::fixture::{grant, node_at, report, submit};
use crate::services::support::{Clients, Cluster, assert_refused, within};

fn output(text: &str, over: bool) -> Option<Output> {
    Some(Output { bytes: text.as_bytes().to_vec(), over })
}

fn request(job: JobId, offset: u64, follow: bool) -> v1::StreamLogsRequest {
    v1::StreamLogsRequest { job_id: job.0, offset, follow, ..Default::default() }
}

async fn open(clients: &Clients, request: v1::StreamLogsRequest) -> Streaming<v1::StreamLogsResponse> {
    clients.jobs.clone().stream_logs(request).await.expect("it begins").into_inner()
}

/// Reads until so much has come, or to the end; pieces must follow each other without gap.
async fn read(stream: &mut Streaming<v1::StreamLogsResponse>, from: u64, bytes: usize) -> Result<String, Status> {
    let (mut text, mut offset) = (Vec::new(), from);
    while text.len() < bytes {
        let Some(piece) = within("the output goes on", stream.message()).await? else { break };
        assert_eq!(piece.offset, offset, "no gap and nothing twice");
        offset += piece.data.len() as u64;
        text.extend_from_slice(&piece.data);
    }
    Ok(String::from_utf8(text).expect("text"))
}

async fn running(cluster: &Cluster, agent: &FakeAgent) -> (JobId, NodeId, AllocationId) {
    let place = node_at(cluster, "n0", &agent.address.to_string(), &[10]).await;
    let job = submit(&cluster.leader().await.clients, 1).await;
    let allocation = grant(cluster, job, place, 1).await;
    report(cluster, place, allocation, Observation::Running).await;
    (job, place, allocation)
}

#[tokio::test]
async fn output_is_read_from_any_offset_also_after_the_end() {
    let cluster = Cluster::of(1).await;
    let (_written, seen) = watch::channel(output("one\ntwo\n", true));
    let agent = FakeAgent::start(seen);
    let (job, place, allocation) = running(&cluster, &agent).await;
    let clients = &cluster.members[0].clients;
    assert_eq!(read(&mut open(clients, request(job, 0, false)).await, 0, 99).await.expect("it is there"), "one\ntwo\n");
    let exit = tessera_testkit::exit(StopCause::Exited, Some(0));
    report(&cluster, place, allocation, Observation::Stopped(exit)).await;
    assert!(cluster.members[0].pool.view().current().allocation(allocation).is_none(), "the allocation is gone");
    assert_eq!(read(&mut open(clients, request(job, 4, true)).await, 4, 99).await.expect("it is kept"), "two\n");
    let asked = agent.asked.lock().expect("nobody panicked")[0];
    let worker = asked.worker.expect("it names a worker");
    assert_eq!((worker.allocation_id, worker.rank), (allocation.0, 0));

    let beyond = read(&mut open(clients, request(job, 1_000, false)).await, 1_000, 1).await;
    assert_refused(beyond, Code::OutOfRange, ErrorReason::OffsetBeyondEnd);
    let no_rank = v1::StreamLogsRequest { rank: 3, ..request(job, 0, false) };
    let refused = clients.jobs.clone().stream_logs(no_rank).await.map(drop);
    assert_refused(refused, Code::NotFound, ErrorReason::WorkerUnknown);
    let no_attempt = v1::StreamLogsRequest { attempt: 9, ..request(job, 0, true) };
    let refused = clients.jobs.clone().stream_logs(no_attempt).await.map(drop);
    assert_refused(refused, Code::NotFound, ErrorReason::WorkerUnknown);
}

#[tokio::test]
async fn a_follower_is_carried_over_a_restart_of_the_agent() {
    let cluster = Cluster::of(1).await;
    let (written, seen) = watch::channel(output("one\n", false));
    let agent = FakeAgent::start(seen.clone());
    let address = agent.address;
    let (job, ..) = running(&cluster, &agent).await;
    let mut stream = open(&cluster.members[0].clients, request(job, 0, true)).await;
    assert_eq!(read(&mut stream, 0, 4).await.expect("it is there"), "one\n");
    agent.kill().await;
    written.send_replace(output("one\ntwo\n", false));
    let _again = FakeAgent::start_at(address, seen);
    assert_eq!(read(&mut stream, 4, 4).await.expect("the agent is back"), "two\n");
    written.send_replace(output("one\ntwo\nthree\n", true));
    assert_eq!(read(&mut stream, 8, 99).await.expect("the worker is over"), "three\n");
}

#[tokio::test]
async fn a_follower_may_come_before_the_job_has_started() {
    let cluster = Cluster::of(1).await;
    let (written, seen) = watch::channel(None);
    let agent = FakeAgent::start(seen);
    let place = node_at(&cluster, "n0", &agent.address.to_string(), &[10]).await;
    let clients = &cluster.members[0].clients;
    let job = submit(clients, 1).await;
    let refused = clients.jobs.clone().stream_logs(request(job, 0, false)).await.map(drop);
    assert_refused(refused, Code::NotFound, ErrorReason::WorkerUnknown);
    let mut stream = open(clients, request(job, 0, true)).await;
    grant(&cluster, job, place, 1).await;
    within("the agent is asked before its order has come", async {
        while agent.asked.lock().expect("nobody panicked").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    written.send_replace(output("hello\n", true));
    assert_eq!(read(&mut stream, 0, 99).await.expect("it has started"), "hello\n");
}

/// The agent keeps no folder of it any more.
#[tokio::test]
async fn output_of_which_the_node_knows_nothing_any_more_is_said_to_be_over() {
    let cluster = Cluster::of(1).await;
    let (_written, seen) = watch::channel(None);
    let agent = FakeAgent::start(seen);
    let (job, place, allocation) = running(&cluster, &agent).await;
    let clients = &cluster.members[0].clients;
    let unknown = read(&mut open(clients, request(job, 0, false)).await, 0, 1).await;
    assert_refused(unknown, Code::NotFound, ErrorReason::WorkerUnknown);
    let exit = tessera_testkit::exit(StopCause::Exited, Some(0));
    report(&cluster, place, allocation, Observation::Stopped(exit)).await;
    let expired = read(&mut open(clients, request(job, 0, false)).await, 0, 1).await;
    assert_refused(expired, Code::NotFound, ErrorReason::OutputExpired);
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_named() {
    let cluster = Cluster::of(1).await;
    let (_written, seen) = watch::channel(output("one\n", false));
    let agent = FakeAgent::start(seen);
    let (job, ..) = running(&cluster, &agent).await;
    agent.kill().await;
    let answer = read(&mut open(&cluster.members[0].clients, request(job, 0, false)).await, 0, 1).await;
    let status = assert_refused(answer, Code::Unavailable, ErrorReason::NodeUnreachable);
    assert!(status.message().contains("n0"), "{}", status.message());
}
