//! Three members with modelled disks.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::v1::cluster_service_client::ClusterServiceClient;
use tessera_api::v1::job_service_client::JobServiceClient;
use tessera_api::v1::pool_service_client::PoolServiceClient;
use tessera_api::v1::{self, JobState, NodeState};
use tessera_connection::{Inbound, Outbound, Terms};
use tessera_consensus::SystemClock;
use tessera_ledger::LeaseTimings;
use tessera_ledger::wire::{duration_from_wire, leases_to_wire};
use tessera_server::RunError;
use tessera_server::config::ServerConfig;
use tessera_server::member::{Ground, run_on};
use tessera_store::memory::{Flushing, MemoryDisk};
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{Store, StoreError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::consensus_config;

/// The longest time that anything may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "it never happened that {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A job that asks for one virtual card of so many TFLOPS.
pub fn job(tflops: u64) -> v1::JobSpec {
    let virtual_card = v1::VirtualCardRequest { milli_tflops: tflops * 1000, ..v1::VirtualCardRequest::default() };
    v1::JobSpec {
        name: "test".to_owned(),
        command: vec!["true".to_owned()],
        virtual_card: Some(virtual_card),
        ..v1::JobSpec::default()
    }
}

struct Member {
    address: String,
    /// The address of its metrics.
    pages: SocketAddr,
    shutdown: CancellationToken,
    running: JoinHandle<Result<(), RunError>>,
}

/// The members of a cluster.
pub struct Members {
    members: Vec<Member>,
}

/// Opens the store in a folder, as soon as whoever had it open before has let it go.
pub async fn opened(folder: &Path) -> Arc<dyn Store> {
    let options = RocksOptions { reserve_bytes: 0, ..RocksOptions::new(folder) };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match rocks::open(&options) {
            Err(StoreError::Locked { .. }) if Instant::now() < deadline => sleep(Duration::from_millis(5)).await,
            opened => return opened.expect("the folder is let go"),
        }
    }
}

/// Short leases, for tests, so many times as long.
pub fn leases(factor: u32) -> LeaseTimings {
    LeaseTimings {
        heartbeat: Duration::from_millis(100),
        stop_after: Duration::from_millis(3_000) * factor,
        kill_after: Duration::from_millis(3_500) * factor,
        regrant_after: Duration::from_millis(4_500) * factor,
    }
}

/// Settings for tests: short times, small outboxes, and no reserve on the disk.
fn settings(listen: SocketAddr) -> ServerConfig {
    let mut config = ServerConfig::new("unused", listen);
    config.consensus = consensus_config();
    config.timings.check = Duration::from_millis(50);
    config.disk_reserve_bytes = 0;
    config.session_outbox = 16;
    config
}

/// Starts a process on a store, at a port.
async fn member(
    store: Arc<dyn Store>,
    port: u16,
    consensus: Option<Handle>,
    change: impl FnOnce(&mut ServerConfig),
) -> Member {
    let bind = |port| Inbound::bind(([127, 0, 0, 1], port).into());
    let inbound = bind(port).await.expect("loopback has a free port");
    let listen: SocketAddr = inbound.local_address().expect("it is bound");
    let http = bind(0).await.expect("loopback has a free port");
    let pages = http.local_address().expect("it is bound");
    let mut config = settings(listen);
    change(&mut config);
    let ground = Ground {
        store,
        outbound: Outbound::default(),
        clock: Arc::new(SystemClock),
        inbound,
        http: Some(http),
        consensus,
        shown: watch::Sender::default(),
        seed: u64::from(listen.port()),
        onlooker: None,
        usage: None,
    };
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(run_on(ground, config, shutdown.clone()));
    Member { address: listen.to_string(), pages, shutdown, running }
}

impl Members {
    /// Starts three processes that are nobody and founds a cluster with them.
    pub async fn start() -> Self {
        let disks = [(); 3].map(|()| MemoryDisk::new(Flushing::AtOnce));
        let mut members = Vec::new();
        for disk in disks {
            members.push(member(disk.open().expect("a new disk can be opened"), 0, None, |_| {}).await);
        }
        Self::found(members).await
    }

