//! Watches: no event lost, none doubled, in order; over leader changes, moves between members, and cuts.

use std::time::Duration;

use tessera_api::error::OLDEST_REVISION;
use tessera_api::v1::watch_jobs_request::Start;
use tessera_api::v1::watch_jobs_response::Message;
use tessera_api::v1::{self, ErrorReason, watch_pool_response};
use tessera_ledger::{Command, Event, Revision, State};
use tessera_server::grpc::GrpcSettings;
use tessera_server::services::watch::WatchSettings;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt;

use crate::services::support::fixture::{grant, node, submit};
use crate::services::support::{Clients, Cluster, assert_refused, id, propose, soon, within};

/// (revision, ordinal) of an event.
type Place = (u64, u32);

/// The messages read from one watch.
#[derive(Default)]
struct Read {
    listed: Vec<u64>,
    synced: Option<u64>,
    events: Vec<Place>,
    token: String,
}

impl Read {
    fn take(&mut self, response: v1::WatchJobsResponse) {
        match response.message.expect("a message") {
            Message::Listed(job) => {
                assert!(self.synced.is_none() && response.resume_token.is_empty(), "the list comes first");
                self.listed.push(job.id);
            }
            Message::Synced(synced) => assert_eq!(self.synced.replace(synced.revision), None, "said once"),
            Message::Event(event) => {
                assert!(self.listed.is_empty() || self.synced.is_some(), "a list is complete before the first event");
                self.events.push((event.revision, event.ordinal));
            }
            Message::Progress(progress) => assert!(self.events.iter().all(|place| place.0 <= progress.revision)),
        }
        if !response.resume_token.is_empty() {
            self.token = response.resume_token;
        }
    }

    /// Reads until what was read is enough.
    async fn until(&mut self, stream: &mut Streaming<v1::WatchJobsResponse>, enough: impl Fn(&Self) -> bool) {
        while !enough(self) {
            let next = within("the watch goes on", stream.message()).await.expect("it is not cut");
            self.take(next.expect("it does not end"));
        }
    }

    /// Reads until the watch is cut.
    async fn until_cut(&mut self, stream: &mut Streaming<v1::WatchJobsResponse>) -> Status {
        loop {
            match within("the watch ends", stream.message()).await {
                Ok(Some(response)) => self.take(response),
                Ok(None) => panic!("a watch does not end without saying why"),
                Err(status) => return status,
            }
        }
    }

    fn last(&self) -> u64 {
        self.events.last().map_or(0, |place| place.0)
    }
}

async fn watch(clients: &Clients, start: Option<Start>) -> Streaming<v1::WatchJobsResponse> {
    let request = v1::WatchJobsRequest { start, ..Default::default() };
    clients.jobs.clone().watch_jobs(request).await.expect("it begins").into_inner()
}

