//! Any member answers: what only the leader can answer reaches it.

use std::time::Duration;

use tessera_api::error::{LEADER_ADDRESS, reason_of};
use tessera_api::v1::{self, Consistency, ErrorReason};
use tonic::{Code, Request};
use tonic_types::StatusExt;

use crate::services::support::fixture::{node, submission, submit};
use crate::services::support::{Cluster, assert_refused, within};

#[tokio::test]
async fn a_follower_takes_writes_and_questions_and_reads_its_own_writes() {
    let cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[10]).await;
    let follower = cluster.follower().await;
    let mut jobs = follower.clients.jobs.clone();
    let mut request = Request::new(submission(2));
    request.metadata_mut().insert("tessera-actor", "grace".parse().expect("a header"));
    let job = jobs.submit_job(request).await.expect("it reaches the leader").into_inner();
    let get = v1::GetJobRequest { job_id: job.job_id, ..Default::default() };
    let seen = jobs.get_job(get).await.expect("a linearizable read sees it").into_inner().job.expect("a job");
    assert_eq!(seen.submitter, "grace", "metadata travels along");
    let why = v1::WhyRequest { job_id: job.job_id, ..Default::default() };
    assert!(jobs.why(why).await.expect("it reaches the leader").into_inner().explanation.is_some());
}

#[tokio::test]
async fn a_forwarded_call_is_not_forwarded_again() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await.address.clone();
    let follower = cluster.follower().await;
    let mut request = Request::new(submission(1));
    request.metadata_mut().insert("tessera-forwarded-by", "2".parse().expect("a header"));
    let status = assert_refused(
        follower.clients.jobs.clone().submit_job(request).await,
        Code::Unavailable,
        ErrorReason::NotLeader,
    );
    let details = status.get_error_details();
    let hint = details.error_info().and_then(|info| info.metadata.get(LEADER_ADDRESS));
    assert_eq!(hint, Some(&leader));
    assert!(details.retry_info().is_some());
}

#[tokio::test]
async fn without_a_quorum_writes_are_refused_in_time_and_stale_reads_answer_with_their_age() {
    let mut cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[10]).await;
    let job = submit(&cluster.leader().await.clients, 1).await;
    let last = cluster.follower().await.id;
    let revision = cluster.leader().await.pool.view().current().revision();
    let view = cluster.members.iter().find(|member| member.id == last).expect("it is there").pool.view().clone();
    view.at_least(revision, crate::services::support::soon()).await.expect("it catches up");
    for id in [1, 2, 3].into_iter().filter(|id| *id != last) {
        cluster.kill(id);
    }
    let clients = cluster.members[0].clients.clone();
    let mut request = Request::new(submission(1));
    request.set_timeout(Duration::from_secs(2));
    let answer = within("it is refused before its deadline", clients.jobs.clone().submit_job(request)).await;
    let status = answer.expect_err("there is no quorum");
    let reason = reason_of(&status).expect("a reason");
    assert!(matches!(reason, ErrorReason::NoQuorum | ErrorReason::OutcomeUnknown), "{status:?}");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.get_details_retry_info().is_some());

    let mut linearizable = Request::new(v1::GetJobRequest { job_id: job.0, ..Default::default() });
    linearizable.set_timeout(Duration::from_secs(2));
    assert_refused(clients.jobs.clone().get_job(linearizable).await, Code::Unavailable, ErrorReason::NoQuorum);
    let stale = v1::GetJobRequest { job_id: job.0, consistency: Consistency::Stale.into() };
    let read = clients.jobs.clone().get_job(stale).await.expect("it is here").into_inner().read.expect("always there");
    let age = read.age.expect("a stale read has an age");
    assert!(age.seconds >= 1, "more than a second has passed since it knew: {age:?}");
}

#[tokio::test]
async fn a_call_waits_for_the_next_leader() {
    let mut cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[10]).await;
    let leader = cluster.leader().await.id;
    let clients = cluster.follower().await.clients.clone();
    cluster.kill(leader);
    let answer = clients.jobs.clone().submit_job(submission(1)).await;
    let job = answer.expect("two members elect a leader before the default deadline").into_inner();
    assert_eq!(job.job_id, 1);
}
