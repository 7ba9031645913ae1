//! Many submissions on one call: each job by the rules of a single submission, whoever leads and however much is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tessera_api::error::reason_of;
use tessera_api::limits as api;
use tessera_api::v1::submit_jobs_result::Outcome;
use tessera_api::v1::{self, ErrorReason};
use tessera_server::grpc::GrpcSettings;
use tessera_server::limits::MemberLimits;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt;

use crate::services::limits::{raw, stalled};
use crate::services::support::fixture::{node, spec, submission};
use crate::services::support::{Clients, Cluster, TestMember, assert_refused, id, within};

/// The outcomes of the submissions on a stream, by the places of the jobs in it.
type Outcomes = BTreeMap<u64, Result<v1::SubmitJobResponse, Status>>;

fn messages(jobs: &[v1::SubmitJobRequest], each: usize) -> Vec<v1::SubmitJobsRequest> {
    jobs.chunks(each).map(|jobs| v1::SubmitJobsRequest { jobs: jobs.to_vec() }).collect()
}

fn note(outcomes: &mut Outcomes, answer: v1::SubmitJobsResponse) {
    for result in answer.results {
        let outcome = match result.outcome.expect("always there") {
            Outcome::Submitted(submitted) => Ok(submitted),
            Outcome::Refused(refused) => {
                Err(Status::with_details(Code::from(refused.code), refused.message, refused.details))
            }
        };
        assert!(outcomes.insert(result.index, outcome).is_none(), "{} is answered twice", result.index);
    }
}

/// All that a stream answers, and how it ends.
async fn read(mut answers: Streaming<v1::SubmitJobsResponse>) -> (Outcomes, Result<(), Status>) {
    let mut outcomes = Outcomes::new();
    loop {
        match within("the stream goes on", answers.message()).await {
            Ok(Some(answer)) => note(&mut outcomes, answer),
            Ok(None) => return (outcomes, Ok(())),
            Err(status) => return (outcomes, Err(status)),
        }
    }
}

async fn open(
    clients: &Clients,
    messages: impl futures::Stream<Item = v1::SubmitJobsRequest> + Send + 'static,
) -> Result<Streaming<v1::SubmitJobsResponse>, Status> {
    let messages: BoxStream<'static, _> = messages.boxed();
    clients.jobs.clone().submit_jobs(messages).await.map(tonic::Response::into_inner)
}

async fn submit_all(clients: &Clients, jobs: &[v1::SubmitJobRequest], each: usize) -> Outcomes {
    let answers = open(clients, stream::iter(messages(jobs, each))).await.expect("it is open");
    let (outcomes, end) = read(answers).await;
    end.expect("it ends in order");
    assert_eq!(outcomes.len(), jobs.len());
    outcomes
}

fn numbers(outcomes: &Outcomes) -> Vec<v1::SubmitJobResponse> {
    outcomes.values().map(|outcome| *outcome.as_ref().expect("it is taken")).collect()
}

fn jobs_of(member: &TestMember) -> usize {
    member.pool.view().current().jobs_from(Default::default()).count()
}

fn metric(member: &TestMember, name: &str) -> u64 {
    let page = member.pool.metrics().encode().expect("text");
    let value = page.lines().find_map(|line| line.strip_prefix(name)).expect("it is on the page");
    value.trim().parse().expect("a number")
}

async fn limited(limits: MemberLimits) -> Cluster {
    let cluster = Cluster::with(1, GrpcSettings { limits, ..GrpcSettings::default() }).await;
    node(&cluster, "n0", &[10]).await;
    cluster
}

