//! The attacks. All of them speak to one member on loopback, through connections of their own, and stop when they are
//! told to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tessera_api::error::reason_of;
use tessera_api::v1::job_service_client::JobServiceClient;
use tessera_api::v1::pool_service_client::PoolServiceClient;
use tessera_api::v1::{
    JobSpec, ListJobsRequest, SubmitJobRequest, VerifyPoolRequest, VirtualCardRequest, WatchJobsRequest,
    WatchJobsResponse, watch_jobs_request,
};
use tessera_connection::{Outbound, Terms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::Options;

/// The largest script that an entry of the log takes, with what else there is of a job.
const SCRIPT: usize = (1 << 20) - (4 << 10);
/// Calls that one client has open at once, of those that it repeats.
const AT_ONCE: usize = 8;
/// Pause of a client that was refused.
const PAUSE: Duration = Duration::from_millis(20);
/// Deadline of one call, and of connecting.
const CALL: Duration = Duration::from_secs(30);
/// Largest page.
const PAGE: u32 = 1_000;
/// The bytes that open an HTTP/2 connection: the preface and empty settings. Nothing follows.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The behaviour of an attacking client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// Submits jobs as large as the API takes.
    LargeJobs,
    /// Opens watches from the oldest revision, and reads them.
    Watches,
    /// Opens them and never reads.
    UnreadWatches,
    /// Has all laws checked, again and again.
    Verify,
    /// Lists the largest pages.
    Pages,
    /// Opens connections and says nothing.
    SilentConnections,
}

impl Attack {
    pub(super) const ALL: [Self; 6] =
        [Self::LargeJobs, Self::Watches, Self::UnreadWatches, Self::Verify, Self::Pages, Self::SilentConnections];

    /// Its name in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::LargeJobs => "large jobs",
            Self::Watches => "watches from the oldest revision",
            Self::UnreadWatches => "watches that are never read",
            Self::Verify => "verify",
            Self::Pages => "largest pages",
            Self::SilentConnections => "silent connections",
        }
    }
}

/// The outcome of the calls of an attack.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Account {
    /// Calls made, streams or connections opened.
    pub tried: u64,
    /// Calls that were answered, and streams or connections that were opened.
    pub taken: u64,
    /// The others, by reason.
    pub refused: BTreeMap<String, u64>,
}

impl Account {
    pub(super) fn add(&mut self, other: Self) {
        self.tried += other.tried;
        self.taken += other.taken;
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
    }

    /// Notes one that ended so; says whether it was taken.
    fn note<T>(&mut self, result: &Result<T, Status>) -> bool {
        self.tried += 1;
        match result {
            Ok(_) => self.taken += 1,
            Err(status) => self.refuse(&named(status)),
        }
        result.is_ok()
    }

    fn refuse(&mut self, reason: &str) {
        *self.refused.entry(reason.to_owned()).or_default() += 1;
    }
}

fn named(status: &Status) -> String {
    match reason_of(status) {
        Some(reason) => tessera_api::error::reason_name(reason).to_owned(),
        None => format!("{:?}", status.code()),
    }
}

/// The member under attack, and the bounds of the attack.
#[derive(Clone, Debug)]
pub(super) struct Target {
    address: String,
    ended: watch::Receiver<bool>,
    watches: usize,
    connections: usize,
    /// Large jobs that may still be submitted.
    jobs: Arc<AtomicU64>,
}

impl Target {
    pub(super) fn new(address: String, ended: watch::Receiver<bool>, options: &Options) -> Self {
        let jobs = Arc::new(AtomicU64::new(options.jobs));
        Self { address, ended, watches: options.watches, connections: options.connections, jobs }
    }

    async fn connect(&self) -> Option<Channel> {
        let terms = Terms { connect_timeout: Some(CALL), ..Terms::default() };
        Outbound::default().connect(&self.address, &terms).await.ok()
    }

    fn goes_on(&self) -> bool {
        !*self.ended.borrow()
    }

