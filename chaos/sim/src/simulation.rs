//! One run: the whole pool on simulated machines, moved on step by step, with faults, and looked at by oracles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tessera_api::v1 as wire;
use tessera_client::Address;
use tessera_ledger::{Level, State};
use tokio::sync::mpsc;
use turmoil::Sim;

use crate::agent;
use crate::client::{self, Desk};
use crate::faults::Faults;
use crate::hardware::{Machine, World};
use crate::history::History;
use crate::links::{Cut, FaultId, Links};
use crate::machine::{WALL_EPOCH, now, set_now};
use crate::member::Member;
use crate::network::{Plug, wire as plug_in};
use crate::operator::{self, Order};
use crate::oracle::coverage::{Coverage, Follower};
use crate::oracle::liveness::unrest;
use crate::oracle::{self, MemberView, Oracle, View, Violation};
use crate::process::{Drift, Process};
use crate::scenario::Scenario;
use crate::story::Story;
use crate::watcher;

/// How often oracles look.
const LOOK: Duration = Duration::from_millis(20);
/// Wait before a process that ended by itself is started again, as an init system does.
const RESTART: Duration = Duration::from_millis(700);
/// Watchers beside the clients that submit.
const WATCHERS: usize = 2;
/// Time for founding, before the first fault.
const FOUNDING: Duration = Duration::from_secs(3);
/// Quiet time that everything must be at rest for, before a run ends well.
const REST: Duration = Duration::from_secs(1);
/// The longest that a run takes after healing; the oracle of liveness has spoken before.
const LONGEST: Duration = Duration::from_secs(620);

/// One node of the pool: a machine and its agent.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its machine.
    pub machine: Machine,
    /// Its agent, while there is one.
    pub agent: Option<Process>,
    /// When an agent is started again.
    pub restart_at: Option<Duration>,
    /// Its door to the network.
    pub plug: Plug,
    cards: Vec<wire::CardDescription>,
    drift: Drift,
    seed: u64,
    starts: u64,
}

impl Node {
    /// Starts an agent.
    pub fn start(&mut self, members: &Arc<[Address]>, story: &Story) {
        self.restart_at = None;
        self.starts += 1;
        let seed = crate::machine::mix(self.seed ^ self.starts);
        let main = agent::run(
            self.name.clone(),
            self.machine.clone(),
            self.cards.clone(),
            members.to_vec(),
            self.plug.clone(),
            seed,
        );
        story.tell(&self.name, "agent starts");
        self.agent = Some(Process::start(seed, self.drift, main));
    }
}

