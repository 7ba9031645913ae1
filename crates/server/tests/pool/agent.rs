//! An agent without processes: it keeps to the session protocol and pretends the rest.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tessera_api::v1::agent_service_client::AgentServiceClient;
use tessera_api::v1::session_request::Message as Said;
use tessera_api::v1::session_response::Message as Told;
use tessera_api::v1::{self, SessionRequest, StopCause, WorkerDesire, WorkerPhase};
use tessera_connection::{Outbound, Terms};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

type Key = (u64, u64, u32);

#[derive(Clone, Debug)]
struct Worker {
    job: u64,
    /// The cause and code of its end, once it ended.
    ended: Option<(StopCause, i32)>,
}

#[derive(Debug, Default)]
struct Memory {
    workers: BTreeMap<Key, Worker>,
    starts: Vec<u64>,
    stops: Vec<(u64, StopCause)>,
    leases: usize,
    /// The moment at which the longest lease that was granted ends: its workers are killed by then.
    killed_by: Option<Instant>,
    heartbeat: Option<Duration>,
    cut: bool,
    cluster: String,
    highest_term: u64,
}

/// A node with one simulated card.
pub struct FakeAgent {
    pub name: String,
    memory: Arc<Mutex<Memory>>,
    changed: Arc<Notify>,
    end: CancellationToken,
}

/// The data of the task around the agent.
#[derive(Clone)]
struct Task {
    name: String,
    tflops: u64,
    members: Vec<String>,
    memory: Arc<Mutex<Memory>>,
    changed: Arc<Notify>,
    end: CancellationToken,
}

fn held(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().expect("nobody panics while holding it")
}

impl FakeAgent {
    pub fn start(name: &str, tflops: u64, members: Vec<String>) -> Self {
        let task = Task {
            name: name.to_owned(),
            tflops,
            members,
            memory: Arc::default(),
            changed: Arc::default(),
            end: CancellationToken::new(),
        };
        let agent = Self {
            name: name.to_owned(),
            memory: Arc::clone(&task.memory),
            changed: Arc::clone(&task.changed),
            end: task.end.clone(),
        };
        tokio::spawn(task.run());
        agent
    }

    /// The number of times that a worker of the job was started here.
    pub fn starts(&self, job: u64) -> usize {
        held(&self.memory).starts.iter().filter(|started| **started == job).count()
    }

    /// The jobs that were stopped here by order, and the causes.
    pub fn stops(&self) -> Vec<(u64, StopCause)> {
        held(&self.memory).stops.clone()
    }

    pub fn leases(&self) -> usize {
        held(&self.memory).leases
    }

    /// By when work here is killed, by the leases that were granted.
    pub fn killed_by(&self) -> Option<Instant> {
        held(&self.memory).killed_by
    }

    /// The heartbeat interval that it was last told.
    pub fn heartbeat(&self) -> Option<Duration> {
        held(&self.memory).heartbeat
    }

    /// Workers that are not forgotten.
    pub fn workers(&self) -> usize {
        held(&self.memory).workers.len()
    }

    /// The workers of a job end with exit code 0.
    pub fn finish(&self, job: u64) {
        let mut memory = held(&self.memory);
        for worker in memory.workers.values_mut().filter(|worker| worker.job == job && worker.ended.is_none()) {
            worker.ended = Some((StopCause::Exited, 0));
        }
        drop(memory);
        self.changed.notify_one();
    }

    /// Cuts the node off, or lets it come back. A real agent's workers would be killed at the end of their lease; these
    /// stay, which is what reconciliation is for.
    pub fn cut(&self, cut: bool) {
        held(&self.memory).cut = cut;
        self.changed.notify_one();
    }

    pub fn stop(&self) {
        self.end.cancel();
    }
}

