//! Streams of submissions over members that die, fall silent and refuse: each job is answered once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tessera_api::v1::submit_jobs_result::Outcome;
use tessera_api::v1::*;
use tessera_client::{ClientError, Submission};
use tonic::{Code, Status};

use crate::support::member::{Member, Seen};
use crate::support::network::Network;
use crate::support::{address, client, not_leader, refusal};

/// The number of a job by its name, which is a number: as a ledger answers that made it under this request id.
fn number(job: &SubmitJobRequest) -> u64 {
    job.spec.as_ref().and_then(|spec| spec.name.parse().ok()).expect("a number")
}

/// Jobs that are named by numbers.
fn jobs(names: impl IntoIterator<Item = u64>) -> Vec<SubmitJobRequest> {
    let spec = |name: u64| JobSpec { name: name.to_string(), ..JobSpec::default() };
    names
        .into_iter()
        .map(|name| SubmitJobRequest { request_id: format!("id-{name}"), spec: Some(spec(name)) })
        .collect()
}

fn submitted(index: u64, job: &SubmitJobRequest) -> SubmitJobsResult {
    let outcome = Outcome::Submitted(SubmitJobResponse { job_id: number(job), revision: 1 });
    SubmitJobsResult { index, outcome: Some(outcome) }
}

fn all_submitted(first: u64, message: &SubmitJobsRequest) -> SubmitJobsResponse {
    let results = (first..).zip(&message.jobs).map(|(index, job)| submitted(index, job)).collect();
    SubmitJobsResponse { results }
}

/// Takes every job of its only stream.
fn taker() -> Member {
    let taken = AtomicU64::new(0);
    Member::takes(move |message| {
        let first = taken.fetch_add(message.jobs.len() as u64, Ordering::Relaxed);
        vec![Ok(all_submitted(first, &message))]
    })
}

async fn outcomes(
    client: &tessera_client::Client,
    jobs: Vec<SubmitJobRequest>,
) -> BTreeMap<String, Result<u64, Option<ErrorReason>>> {
    let mut submissions = client.submit_jobs(futures::stream::iter(jobs));
    let mut outcomes = BTreeMap::new();
    while let Some(Submission { request_id, outcome }) = submissions.next().await.expect("it goes on") {
        let outcome = outcome.map(|submitted| submitted.job_id).map_err(|error| error.reason);
        assert_eq!(outcomes.insert(request_id, outcome), None, "answered twice");
    }
    outcomes
}

fn all(names: impl IntoIterator<Item = u64>) -> BTreeMap<String, Result<u64, Option<ErrorReason>>> {
    names.into_iter().map(|name| (format!("id-{name}"), Ok(name))).collect()
}

