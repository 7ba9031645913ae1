//! Watches, output and sessions over members that break, forget and are replaced.

use std::sync::atomic::{AtomicU32, Ordering};

use tessera_api::v1::*;
use tessera_client::watch::{Start, Update};
use tessera_client::{ClientError, SessionConnector};
use tokio::time::{Duration, Instant};
use tonic::{Code, Status};

use crate::support::member::{Member, Then};
use crate::support::network::Network;
use crate::support::{address, client, not_leader, refusal, settings};

fn message(message: watch_jobs_response::Message, token: &str) -> Result<WatchJobsResponse, Status> {
    Ok(WatchJobsResponse { message: Some(message), resume_token: token.to_owned() })
}

fn listed(id: u64) -> Result<WatchJobsResponse, Status> {
    message(watch_jobs_response::Message::Listed(Job { id, ..Job::default() }), "")
}

fn synced(revision: u64) -> Result<WatchJobsResponse, Status> {
    message(watch_jobs_response::Message::Synced(WatchSynced { revision }), &format!("t{revision}"))
}

fn event(revision: u64, ordinal: u32) -> Result<WatchJobsResponse, Status> {
    let event = JobEvent { revision, ordinal, job_id: 1, ..JobEvent::default() };
    message(watch_jobs_response::Message::Event(event), &format!("t{revision}"))
}

/// An update of a watch, in short.
fn short(update: Update<Box<Job>, JobEvent>) -> String {
    match update {
        Update::Listed(job) => format!("job {}", job.id),
        Update::Synced { revision } => format!("synced {revision}"),
        Update::Event(event) => format!("{}.{}", event.revision, event.ordinal),
        Update::Progress { revision } => format!("progress {revision}"),
        Update::Relisting { compacted } => format!("relisting {compacted}"),
    }
}

fn resumes_after(request: &WatchJobsRequest) -> Option<&str> {
    match &request.start {
        Some(watch_jobs_request::Start::ResumeToken(token)) => Some(token),
        _ => None,
    }
}

