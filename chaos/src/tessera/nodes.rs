//! Nodes without hosts: each keeps a session with the leader as an agent does, takes its orders, and says at once that
//! what was ordered runs. No process is started, so that a thousand nodes fit on one machine and the figures are the
//! control plane's alone.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use tessera_api::v1::{
    CardDescription, CardHealth, CardKind, GetPoolRequest, Heartbeat, Hello, Isolation, NodeState, Orders, Precision,
    Rating, Report, SessionRequest, SessionResponse, StopCause, WorkerDesire, WorkerPhase, WorkerReport,
    session_request, session_response,
};
use tessera_client::{Address, Client, Session, SessionConnector, Settings};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, interval};

use super::agents::Cards;
use crate::poll;

/// Longest wait for nodes to be in the pool, and the interval between two requests.
const REGISTERED: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Deadline for opening one session.
const OPEN: Duration = Duration::from_secs(60);
/// Sessions that are opened at the same time.
const OPENED_AT_ONCE: u32 = 32;

/// An order for a worker of a job.
#[derive(Clone, Copy, Debug)]
pub struct Ordered {
    pub job: u64,
    /// Time at which the order arrived at the node.
    pub at: Instant,
}

/// The orders that all nodes have received, in no particular order.
type Log = Arc<Mutex<Vec<Ordered>>>;

/// Nodes that hold sessions.
#[derive(Debug)]
pub struct Nodes {
    sessions: JoinSet<Result<()>>,
    log: Log,
    end: watch::Sender<bool>,
}

impl Nodes {
    /// Opens a session for each node and waits until the pool has them all. With `ends`, workers end well as soon as
    /// they run.
    ///
    /// # Errors
    /// A session is refused, or the nodes do not come into the pool.
    pub async fn start(cards: Cards, ends: bool, members: &[Address], client: &Client) -> Result<Self> {
        let (end, ended) = watch::channel(false);
        let mut nodes = Self { sessions: JoinSet::new(), log: Log::default(), end };
        let mut opening = JoinSet::new();
        for number in 0..cards.nodes {
            if number >= OPENED_AT_ONCE {
                nodes.keep(opening.join_next().await, ends, &ended)?;
            }
            opening.spawn(open(number, cards, members.to_vec()));
        }
        while let Some(opened) = opening.join_next().await {
            nodes.keep(Some(opened), ends, &ended)?;
        }
        poll::until("the nodes to be in the pool", REGISTERED, ASK_EVERY, || ready(client, cards)).await?;
        Ok(nodes)
    }

    fn keep(
        &mut self,
        opened: Option<Result<Result<Session>, tokio::task::JoinError>>,
        ends: bool,
        ended: &watch::Receiver<bool>,
    ) -> Result<()> {
        let session = opened.context("a session was to be opened")?.context("opening a session broke")??;
        let node = Node { session, ends, log: Arc::clone(&self.log), running: BTreeSet::new(), reports: 0 };
        self.sessions.spawn(node.live(ended.clone()));
        Ok(())
    }

    /// Takes what was ordered until now.
    ///
    /// # Errors
    /// A session has ended.
    pub fn take_ordered(&mut self) -> Result<Vec<Ordered>> {
        if let Some(ended) = self.sessions.try_join_next() {
            ended.context("a session broke")??;
        }
        Ok(std::mem::take(&mut *self.log.lock().expect("nobody panics while holding it")))
    }

    /// Ends all sessions.
    ///
    /// # Errors
    /// One had failed.
    pub async fn stop(mut self) -> Result<()> {
        self.end.send_replace(true);
        while let Some(ended) = self.sessions.join_next().await {
            ended.context("a session broke")??;
        }
        Ok(())
    }
}

/// Ends when the nodes are to end.
async fn over(ended: &mut watch::Receiver<bool>) {
    // Nobody left to say so: that says it too.
    drop(ended.wait_for(|ended| *ended).await);
}

async fn ready(client: &Client, cards: Cards) -> Result<()> {
    let pool = client.get_pool(GetPoolRequest::default()).await?.pool.context("an answer without a pool")?;
    let ready: u64 = pool.nodes.iter().filter(|of| of.state() == NodeState::Ready).map(|of| of.count).sum();
    ensure!(ready == u64::from(cards.nodes), "{ready} of {} nodes are in the pool", cards.nodes);
    Ok(())
}