    /// Starts three as [`start`](Self::start) does, each on a runtime of its own, with another one for its consensus.
    pub async fn on(runtimes: &[(Handle, Handle); 3]) -> Self {
        let mut members = Vec::new();
        for (rest, consensus) in runtimes {
            let store = MemoryDisk::new(Flushing::AtOnce).open().expect("a new disk can be opened");
            let starting = rest.spawn(member(store, 0, Some(consensus.clone()), |_| {}));
            members.push(starting.await.expect("it starts"));
        }
        Self::found(members).await
    }

    /// The index of the leader, and its term, as the member says that has heard of the latest.
    pub async fn leader(&self) -> (usize, u64) {
        let mut latest = v1::GetClusterStatusResponse::default();
        for member in 0..self.members.len() {
            let mut client = ClusterServiceClient::new(self.channel(member));
            let status = client.get_cluster_status(v1::GetClusterStatusRequest {}).await.expect("it answers");
            latest = std::cmp::max_by_key(latest, status.into_inner(), |status| status.term);
        }
        let leader = latest.leader.expect("somebody leads");
        let index = self.members.iter().position(|member| member.address == leader.address);
        (index.expect("it is one of them"), latest.term)
    }

    /// Starts one process that is nobody on a store and founds a cluster of its own.
    pub async fn alone(store: Arc<dyn Store>, change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::found(vec![member(store, 0, None, change).await]).await
    }

    /// Starts a process that was a member before at an address of this host; with port 0 at any.
    pub async fn again(store: Arc<dyn Store>, address: &str) -> Self {
        let address: SocketAddr = address.parse().expect("members listen on socket addresses");
        Self { members: vec![member(store, address.port(), None, |_| {}).await] }
    }

    async fn found(members: Vec<Member>) -> Self {
        let members = Self { members };
        let founders = members.addresses().into_iter().map(|address| v1::NewMember { name: String::new(), address });
        let request = v1::InitializeClusterRequest {
            request_id: uuid::Uuid::now_v7().to_string(),
            cluster_id: "test".to_owned(),
            members: founders.collect(),
            pool: None,
        };
        let channel = members.channel(0);
        ClusterServiceClient::new(channel).initialize_cluster(request).await.expect("all three wait for this");
        members.set_leases(leases(1)).await;
        members
    }

    async fn config(&self) -> v1::GetPoolConfigResponse {
        let get = |channel| async move {
            PoolServiceClient::new(channel).get_pool_config(v1::GetPoolConfigRequest::default()).await
        };
        self.call(get).await.into_inner()
    }

    /// Changes for how long leases are granted.
    pub async fn set_leases(&self, leases: LeaseTimings) {
        let config = self.config().await.config.expect("there are settings");
        let config = v1::PoolConfig { leases: Some(leases_to_wire(&leases)), ..config };
        let request_id = uuid::Uuid::now_v7().to_string();
        let request = v1::SetPoolConfigRequest { request_id, config: Some(config), expected: None };
        let set = |channel| {
            let request = request.clone();
            async move { PoolServiceClient::new(channel).set_pool_config(request).await }
        };
        self.call(set).await;
    }

    /// The time for which a silent node's blocks are kept at present.
    pub async fn regrant_ceiling(&self) -> Duration {
        let ceiling = self.config().await.regrant_ceiling.expect("it is always said");
        duration_from_wire("regrant_ceiling", &ceiling).expect("it is no negative time")
    }