#[tokio::test]
async fn a_follower_passes_a_stream_on_and_a_repeated_one_is_answered_the_same() {
    let cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[10]).await;
    let follower = cluster.follower().await;
    let jobs: Vec<_> = (0..500).map(|_| submission(1)).collect();
    let mut request = Request::new(stream::iter(messages(&jobs, 90)));
    request.metadata_mut().insert("tessera-actor", "grace".parse().expect("a header"));
    let answers = follower.clients.jobs.clone().submit_jobs(request).await.expect("it reaches the leader");
    let (first, end) = read(answers.into_inner()).await;
    end.expect("it ends in order");
    let first = numbers(&first);
    let distinct: std::collections::BTreeSet<u64> = first.iter().map(|submitted| submitted.job_id).collect();
    assert_eq!(distinct.len(), 500);

    let leader = cluster.leader().await;
    let again = numbers(&submit_all(&leader.clients, &jobs, 33).await);
    assert_eq!(again, first, "numbers and revisions are those of the first time");
    let single = leader.clients.jobs.clone().submit_job(jobs[7].clone()).await.expect("it was made").into_inner();
    assert_eq!(single, first[7], "a call of its own is answered the same");
    assert_eq!(jobs_of(leader), 500);
    let job = leader.pool.view().current().job(tessera_ledger::JobId(first[0].job_id)).cloned().expect("it is there");
    assert_eq!(job.submitter, "grace", "metadata travels along");
}

#[tokio::test]
async fn each_refused_job_says_why_and_the_others_are_taken() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let member = &cluster.members[0];
    let twice = submission(1);
    let jobs = [
        submission(1),
        v1::SubmitJobRequest { request_id: String::new(), ..submission(1) },
        v1::SubmitJobRequest { spec: Some(v1::JobSpec { gang: 1_000_000, ..spec(1) }), ..submission(1) },
        v1::SubmitJobRequest { spec: None, ..submission(1) },
        submission(1_000),
        v1::SubmitJobRequest { spec: Some(v1::JobSpec { queue: "nobody".to_owned(), ..spec(1) }), ..submission(1) },
        // Larger than an entry of the log.
        v1::SubmitJobRequest { spec: Some(v1::JobSpec { script: "#".repeat(1 << 20), ..spec(1) }), ..submission(1) },
        twice.clone(),
        twice.clone(),
        v1::SubmitJobRequest { spec: Some(spec(2)), ..twice },
        submission(1),
    ];
    let outcomes = submit_all(&member.clients, &jobs, 100).await;
    let reasons: Vec<_> = outcomes.values().map(|outcome| outcome.as_ref().err().map(reason_of)).collect();
    let refused = |reason: ErrorReason| Some(Some(reason));
    assert_eq!(
        reasons,
        [
            None,
            refused(ErrorReason::RequestIdInvalid),
            refused(ErrorReason::InvalidField),
            refused(ErrorReason::InvalidField),
            refused(ErrorReason::ExceedsPool),
            refused(ErrorReason::QueueUnknown),
            refused(ErrorReason::RequestTooLarge),
            None,
            None,
            refused(ErrorReason::RequestIdReused),
            None,
        ]
    );
    let single = member.clients.jobs.clone().submit_job(jobs[4].clone()).await.expect_err("as refused");
    let streamed = outcomes[&4].as_ref().expect_err("it is refused");
    let parts = |status: &Status| {
        let metadata = status.get_details_error_info().map(|info| info.metadata);
        (status.code(), reason_of(status), status.message().to_owned(), metadata)
    };
    assert_eq!(parts(streamed), parts(&single), "it is the error of the single call");
    assert_eq!(outcomes[&7].as_ref().ok(), outcomes[&8].as_ref().ok(), "sent twice, made once");
    assert_eq!(jobs_of(member), 3);
}

