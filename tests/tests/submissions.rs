//! Streams of submissions, through real processes: each job is in the ledger once, whoever dies meanwhile.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::stream;
use tessera_api::v1::{ErrorReason, JobSpec, ListJobsRequest, SubmitJobRequest, SubmitJobResponse};
use tessera_client::{ApiError, Client};
use tessera_tests::jobs::shell;
use tessera_tests::pool::{Options, Pool};

fn requests(client: &Client, count: usize) -> Vec<SubmitJobRequest> {
    let held = JobSpec { held: true, ..shell("true") };
    let request = || SubmitJobRequest { request_id: client.new_request_id(), spec: Some(held.clone()) };
    std::iter::repeat_with(request).take(count).collect()
}

type Outcomes = BTreeMap<String, Result<SubmitJobResponse, ApiError>>;

async fn submit_all(client: &Client, requests: &[SubmitJobRequest]) -> Result<Outcomes> {
    let mut submissions = client.submit_jobs(stream::iter(requests.to_vec()));
    let mut outcomes = Outcomes::new();
    while let Some(submission) = submissions.next().await? {
        assert!(outcomes.insert(submission.request_id, submission.outcome).is_none(), "a job is answered twice");
    }
    Ok(outcomes)
}

/// The numbers of all jobs that the pool has, by the requests that made them.
async fn listed(client: &Client) -> Result<BTreeMap<String, u64>> {
    let mut jobs = BTreeMap::new();
    let mut request = ListJobsRequest { page_size: 1_000, ..Default::default() };
    loop {
        let page = client.list_jobs(request.clone()).await?;
        for job in page.jobs {
            assert!(jobs.insert(job.request_id, job.id).is_none(), "a request made two jobs");
        }
        if page.next_page_token.is_empty() {
            return Ok(jobs);
        }
        request.page_token = page.next_page_token;
    }
}

fn numbers(outcomes: Outcomes) -> BTreeMap<String, u64> {
    outcomes.into_iter().map(|(id, outcome)| (id, outcome.expect("it is taken").job_id)).collect()
}

/// The leader is killed while a stream goes through a follower: every job is made once, and answered with its number.
/// The same stream once more is answered the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_through_a_follower_outlives_the_leader() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let all = pool.client();
    let leader = pool.leader().await?;
    let client = pool.client_of((leader + 1) % 3);
    let requests = requests(&all, 20_000);
    // One after the other, with few of them on their way: the leader dies in the middle.
    let mut submissions = client.submit_jobs(stream::iter(requests.clone())).with_unanswered(500);
    let mut outcomes = Outcomes::new();
    let mut alive = true;
    while let Some(submission) = submissions.next().await? {
        assert!(outcomes.insert(submission.request_id, submission.outcome).is_none(), "a job is answered twice");
        if alive && outcomes.len() == 5_000 {
            pool.kill_member(leader);
            alive = false;
        }
    }
    let numbers = numbers(outcomes);
    assert_eq!(numbers.len(), requests.len());
    assert_eq!(listed(&all).await?, numbers, "the ledger has what was acknowledged, each once");
    pool.start_member(leader)?;
    assert_eq!(self::numbers(submit_all(&all, &requests).await?), numbers);
    assert_eq!(listed(&all).await?.len(), requests.len());
    pool.verify().await
}

/// Jobs that cannot be taken say why, one by one, and the others are there.
#[tokio::test(flavor = "multi_thread")]
async fn refused_jobs_of_a_stream_say_why() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let mut requests = requests(&client, 300);
    for (place, request) in requests.iter_mut().enumerate() {
        let spec = request.spec.get_or_insert_default();
        match place % 3 {
            0 => {}
            1 => spec.queue = "nobody".to_owned(),
            _ => spec.command.clear(),
        }
    }
    let outcomes = submit_all(&client, &requests).await?;
    for (place, request) in requests.iter().enumerate() {
        let reason = outcomes[&request.request_id].as_ref().err().map(|error| error.reason);
        let expected = match place % 3 {
            0 => None,
            1 => Some(Some(ErrorReason::QueueUnknown)),
            _ => Some(Some(ErrorReason::InvalidField)),
        };
        assert_eq!(reason, expected, "job {place}");
    }
    assert_eq!(listed(&client).await?.len(), 100);
    pool.verify().await
}