/// The places of all events of jobs after a revision, as a member remembers them.
fn remembered(state: &State, after: u64) -> Vec<Place> {
    let entries = state.events_after(Revision(after)).expect("nothing was dropped");
    let of_job = |event: &Event| tessera_api::event_view::job_of(event).is_some();
    entries
        .flat_map(|entry| {
            let places = (0..).zip(entry.events.iter()).filter(|(_, event)| of_job(event));
            places.map(|(ordinal, _)| (entry.revision.0, ordinal)).collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test]
async fn a_watch_lists_what_there_is_and_then_tells_what_happens() {
    let cluster = Cluster::of(1).await;
    let place = node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let (first, second) = (submit(clients, 1).await, submit(clients, 1).await);
    let mut stream = watch(clients, None).await;
    let mut read = Read::default();
    read.until(&mut stream, |read| read.synced.is_some()).await;
    assert_eq!(read.listed, [first.0, second.0]);
    let synced = read.synced.expect("it was said");
    grant(&cluster, first, place, 1).await;
    let third = submit(clients, 1).await;
    let expected = remembered(&cluster.members[0].pool.view().current(), synced);
    read.until(&mut stream, |read| read.events.len() == expected.len()).await;
    assert_eq!(read.events, expected);

    let filter = Some(v1::JobFilter { job_ids: vec![third.0], ..Default::default() });
    let request = v1::WatchJobsRequest { filter, start: Some(Start::Oldest(true)), ..Default::default() };
    let mut stream = clients.jobs.clone().watch_jobs(request).await.expect("it begins").into_inner();
    let only = within("it is remembered", stream.message()).await.expect("no error").expect("a message");
    assert!(matches!(only.message, Some(Message::Event(event)) if event.job_id == third.0));
}

#[tokio::test]
async fn a_list_is_complete_before_its_first_event_however_much_happens_meanwhile() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let clients = cluster.members[0].clients.clone();
    for _ in 0..50 {
        submit(&clients, 1).await;
    }
    // Each watch begins while jobs come: its events are those after what it listed.
    let (end, ended) = tokio::sync::watch::channel(false);
    let submitting = tokio::spawn({
        let clients = clients.clone();
        async move {
            while !*ended.borrow() {
                submit(&clients, 1).await;
            }
        }
    });
    for _ in 0..20 {
        let (mut stream, mut read) = (watch(&clients, None).await, Read::default());
        read.until(&mut stream, |read| !read.events.is_empty()).await;
        let synced = read.synced.expect("it comes before the first event");
        assert!(read.events[0].0 > synced, "{:?} after a list of {synced}", read.events);
    }
    end.send_replace(true);
    submitting.await.expect("jobs are submitted");
}

#[tokio::test]
async fn a_watch_goes_on_from_any_token_at_any_member_over_a_change_of_leader() {
    let mut cluster = Cluster::of(3).await;
    let place = node(&cluster, "n0", &[100]).await;
    let leader = cluster.leader().await.id;
    let survivor = cluster.follower().await.clients.clone();
    let doomed = cluster.leader().await.clients.clone();
    let (mut at_survivor, mut at_leader) = (Read::default(), Read::default());
    let mut staying = watch(&survivor, Some(Start::AfterRevision(0))).await;
    let mut moving = watch(&doomed, Some(Start::AfterRevision(0))).await;
    for _ in 0..10 {
        submit(&survivor, 1).await;
    }
    let job = submit(&survivor, 3).await;
    grant(&cluster, job, place, 3).await;
    at_leader.until(&mut moving, |read| read.events.len() >= 6).await;
    cluster.kill(leader);
    let broken = at_leader.until_cut(&mut moving).await;
    assert_ne!(broken.code(), Code::Ok);
    for _ in 0..10 {
        submit(&survivor, 1).await;
    }
    let state = cluster.leader().await.pool.view().current();
    let all = remembered(&state, 0);
    let last = all.last().expect("there are events").0;
    at_survivor.until(&mut staying, |read| read.last() >= last).await;
    assert_eq!(at_survivor.events, all);

    let elsewhere = cluster.members.iter().find(|member| member.id != leader).expect("two are left").clients.clone();
    let token = at_leader.token.clone();
    let mut moved = watch(&elsewhere, Some(Start::ResumeToken(token))).await;
    at_leader.synced = None;
    at_leader.until(&mut moved, |read| read.last() >= last).await;
    assert_eq!(at_leader.events, all, "what was read before and after the move is everything, once");
}

#[tokio::test]
async fn an_idle_watch_says_where_it_is_and_its_token_can_be_used() {
    let watch_settings = WatchSettings { progress: Duration::from_millis(50), ..WatchSettings::default() };
    let cluster = Cluster::with(1, GrpcSettings { watch: watch_settings, ..GrpcSettings::default() }).await;
    node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    submit(clients, 1).await;
    let mut stream = watch(clients, None).await;
    let progress = loop {
        let next = within("it says so", stream.message()).await.expect("no error").expect("no end");
        if let Some(Message::Progress(progress)) = next.message {
            break (progress.revision, next.resume_token);
        }
    };
    assert_eq!(progress.0, cluster.members[0].pool.view().current().revision().0);
    submit(clients, 1).await;
    let mut again = watch(clients, Some(Start::ResumeToken(progress.1))).await;
    let mut read = Read::default();
    read.until(&mut again, |read| !read.events.is_empty()).await;
    assert!(read.listed.is_empty() && read.last() > progress.0);
}

#[tokio::test]
async fn whoever_asks_for_progress_only_hears_how_far_it_is_and_of_no_event() {
    let rest = Duration::from_millis(50);
    let watch_settings = WatchSettings { rest, progress: Duration::from_secs(3600), ..WatchSettings::default() };
    let cluster = Cluster::with(1, GrpcSettings { watch: watch_settings, ..GrpcSettings::default() }).await;
    node(&cluster, "n0", &[100]).await;
    let member = &cluster.members[0];
    let start = Some(Start::AfterRevision(0));
    let request = v1::WatchJobsRequest { start, progress_only: true, ..Default::default() };
    let mut jobs = member.clients.jobs.clone().watch_jobs(request).await.expect("it begins").into_inner();
    let start = Some(v1::watch_pool_request::Start::AfterRevision(0));
    let request = v1::WatchPoolRequest { start, progress_only: true };
    let mut pool = member.clients.pool.clone().watch_pool(request).await.expect("it begins").into_inner();
    for _ in 0..20 {
        submit(&member.clients, 1).await;
    }
    let now = member.pool.view().current().revision().0;
    let (mut jobs_at, mut pool_at, mut messages) = (0, 0, 0);
    while jobs_at < now {
        let said = within("the jobs' watch goes on", jobs.message()).await.expect("no error").expect("no end");
        messages += 1;
        jobs_at = match said.message.expect("a message") {
            Message::Synced(synced) => synced.revision,
            Message::Progress(progress) => progress.revision,
            other => panic!("neither a list nor an event: {other:?}"),
        };
    }
    assert!(messages < 20, "what happened meanwhile is said once: {messages} messages");
    while pool_at < now {
        let said = within("the pool's watch goes on", pool.message()).await.expect("no error").expect("no end");
        pool_at = match said.message.expect("a message") {
            watch_pool_response::Message::Synced(synced) => synced.revision,
            watch_pool_response::Message::Progress(progress) => progress.revision,
            other => panic!("neither a list nor an event: {other:?}"),
        };
    }
}

#[tokio::test]
async fn a_watch_whose_place_is_forgotten_is_told_from_where_it_may_start() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[100]).await;
    let member = &cluster.members[0];
    let mut config = member.pool.view().current().config().clone();
    config.event_limit = 5;
    cluster.apply(Command::SetConfig { config, expected: None }).await;
    for _ in 0..20 {
        submit(&member.clients, 1).await;
    }
    let mut stream = watch(&member.clients, Some(Start::AfterRevision(1))).await;
    let cut = Read::default().until_cut(&mut stream).await;
    let status = assert_refused::<()>(Err(cut), Code::OutOfRange, ErrorReason::WatchCompacted);
    let details = status.get_error_details();
    let oldest = details.error_info().and_then(|info| info.metadata.get(OLDEST_REVISION)).expect("it says from where");
    let oldest: u64 = oldest.parse().expect("a number");
    assert_eq!(oldest, member.pool.view().current().compacted().0);
    let expected = remembered(&member.pool.view().current(), oldest);
    for start in [Start::AfterRevision(oldest), Start::Oldest(true)] {
        let mut read = Read::default();
        let mut stream = watch(&member.clients, Some(start)).await;
        read.until(&mut stream, |read| read.synced.is_some()).await;
        assert_eq!(read.events, expected);
    }
}

