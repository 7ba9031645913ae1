//! A mutation is made once and answered the same, however often it is sent and whoever leads (law L3).

use tessera_api::v1::{self, ErrorReason};
use tonic::Code;

use crate::support::fixture::{node, spec, submission};
use crate::support::{Cluster, assert_refused, id, within};

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