    /// The addresses of the members that still run.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|member| member.address.clone()).collect()
    }

    /// A connection to one of them.
    pub fn channel(&self, member: usize) -> Channel {
        Outbound::default().lazily(&self.members[member].address, &Terms::default()).expect("it is an address")
    }

    /// Calls one member after the other until one answers something that will not pass.
    async fn call<T, F>(&self, mut call: impl FnMut(Channel) -> F) -> T
    where
        F: Future<Output = Result<T, Status>>,
    {
        let deadline = Instant::now() + PATIENCE;
        let mut member = 0;
        loop {
            match call(self.channel(member % self.members.len())).await {
                Ok(answer) => return answer,
                Err(status) => {
                    let passes = matches!(
                        status.code(),
                        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
                    );
                    assert!(passes && Instant::now() < deadline, "{status:?}");
                }
            }
            member += 1;
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The metrics page that a member shows to Prometheus.
    pub async fn page(&self, member: usize) -> String {
        let mut connection = TcpStream::connect(self.members[member].pages).await.expect("the pages are served");
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        connection.write_all(request).await.expect("the request is taken");
        let mut page = String::new();
        connection.read_to_string(&mut page).await.expect("the page is text");
        page
    }

    /// Submits a job once and says what came of it.
    pub async fn try_submit(&self, spec: v1::JobSpec) -> Result<u64, Status> {
        let request = v1::SubmitJobRequest { request_id: uuid::Uuid::now_v7().to_string(), spec: Some(spec) };
        let answer = JobServiceClient::new(self.channel(0)).submit_job(request).await?;
        Ok(answer.into_inner().job_id)
    }

    /// Submits a job; retried under one request id.
    pub async fn submit(&self, spec: v1::JobSpec) -> u64 {
        let request = v1::SubmitJobRequest { request_id: uuid::Uuid::now_v7().to_string(), spec: Some(spec) };
        let submit = |channel| {
            let request = request.clone();
            async move { JobServiceClient::new(channel).submit_job(request).await }
        };
        self.call(submit).await.into_inner().job_id
    }

    /// The state of a job, read from a leader that a quorum confirmed.
    pub async fn state(&self, job_id: u64) -> JobState {
        let get = |channel| async move {
            JobServiceClient::new(channel).get_job(v1::GetJobRequest { job_id, consistency: 0 }).await
        };
        let job = self.call(get).await.into_inner().job.expect("the answer holds the job");
        job.state()
    }

    /// Waits until a job is in a state.
    pub async fn wait_for(&self, job: u64, state: JobState) {
        eventually(&format!("job {job} is {state:?}"), || async { self.state(job).await == state }).await;
    }

    async fn nodes(&self) -> BTreeMap<String, NodeState> {
        let list =
            |channel| async move { PoolServiceClient::new(channel).list_nodes(v1::ListNodesRequest::default()).await };
        let nodes = self.call(list).await.into_inner().nodes;
        nodes.into_iter().map(|node| (node.name.clone(), node.state())).collect()
    }

    /// Waits until so many nodes are known.
    pub async fn wait_for_nodes(&self, count: usize) {
        eventually(&format!("{count} nodes are registered"), || async { self.nodes().await.len() == count }).await;
    }

    /// Waits until a node is in a state.
    pub async fn wait_for_node(&self, name: &str, state: NodeState) {
        let holds = || async { self.nodes().await.get(name) == Some(&state) };
        eventually(&format!("node {name} is {state:?}"), holds).await;
    }

    /// Stops the member that leads.
    pub async fn stop_leader(&mut self) {
        let status = |channel| async move {
            ClusterServiceClient::new(channel).get_cluster_status(v1::GetClusterStatusRequest {}).await
        };
        let leader = self.call(status).await.into_inner().leader.expect("somebody leads");
        let place = self.members.iter().position(|member| member.address == leader.address).expect("it is a member");
        let leader = self.members.remove(place);
        leader.end().await;
    }

    /// Stops all members.
    pub async fn stop(self) {
        for member in &self.members {
            member.shutdown.cancel();
        }
        for member in self.members {
            member.end().await;
        }
    }
}

impl Member {
    async fn end(self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.running).await.expect("a member ends in time");
        ended.expect("a member does not panic").expect("it ends in order");
    }
}
