//! Operations on jobs.

use tessera_api::error::{AGE, REVISION};
use tessera_api::v1::{self, Consistency, ErrorReason, JobState, PlanVerdict};
use tessera_ledger::Observation;
use tonic::{Code, Request};
use tonic_types::StatusExt;

use crate::services::support::fixture::{grant, node, report, spec, submission, submit};
use crate::services::support::{Cluster, assert_refused, id};

fn get(job_id: u64) -> v1::GetJobRequest {
    v1::GetJobRequest { job_id, ..Default::default() }
}

#[tokio::test]
async fn a_job_is_submitted_seen_held_released_and_cancelled() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let mut jobs = cluster.members[0].clients.jobs.clone();

    let mut request = Request::new(submission(4));
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request.metadata_mut().insert("tessera-actor", "ada".parse().expect("a header"));
    request.metadata_mut().insert("traceparent", traceparent.parse().expect("a header"));
    let submitted = jobs.submit_job(request).await.expect("it is accepted").into_inner();
    let job = jobs.get_job(get(submitted.job_id)).await.expect("it exists").into_inner();
    let seen = job.job.expect("an answer has a job");
    assert_eq!((seen.id, seen.state(), seen.submitter.as_str()), (submitted.job_id, JobState::Pending, "ada"));
    assert_eq!((seen.revision, seen.traceparent.as_str()), (submitted.revision, traceparent));
    assert!(job.read.expect("an answer says how current it is").revision >= submitted.revision);

    let job_id = submitted.job_id;
    jobs.hold_job(v1::HoldJobRequest { request_id: id(), job_id }).await.expect("it waits");
    let held = jobs.get_job(get(job_id)).await.expect("it exists").into_inner().job.expect("a job");
    assert!(held.held);
    jobs.release_job(v1::ReleaseJobRequest { request_id: id(), job_id }).await.expect("it is held");
    jobs.cancel_job(v1::CancelJobRequest { request_id: id(), job_id }).await.expect("it waits");
    let over = jobs.get_job(get(job_id)).await.expect("it exists").into_inner().job.expect("a job");
    assert_eq!(over.state(), JobState::Cancelled);
    assert!(over.ended_at.is_some());
    let again = jobs.hold_job(v1::HoldJobRequest { request_id: id(), job_id }).await;
    assert_refused(again, Code::FailedPrecondition, ErrorReason::IllegalTransition);
}

#[tokio::test]
async fn a_running_job_is_suspended_and_resumed() {
    let cluster = Cluster::of(1).await;
    let place = node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let mut jobs = clients.jobs.clone();
    let job = submit(clients, 4).await;
    let allocation = grant(&cluster, job, place, 4).await;
    report(&cluster, place, allocation, Observation::Running).await;

    jobs.suspend_job(v1::SuspendJobRequest { request_id: id(), job_id: job.0 }).await.expect("it runs");
    let seen = jobs.get_job(get(job.0)).await.expect("it exists").into_inner().job.expect("a job");
    assert_eq!(seen.state(), JobState::Suspending);
    assert_eq!(seen.allocation.expect("it holds blocks").workers[0].node_name, "n0");
    let exit = tessera_testkit::exit(tessera_ledger::StopCause::Ordered, None);
    let exit = tessera_ledger::WorkerExit { signal: Some(15), ..exit };
    report(&cluster, place, allocation, Observation::Stopped(exit)).await;
    let seen = jobs.get_job(get(job.0)).await.expect("it exists").into_inner().job.expect("a job");
    assert_eq!((seen.state(), seen.parked), (JobState::Suspended, true));
    jobs.resume_job(v1::ResumeJobRequest { request_id: id(), job_id: job.0 }).await.expect("it is suspended");
    let seen = jobs.get_job(get(job.0)).await.expect("it exists").into_inner().job.expect("a job");
    assert!(!seen.parked);
}