    /// Ends when the attack does.
    async fn over(&self) {
        // The sender outlives all attackers; should it not, the attack is over too.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

/// Attacks until it is over. `share`: how many clients there are of the same kind.
pub(super) async fn run(attack: Attack, target: Target, share: usize) -> (Attack, Account) {
    let account = match attack {
        Attack::SilentConnections => silent(&target, target.connections / share).await,
        Attack::Watches => watches(&target, target.watches / 2 / share, true).await,
        Attack::UnreadWatches => watches(&target, target.watches / 2 / share, false).await,
        Attack::LargeJobs | Attack::Verify | Attack::Pages => repeat(attack, &target).await,
    };
    (attack, account)
}

/// Makes the same call again and again, several at once.
async fn repeat(attack: Attack, target: &Target) -> Account {
    let Some(channel) = target.connect().await else { return unreachable() };
    let mut callers = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (channel, target) = (channel.clone(), target.clone());
        callers.spawn(async move {
            let mut account = Account::default();
            while target.goes_on() {
                let called = tokio::select! {
                    called = timeout(CALL, call(attack, &channel, &target)) => called,
                    () = target.over() => break,
                };
                match called {
                    Ok(Some(result)) => {
                        if !account.note(&result) {
                            sleep(PAUSE).await;
                        }
                    }
                    Ok(None) => break,
                    Err(_) => account.refuse("no answer"),
                }
            }
            account
        });
    }
    sum(callers).await
}

/// One call; `None` when there is no more to do.
async fn call(attack: Attack, channel: &Channel, target: &Target) -> Option<Result<(), Status>> {
    match attack {
        Attack::LargeJobs => {
            let left = target.jobs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.ok()?;
            let request = SubmitJobRequest { request_id: String::new(), spec: Some(largest_job()) };
            let mut client = JobServiceClient::new(channel.clone());
            Some(client.submit_job(request).await.map(drop))
        }
        Attack::Verify => {
            let mut client = PoolServiceClient::new(channel.clone());
            Some(client.verify_pool(VerifyPoolRequest::default()).await.map(drop))
        }
        _ => {
            let mut client = JobServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20);
            let request = ListJobsRequest { page_size: PAGE, ..ListJobsRequest::default() };
            Some(client.list_jobs(request).await.map(drop))
        }
    }
}

/// As large as the API takes.
fn largest_job() -> JobSpec {
    JobSpec {
        name: "large".to_owned(),
        script: "#".repeat(SCRIPT),
        virtual_card: Some(VirtualCardRequest { milli_tflops: 1_000, memory_mib: 64, ..VirtualCardRequest::default() }),
        held: true,
        ..JobSpec::default()
    }
}

/// Opens so many watches from the oldest revision and holds them until the end.
async fn watches(target: &Target, count: usize, read: bool) -> Account {
    let Some(channel) = target.connect().await else { return unreachable() };
    let mut account = Account::default();
    let mut open: Vec<Streaming<WatchJobsResponse>> = Vec::new();
    let mut readers = JoinSet::new();
    for _ in 0..count {
        let mut client = JobServiceClient::new(channel.clone());
        let start = Some(watch_jobs_request::Start::Oldest(true));
        let request = WatchJobsRequest { start, ..WatchJobsRequest::default() };
        let opened = tokio::select! {
            opened = timeout(CALL, client.watch_jobs(request)) => opened,
            () = target.over() => break,
        };
        let opened = opened.unwrap_or_else(|_| Err(Status::deadline_exceeded("not opened")));
        if !account.note(&opened) {
            sleep(PAUSE).await;
        }
        match opened {
            Ok(stream) if read => {
                let target = target.clone();
                readers.spawn(async move { follow(stream.into_inner(), &target).await });
            }
            Ok(stream) => open.push(stream.into_inner()),
            Err(_) => {}
        }
    }
    target.over().await;
    drop(open);
    account.add(sum(readers).await);
    account
}

/// Reads a watch until it or the attack is over.
async fn follow(mut stream: Streaming<WatchJobsResponse>, target: &Target) -> Account {
    let mut account = Account::default();
    let reading = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(status) if status.code() == Code::Ok => break,
                Err(status) => {
                    account.refuse(&format!("cut: {}", named(&status)));
                    break;
                }
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = target.over() => {}
    }
    account
}

/// Holds so many connections that say nothing, or nothing after the preface; opens them again when they are closed.
async fn silent(target: &Target, count: usize) -> Account {
    let mut connections = JoinSet::new();
    for number in 0..count {
        let target = target.clone();
        connections.spawn(async move {
            let mut account = Account::default();
            while target.goes_on() {
                tokio::select! {
                    () = hold(&target.address, number % 2 == 0, &mut account) => sleep(PAUSE).await,
                    () = target.over() => break,
                }
            }
            account
        });
    }
    sum(connections).await
}

/// Holds one until it is closed from the other side.
async fn hold(address: &str, preface: bool, account: &mut Account) {
    account.tried += 1;
    let Ok(mut stream) = TcpStream::connect(address).await else {
        account.refuse("not accepted");
        return;
    };
    account.taken += 1;
    if preface && stream.write_all(PREFACE).await.is_err() {
        account.refuse("closed");
        return;
    }
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    account.refuse("closed");
}

fn unreachable() -> Account {
    let mut account = Account { tried: 1, ..Account::default() };
    account.refuse("no connection");
    account
}

async fn sum(mut parts: JoinSet<Account>) -> Account {
    let mut all = Account::default();
    while let Some(part) = parts.join_next().await {
        if let Ok(account) = part {
            all.add(account);
        }
    }
    all
}