#[tokio::test]
async fn a_stream_that_makes_no_sense_ends_with_a_documented_reason() {
    let cluster = limited(MemberLimits::default()).await;
    let member = &cluster.members[0];
    let many: Vec<_> = (0..=api::SUBMISSIONS).map(|_| submission(1)).collect();
    let answers = open(&member.clients, stream::iter(messages(&many, many.len()))).await.expect("it is open");
    let (_, end) = read(answers).await;
    assert_refused(end, Code::InvalidArgument, ErrorReason::InvalidField);

    let no_jobs = stream::iter([Bytes::from_static(b"\0\0\0\0\x02\x0a\xff")]);
    let end = raw(member, "tessera.v1.JobService/SubmitJobs", "60S", no_jobs).await;
    let end = within("it ends", end).await.expect("no panic");
    assert_refused::<()>(Err(end), Code::InvalidArgument, ErrorReason::ProtocolViolation);
    assert_eq!(jobs_of(member), 0);
}

#[tokio::test]
async fn when_the_leader_dies_the_stream_says_that_the_rest_is_unknown_and_the_next_has_each_job_once() {
    let mut cluster = Cluster::of(3).await;
    node(&cluster, "n0", &[10]).await;
    let leader = cluster.leader().await.id;
    let clients = cluster.follower().await.clients.clone();
    let jobs: Vec<_> = (0..200).map(|_| submission(1)).collect();
    let (sender, receiver) = mpsc::channel(1);
    let mut answers = open(&clients, ReceiverStream::new(receiver)).await.expect("it is open");
    let mut outcomes = Outcomes::new();
    let [early, late] = [&jobs[..100], &jobs[100..]];
    sender.send(messages(early, 100).remove(0)).await.expect("it is open");
    while outcomes.len() < 100 {
        let answer = within("an answer comes", answers.message()).await.expect("it goes on").expect("it goes on");
        note(&mut outcomes, answer);
    }
    cluster.kill(leader);
    // It may have broken off already.
    let _ = sender.send(messages(late, 100).remove(0)).await;
    let (more, end) = read(answers).await;
    let end = end.expect_err("it breaks off");
    assert_eq!(end.code(), Code::Unavailable, "{end:?}");
    assert!(reason_of(&end).is_some(), "{end:?}");
    outcomes.extend(more);

    let again = within("the next leader answers", async {
        loop {
            if let Ok(answers) = open(&clients, stream::iter(messages(&jobs, 50))).await
                && let (outcomes, Ok(())) = read(answers).await
            {
                return outcomes;
            }
        }
    })
    .await;
    for (place, acknowledged) in &outcomes {
        let again = again[place].as_ref().expect("it is taken");
        assert_eq!(acknowledged.as_ref().ok(), Some(again), "what was acknowledged is answered the same");
    }
    assert_eq!(again.len(), 200);
    assert_eq!(jobs_of(cluster.leader().await), 200);
}