#[tokio::test]
async fn why_and_plan_answer_from_placement() {
    let cluster = Cluster::of(1).await;
    let place = node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let mut jobs = clients.jobs.clone();
    let first = submit(clients, 8).await;
    grant(&cluster, first, place, 8).await;
    let second = submit(clients, 5).await;

    let why =
        jobs.why(v1::WhyRequest { job_id: second.0, ..Default::default() }).await.expect("it exists").into_inner();
    let explanation = why.explanation.expect("it waits");
    assert_eq!((why.state, explanation.constraint.as_str()), (JobState::Pending as i32, "COMPUTE_SHORT"));
    assert!(explanation.sentence.contains("5 TFLOPS"), "{}", explanation.sentence);
    let holds =
        jobs.why(v1::WhyRequest { job_id: first.0, ..Default::default() }).await.expect("it exists").into_inner();
    assert!(holds.explanation.is_none(), "a job that has its allocation does not wait");

    let mut verdict = async |tflops, priority: Option<u32>| {
        let spec = Some(v1::JobSpec { priority, ..spec(tflops) });
        jobs.plan_job(v1::PlanJobRequest { spec, ..Default::default() }).await.expect("it can be tried").into_inner()
    };
    let starts = verdict(2, None).await;
    assert_eq!((starts.verdict(), starts.workers[0].node_name.as_str()), (PlanVerdict::Starts, "n0"));
    assert_eq!(verdict(5, None).await.verdict(), PlanVerdict::Waits);
    let preempts = verdict(5, Some(90)).await;
    assert_eq!((preempts.verdict(), preempts.victims[0].job_id), (PlanVerdict::Preempts, first.0));
    assert_eq!(preempts.victims[0].blocks, 8);
    let refused = verdict(50, None).await;
    assert_eq!(refused.verdict(), PlanVerdict::Refused);
    assert_eq!(refused.refusal.expect("it says why").code, "EXCEEDS_POOL");
    assert_eq!(
        cluster.members[0].pool.view().current().jobs_from(Default::default()).count(),
        2,
        "a plan changes nothing"
    );
}

#[tokio::test]
async fn a_plan_says_what_spoke_for_its_nodes_and_a_wait_names_the_affinity() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    node(&cluster, "n1", &[10]).await;
    let mut jobs = cluster.members[0].clients.jobs.clone();
    let mut plan = async |gang, affinity| {
        let spec = Some(v1::JobSpec { gang, affinity: Some(affinity), ..spec(8) });
        jobs.plan_job(v1::PlanJobRequest { spec, ..Default::default() }).await.expect("it can be tried").into_inner()
    };
    let label = v1::PreferredLabel { key: "name".to_owned(), value: "n1".to_owned(), weight: 30 };
    let prefers = plan(1, v1::Affinity { preferred: vec![label], ..Default::default() }).await;
    assert_eq!(prefers.workers[0].node_name, "n1");
    let terms: Vec<(&str, u64)> = prefers.nodes[0].terms.iter().map(|term| (term.name.as_str(), term.score)).collect();
    assert_eq!((prefers.nodes[0].node_name.as_str(), terms), ("n1", vec![("preferred", 30), ("packing", 0)]));
    let together = plan(2, v1::Affinity { together: "node".to_owned(), ..Default::default() }).await;
    assert_eq!((together.verdict(), together.nodes.len()), (PlanVerdict::Waits, 0));
    assert_eq!(together.explanation.expect("it says why").constraint, "AFFINITY");
}

#[tokio::test]
async fn a_stale_read_says_how_old_it_may_be() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let job = submit(clients, 1).await;
    let request = v1::GetJobRequest { job_id: job.0, consistency: Consistency::Stale.into() };
    let read = clients.jobs.clone().get_job(request).await.expect("it exists").into_inner().read.expect("always there");
    assert!(read.revision > 0 && read.age.is_some());
    let request = v1::GetJobRequest { job_id: job.0, consistency: Consistency::Linearizable.into() };
    let read = clients.jobs.clone().get_job(request).await.expect("it exists").into_inner().read.expect("always there");
    assert_eq!(read.age, Some(prost_types::Duration::default()));
    for (consistency, current) in [(Consistency::Stale, false), (Consistency::Linearizable, true)] {
        let request = v1::GetJobRequest { job_id: 4_711, consistency: consistency.into() };
        let missing = clients.jobs.clone().get_job(request).await;
        let missing = assert_refused(missing, Code::NotFound, ErrorReason::JobUnknown);
        let details = missing.get_error_details();
        let said = |key| details.error_info().and_then(|info| info.metadata.get(key)).expect("it says of when it is");
        assert!(said(REVISION).parse::<u64>().expect("a number") >= read.revision);
        let age: f64 = said(AGE).parse().expect("seconds");
        assert_eq!(age == 0.0, current, "{consistency:?}: {age}");
    }
}