#[tokio::test]
async fn those_who_watch_together_are_told_together_what_happened_meanwhile() {
    let (gather, gather_at_most) = (Duration::from_secs(3600), Duration::from_millis(500));
    let watch_settings = WatchSettings { gather, gather_at_most, ..WatchSettings::default() };
    let cluster = Cluster::with(1, GrpcSettings { watch: watch_settings, ..GrpcSettings::default() }).await;
    node(&cluster, "n0", &[100]).await;
    let member = &cluster.members[0];
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(watch(&member.clients, Some(Start::AfterRevision(0))).await);
    }
    for _ in 0..40 {
        submit(&member.clients, 1).await;
    }
    let all = remembered(&member.pool.view().current(), 0);
    for stream in &mut streams {
        let mut read = Read::default();
        read.until(stream, |read| read.events.len() >= all.len()).await;
        assert_eq!(read.events, all, "everything, once, in order");
    }
    let page = member.pool.metrics().encode().expect("text");
    let looks = page.lines().find_map(|line| line.strip_prefix("tessera_watch_lag_entries_count{watch=\"jobs\"} "));
    let looks: usize = looks.and_then(|looks| looks.parse().ok()).expect("they are counted");
    assert!(looks < 40, "each of the three looked at {} entries at least", looks / 3);
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_and_can_go_on() {
    let watch_settings = WatchSettings { patience: Duration::from_millis(100), buffer: 4, ..WatchSettings::default() };
    let cluster = Cluster::with(1, GrpcSettings { watch: watch_settings, ..GrpcSettings::default() }).await;
    node(&cluster, "n0", &[10_000]).await;
    let member = &cluster.members[0];
    let mut stalled = watch(&member.clients, Some(Start::AfterRevision(0))).await;
    let spec =
        tessera_api::job_spec::job_of_request(Some(crate::services::support::fixture::spec(1))).expect("a good job");
    let spec = std::sync::Arc::new(spec);
    let is_cut = || member.pool.metrics().encode().expect("text").contains("watch=\"jobs\",reason=\"too_slow\"} 1");
    // The buffers of the connection fill up first.
    within("the watch is cut", async {
        while !is_cut() {
            let submissions = (0..200).map(|_| propose(&member.pool, tessera_testkit::submission(spec.clone())));
            futures::future::join_all(submissions).await;
        }
    })
    .await;
    let mut read = Read::default();
    let cut = read.until_cut(&mut stalled).await;
    assert_refused::<()>(Err(cut), Code::Aborted, ErrorReason::WatchTooSlow);
    let all = remembered(&member.pool.view().current(), 0);
    assert!(!read.events.is_empty() && read.events.len() < all.len());
    let mut rest = watch(&member.clients, Some(Start::ResumeToken(read.token.clone()))).await;
    read.synced = None;
    read.until(&mut rest, |read| read.events.len() >= all.len()).await;
    assert_eq!(read.events, all);
}

