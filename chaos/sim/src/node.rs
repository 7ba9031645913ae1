//! One node of the pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tessera_api::v1 as wire;
use tessera_client::Address;

use crate::agent;
use crate::hardware::Machine;
use crate::machine::now;
use crate::network::Plug;
use crate::process::{Drift, Process};
use crate::scenario::Scenario;
use crate::story::Story;
use crate::workload::{ZONE, ZONES};
use crate::world::World;

/// Wait before an agent that ended by itself is started again, as an init system does.
pub const RESTART: Duration = Duration::from_millis(700);

pub fn name(place: usize) -> String {
    format!("a{}", place + 1)
}

/// The description of a host by its agent, beside the cards.
#[derive(Clone, Debug)]
pub struct Features {
    pub labels: BTreeMap<String, String>,
    /// Capacity that it offers to workers; `None`: not known, and not limited.
    pub host: Option<wire::HostCapacity>,
}

impl Features {
    fn of(place: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed ^ 0x0051);
        let labels = BTreeMap::from([(ZONE.to_owned(), ZONES[place % ZONES.len()].to_owned())]);
        let capacity = wire::HostCapacity { milli_cpus: random.random_range(8..=16) * 1_000, memory_mib: 16 << 10 };
        Self { labels, host: random.random_bool(0.8).then_some(capacity) }
    }
}

/// One node of the pool: a machine and its agent.
pub struct Node {
    pub name: String,
    pub machine: Machine,
    /// Its agent, while there is one.
    pub agent: Option<Process>,
    /// Time at which an agent is started again.
    pub restart_at: Option<Duration>,
    /// Its door to the network.
    pub plug: Plug,
    cards: Vec<wire::CardDescription>,
    features: Features,
    drift: Drift,
    seed: u64,
    starts: u64,
}

impl Node {
    /// A machine on which an agent is about to start.
    pub fn new(place: usize, scenario: &Scenario, story: &Story, world: &World, plug: Plug) -> Self {
        let name = name(place);
        let (drift, seed) = (scenario.drift_of(&name), scenario.seed_for(&name));
        Self {
            machine: Machine::new(&name, seed, drift, story.clone(), world.clone()),
            agent: None,
            restart_at: Some(Duration::from_millis(500)),
            plug,
            cards: agent::cards(&name, &scenario.nodes[place]),
            features: Features::of(place, seed),
            drift,
            seed,
            starts: 0,
            name,
        }
    }

    pub fn start(&mut self, members: &Arc<[Address]>, story: &Story) {
        self.restart_at = None;
        self.starts += 1;
        let seed = crate::machine::mix(self.seed ^ self.starts);
        let main = agent::run(
            self.name.clone(),
            self.machine.clone(),
            self.cards.clone(),
            self.features.clone(),
            members.to_vec(),
            self.plug.clone(),
            seed,
        );
        story.tell(&self.name, "agent starts");
        self.agent = Some(Process::start(seed, self.drift, main));
    }
}

impl Node {
    pub fn cards(&self) -> usize {
        self.cards.len()
    }

    /// Starts of its agents so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Its agent ends, and the next one finds a card in this health.
    pub fn find_card(&mut self, card: usize, health: wire::CardHealth) {
        if let Some(card) = self.cards.get_mut(card) {
            card.health = health.into();
        }
        if self.agent.take().is_some() {
            self.restart_at = Some(now() + RESTART);
        }
    }
}