async fn open(number: u32, cards: Cards, members: Vec<Address>) -> Result<Session> {
    let mut connector = SessionConnector::new(&members, Settings::default())?;
    let session = connector.open(hello(number, cards), OPEN).await;
    session.with_context(|| format!("the session of node {number} cannot be opened"))
}

fn hello(number: u32, cards: Cards) -> Hello {
    let rated = [Precision::Fp16, Precision::Fp32]
        .map(|precision| Rating { precision: precision.into(), milli_tflops: u64::from(cards.tflops) * 1_000 });
    let card = |index| CardDescription {
        index,
        kind: CardKind::Gpu.into(),
        vendor: "simulated".to_owned(),
        model: "bench".to_owned(),
        uuid: format!("bench-{number}-{index}"),
        memory_mib: 64 << 10,
        rated: rated.to_vec(),
        isolation: Isolation::Hard.into(),
        simulated: true,
        health: CardHealth::Healthy.into(),
        ..CardDescription::default()
    };
    Hello {
        containment: Some(tessera_api::v1::Containment { whole: true, missing: String::new() }),
        node_name: format!("bench-{number}"),
        node_uid: format!("bench-{}-{number}", std::process::id()),
        incarnation: 1,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        address: "127.0.0.1:1".to_owned(),
        worker_host: "127.0.0.1".to_owned(),
        cards: (0..cards.per_node).map(card).collect(),
        ..Hello::default()
    }
}

struct Node {
    session: Session,
    ends: bool,
    log: Log,
    /// Allocation, epoch and rank of the workers that were ordered and not forgotten.
    running: BTreeSet<(u64, u64, u32)>,
    reports: u64,
}

impl Node {
    async fn live(mut self, mut ended: watch::Receiver<bool>) -> Result<()> {
        let every = self.session.welcome.heartbeat_interval.as_ref().map_or(2, |every| every.seconds.max(1));
        let mut beats = interval(Duration::from_secs(every.unsigned_abs()));
        let began = Instant::now();
        for sequence in 1.. {
            loop {
                tokio::select! {
                    () = over(&mut ended) => return Ok(()),
                    _ = beats.tick() => break,
                    message = self.session.incoming.message() => {
                        self.take(message.context("a session failed")?.context("the leader ended a session")?).await?;
                    }
                }
            }
            let sent_at_boottime_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let beat = Heartbeat { sequence, sent_at_boottime_ms, ..Heartbeat::default() };
            self.send(session_request::Message::Heartbeat(beat)).await?;
        }
        Ok(())
    }

    async fn take(&mut self, response: SessionResponse) -> Result<()> {
        let Some(session_response::Message::Orders(orders)) = response.message else { return Ok(()) };
        let workers = self.obey(orders);
        if workers.is_empty() {
            return Ok(());
        }
        self.reports += 1;
        let report = Report { report_id: self.reports, workers, ..Report::default() };
        self.send(session_request::Message::Report(report)).await
    }

    /// Notes what is ordered; answers what there is to say of it.
    fn obey(&mut self, orders: Orders) -> Vec<WorkerReport> {
        let at = Instant::now();
        let mut reports = Vec::new();
        for order in orders.workers {
            let desire = order.desire();
            let Some(worker) = order.worker else { continue };
            let key = (worker.allocation_id, worker.epoch, worker.rank);
            let report = |phase: WorkerPhase, cause: StopCause| WorkerReport {
                worker: Some(worker),
                job_id: order.job_id,
                phase: phase.into(),
                cause: cause.into(),
                exit_code: (phase == WorkerPhase::Stopped).then_some(0),
                ..WorkerReport::default()
            };
            match desire {
                WorkerDesire::Run if self.running.insert(key) => {
                    self.log.lock().expect("nobody panics while holding it").push(Ordered { job: order.job_id, at });
                    reports.push(report(WorkerPhase::Running, StopCause::Unspecified));
                    if self.ends {
                        reports.push(report(WorkerPhase::Stopped, StopCause::Exited));
                    }
                }
                WorkerDesire::Stop => reports.push(report(WorkerPhase::Stopped, StopCause::Ordered)),
                WorkerDesire::Forget => {
                    self.running.remove(&key);
                }
                WorkerDesire::Run | WorkerDesire::Unspecified => {}
            }
        }
        reports
    }

    async fn send(&self, message: session_request::Message) -> Result<()> {
        let request = SessionRequest { message: Some(message) };
        self.session.outgoing.send(request).await.context("the leader ended a session")
    }
}