#[tokio::test]
async fn a_start_that_cannot_be_is_refused() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10]).await;
    let clients = &cluster.members[0].clients;
    let begin = async |filter: Option<v1::JobFilter>, start: Start| {
        let request = v1::WatchJobsRequest { filter, start: Some(start), ..Default::default() };
        clients.jobs.clone().watch_jobs(request).await.map(drop)
    };
    let future = begin(None, Start::AfterRevision(1 << 60)).await;
    assert_refused(future, Code::InvalidArgument, ErrorReason::InvalidField);
    let garbage = begin(None, Start::ResumeToken("garbage".to_owned())).await;
    assert_refused(garbage, Code::InvalidArgument, ErrorReason::ResumeTokenInvalid);
    let mut stream = watch(clients, None).await;
    let mut read = Read::default();
    read.until(&mut stream, |read| read.synced.is_some()).await;
    let filter = v1::JobFilter { queue: "other".to_owned(), ..Default::default() };
    let of_another = begin(Some(filter), Start::ResumeToken(read.token)).await;
    assert_refused(of_another, Code::InvalidArgument, ErrorReason::ResumeTokenInvalid);
    let by_node = v1::JobFilter { node_name: "n0".to_owned(), ..Default::default() };
    let by_node = begin(Some(by_node), Start::Oldest(true)).await;
    assert_refused(by_node, Code::InvalidArgument, ErrorReason::InvalidField);
}

#[tokio::test]
async fn the_pool_is_watched_with_its_nodes_and_cards() {
    let cluster = Cluster::of(1).await;
    node(&cluster, "n0", &[10, 6]).await;
    let member = &cluster.members[0];
    let mut pool = member.clients.pool.clone();
    let mut stream = pool.watch_pool(v1::WatchPoolRequest::default()).await.expect("it begins").into_inner();
    let (mut nodes, mut cards) = (Vec::new(), 0);
    loop {
        let next = within("the list comes", stream.message()).await.expect("no error").expect("no end");
        match next.message.expect("a message") {
            watch_pool_response::Message::ListedNode(node) => nodes.push(node.name),
            watch_pool_response::Message::ListedCard(_) => cards += 1,
            watch_pool_response::Message::Synced(_) => break,
            other => panic!("not in a list: {other:?}"),
        }
    }
    assert_eq!((nodes, cards), (vec!["n0".to_owned()], 2));
    submit(&member.clients, 1).await;
    let node = Some(v1::NodeRef { r#ref: Some(v1::node_ref::Ref::Name("n0".to_owned())) });
    pool.cordon_node(v1::CordonNodeRequest { request_id: id(), node, reason: String::new() }).await.expect("it exists");
    let next = within("it is told", stream.message()).await.expect("no error").expect("no end");
    let Some(watch_pool_response::Message::Event(event)) = next.message else { panic!("not an event: {next:?}") };
    let Some(v1::pool_event::Change::Node(node)) = event.change else { panic!("not a node: {event:?}") };
    assert_eq!((node.node_name.as_str(), node.eligibility()), ("n0", v1::Eligibility::Cordoned));
    let reached = member.pool.view().at_least(Revision(event.revision), soon()).await;
    assert!(reached.is_ok(), "an event is of what was applied");
}

#[tokio::test]
async fn a_member_that_stops_ends_its_watches_with_a_reason() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let mut stream = watch(&member.clients, None).await;
    let mut read = Read::default();
    read.until(&mut stream, |read| read.synced.is_some()).await;
    member.shutdown.cancel();
    let cut = read.until_cut(&mut stream).await;
    assert_refused::<()>(Err(cut), Code::Unavailable, ErrorReason::MemberStopped);
}
