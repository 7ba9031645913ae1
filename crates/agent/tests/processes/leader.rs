//! A leader played by the test: it welcomes, grants leases, gives orders, and acknowledges reports.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tessera_api::v1 as wire;
use tessera_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use wire::session_request::Message as FromAgent;
use wire::session_response::Message as ToAgent;

use super::support::PATIENCE;

pub const TERM: u64 = 5;

type Outgoing = mpsc::Sender<Result<wire::SessionResponse, Status>>;
type Incoming = mpsc::Receiver<FromAgent>;

/// The leader.
pub struct Leader {
    /// The term in which it welcomes.
    pub term: u64,
    address: String,
    sessions: mpsc::Receiver<(Outgoing, Incoming)>,
    session: Option<Outgoing>,
    reports: Option<mpsc::Receiver<wire::WorkerReport>>,
    seen: VecDeque<wire::WorkerReport>,
    granting: Arc<AtomicBool>,
    heartbeats: watch::Sender<u64>,
    /// The times after a heartbeat at which workers are told to stop, and are killed.
    pub lease: (Duration, Duration),
}

struct Service(mpsc::Sender<(Outgoing, Incoming)>);

#[tonic::async_trait]
impl AgentService for Service {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<wire::SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut stream = request.into_inner();
        let (outgoing, to_agent) = mpsc::channel(256);
        let (from_agent, incoming) = mpsc::channel(256);
        self.0.send((outgoing, incoming)).await.map_err(|_| Status::unavailable("the test is over"))?;
        tokio::spawn(async move {
            while let Ok(Some(request)) = stream.message().await {
                let Some(message) = request.message else { return };
                if from_agent.send(message).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(to_agent))))
    }
}

impl Leader {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (sender, sessions) = mpsc::channel(4);
        let server = tonic::transport::Server::builder().add_service(AgentServiceServer::new(Service(sender)));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self {
            term: TERM,
            address,
            sessions,
            session: None,
            reports: None,
            seen: VecDeque::new(),
            granting: Arc::new(AtomicBool::new(true)),
            heartbeats: watch::Sender::default(),
            lease: (Duration::from_secs(60), Duration::from_secs(90)),
        }
    }

    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Sets whether heartbeats are answered.
    pub fn grant_leases(&self, grant: bool) {
        self.granting.store(grant, Ordering::SeqCst);
    }

    /// Waits for an agent's hello and welcomes it. From then on its heartbeats and reports are answered.
    pub async fn welcome(&mut self) -> wire::Hello {
        let next = timeout(PATIENCE, self.sessions.recv()).await.expect("an agent comes");
        let (outgoing, mut incoming) = next.expect("the server runs");
        let Some(FromAgent::Hello(hello)) = timeout(PATIENCE, incoming.recv()).await.expect("it speaks") else {
            panic!("the first message is a hello");
        };
        let welcome = wire::Welcome {
            node_id: 3,
            term: self.term,
            cluster_id: "pool".to_owned(),
            heartbeat_interval: Some(prost_types::Duration { seconds: 0, nanos: 100_000_000 }),
            reference_precision: wire::Precision::Fp16.into(),
            block_milli_tflops: 1000,
        };
        say(&outgoing, ToAgent::Welcome(welcome)).await;
        let (reporter, reports) = mpsc::channel(1024);
        let granting = Arc::clone(&self.granting);
        tokio::spawn(serve(outgoing.clone(), incoming, reporter, granting, self.heartbeats.clone(), self.lease));
        self.session = Some(outgoing);
        self.reports = Some(reports);
        self.seen.clear();
        hello
    }

    /// Waits until so many more heartbeats have come.
    pub async fn hears_heartbeats(&self, more: u64) {
        let mut heartbeats = self.heartbeats.subscribe();
        let enough = *heartbeats.borrow_and_update() + more;
        let heard = timeout(PATIENCE, heartbeats.wait_for(|count| *count >= enough));
        heard.await.expect("heartbeats come").expect("it serves");
    }

    /// Returns whether somebody has come who was not welcomed yet.
    pub fn has_callers(&self) -> bool {
        !self.sessions.is_empty()
    }

    pub async fn order(&self, complete: bool, workers: Vec<wire::WorkerOrder>) {
        let orders = wire::Orders { term: TERM, revision: 1, complete, workers };
        say(self.session.as_ref().expect("welcomed"), ToAgent::Orders(orders)).await;
    }

    /// Waits until a worker is reported in a phase. Reports of others are kept for later.
    pub async fn report_of(&mut self, allocation: u64, phase: wire::WorkerPhase) -> wire::WorkerReport {
        let fits = |report: &wire::WorkerReport| {
            report.worker.is_some_and(|worker| worker.allocation_id == allocation) && report.phase() == phase
        };
        if let Some(place) = self.seen.iter().position(fits) {
            return self.seen.remove(place).expect("found there");
        }
        let reports = self.reports.as_mut().expect("welcomed");
        loop {
            let next = timeout(PATIENCE, reports.recv()).await;
            let report = next.unwrap_or_else(|_| panic!("no report of {allocation} as {phase:?}")).expect("connected");
            if fits(&report) {
                return report;
            }
            self.seen.push_back(report);
        }
    }
}

