//! Lists come page by page, and a page goes on where the one before ended, whatever happened in between.

use tessera_api::v1::{self, ErrorReason, JobState};
use tonic::Code;

use crate::services::support::fixture::{node, submit};
use crate::services::support::{Clients, Cluster, assert_refused};

async fn page(clients: &Clients, filter: Option<v1::JobFilter>, token: &str) -> v1::ListJobsResponse {
    let request = v1::ListJobsRequest { filter, page_size: 4, page_token: token.to_owned(), ..Default::default() };
    clients.jobs.clone().list_jobs(request).await.expect("a page").into_inner()
}

fn numbers(page: &v1::ListJobsResponse) -> Vec<u64> {
    page.jobs.iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn pages_are_stable_while_jobs_are_submitted() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    for _ in 0..10 {
        submit(clients, 1).await;
    }
    let first = page(clients, None, "").await;
    assert_eq!(numbers(&first), [10, 9, 8, 7]);
    submit(clients, 1).await;
    let second = page(clients, None, &first.next_page_token).await;
    assert_eq!(numbers(&second), [6, 5, 4, 3]);
    let last = page(clients, None, &second.next_page_token).await;
    assert_eq!((numbers(&last), last.next_page_token.as_str()), (vec![2, 1], ""));
}

#[tokio::test]
async fn filters_narrow_a_list_and_bind_its_token() {
    let cluster = Cluster::of(1).await;
    let place = node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let mut jobs = Vec::new();
    for _ in 0..6 {
        jobs.push(submit(clients, 1).await);
    }
    crate::services::support::fixture::grant(&cluster, jobs[2], place, 1).await;
    let starting = v1::JobFilter { states: vec![JobState::Starting.into()], ..Default::default() };
    assert_eq!(numbers(&page(clients, Some(starting), "").await), [jobs[2].0]);
    let on_node = v1::JobFilter { node_name: "n0".to_owned(), ..Default::default() };
    assert_eq!(numbers(&page(clients, Some(on_node), "").await), [jobs[2].0]);
    let named = v1::JobFilter { job_ids: vec![jobs[0].0, jobs[4].0, 77], ..Default::default() };
    assert_eq!(numbers(&page(clients, Some(named), "").await), [jobs[4].0, jobs[0].0]);
    let nobody = v1::JobFilter { submitter: "ada".to_owned(), ..Default::default() };
    assert_eq!(numbers(&page(clients, Some(nobody.clone()), "").await), [] as [u64; 0]);

    let token = page(clients, None, "").await.next_page_token;
    let request = v1::ListJobsRequest { filter: Some(nobody), page_token: token, ..Default::default() };
    let other = clients.jobs.clone().list_jobs(request).await;
    assert_refused(other, Code::InvalidArgument, ErrorReason::PageTokenInvalid);
}

#[tokio::test]
async fn nodes_cards_and_queues_come_in_pages_too() {
    let cluster = Cluster::of(1).await;
    for name in ["n0", "n1", "n2"] {
        node(&cluster, name, &[4, 4]).await;
    }
    let clients = &cluster.members[0].clients;
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListNodesRequest { page_size: 2, page_token: token, ..Default::default() };
        let answer = clients.pool.clone().list_nodes(request).await.expect("a page").into_inner();
        seen.extend(answer.nodes.into_iter().map(|node| node.name));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, ["n0", "n1", "n2"]);
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListCardsRequest { page_size: 5, page_token: token, ..Default::default() };
        let answer = clients.pool.clone().list_cards(request).await.expect("a page").into_inner();
        seen.extend(answer.cards.into_iter().map(|card| (card.node_id, card.description.expect("a card").index)));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
    let request = v1::ListQueuesRequest { page_size: 1, ..Default::default() };
    let answer = clients.queues.clone().list_queues(request).await.expect("a page").into_inner();
    assert_eq!((answer.queues.len(), answer.next_page_token.as_str()), (1, ""));
}

#[tokio::test]
async fn a_page_of_large_jobs_stays_readable() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    for _ in 0..12 {
        let spec = v1::JobSpec { script: "x".repeat(900_000), ..crate::services::support::fixture::spec(1) };
        let request = v1::SubmitJobRequest { request_id: crate::services::support::id(), spec: Some(spec) };
        clients.jobs.clone().submit_job(request).await.expect("it is within the limits");
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListJobsRequest { page_token: token, ..Default::default() };
        let answer = clients.jobs.clone().list_jobs(request).await.expect("4 MiB are enough").into_inner();
        seen.extend(numbers(&answer));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, (1..=12).rev().collect::<Vec<u64>>());
}