async fn take(network: &Network, members: u16, count: usize) -> Vec<String> {
    let mut watch = client(network, members).watch_jobs(JobFilter::default(), Start::List);
    let mut brought = Vec::new();
    for _ in 0..count {
        brought.push(short(watch.next().await.expect("the watch goes on")));
    }
    brought
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_elsewhere_without_gap_and_without_doubling() {
    let network = Network::default();
    let broken = || Err(refusal(Code::Unavailable, "MEMBER_STOPPED", &[]));
    let first = [listed(1), synced(5), event(6, 0), event(6, 1)];
    Member::watches(move |_| (first.iter().cloned().chain([broken()]).collect(), Then::End))
        .serve(&network, &address(1));
    let second = Member::watches(|_| (vec![event(6, 1), synced(6), event(7, 0), event(9, 0)], Then::Hang))
        .serve(&network, &address(2));

    let brought = take(&network, 2, 6).await;

    assert_eq!(brought, ["job 1", "synced 5", "6.0", "6.1", "7.0", "9.0"]);
    let asked = second.watches.lock().expect("no holder panics");
    assert_eq!(asked.iter().map(resumes_after).collect::<Vec<_>>(), [Some("t6")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_survives_the_death_of_its_member() {
    let network = Network::default();
    Member::watches(|_| (vec![synced(5)], Then::Hang)).serve(&network, &address(1));
    Member::watches(|_| (vec![event(6, 0)], Then::Hang)).serve(&network, &address(2));
    let mut watch = client(&network, 2).watch_jobs(JobFilter::default(), Start::List);
    assert_eq!(short(watch.next().await.expect("it begins")), "synced 5");
    network.kill(&address(1));
    assert_eq!(short(watch.next().await.expect("it goes on")), "6.0");
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_listed_anew_and_said() {
    let network = Network::default();
    Member::watches(|request| match resumes_after(&request) {
        Some(_) => (vec![Err(refusal(Code::OutOfRange, "WATCH_COMPACTED", &[]))], Then::End),
        None => (vec![listed(1), synced(5)], Then::End),
    })
    .serve(&network, &address(1));
    assert_eq!(take(&network, 1, 5).await, ["job 1", "synced 5", "relisting true", "job 1", "synced 5"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_list_begins_again_and_says_so() {
    let network = Network::default();
    Member::watches(|_| (vec![listed(1)], Then::End)).serve(&network, &address(1));
    Member::watches(|_| (vec![listed(1), listed(2), synced(5)], Then::Hang)).serve(&network, &address(2));
    assert_eq!(take(&network, 2, 5).await, ["job 1", "relisting false", "job 1", "job 2", "synced 5"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_elsewhere() {
    let network = Network::default();
    Member::watches(|_| (vec![synced(5)], Then::Hang)).serve(&network, &address(1));
    Member::watches(|_| (vec![event(6, 0)], Then::Hang)).serve(&network, &address(2));
    assert_eq!(take(&network, 2, 2).await, ["synced 5", "6.0"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_allowed_ends() {
    let network = Network::default();
    Member::watches(|_| (vec![Err(refusal(Code::InvalidArgument, "INVALID_FIELD", &[]))], Then::End))
        .serve(&network, &address(1));
    let mut watch = client(&network, 1).watch_jobs(JobFilter::default(), Start::List);
    let error = watch.next().await.expect_err("refused");
    assert_eq!(error.reason(), Some(ErrorReason::InvalidField));
}

fn piece(attempt: u32, offset: u64, data: &str) -> Result<StreamLogsResponse, Status> {
    Ok(StreamLogsResponse { offset, data: data.as_bytes().to_vec().into(), attempt })
}

async fn read_all(network: &Network, members: u16) -> Vec<(u64, u64, String)> {
    let mut reader = client(network, members).stream_logs(StreamLogsRequest { job_id: 1, ..Default::default() });
    let mut pieces = Vec::new();
    while let Some(chunk) = reader.next().await.expect("the output goes on") {
        pieces.push((chunk.offset, chunk.lost, String::from_utf8(chunk.data).expect("text")));
    }
    pieces
}

#[tokio::test(start_paused = true)]
async fn output_goes_on_by_offset_each_byte_once() {
    let network = Network::default();
    let broken = || Err(refusal(Code::Unavailable, "MEMBER_STOPPED", &[]));
    Member::logs(move |_| (vec![piece(2, 0, "hel"), broken()], Then::End)).serve(&network, &address(1));
    let second =
        Member::logs(|_| (vec![piece(2, 0, "hello "), piece(2, 6, "world")], Then::End)).serve(&network, &address(2));

    let pieces = read_all(&network, 2).await;

    assert_eq!(pieces, [(0, 0, "hel".to_owned()), (3, 0, "lo ".to_owned()), (6, 0, "world".to_owned())]);
    let asked = second.logs.lock().expect("no holder panics");
    assert_eq!(asked.iter().map(|request| (request.offset, request.attempt)).collect::<Vec<_>>(), [(3, 2)]);
}

#[tokio::test(start_paused = true)]
async fn output_that_rotation_dropped_is_said() {
    let network = Network::default();
    Member::logs(|_| (vec![piece(1, 100, "late")], Then::End)).serve(&network, &address(1));
    assert_eq!(read_all(&network, 1).await, [(100, 100, "late".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_silent_output_long_after_another_one_is_waited_through_as_well() {
    let network = Network::default();
    let opened = AtomicU32::new(0);
    let broken = || Err(refusal(Code::Unavailable, "MEMBER_STOPPED", &[]));
    let member = Member::logs(move |_| match opened.fetch_add(1, Ordering::Relaxed) {
        0 => (vec![broken()], Then::End),
        1 => (Vec::new(), Then::Hang),
        _ => (vec![piece(1, 0, "at last")], Then::End),
    });
    member.clone().serve(&network, &address(1));
    let mut reader = client(&network, 1).stream_logs(StreamLogsRequest { job_id: 1, ..Default::default() });
    let restarted = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        network.kill(&address(1));
        tokio::time::sleep(Duration::from_millis(100)).await;
        member.serve(&network, &address(1));
    };
    let (chunk, ()) = tokio::join!(reader.next(), restarted);
    assert_eq!(chunk.expect("it goes on").map(|chunk| chunk.data), Some(b"at last".to_vec()));
}

fn welcome(term: u64) -> Result<SessionResponse, Status> {
    let welcome = Welcome { node_id: 3, term, ..Welcome::default() };
    Ok(SessionResponse { message: Some(session_response::Message::Welcome(welcome)) })
}

fn hello() -> Hello {
    Hello { node_name: "node-a".to_owned(), ..Hello::default() }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_with_the_leader_that_is_named() {
    let network = Network::default();
    Member::sessions(|_| vec![Err(not_leader(Some(3)))]).serve(&network, &address(1));
    Member::sessions(|_| vec![Err(not_leader(None))]).serve(&network, &address(2));
    Member::sessions(|request| match request.message {
        Some(session_request::Message::Hello(hello)) if hello.node_name == "node-a" && hello.sent_at_unix_ms > 0 => {
            vec![welcome(9)]
        }
        _ => vec![Err(refusal(Code::InvalidArgument, "PROTOCOL_VIOLATION", &[]))],
    })
    .serve(&network, &address(3));
    let mut connector = SessionConnector::new(&[address(1), address(2)], settings(&network)).expect("members");
    let started = Instant::now();
    let session = connector.open(hello(), Duration::from_secs(5)).await.expect("3 leads");
    assert_eq!((session.leader, session.welcome.term), (address(3), 9));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ended_is_opened_with_the_next_leader() {
    let network = Network::default();
    Member::sessions(|_| vec![welcome(1)]).serve(&network, &address(1));
    Member::sessions(|_| vec![welcome(2)]).serve(&network, &address(2));
    let mut connector = SessionConnector::new(&[address(1), address(2)], settings(&network)).expect("members");
    let mut session = connector.open(hello(), Duration::from_secs(5)).await.expect("1 leads");
    network.kill(&address(1));
    let broken = session.incoming.message().await.expect_err("the leader is dead");
    connector.ended(&session.leader, &broken);
    let session = connector.open(hello(), Duration::from_secs(5)).await.expect("2 leads");
    assert_eq!((session.leader, session.welcome.term), (address(2), 2));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_refuses_an_agent_is_believed() {
    let network = Network::default();
    Member::sessions(|_| vec![Err(refusal(Code::AlreadyExists, "NODE_NAME_TAKEN", &[]))]).serve(&network, &address(1));
    let mut connector = SessionConnector::new(&[address(1)], settings(&network)).expect("a member");
    let error = connector.open(hello(), Duration::from_secs(5)).await.expect_err("the name is taken");
    assert_eq!(error.reason(), Some(ErrorReason::NodeNameTaken));
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_any_leader_hears_so_in_time() {
    let network = Network::default();
    Member::sessions(|_| vec![Err(not_leader(None))]).serve(&network, &address(1));
    let mut connector = SessionConnector::new(&[address(1)], settings(&network)).expect("a member");
    let started = Instant::now();
    let error = connector.open(hello(), Duration::from_secs(2)).await.expect_err("nobody leads");
    assert!(matches!(error, ClientError::Unavailable(_)));
    assert!(started.elapsed() <= Duration::from_secs(2));
}
