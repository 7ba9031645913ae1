//! Everything that a run begins with: machines, plugs, members, nodes, clients, watchers and the operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tessera_ledger::Level;
use tokio::sync::mpsc;

use crate::agent;
use crate::client::{self, Desk};
use crate::history::History;
use crate::journal::Journal;
use crate::links::Links;
use crate::machine::wall_epoch;
use crate::member::Member;
use crate::network::wire as plug_in;
use crate::node::{self, Node};
use crate::operator;
use crate::oracle::Panel;
use crate::process::{Drift, Process};
use crate::scenario::Scenario;
use crate::script::Script;
use crate::simulation::Simulation;
use crate::story::Story;
use crate::stranger::Stranger;
use crate::watcher;
use crate::workload::Taste;
use crate::world::World;

/// Watchers beside the clients that submit.
const WATCHERS: usize = 2;

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
            .epoch(std::time::UNIX_EPOCH + wall_epoch())
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
        let (world, journal) = (World::default(), Journal::default());
        let names: Vec<String> = (1..=scenario.founders + scenario.spares).map(|n| format!("m{n}")).collect();
        // Machines that join later run the next release, and can always join.
        let level = |place: usize| if place < scenario.founders { Level::NEWEST } else { Level::Drill };
        let member = |(place, name): (usize, &String)| {
            Member::new(name.clone(), level(place), connect(name), &scenario, story.clone(), journal.seat(name))
        };
        let members: Vec<Member> = names.iter().enumerate().map(member).collect();
        let nodes = 0..scenario.nodes.len();
        let nodes: Vec<Node> =
            nodes.map(|place| Node::new(place, &scenario, &story, &world, connect(&node::name(place)))).collect();
        let addresses = agent::addresses(&names);
        let (history, closing) = (History::default(), Arc::new(AtomicBool::new(false)));
        let taste = Taste {
            card: scenario.cards().max().unwrap_or(1),
            pool: scenario.cards().sum(),
            computes_ms: scenario.computes_ms,
            small: scenario.small,
        };
        let mut clients: Vec<Process> = (1..=scenario.clients)
            .map(|n| {
                let name = format!("c{n}");
                let seed = scenario.seed_for(&name);
                let desk = Desk {
                    plug: connect(&name),
                    members: Arc::clone(&addresses),
                    seed,
                    taste,
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
        let strange = matches!(scenario.script, Some(Script::Stranger | Script::Deafened));
        let stranger = strange.then(|| Stranger::new(&scenario, &story, &journal, &mut connect));
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
            panel: Some(Panel::new(journal.reader())),
            journal,
            closing,
            stranger,
            healed_at: None,
            looked_at: Duration::ZERO,
            scenario,
        }
    }
}