fn sent(seen: &Seen) -> Vec<String> {
    let streamed = seen.streamed.lock().expect("no holder panics");
    streamed.iter().flat_map(|message| message.jobs.iter().map(|job| job.request_id.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn many_jobs_share_messages_and_each_is_answered_once() {
    let network = Network::default();
    let seen = taker().serve(&network, &address(1));
    assert_eq!(outcomes(&client(&network, 1), jobs(0..5_000)).await, all(0..5_000));
    let messages = seen.streamed.lock().expect("no holder panics").len();
    assert!(messages <= 100, "5,000 jobs came in {messages} messages");
}

#[tokio::test(start_paused = true)]
async fn what_a_leader_that_was_lost_did_not_answer_goes_to_the_next_under_the_same_ids() {
    let network = Network::default();
    let first = Member::takes(|message| {
        let some = message.jobs.iter().enumerate().filter(|(_, job)| number(job).is_multiple_of(3));
        let results = some.map(|(index, job)| submitted(index as u64, job)).collect();
        vec![Ok(SubmitJobsResponse { results }), Err(refusal(Code::Unavailable, "OUTCOME_UNKNOWN", &[]))]
    });
    let first = first.serve(&network, &address(1));
    let second = taker().serve(&network, &address(2));
    assert_eq!(outcomes(&client(&network, 2), jobs(0..200)).await, all(0..200));
    assert_eq!(sent(&first), (0..200).map(|name| format!("id-{name}")).collect::<Vec<_>>());
    let unanswered = (0..200).filter(|name| name % 3 != 0).map(|name| format!("id-{name}"));
    assert_eq!(sent(&second), unanswered.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_names_the_leader_is_left_for_it() {
    let network = Network::default();
    Member::takes(|_| vec![Err(not_leader(Some(3)))]).serve(&network, &address(1));
    let second = taker().serve(&network, &address(2));
    taker().serve(&network, &address(3));
    assert_eq!(outcomes(&client(&network, 3), jobs(0..10)).await, all(0..10));
    assert!(sent(&second).is_empty());
}

#[tokio::test(start_paused = true)]
async fn members_that_are_dead_or_say_nothing_are_left() {
    let network = Network::default();
    network.silence(&address(2));
    // Takes everything and never says a word.
    let mute = Member::takes(|_| Vec::new()).serve(&network, &address(3));
    taker().serve(&network, &address(4));
    assert_eq!(outcomes(&client(&network, 4), jobs(0..10)).await, all(0..10));
    assert_eq!(sent(&mute).len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_refused_job_does_not_touch_the_others() {
    let network = Network::default();
    let picky = Member::takes(|message| {
        let mut answers = all_submitted(0, &message);
        let refused = refusal(Code::NotFound, "QUEUE_UNKNOWN", &[]);
        let refused = RefusedSubmission {
            code: refused.code().into(),
            message: refused.message().to_owned(),
            details: refused.details().to_vec().into(),
        };
        answers.results[1].outcome = Some(Outcome::Refused(refused));
        vec![Ok(answers)]
    });
    let seen = picky.serve(&network, &address(1));
    let mut jobs = jobs([0, 1, 2]);
    // Refused here: no member would read it.
    let large = JobSpec { script: "#".repeat(5 << 20), ..JobSpec::default() };
    jobs.push(SubmitJobRequest { request_id: "id-large".to_owned(), spec: Some(large) });
    let mut expected = all([0, 2]);
    expected.insert("id-1".to_owned(), Err(Some(ErrorReason::QueueUnknown)));
    expected.insert("id-large".to_owned(), Err(Some(ErrorReason::RequestTooLarge)));
    assert_eq!(outcomes(&client(&network, 1), jobs).await, expected);
    assert_eq!(sent(&seen), ["id-0", "id-1", "id-2"]);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_jobs_are_unanswered_and_those_without_id_get_one() {
    let network = Network::default();
    let mute = Member::takes(|_| Vec::new()).serve(&network, &address(1));
    let nameless = jobs(0..1_000).into_iter().map(|job| SubmitJobRequest { request_id: String::new(), ..job });
    let client = client(&network, 1);
    let mut submissions = client.submit_jobs(futures::stream::iter(nameless.collect::<Vec<_>>())).with_unanswered(10);
    let error = submissions.next().await.expect_err("nobody answers");
    assert!(matches!(&error, ClientError::Unavailable(unavailable) if unavailable.outcome_unknown), "{error:?}");
    let sent = sent(&mute);
    let ids: std::collections::BTreeSet<&String> = sent.iter().collect();
    assert_eq!(ids.len(), 10, "the same ten, again and again: {}", sent.len());
    assert!(ids.iter().all(|id| id.len() == 36));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_refused_for_good_says_so_and_nobody_there_too() {
    let network = Network::default();
    Member::takes(|_| vec![Err(refusal(Code::InvalidArgument, "INVALID_FIELD", &[]))]).serve(&network, &address(1));
    let mut submissions = client(&network, 1).submit_jobs(futures::stream::iter(jobs([0])));
    let error = submissions.next().await.expect_err("it is refused");
    assert_eq!(error.reason(), Some(ErrorReason::InvalidField));
    let mut submissions = client(&Network::default(), 2).submit_jobs(futures::stream::iter(jobs([0])));
    assert!(matches!(submissions.next().await, Err(ClientError::Unavailable(_))));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_broke_while_nothing_was_unanswered_is_opened_again_for_the_next_job() {
    let network = Network::default();
    let once = Member::takes(|message| {
        vec![Ok(all_submitted(0, &message)), Err(Status::unavailable("the member is going away"))]
    });
    once.serve(&network, &address(1));
    taker().serve(&network, &address(2));
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let source = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut submissions = client(&network, 2).submit_jobs(source);
    for job in jobs([0, 1]) {
        let name = number(&job);
        sender.send(job).await.expect("it is taken");
        let answer = submissions.next().await.expect("it goes on").expect("an answer");
        assert_eq!(answer.outcome.map(|submitted| submitted.job_id), Ok(name));
    }
    drop(sender);
    assert_eq!(submissions.next().await.expect("it ends"), None);
}