async fn say(outgoing: &Outgoing, message: ToAgent) {
    // An agent that has gone away hears nothing.
    let _ = outgoing.send(Ok(wire::SessionResponse { message: Some(message) })).await;
}

async fn serve(
    outgoing: Outgoing,
    mut incoming: Incoming,
    reporter: mpsc::Sender<wire::WorkerReport>,
    granting: Arc<AtomicBool>,
    heartbeats: watch::Sender<u64>,
    lease: (Duration, Duration),
) {
    while let Some(message) = incoming.recv().await {
        if matches!(message, FromAgent::Heartbeat(_)) {
            heartbeats.send_modify(|count| *count += 1);
        }
        match message {
            FromAgent::Heartbeat(heartbeat) if granting.load(Ordering::SeqCst) => {
                let grant = wire::LeaseGrant {
                    heartbeat_sequence: heartbeat.sequence,
                    sent_at_boottime_ms: heartbeat.sent_at_boottime_ms,
                    stop_after_ms: lease.0.as_millis().try_into().expect("short"),
                    kill_after_ms: lease.1.as_millis().try_into().expect("short"),
                    term: TERM,
                    heartbeat_interval: None,
                    output_retention: None,
                };
                say(&outgoing, ToAgent::LeaseGrant(grant)).await;
            }
            FromAgent::Report(report) => {
                for worker in report.workers {
                    if reporter.send(worker).await.is_err() {
                        return;
                    }
                }
                let acknowledged = wire::ReportAcknowledged { report_id: report.report_id };
                say(&outgoing, ToAgent::ReportAcknowledged(acknowledged)).await;
            }
            FromAgent::Heartbeat(_) | FromAgent::Hello(_) => {}
        }
    }
}

pub fn reference(allocation: u64) -> wire::WorkerRef {
    wire::WorkerRef { allocation_id: allocation, epoch: 10, rank: 0 }
}

/// An order about a shell script.
pub fn order(allocation: u64, desire: wire::WorkerDesire, script: &str) -> wire::WorkerOrder {
    wire::WorkerOrder {
        worker: Some(reference(allocation)),
        job_id: 100,
        attempt: 1,
        desire: desire.into(),
        stop: Some(wire::StopPolicy {
            signal: "SIGTERM".to_owned(),
            grace: Some(prost_types::Duration { seconds: 20, nanos: 0 }),
            save: true,
        }),
        spec: Some(wire::JobSpec {
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            ..Default::default()
        }),
        world_size: 1,
        local_world_size: 1,
        ..Default::default()
    }
}