impl Task {
    async fn run(self) {
        let mut place = 0;
        while !self.end.is_cancelled() {
            if held(&self.memory).cut {
                self.changed.notified().await;
                continue;
            }
            let member = self.members[place % self.members.len()].clone();
            place += 1;
            tokio::select! {
                () = self.end.cancelled() => return,
                () = self.talk_to(&member) => {}
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// One session, until either side ends it.
    async fn talk_to(&self, member: &str) {
        let (outbound, terms) = (Outbound::default(), Terms::default());
        let Ok(Ok(channel)) = timeout(Duration::from_secs(1), outbound.connect(member, &terms)).await else { return };
        let (say, said) = mpsc::channel(64);
        say.try_send(self.hello()).expect("a new channel has room");
        let session = AgentServiceClient::new(channel).session(ReceiverStream::new(said)).await;
        let Ok(session) = session else { return };
        let mut told = session.into_inner();
        let mut beats = interval(Duration::from_millis(100));
        let (mut sequence, began) = (0, Instant::now());
        loop {
            let said = tokio::select! {
                response = told.message() => match response {
                    Ok(Some(response)) => response.message.map(|message| self.follow(message, began)).unwrap_or_default(),
                    Ok(None) | Err(_) => return,
                },
                _ = beats.tick() => {
                    sequence += 1;
                    let sent_at_boottime_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    let heartbeat = v1::Heartbeat { sequence, sent_at_boottime_ms, ..v1::Heartbeat::default() };
                    vec![Said::Heartbeat(heartbeat)]
                },
                () = self.changed.notified() => {
                    if held(&self.memory).cut {
                        return;
                    }
                    vec![self.report()]
                },
            };
            for message in said {
                if say.send(SessionRequest { message: Some(message) }).await.is_err() {
                    return;
                }
            }
        }
    }

    fn hello(&self) -> SessionRequest {
        hello(&self.name, self.tflops, &held(&self.memory))
    }

    fn report(&self) -> Said {
        let memory = held(&self.memory);
        Said::Report(v1::Report { report_id: 1, workers: reports(&memory), ..Default::default() })
    }

    /// Does what it is told and answers what it then has to say.
    fn follow(&self, message: Told, began: Instant) -> Vec<Said> {
        let mut memory = held(&self.memory);
        match message {
            Told::Welcome(welcome) => {
                memory.cluster = welcome.cluster_id;
                memory.highest_term = welcome.term;
                memory.heartbeat = welcome.heartbeat_interval.and_then(|every| every.try_into().ok());
                return Vec::new();
            }
            Told::LeaseGrant(grant) => {
                memory.leases += 1;
                let killed_by = began + Duration::from_millis(grant.sent_at_boottime_ms + grant.kill_after_ms);
                memory.killed_by = memory.killed_by.max(Some(killed_by));
                memory.heartbeat = grant.heartbeat_interval.and_then(|every| every.try_into().ok());
                return Vec::new();
            }
            // Every report names every worker until it is forgotten, so acknowledgements change nothing here.
            Told::ReportAcknowledged(_) | Told::CheckpointOrders(_) => return Vec::new(),
            Told::Orders(orders) => {
                if orders.complete {
                    let named: Vec<Key> = orders.workers.iter().map(key).collect();
                    let strangers: Vec<Key> =
                        memory.workers.keys().filter(|key| !named.contains(key)).copied().collect();
                    for key in strangers {
                        memory.end(key, StopCause::NotGranted);
                    }
                }
                for order in &orders.workers {
                    memory.obey(order);
                }
            }
        }
        drop(memory);
        vec![self.report()]
    }
}

impl Memory {
    fn obey(&mut self, order: &v1::WorkerOrder) {
        let key = key(order);
        match order.desire() {
            WorkerDesire::Run => {
                if let Entry::Vacant(unknown) = self.workers.entry(key) {
                    unknown.insert(Worker { job: order.job_id, ended: None });
                    self.starts.push(order.job_id);
                }
            }
            WorkerDesire::Stop => self.end(key, StopCause::Ordered),
            WorkerDesire::Forget => {
                self.workers.remove(&key);
            }
            WorkerDesire::Unspecified => panic!("an order without a desire: {order:?}"),
        }
    }

    fn end(&mut self, key: Key, cause: StopCause) {
        if let Some(worker) = self.workers.get_mut(&key).filter(|worker| worker.ended.is_none()) {
            worker.ended = Some((cause, 143));
            let job = worker.job;
            self.stops.push((job, cause));
        }
    }
}

/// The first message of an agent.
fn hello(name: &str, tflops: u64, memory: &Memory) -> SessionRequest {
    let rated = vec![v1::Rating { precision: v1::Precision::Fp16.into(), milli_tflops: tflops * 1000 }];
    let card = v1::CardDescription {
        index: 0,
        kind: v1::CardKind::Gpu.into(),
        vendor: "acme".to_owned(),
        model: "a1".to_owned(),
        uuid: format!("card-{name}"),
        memory_mib: 16_384,
        rated,
        isolation: v1::Isolation::Soft.into(),
        simulated: true,
        health: v1::CardHealth::Healthy.into(),
        ..v1::CardDescription::default()
    };
    let hello = v1::Hello {
        containment: Some(v1::Containment { whole: true, missing: String::new() }),
        node_name: name.to_owned(),
        node_uid: format!("uid-{name}"),
        incarnation: 1,
        agent_version: "0.1.0".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        worker_host: "127.0.0.1".to_owned(),
        labels: BTreeMap::new(),
        cards: vec![card],
        workers: reports(memory),
        highest_term: memory.highest_term,
        cluster_id: memory.cluster.clone(),
        ..Default::default()
    };
    SessionRequest { message: Some(Said::Hello(hello)) }
}

/// The first message of an agent that runs nothing.
pub fn first_hello(name: &str) -> SessionRequest {
    hello(name, 10, &Memory::default())
}

fn key(order: &v1::WorkerOrder) -> Key {
    let worker = order.worker.as_ref().expect("an order names its worker");
    (worker.allocation_id, worker.epoch, worker.rank)
}

fn reports(memory: &Memory) -> Vec<v1::WorkerReport> {
    let report = |(key, worker): (&Key, &Worker)| {
        let named = v1::WorkerRef { allocation_id: key.0, epoch: key.1, rank: key.2 };
        let (phase, cause, exit_code) = match worker.ended {
            None => (WorkerPhase::Running, StopCause::Unspecified, None),
            Some((cause, code)) => (WorkerPhase::Stopped, cause, Some(code)),
        };
        v1::WorkerReport {
            worker: Some(named),
            job_id: worker.job,
            phase: phase.into(),
            cause: cause.into(),
            exit_code,
            ..v1::WorkerReport::default()
        }
    };
    memory.workers.iter().map(report).collect()
}
