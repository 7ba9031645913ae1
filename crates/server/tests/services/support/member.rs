//! One member: consensus over a modelled disk, a placement that answers questions, and the whole gRPC server.

use std::sync::Arc;
use std::time::Duration;

use tessera_actor::{ActorMeters, Mailbox, WhenFull, mailbox};
use tessera_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use tessera_api::v1::{SessionRequest, SessionResponse};
use tessera_connection::{Inbound, Outbound};
use tessera_consensus::{ClusterId, Consensus, Environment, Identity, MemberId, SystemClock};
use tessera_controller::disk::DiskSpace;
use tessera_controller::machine::LedgerMachine;
use tessera_controller::metrics::Metrics;
use tessera_controller::placement_actor::{CompactionPhase, CompactionProgress, Question};
use tessera_controller::pool::Parts;
use tessera_controller::telemetry::Telemetry;
use tessera_controller::{LedgerView, PoolHandle};
use tessera_ledger::{Command, Outcome};
use tessera_placement::Pool;
use tessera_server::config::ServerConfig;
use tessera_server::grpc::{self, GrpcSettings};
use tessera_server::json_face::JsonFace;
use tessera_store::memory::{Flushing, MemoryDisk};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{Clients, propose};
use crate::consensus_config;

/// A member that runs in this process, on a runtime of its own.
pub struct TestMember {
    pub id: u64,
    pub address: String,
    pub pool: PoolHandle,
    pub clients: Clients,
    pub room: watch::Sender<DiskSpace>,
    pub json: JsonFace,
    pub shutdown: CancellationToken,
    runtime: Option<Runtime>,
}

impl TestMember {
    /// Starts a member on a disk of its own; it belongs to nobody until a cluster is founded.
    pub fn start(id: u64, settings: GrpcSettings) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime can be made");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let (room, room_seen) = watch::channel(DiskSpace::Ample);
        let (answer, started) = std::sync::mpsc::channel();
        let end = shutdown.clone();
        let json = JsonFace::default();
        let face = json.clone();
        runtime.spawn(async move {
            let pool = member(id, ServerConfig::new("unused", address), room_seen).await;
            let listener = TcpListener::from_std(listener).expect("a listener");
            let inbound = Inbound::new(Arc::new(listener));
            answer.send(pool.clone()).expect("the test waits for it");
            let served = grpc::serve(inbound, pool, AgentServiceServer::new(NoAgents), settings, face, end).await;
            served.expect("the server runs");
        });
        let pool = started.recv_timeout(Duration::from_secs(30)).expect("the member starts");
        let address = address.to_string();
        let clients = Clients::of(&address);
        Self { id, address, pool, clients, room, json, shutdown, runtime: Some(runtime) }
    }

    /// Has a command applied; this member must lead.
    pub async fn apply(&self, command: Command) -> Outcome {
        propose(&self.pool, command).await.1
    }

    /// Ends everything of the member at once.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestMember {
    fn drop(&mut self) {
        self.end();
    }
}

async fn member(id: u64, config: ServerConfig, room: watch::Receiver<DiskSpace>) -> PoolHandle {
    let (machine, view, _feed) = LedgerMachine::new(tessera_ledger::Level::NEWEST);
    let identity = Identity { cluster: ClusterId::new("test").expect("a short name"), member: MemberId(id) };
    let environment = Environment {
        store: MemoryDisk::new(Flushing::AtOnce).open().expect("an empty disk"),
        outbound: Outbound::default(),
        clock: Arc::new(SystemClock),
        seed: id,
    };
    let consensus = Consensus::start(consensus_config(), identity, environment, machine).await.expect("it starts");
    let (address, questions) = mailbox("placement", 64, WhenFull::Refuse, &ActorMeters::default());
    tokio::spawn(answer_questions(questions, view.clone()));
    let (placement, placement_seen) = watch::channel(Some(address));
    // The channel lives as long as the member.
    tokio::spawn(async move { placement.closed().await });
    PoolHandle::new(Parts {
        consensus,
        view,
        telemetry: Telemetry::default(),
        metrics: Metrics::new(),
        config: Arc::new(config.controller()),
        usage: None,
        outbound: Outbound::default(),
        placement: placement_seen,
        room,
    })
}

/// Answers what the placement actor answers, from a fresh index each time; it decides nothing, and compaction
/// only begins.
async fn answer_questions(mut questions: Mailbox<Question>, view: LedgerView) {
    let mut compaction = CompactionProgress::default();
    while let Some(question) = questions.next().await {
        let state = view.current();
        let mut pool = Pool::new(&state);
        question.handle(|question| match question {
            Question::Explain { job, reply } => {
                reply.send(state.job(job).map(|job| tessera_explain::explain(&mut pool, &state, job, state.time())))
            }
            Question::Waits { jobs, reply } => {
                let jobs = jobs.iter().filter_map(|job| state.job(*job));
                reply.send(
                    jobs.map(|job| (job.id, tessera_explain::waits_for(&pool, &state, job, state.time()))).collect(),
                );
            }
            Question::Preview { spec, reply } => {
                reply.send(tessera_explain::preview(&mut pool, &state, &spec, state.time()))
            }
            Question::Compaction(reply) => reply.send(compaction),
            Question::StopCompaction(reply) => {
                compaction.phase = CompactionPhase::Stopped;
                reply.send(compaction);
            }
            Question::StartCompaction { order, reply, .. } => {
                let started = compaction.phase != CompactionPhase::Running;
                (compaction.phase, compaction.budget) = (CompactionPhase::Running, order.moves);
                reply.send((started, compaction));
            }
        });
    }
}

/// No agent can have a session here.
struct NoAgents;

#[tonic::async_trait]
impl AgentService for NoAgents {
    type SessionStream = futures::stream::Empty<Result<SessionResponse, Status>>;

    async fn session(&self, _: Request<Streaming<SessionRequest>>) -> Result<Response<Self::SessionStream>, Status> {
        Err(Status::unavailable("this member takes no agents"))
    }
}
