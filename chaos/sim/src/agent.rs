//! An agent: the real one, on a simulated machine.

use std::sync::Arc;

use futures::future::BoxFuture;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tessera_actor::{ActorMeters, Supervisor};
use tessera_agent::Conduct;
use tessera_agent::boot::BootTime;
use tessera_agent::host::{Host, Line, Wanted};
use tessera_agent::node::{LaunchOrder, Node, NodeFacts, WorkerRecord};
use tessera_agent::supervisor::message::Request;
use tessera_agent::worker::{Term, WorkerId};
use tessera_api::v1 as wire;
use tessera_client::{Address, SessionConnector};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::hardware::{Machine, Notices};
use crate::network::Plug;
use crate::node::Features;

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
    let (identity, found) = machine.begin_agent();
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
    let workers: Vec<WorkerRecord> =
        found.into_iter().map(|(status, order)| WorkerRecord::found(status, Some(order))).collect();
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

    fn forget(&self, worker: WorkerId, _retention: Option<std::time::Duration>) -> BoxFuture<'static, ()> {
        let machine = self.machine.clone();
        Box::pin(async move {
            sleep(machine.flush_time()).await;
            machine.settle(worker);
        })
    }
}

async fn launch(machine: Machine, mut line: Line, order: LaunchOrder) {
    if machine.create(&order).is_err() {
        // As the real one: it was here before, and is searched for.
        return conclude(&machine, &mut line).await;
    }
    sleep(machine.flush_time()).await;
    let (_starter, notices) = machine.supervise(&order);
    sleep(machine.flush_time()).await;
    machine.make_durable(order.worker);
    machine.ask(order.worker, Request::Begin);
    follow(&machine, &mut line, notices).await;
    conclude(&machine, &mut line).await;
}

/// Stays with a worker as long as its supervisor lives.
async fn follow(machine: &Machine, line: &mut Line, mut notices: Notices) {
    let worker = line.status.worker;
    let mut told = Wanted::default();
    line.wanted.mark_changed();
    loop {
        tokio::select! {
            notice = notices.recv() => {
                let Some(status) = notice else { return };
                if status != line.status {
                    line.status = status;
                    line.tell().await;
                }
                if line.status.is_final() {
                    return;
                }
            }
            changed = line.wanted.changed() => {
                if changed.is_err() {
                    // The agent ends. The worker does not.
                    std::future::pending::<()>().await;
                }
                let wanted = *line.wanted.borrow_and_update();
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
    line.tell().await;
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