impl Node {
    /// How many cards it has.
    pub fn cards(&self) -> usize {
        self.cards.len()
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

/// How a run went.
pub struct Outcome {
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// Simulated time.
    pub simulated: Duration,
    /// Transitions of the ledger that were seen.
    pub coverage: Coverage,
    /// How often each kind of fault was made.
    pub faults: BTreeMap<String, u64>,
    /// Programs that computed.
    pub computations: u64,
    /// Submissions that were accepted.
    pub accepted: u64,
}

/// The pool and everything around it.
pub struct Simulation {
    /// What the seed decided.
    pub scenario: Scenario,
    /// The network.
    pub sim: Sim<'static>,
    /// Members, founders first.
    pub members: Vec<Member>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Where the operator is told what to do.
    pub orders: mpsc::UnboundedSender<Order>,
    /// What the operator has done.
    pub done: mpsc::UnboundedReceiver<Order>,
    /// The story.
    pub story: Story,
    /// Links that are not whole.
    pub links: Links,
    /// Plugs of all machines, by name.
    pub plugs: BTreeMap<String, Plug>,
    clients: Vec<Process>,
    operator: Process,
    addresses: Arc<[Address]>,
    names: BTreeSet<String>,
    world: World,
    history: History,
    oracles: Vec<Box<dyn Oracle>>,
    follower: Follower,
    closing: Arc<AtomicBool>,
    healed_at: Option<Duration>,
    looked_at: Duration,
    newest: Option<Arc<State>>,
}

impl Simulation {
    /// Sets up everything that a scenario says; nothing has happened yet.
    pub fn new(scenario: Scenario, story: Story) -> Self {
        let mut sim = turmoil::Builder::new()
            .rng_seed(scenario.seed_for("network"))
            .tick_duration(scenario.step)
            .min_message_latency(scenario.latency.0)
            .max_message_latency(scenario.latency.1)
            .simulation_duration(Duration::from_secs(100_000))
            .tcp_capacity(1 << 16)
            .epoch(std::time::UNIX_EPOCH + WALL_EPOCH)
            .build();
        let mut plugs = BTreeMap::new();
        let mut connect = |name: &str| {
            let (plug, socket) = plug_in();
            let socket = Arc::new(socket);
            sim.host(name, move || {
                let socket = Arc::clone(&socket);
                async move { socket.serve().await }
            });
            plugs.insert(name.to_owned(), plug.clone());
            plug
        };
        let world = World::default();
        let names: Vec<String> = (1..=scenario.founders + scenario.spares).map(|n| format!("m{n}")).collect();
        // Machines that join later run the next release, and can always join.
        let level = |place: usize| if place < scenario.founders { Level::NEWEST } else { Level::Drill };
        let member = |(place, name): (usize, &String)| {
            Member::new(name.clone(), level(place), connect(name), &scenario, story.clone())
        };
        let members: Vec<Member> = names.iter().enumerate().map(member).collect();
        let node = |(n, kinds): (usize, &Vec<(wire::CardKind, u64)>)| {
            let name = format!("a{}", n + 1);
            let (drift, seed) = (scenario.drift_of(&name), scenario.seed_for(&name));
            Node {
                machine: Machine::new(&name, seed, drift, story.clone(), world.clone()),
                agent: None,
                restart_at: Some(Duration::from_millis(500)),
                plug: connect(&name),
                cards: agent::cards(&name, kinds),
                drift,
                seed,
                starts: 0,
                name,
            }
        };
        let nodes: Vec<Node> = scenario.nodes.iter().enumerate().map(node).collect();
        let addresses = agent::addresses(&names);
        let (history, closing) = (History::default(), Arc::new(AtomicBool::new(false)));
        let largest = scenario.nodes.iter().flatten().map(|(_, tflops)| *tflops).max().unwrap_or(1);
        let whole = scenario.nodes.iter().flatten().map(|(_, tflops)| *tflops).sum();
        let mut clients: Vec<Process> = (1..=scenario.clients)
            .map(|n| {
                let name = format!("c{n}");
                let seed = scenario.seed_for(&name);
                let desk = Desk {
                    plug: connect(&name),
                    members: Arc::clone(&addresses),
                    seed,
                    sizes: (largest, whole),
                    computes_ms: scenario.computes_ms,
                    // Many of them do about as much as two.
                    longest_pause_ms: 350 * scenario.clients.max(2) as u64,
                    nodes: scenario.nodes.len(),
                    moves: scenario.moves,
                    history: history.clone(),
                    story: story.clone(),
                    closing: Arc::clone(&closing),
                    name,
                };
                Process::start(seed, Drift::default(), client::run(desk))
            })
            .collect();
        for number in 1..=WATCHERS {
            let name = format!("w{number}");
            let seed = scenario.seed_for(&name);
            let desk = watcher::Desk {
                plug: connect(&name),
                members: Arc::clone(&addresses),
                number,
                seed,
                history: history.clone(),
                story: story.clone(),
                closing: Arc::clone(&closing),
                name,
            };
            clients.push(Process::start(seed, Drift::default(), watcher::run(desk)));
        }
        let (orders, taken) = mpsc::unbounded_channel();
        let (said, done) = mpsc::unbounded_channel();
        let seed = scenario.seed_for("op");
        let desk = operator::run(connect("op"), Arc::clone(&addresses), seed, taken, said, story.clone());
        let operator = Process::start(seed, Drift::default(), desk);
        Self {
            names: nodes.iter().map(|node| node.name.clone()).collect(),
            sim,
            members,
            nodes,
            orders,
            done,
            story,
            links: Links::default(),
            plugs,
            clients,
            operator,
            addresses,
            world,
            history,
            oracles: oracle::all(),
            follower: Follower::default(),
            closing,
            healed_at: None,
            looked_at: Duration::ZERO,
            newest: None,
            scenario,
        }
    }

    /// Runs to the end, or to the first thing that is broken.
    pub fn run(mut self) -> Outcome {
        let mut faults = Faults::new(&self.scenario);
        let founders: Vec<String> =
            self.members.iter().take(self.scenario.founders).map(|own| own.name.clone()).collect();
        for member in &mut self.members {
            member.start();
        }
        self.order(Order::Found(founders, self.scenario.leases));
        let violation = self.run_through(&mut faults).err();
        Outcome {
            violation,
            simulated: now(),
            coverage: std::mem::take(&mut self.follower.coverage),
            faults: faults.counts(),
            computations: self.world.began(),
            accepted: self.accepted(),
        }
    }

    fn accepted(&self) -> u64 {
        let accepted = |answer: &crate::history::Answer| matches!(answer, crate::history::Answer::Accepted { .. });
        self.history.submissions().iter().filter(|submission| accepted(&submission.answer)).count() as u64
    }

    fn run_through(&mut self, faults: &mut Faults) -> Result<(), Violation> {
        let trouble_ends = FOUNDING + self.scenario.trouble;
        while now() < trouble_ends {
            self.step()?;
            if self.scenario.faults && now() > FOUNDING {
                faults.step(self);
            }
        }
        self.story.tell("--", "the trouble is over");
        faults.heal(self);
        self.closing.store(true, Ordering::Relaxed);
        self.order(Order::Tidy);
        let healed = now();
        self.healed_at = Some(healed);
        let mut at_rest_since = None;
        while now() < healed + LONGEST {
            let looked_at = self.looked_at;
            self.step()?;
            faults.restore(self);
            if self.looked_at == looked_at {
                continue;
            }
            let over = self.clients.iter().all(|client| !client.is_there()) && !faults.is_restoring();
            match (over && unrest(&self.view()).is_none(), at_rest_since) {
                (false, _) => at_rest_since = None,
                (true, None) => at_rest_since = Some(now()),
                (true, Some(since)) if now() > since + REST => return self.look(true),
                (true, Some(_)) => {}
            }
        }
        Err(Violation { oracle: "end", what: "clients or the repair of members did not come to an end".to_owned() })
    }

    /// All machines but one.
    pub fn others(&self, machine: &str) -> Vec<String> {
        self.plugs.keys().filter(|name| *name != machine).cloned().collect()
    }

    /// Cuts the links between some machines and all others.
    pub fn cut_off(&mut self, fault: FaultId, machines: &[String], cut: Cut) {
        let rest: Vec<&String> = self.plugs.keys().filter(|name| !machines.contains(name)).collect();
        for (one, other) in machines.iter().flat_map(|one| rest.iter().map(move |other| (one, other))) {
            self.links.cut(&self.sim, fault, one, other, cut);
        }
    }

    /// Tells the operator.
    pub fn order(&self, order: Order) {
        // The operator lives as long as the run.
        let _ = self.orders.send(order);
    }

    /// Lets everything happen that happens in one step.
    fn step(&mut self) -> Result<(), Violation> {
        set_now(now() + self.scenario.step);
        if let Err(error) = self.sim.step() {
            return Err(Violation { oracle: "network", what: error.to_string() });
        }
        for member in &mut self.members {
            member.step();
        }
        for node in &mut self.nodes {
            if node.restart_at.is_some_and(|at| at <= now()) {
                node.start(&self.addresses, &self.story);
            }
            node.machine.step();
            if let Some(why) = node.agent.as_mut().and_then(Process::tick) {
                self.story.tell(&node.name, format!("agent ended: {why}"));
                node.agent = None;
                node.restart_at = Some(now() + RESTART);
            }
        }
        for client in &mut self.clients {
            client.tick();
        }
        self.operator.tick();
        if now() >= self.looked_at + LOOK {
            self.looked_at = now();
            self.look(false)?;
        }
        Ok(())
    }

    fn view(&self) -> View<'_> {
        let members = self.members.iter().map(|member| MemberView {
            name: member.name.clone(),
            state: member.pool().map(|pool| pool.view().current()),
            leads: member.leads(),
            stopped: member.is_stopped(),
        });
        View {
            now: now(),
            members: members.collect(),
            newest: self.newest.clone(),
            world: &self.world,
            history: &self.history,
            healed_for: self.healed_at.map(|at| now().saturating_sub(at)),
            nodes: &self.names,
        }
    }

    fn look(&mut self, last: bool) -> Result<(), Violation> {
        let mut oracles = std::mem::take(&mut self.oracles);
        let mut follower = std::mem::take(&mut self.follower);
        let shown = self.members.iter().filter_map(|member| Some(member.pool()?.view().current()));
        let newest = shown.chain(self.newest.take()).max_by_key(|state| state.revision());
        self.newest = newest;
        let view = self.view();
        let illegal = follower.follow(&view, &self.story).err();
        let illegal = illegal.map(|what| Violation { oracle: "only what may follow does", what });
        let looked = oracles.iter_mut().find_map(|oracle| {
            let looked = if last { oracle.at_end(&view) } else { oracle.look(&view) };
            looked.err().map(|what| Violation { oracle: oracle.name(), what })
        });
        let broken = illegal.or(looked);
        (self.oracles, self.follower) = (oracles, follower);
        broken.map_or(Ok(()), Err)
    }
}