#[tokio::test]
async fn a_reader_who_does_not_read_stops_the_stream_and_nothing_else() {
    let cluster = limited(MemberLimits::default()).await;
    let member = &cluster.members[0];
    // Answers that nobody reads pile up soon: each is an error with its sentence. What is sent is more than all limits
    // together.
    let padding = v1::JobSpec { script: "#".repeat(400), ..spec(1) };
    let refused = v1::SubmitJobRequest { request_id: "no id".to_owned(), spec: Some(padding) };
    let message = v1::SubmitJobsRequest { jobs: vec![refused; api::SUBMISSIONS] };
    let (count, pulled) = (150, Arc::new(AtomicUsize::new(0)));
    let taken = Arc::clone(&pulled);
    let sent = stream::iter(0..count).map(move |_| {
        taken.fetch_add(1, Ordering::Relaxed);
        message.clone()
    });
    let answers = open(&Clients::of(&member.address), sent).await.expect("it is open");
    let most = (api::UNANSWERED_BYTES + 2 * api::REQUEST) as u64;
    let (mut before, mut unchanged) = (0, 0);
    within("nothing moves any more", async {
        while unchanged < 200 {
            let held = metric(member, "tessera_limit_used{limit=\"request_bytes\"}");
            assert!(held <= most, "{held} bytes are held");
            member.clients.pool.clone().get_pool(v1::GetPoolRequest::default()).await.expect("others are served");
            let now = pulled.load(Ordering::Relaxed);
            unchanged = if now == before && now > 0 { unchanged + 1 } else { 0 };
            before = now;
        }
    })
    .await;
    assert!(before < count, "all {count} messages were taken though nobody reads an answer");
    assert_eq!(metric(member, "tessera_limit_used{limit=\"submission_streams\"}"), 1);

    let (outcomes, end) = read(answers).await;
    end.expect("who reads again gets all");
    assert_eq!(outcomes.len(), count * api::SUBMISSIONS);
    within("all is given back", async {
        while metric(member, "tessera_limit_used{limit=\"request_bytes\"}") > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn streams_have_places_of_their_own() {
    let cluster = limited(MemberLimits { requests: 1, submission_streams: 1, ..MemberLimits::default() }).await;
    let member = &cluster.members[0];
    let (sender, receiver) = mpsc::channel(1);
    let mut first = open(&member.clients, ReceiverStream::new(receiver)).await.expect("there is room");
    let second = open(&member.clients, stream::empty()).await.map(drop);
    assert_refused(second, Code::ResourceExhausted, ErrorReason::TooManySubmissionStreams);
    for _ in 0..3 {
        member.clients.jobs.clone().submit_job(submission(1)).await.expect("it takes no place of a call");
    }
    sender.send(messages(&[submission(1)], 1).remove(0)).await.expect("it is open");
    within("it is answered", first.message()).await.expect("it goes on").expect("an answer");
    drop((sender, first));
    within("there is room again", async {
        while open(&member.clients, stream::empty()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_stream_may_be_silent_between_messages_but_not_within_one() {
    let silence = Duration::from_millis(100);
    let cluster = limited(MemberLimits { silence, ..MemberLimits::default() }).await;
    let member = &cluster.members[0];
    let (sender, receiver) = mpsc::channel(1);
    let mut silent = open(&member.clients, ReceiverStream::new(receiver)).await.expect("it is open");
    let stalled = stalled(member, "tessera.v1.JobService/SubmitJobs", "60S").await;
    let end = within("it is let go", stalled).await.expect("no panic");
    assert_eq!(reason_of(&end), Some(ErrorReason::DeadlineExceeded), "{end:?}");
    sender.send(messages(&[submission(1)], 1).remove(0)).await.expect("it is open");
    let answer = within("it is answered", silent.message()).await.expect("it goes on").expect("an answer");
    assert!(matches!(answer.results[..], [v1::SubmitJobsResult { index: 0, outcome: Some(Outcome::Submitted(_)) }]));
}

#[tokio::test]
async fn a_stream_counts_against_the_bytes_of_requests() {
    let cluster = limited(MemberLimits { request_bytes: 64 << 10, ..MemberLimits::default() }).await;
    let member = &cluster.members[0];
    let large = v1::JobSpec { script: "#".repeat(100 << 10), ..spec(1) };
    let job = v1::SubmitJobRequest { request_id: id(), spec: Some(large) };
    let answers = open(&member.clients, stream::iter(messages(&[job], 1))).await.expect("it is open");
    let (_, end) = read(answers).await;
    assert_refused(end, Code::ResourceExhausted, ErrorReason::TooManyRequestBytes);
    // A stream much longer than the limit is taken: what is answered is not held.
    let jobs: Vec<_> = (0..1_000).map(|_| submission(1)).collect();
    let (sender, receiver) = mpsc::channel(1);
    let mut answers = open(&member.clients, ReceiverStream::new(receiver)).await.expect("it is open");
    for message in messages(&jobs, 100) {
        sender.send(message).await.expect("it is open");
        within("it is answered", answers.message()).await.expect("it goes on").expect("an answer");
    }
    assert_eq!(jobs_of(member), 1_000);
    drop((sender, answers));
    within("all is given back", async {
        while metric(member, "tessera_limit_used{limit=\"request_bytes\"}") > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
