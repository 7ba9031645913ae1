//! An agent: the real one, on a simulated machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tessera_actor::{ActorMeters, Supervisor};
use tessera_agent::Conduct;
use tessera_agent::boot::BootTime;
use tessera_agent::host::{Host, Line, Wanted};
use tessera_agent::is_due_at_the_end;
use tessera_agent::node::{CheckpointNews, LaunchOrder, Node, NodeFacts, Readings};
use tessera_agent::supervisor::message::Request;
use tessera_agent::supervisor::status::{Cause, Phase};
use tessera_agent::worker::{Term, WorkerId};
use tessera_api::agent::part_of;
use tessera_api::v1 as wire;
use tessera_client::{Address, SessionConnector};
use tessera_ledger::{CheckpointKey, PartKey};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::hardware::{Machine, Notices};
use crate::network::Plug;
use crate::node::Features;
use crate::shelf::NotThere;

/// Memory of every card.
pub const CARD_MEMORY_MIB: u64 = 80 << 10;

/// Runs an agent on a machine until it is killed.
pub async fn run(
    name: String,
    machine: Machine,
    cards: Vec<wire::CardDescription>,
    features: Features,
    members: Vec<Address>,
    plug: Plug,
    seed: u64,
) -> String {
    let (identity, workers) = machine.begin_agent();
    let facts = NodeFacts {
        name: name.clone(),
        uid: identity.uid,
        incarnation: identity.incarnation,
        address: format!("{name}:7500"),
        worker_host: name.clone(),
        boot_id: machine.boot_id(),
        start_nonce: format!("{}-{}", machine.boot_id(), identity.incarnation),
        containment: machine.containment(),
        labels: features.labels,
        host: features.host,
    };
    let node = Node::new(facts, cards, identity.highest_term, identity.cluster_id, workers.iter().cloned());
    let connector = match SessionConnector::new(&members, plug.client_settings(seed)) {
        Ok(connector) => connector,
        Err(error) => return error.to_string(),
    };
    let tasks = Supervisor::with_doom(ActorMeters::default(), |actor| panic!("the actor {actor} of an agent panicked"));
    let host = SimulatedHost { name, boot_id: machine.boot_id(), machine };
    let conduct = Conduct { node, workers, connector, random: StdRng::seed_from_u64(seed) };
    conduct.run_on(host, tasks, CancellationToken::new()).await;
    "its loop ended".to_owned()
}

/// A machine as its agent sees it.
struct SimulatedHost {
    name: String,
    boot_id: String,
    machine: Machine,
}

impl Host for SimulatedHost {
    fn now(&self) -> BootTime {
        self.machine.boot_time()
    }

    fn node_name(&self) -> &str {
        &self.name
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn keep_term(&self, term: Term, cluster_id: String) -> BoxFuture<'static, ()> {
        let machine = self.machine.clone();
        Box::pin(async move {
            sleep(machine.flush_time()).await;
            machine.keep_term(term, &cluster_id);
        })
    }

    fn launch(&self, line: Line, order: LaunchOrder) -> BoxFuture<'static, ()> {
        Box::pin(launch(self.machine.clone(), line, order))
    }

    fn adopt(&self, mut line: Line) -> BoxFuture<'static, ()> {
        let machine = self.machine.clone();
        Box::pin(async move {
            let worker = line.status.worker;
            if let Some(notices) = machine.attach(worker) {
                follow(&machine, &mut line, notices).await;
            }
            conclude(&machine, &mut line).await;
        })
    }

    fn readdress(&self, worker: WorkerId, order: Arc<wire::WorkerOrder>) -> BoxFuture<'static, ()> {
        // In the order in which it is told: of two files the newer one stays.
        self.machine.readdress(worker, &order);
        Box::pin(std::future::ready(()))
    }

    fn kept(&self) -> Option<BTreeSet<PartKey>> {
        Some(self.machine.world().shelf.kept(&self.name))
    }

    fn measured(&self) -> Option<Readings> {
        let workers = self.machine.measure();
        Some(Readings { at: Some(self.now()), workers, ..Readings::default() })
    }

    fn tend(&self, orders: wire::CheckpointOrders) -> BoxFuture<'static, ()> {
        let (machine, name) = (self.machine.clone(), self.name.clone());
        Box::pin(async move {
            sleep(machine.flush_time()).await;
            let shelf = machine.world().shelf;
            orders.needless.iter().for_each(|part| shelf.remove(&name, part_of(part)));
            for copy in &orders.copies {
                sleep(machine.flush_time()).await;
                shelf.copy(&name, copy);
            }
        })
    }

    fn look_for(&self, missed: Vec<wire::CheckpointSource>) -> BoxFuture<'static, Vec<PartKey>> {
        let (machine, name) = (self.machine.clone(), self.name.clone());
        Box::pin(async move {
            sleep(machine.flush_time()).await;
            let kept = machine.world().shelf.kept(&name);
            let parts = missed.iter().filter_map(|source| source.name.as_ref()).map(part_of);
            parts.filter(|part| !kept.contains(part)).collect()
        })
    }

    fn forget(&self, worker: WorkerId, _retention: Option<std::time::Duration>) -> BoxFuture<'static, ()> {
        let machine = self.machine.clone();
        Box::pin(async move {
            sleep(machine.flush_time()).await;
            machine.settle(worker);
        })
    }

    /// Simulated workers leave no output.
    fn keep_output(&self, _retention: std::time::Duration) {}
}

