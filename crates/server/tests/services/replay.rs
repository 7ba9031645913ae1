//! A mutation is made once and answered the same, however often it is sent and whoever leads (law L3).

use tessera_api::v1::{self, ErrorReason};
use tonic::Code;

use crate::services::support::fixture::{node, spec, submission};
use crate::services::support::{Cluster, assert_refused, id, within};

#[tokio::test]
async fn the_same_request_is_answered_the_same_and_another_under_its_id_is_refused() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let mut jobs = cluster.members[0].clients.jobs.clone();
    let request = submission(1);
    let first = jobs.submit_job(request.clone()).await.expect("it is accepted").into_inner();
    jobs.submit_job(submission(1)).await.expect("another job");
    let again = jobs.submit_job(request.clone()).await.expect("it is the same request").into_inner();
    assert_eq!(first, again, "number and revision are those of the first time");

    let other = v1::SubmitJobRequest { spec: Some(spec(2)), ..request.clone() };
    assert_refused(jobs.submit_job(other).await, Code::AlreadyExists, ErrorReason::RequestIdReused);
    let cancel = v1::CancelJobRequest { request_id: request.request_id, job_id: first.job_id };
    assert_refused(jobs.cancel_job(cancel).await, Code::AlreadyExists, ErrorReason::RequestIdReused);
    assert_eq!(cluster.members[0].pool.view().current().jobs_from(Default::default()).count(), 2);
}

#[tokio::test]
async fn a_request_without_id_gets_one() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let mut jobs = cluster.members[0].clients.jobs.clone();
    let request = v1::SubmitJobRequest { request_id: String::new(), ..submission(1) };
    let first = jobs.submit_job(request.clone()).await.expect("it is accepted").into_inner();
    let second = jobs.submit_job(request).await.expect("it is accepted").into_inner();
    assert_ne!(first.job_id, second.job_id, "each is a job of its own");
    let get = v1::GetJobRequest { job_id: first.job_id, ..Default::default() };
    let job = jobs.get_job(get).await.expect("it exists").into_inner().job.expect("a job");
    assert!(uuid::Uuid::parse_str(&job.request_id).is_ok(), "{}", job.request_id);
}

#[tokio::test]
async fn over_a_leader_change_nothing_is_lost_and_nothing_is_made_twice() {
    let mut cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[1_000]).await;
    let follower = cluster.follower().await.clients.clone();
    let mut made = Vec::new();
    for _ in 0..20 {
        let request = submission(1);
        let answer = follower.jobs.clone().submit_job(request.clone()).await.expect("it is accepted");
        made.push((request, answer.into_inner()));
    }
    let leader = cluster.leader().await.id;
    let during: Vec<_> = (0..20).map(|_| submission(1)).collect();
    let submissions = during.iter().cloned().map(|request| {
        let mut jobs = follower.jobs.clone();
        tokio::spawn(async move { jobs.submit_job(request).await })
    });
    let submissions: Vec<_> = submissions.collect();
    cluster.kill(leader);
    for (request, submission) in during.into_iter().zip(submissions) {
        let answer = within("it is answered", submission).await.expect("no panic").expect("the member carries it over");
        made.push((request, answer.into_inner()));
    }
    for (request, first) in &made {
        let again = cluster.members[0].clients.jobs.clone().submit_job(request.clone()).await;
        assert_eq!(again.expect("it was made before").into_inner(), *first);
    }
    let jobs = cluster.leader().await.pool.view().current().jobs_from(Default::default()).count();
    assert_eq!(jobs, made.len());
    let numbers: std::collections::BTreeSet<u64> = made.iter().map(|(_, answer)| answer.job_id).collect();
    assert_eq!(numbers.len(), made.len());
    let unknown = v1::CancelJobRequest { request_id: id(), job_id: 9_999 };
    assert_refused(follower.jobs.clone().cancel_job(unknown).await, Code::NotFound, ErrorReason::JobUnknown);
}

/// As a copy that waited behind a link that was cut.
#[tokio::test]
async fn a_request_that_was_refused_is_not_made_when_a_copy_of_it_comes_late() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let mut jobs = cluster.members[0].clients.jobs.clone();
    let mut request = submission(1);
    request.spec.get_or_insert_default().queue = "later".to_owned();
    let refused = jobs.submit_job(request.clone()).await;
    assert_refused(refused, Code::NotFound, ErrorReason::QueueUnknown);
    let queue = Some(v1::QueueSettings { name: "later".to_owned(), weight: 1, ..Default::default() });
    let mut queues = cluster.members[0].clients.queues.clone();
    queues.set_queue(v1::SetQueueRequest { request_id: id(), queue }).await.expect("it is good");
    let late = jobs.submit_job(request.clone()).await;
    assert_refused(late, Code::FailedPrecondition, ErrorReason::RequestRefused);
    request.request_id = id();
    jobs.submit_job(request).await.expect("under a new id it is made");
}

#[tokio::test]
async fn a_request_that_was_forgotten_is_refused_and_never_made_again() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let (mut jobs, mut pool) = (clients.jobs.clone(), clients.pool.clone());
    let few = tessera_ledger::PoolConfig { request_limit: 2, ..Default::default() };
    let config = Some(tessera_api::pool_view::config(&few));
    let set = v1::SetPoolConfigRequest { request_id: id(), config, expected: None };
    pool.set_pool_config(set).await.expect("they are good");
    let mut sent = Vec::new();
    // What was made just now is remembered whatever the limit.
    let before = cluster.members[0].pool.right_time().0 - 600_000;
    for turn in 0..4 {
        let request_id = tessera_api::request_id::new_request_id(tessera_ledger::LogTime(before + turn));
        let request = v1::SubmitJobRequest { request_id, ..submission(1) };
        sent.push((request.clone(), jobs.submit_job(request).await.expect("it is accepted").into_inner()));
    }
    let answer = pool.get_pool_config(v1::GetPoolConfigRequest::default()).await.expect("answered").into_inner();
    assert_eq!(answer.request_ids, 2, "the newest, and that of the settings");
    assert!(answer.request_floor.is_some(), "some are forgotten");

    let (oldest, newest) = (sent[0].clone(), sent[3].clone());
    let replayed = jobs.submit_job(oldest.0).await;
    assert_refused(replayed, Code::FailedPrecondition, ErrorReason::RequestTooOld);
    let again = jobs.submit_job(newest.0).await.expect("it is remembered").into_inner();
    assert_eq!(again, newest.1);
    assert_eq!(cluster.members[0].pool.view().current().jobs_from(Default::default()).count(), sent.len());
    jobs.submit_job(submission(1)).await.expect("what is new is made");
}

#[tokio::test]
async fn an_id_from_the_future_or_of_another_version_is_refused() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let mut jobs = cluster.members[0].clients.jobs.clone();
    let mut submit = async |request_id| {
        let request = v1::SubmitJobRequest { request_id, ..submission(1) };
        jobs.submit_job(request).await
    };
    let now = cluster.members[0].pool.right_time();
    let ahead = |seconds| tessera_api::request_id::new_request_id(now.after(std::time::Duration::from_secs(seconds)));
    assert_refused(submit(ahead(3_600)).await, Code::InvalidArgument, ErrorReason::RequestFromFuture);
    let random = uuid::Uuid::new_v4().to_string();
    assert_refused(submit(random).await, Code::InvalidArgument, ErrorReason::RequestIdInvalid);
    submit(ahead(60)).await.expect("clocks differ a little");
}
