//! One call, whatever becomes of the members: hints, deaths, silences, retries with one request id, deadlines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tessera_api::v1::ErrorReason;
use tessera_client::{Client, ClientError, Headers, Settings, Trouble, Unavailable};
use tokio::time::Instant;
use tonic::Code;

use crate::support::member::Member;
use crate::support::network::Network;
use crate::support::{address, asks_to_wait, client, not_leader, refusal, settings, submission};

fn unavailable(error: ClientError) -> Unavailable {
    match error {
        ClientError::Unavailable(unavailable) => *unavailable,
        other => panic!("expected that no answer could be had, got: {other}"),
    }
}

/// Fails with `status` the first `times` times, then accepts.
fn fails_first(times: u32, status: impl Fn() -> tonic::Status + Send + Sync + 'static) -> Member {
    let calls = Arc::new(AtomicU32::new(0));
    Member::submits(move |_| if calls.fetch_add(1, Ordering::SeqCst) < times { Err(status()) } else { Ok(42) })
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_followed_at_once_with_the_same_request_id() {
    let network = Network::default();
    let follower = Member::submits(|_| Err(not_leader(Some(3)))).serve(&network, &address(1));
    let other = Member::submits(|_| Err(not_leader(None))).serve(&network, &address(2));
    let leader = Member::submits(|_| Ok(7)).serve(&network, &address(3));
    let client = client(&network, 2);

    let started = Instant::now();
    let answer = client.submit_job(submission()).await.expect("the leader answers");

    assert_eq!(answer.job_id, 7);
    assert_eq!(started.elapsed(), Duration::ZERO, "a hint costs no wait");
    assert_eq!(follower.request_ids(), leader.request_ids());
    assert!(other.request_ids().is_empty());
    assert_eq!(client.current_member(), address(3), "a leader that was not configured is remembered");
}

#[tokio::test(start_paused = true)]
async fn an_empty_hint_sends_the_call_elsewhere() {
    let network = Network::default();
    Member::submits(|_| Err(not_leader(None))).serve(&network, &address(1));
    Member::submits(|_| Ok(7)).serve(&network, &address(2));
    let started = Instant::now();
    assert_eq!(client(&network, 2).submit_job(submission()).await.expect("2 answers").job_id, 7);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_named_by_its_followers_does_not_trap_the_call() {
    let network = Network::default();
    Member::submits(|_| Ok(1)).serve(&network, &address(1));
    fails_first(3, || not_leader(Some(1))).serve(&network, &address(2));
    Member::submits(|_| Err(not_leader(Some(1)))).serve(&network, &address(3));
    let client = client(&network, 3);
    client.submit_job(submission()).await.expect("1 leads");

    network.kill(&address(1));
    let started = Instant::now();
    assert_eq!(client.submit_job(submission()).await.expect("2 leads after a while").job_id, 42);
    assert!(started.elapsed() < Duration::from_millis(60), "three rounds took {:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_asked_again_with_the_same_request_id() {
    let network = Network::default();
    let seen = fails_first(2, || refusal(Code::Unavailable, "OUTCOME_UNKNOWN", &[])).serve(&network, &address(1));
    assert_eq!(client(&network, 1).submit_job(submission()).await.expect("made in the end").job_id, 42);
    let ids = seen.request_ids();
    assert_eq!(ids.len(), 3);
    assert!(!ids[0].is_empty() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_id_of_the_caller_is_kept() {
    let network = Network::default();
    let seen = Member::submits(|_| Ok(1)).serve(&network, &address(1));
    let mut request = submission();
    request.request_id = "019a2f6e-9d00-7c1e-8f6b-1b6f2f1d9c11".to_owned();
    client(&network, 1).submit_job(request.clone()).await.expect("1 answers");
    assert_eq!(seen.request_ids(), [request.request_id]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_vanished_costs_one_hedge() {
    let network = Network::default();
    network.silence(&address(1));
    Member::submits(|_| Ok(7)).serve(&network, &address(2));
    let client = client(&network, 2);
    let started = Instant::now();
    assert_eq!(client.submit_job(submission()).await.expect("2 answers").job_id, 7);
    assert!(started.elapsed() < Duration::from_millis(100), "it cost {:?}", started.elapsed());

    let again = Instant::now();
    client.submit_job(submission()).await.expect("2 answers");
    assert_eq!(again.elapsed(), Duration::ZERO, "the member that answered is asked first");
}

/// Two copies of a request are under way: one is refused, and the other carried out a moment later.
#[tokio::test(start_paused = true)]
async fn what_is_refused_in_one_copy_and_made_in_the_other_is_made() {
    let network = Network::default();
    Member::submits_after(Duration::from_millis(400), 7).serve(&network, &address(1));
    Member::submits(|_| Err(refusal(Code::FailedPrecondition, "EXCEEDS_POOL", &[]))).serve(&network, &address(2));
    let client = client(&network, 2);
    assert_eq!(client.submit_job(submission()).await.expect("1 made it").job_id, 7);
}

/// Nobody waits for long for the other copy: its host may be gone.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_when_the_other_copy_is_not_heard_of() {
    let network = Network::default();
    network.silence(&address(1));
    Member::submits(|_| Err(refusal(Code::FailedPrecondition, "EXCEEDS_POOL", &[]))).serve(&network, &address(2));
    let started = Instant::now();
    let refused = client(&network, 2).submit_job(submission()).await.expect_err("2 refuses");
    assert!(matches!(refused, ClientError::Refused(_)), "{refused}");
    assert!(started.elapsed() < Duration::from_secs(2), "it took {:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_member_that_is_alone_is_waited_for() {
    let network = Network::default();
    let seen = Member::submits_after(Duration::from_secs(4), 7).serve(&network, &address(1));
    assert_eq!(client(&network, 1).submit_job(submission()).await.expect("1 answers").job_id, 7);
    assert_eq!(seen.request_ids().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_there_is_one_clear_error() {
    let network = Network::default();
    for port in 1..=3 {
        Member::submits(|_| Err(refusal(Code::Unavailable, "NO_QUORUM", &[]))).serve(&network, &address(port));
    }
    let started = Instant::now();
    let error = client(&network, 3).submit_job(submission()).await.expect_err("nobody can");
    let error = unavailable(error);
    assert_eq!(error.trouble, Trouble::NoQuorum);
    assert_eq!(error.members.len(), 3);
    assert!(!error.outcome_unknown, "NO_QUORUM promises that nothing was changed");
    assert!(started.elapsed() <= Duration::from_secs(10), "the deadline was passed: {:?}", started.elapsed());
    assert!(started.elapsed() >= Duration::from_secs(9), "it was given up early: {:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn when_nobody_is_there_it_is_said_sooner() {
    let network = Network::default();
    let started = Instant::now();
    let error = unavailable(client(&network, 3).submit_job(submission()).await.expect_err("nobody is there"));
    assert_eq!(error.trouble, Trouble::Unreachable);
    assert!(!error.outcome_unknown);
    assert!(started.elapsed() < Duration::from_secs(4), "it took {:?}", started.elapsed());
    assert!(error.to_string().contains("connection refused"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_told_to_the_member_and_kept() {
    let network = Network::default();
    let seen = Member::submits_after(Duration::from_secs(3600), 1).serve(&network, &address(1));
    let client = client(&network, 1).with_deadline(Duration::from_secs(2));
    let started = Instant::now();
    let error = unavailable(client.submit_job(submission()).await.expect_err("it is too slow"));
    assert!(error.outcome_unknown, "the member may still make it");
    assert!(error.request_id.is_some_and(|id| seen.request_ids().contains(&id)));
    assert!(started.elapsed() <= Duration::from_millis(2001), "it took {:?}", started.elapsed());
    let headers = seen.headers.lock().expect("no holder panics");
    assert!(headers[0].contains_key("grpc-timeout"));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_asks_for_time_gets_it() {
    let network = Network::default();
    let wait = Duration::from_secs(1);
    let seen = fails_first(1, move || asks_to_wait("OVERLOADED", wait)).serve(&network, &address(1));
    let started = Instant::now();
    client(&network, 1).submit_job(submission()).await.expect("accepted in the end");
    assert!(started.elapsed() >= wait);
    assert_eq!(seen.request_ids().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_asked_again() {
    let network = Network::default();
    let refused = || Err(refusal(Code::FailedPrecondition, "EXCEEDS_POOL", &[("total", "200".to_owned())]));
    let first = Member::submits(move |_| refused()).serve(&network, &address(1));
    let second = Member::submits(|_| Ok(1)).serve(&network, &address(2));
    let error = client(&network, 2).submit_job(submission()).await.expect_err("refused");
    assert_eq!(error.reason(), Some(ErrorReason::ExceedsPool));
    assert_eq!((first.request_ids().len(), second.request_ids().len()), (1, 0));
    let ClientError::Refused(error) = error else { panic!("a refusal was expected") };
    assert_eq!(error.metadata.get("total").map(String::as_str), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_exist_is_said_after_one_round() {
    let network = Network::default();
    let none = || Err(refusal(Code::FailedPrecondition, "NOT_INITIALIZED", &[]));
    Member::submits(move |_| none()).serve(&network, &address(1));
    Member::submits(move |_| none()).serve(&network, &address(2));
    let started = Instant::now();
    let error = client(&network, 2).submit_job(submission()).await.expect_err("there is no cluster");
    assert_eq!(error.reason(), Some(ErrorReason::NotInitialized));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

/// That two members know of no cluster says nothing of the third, which is away for a while.
#[tokio::test(start_paused = true)]
async fn a_cluster_does_not_exist_only_when_every_member_says_so() {
    let none = || refusal(Code::FailedPrecondition, "NOT_INITIALIZED", &[]);
    let network = Network::default();
    Member::submits(move |_| Err(none())).serve(&network, &address(1));
    Member::submits(move |_| Err(none())).serve(&network, &address(2));
    network.silence(&address(3));
    let error = unavailable(client(&network, 3).submit_job(submission()).await.expect_err("nobody can"));
    assert!(error.outcome_unknown, "{error}");
}

/// That there is no cluster says nothing of a copy that may have been carried out: who says so may only be joining it.
#[tokio::test(start_paused = true)]
async fn a_change_that_may_have_been_made_is_not_refused_for_want_of_a_cluster() {
    let none = || refusal(Code::FailedPrecondition, "NOT_INITIALIZED", &[]);
    let network = Network::default();
    let told = AtomicU32::new(0);
    Member::submits(move |_| match told.fetch_add(1, Ordering::Relaxed) {
        0 => Err(refusal(Code::Unavailable, "OUTCOME_UNKNOWN", &[])),
        _ => Err(none()),
    })
    .serve(&network, &address(1));
    Member::submits(move |_| Err(none())).serve(&network, &address(2));
    let error = unavailable(client(&network, 2).submit_job(submission()).await.expect_err("nobody knows"));
    assert!(error.outcome_unknown, "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_one_member_does_not_keep_another_is_asked_for_and_all_of_them_once() {
    let not_kept = || Err(refusal(Code::Unavailable, "USAGE_NOT_KEPT", &[]));
    let network = Network::default();
    Member::submits(move |_| not_kept()).serve(&network, &address(1));
    Member::submits(|_| Ok(7)).serve(&network, &address(2));
    let answer = client(&network, 2).submit_job(submission()).await.expect("the second one knows");
    assert_eq!(answer.job_id, 7);

    let network = Network::default();
    Member::submits(move |_| not_kept()).serve(&network, &address(1));
    Member::submits(move |_| not_kept()).serve(&network, &address(2));
    let started = Instant::now();
    let error = client(&network, 2).submit_job(submission()).await.expect_err("nobody knows");
    assert_eq!(error.reason(), Some(ErrorReason::UsageNotKept));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn headers_of_the_caller_are_on_every_try() {
    let network = Network::default();
    let seen = fails_first(1, || not_leader(None)).serve(&network, &address(1));
    let headers = Headers::new(|headers| {
        headers.insert("traceparent", "00-aa-bb-01".parse().expect("a good header"));
    });
    let client = Client::new(&[address(1)], Settings { headers, ..settings(&network) }).expect("there is a member");
    client.submit_job(submission()).await.expect("accepted in the end");
    let seen = seen.headers.lock().expect("no holder panics");
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|headers| headers.get("traceparent").is_some_and(|value| value == "00-aa-bb-01")));
}

#[tokio::test]
async fn no_member_is_an_error() {
    let network = Network::default();
    assert_eq!(Client::new(&[], settings(&network)).err(), Some(ClientError::NoMembers));
}