async fn launch(machine: Machine, mut line: Line, order: LaunchOrder) {
    if machine.create(&order).is_err() {
        // As the real one: it was here before, and is searched for.
        return conclude(&machine, &mut line).await;
    }
    sleep(machine.flush_time()).await;
    let computed = match fetch(&machine, &order) {
        Ok(computed) => computed,
        Err(for_good) => return unusable(&machine, line, for_good).await,
    };
    let (_starter, notices) = machine.supervise(&order, computed);
    sleep(machine.flush_time()).await;
    machine.make_durable(order.worker);
    machine.ask(order.worker, Request::Begin);
    follow(&machine, &mut line, notices).await;
    conclude(&machine, &mut line).await;
}

/// Brings the checkpoint that a worker goes on from; answers for how long its work had computed, or whether the
/// checkpoint is gone for good. Now and then it cannot be had for the moment.
fn fetch(machine: &Machine, order: &LaunchOrder) -> Result<Duration, bool> {
    let Some(from) = &order.order.from else { return Ok(Duration::ZERO) };
    if machine.happens_once_in(20) {
        return Err(false);
    }
    machine.world().shelf.fetch(from).map_err(|NotThere| true)
}

/// A worker is not started: its checkpoint cannot be had.
async fn unusable(machine: &Machine, mut line: Line, for_good: bool) {
    machine.world().without_checkpoint(line.status.worker);
    line.tell_of_checkpoint(CheckpointNews::Unusable { for_good }).await;
    line.status.phase = Phase::Stopped;
    line.status.cause = Some(Cause::StartFailed);
    line.status.message = "its checkpoint cannot be had".to_owned();
    line.tell().await;
}

/// Tells how a worker stands; its end, when what it saved is kept.
async fn tell(machine: &Machine, line: &Line) {
    let worker = line.status.worker;
    let order = machine.order(worker);
    let wanted = line.wanted.newest().save_at_end;
    if wanted != Some(false) && is_due_at_the_end(&line.status, order.as_deref(), None) {
        sleep(machine.flush_time()).await;
        if let Some(saved) = machine.save(worker, CheckpointKey::LAST) {
            line.tell_of_checkpoint(CheckpointNews::Saved(saved)).await;
        }
    }
    line.tell().await;
}

/// The saves that a worker's program is asked for at intervals: the time of the next one, and the number of the last
/// one. Without this (`None`) it is asked for none.
struct Asked {
    every: Duration,
    next: Instant,
    sequence: u64,
}

impl Asked {
    fn of(machine: &Machine, worker: WorkerId) -> Option<Self> {
        let order = machine.order(worker)?;
        let every = order.spec.as_ref()?.checkpoint.as_ref()?.every?;
        let every = Duration::try_from(every).ok()?;
        // An agent that adopts a worker goes on after what was saved.
        let sequence = machine.saved(worker).map_or(0, |saved| saved.sequence);
        Some(Self { every, next: Instant::now() + every, sequence })
    }

    async fn due(asked: &Option<Self>) {
        match asked {
            Some(asked) => sleep_until(asked.next).await,
            None => std::future::pending().await,
        }
    }
}

/// Stays with a worker as long as its supervisor lives.
async fn follow(machine: &Machine, line: &mut Line, mut notices: Notices) {
    let worker = line.status.worker;
    let mut told = Wanted::default();
    let mut asked = Asked::of(machine, worker);
    line.wanted.again();
    loop {
        tokio::select! {
            notice = notices.recv() => {
                let Some(status) = notice else { return };
                if status != line.status {
                    line.status = status;
                    tell(machine, line).await;
                }
                if line.status.is_final() {
                    return;
                }
            }
            () = Asked::due(&asked) => {
                let Some(asked) = &mut asked else { continue };
                asked.next += asked.every;
                asked.sequence += 1;
                if line.status.phase == Phase::Running {
                    sleep(machine.flush_time()).await;
                    if let Some(saved) = machine.save(worker, asked.sequence) {
                        line.tell_of_checkpoint(CheckpointNews::Saved(saved)).await;
                    }
                }
            }
            wanted = line.wanted.next() => {
                for request in wanted.news(told) {
                    if !machine.ask(worker, request) {
                        return;
                    }
                }
                told = wanted;
            }
        }
    }
}

/// The supervisor is gone: what it left counts.
async fn conclude(machine: &Machine, line: &mut Line) {
    if line.status.is_final() {
        return;
    }
    line.status = machine.sweep(line.status.worker, line.status.clone());
    tell(machine, line).await;
}

/// A node's cards, as its agent declares them.
pub fn cards(name: &str, kinds: &[(wire::CardKind, u64)]) -> Vec<wire::CardDescription> {
    let describe = |(index, (kind, tflops)): (u32, &(wire::CardKind, u64))| wire::CardDescription {
        index,
        kind: (*kind).into(),
        vendor: "simulated".to_owned(),
        model: "S1".to_owned(),
        uuid: format!("{name}-{index}"),
        memory_mib: CARD_MEMORY_MIB,
        rated: vec![wire::Rating { precision: wire::Precision::Fp16.into(), milli_tflops: tflops * 1000 }],
        isolation: wire::Isolation::Hard.into(),
        simulated: true,
        health: wire::CardHealth::Healthy.into(),
        ..wire::CardDescription::default()
    };
    (0u32..).zip(kinds).map(describe).collect()
}

/// Members' addresses, as agents and clients are told.
pub fn addresses(members: &[String]) -> Arc<[Address]> {
    members.iter().filter_map(|member| format!("{member}:{}", crate::network::PORT).parse().ok()).collect()
}
