//! One run: the whole pool on simulated machines, moved on step by step, with faults, and looked at by oracles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tessera_client::Address;
use tokio::sync::mpsc;
use turmoil::Sim;

use crate::faults::{Faults, SETTLED};
use crate::history::History;
use crate::journal::Journal;
use crate::links::{Cut, FaultId, Links};
use crate::machine::{now, set_now};
use crate::member::Member;
use crate::network::Plug;
use crate::node::{Node, RESTART};
use crate::operator::Order;
use crate::oracle::coverage::Coverage;
use crate::oracle::liveness::unrest;
use crate::oracle::{MemberView, Panel, View, Violation};
use crate::process::Process;
use crate::scenario::Scenario;
use crate::story::Story;
use crate::stranger::Stranger;
use crate::world::World;

/// Interval between two looks of the oracles.
const LOOK: Duration = Duration::from_millis(20);
/// Time for founding, before the first fault.
const FOUNDING: Duration = Duration::from_secs(3);
/// Quiet time that everything must be at rest for, before a run ends well.
const REST: Duration = Duration::from_secs(1);
/// The longest that a run takes after healing; the oracle of liveness has spoken before.
const LONGEST: Duration = Duration::from_secs(620);

/// The result of a run.
pub struct Outcome {
    /// The violation, if any.
    pub violation: Option<Violation>,
    /// Simulated time.
    pub simulated: Duration,
    /// Transitions of the ledger that were seen.
    pub coverage: Coverage,
    /// Number of faults made, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Programs that computed.
    pub computations: u64,
    /// Submissions that were accepted.
    pub accepted: u64,
}

/// The pool and everything around it.
pub struct Simulation {
    /// The parameters of the run: drawn from the seed, unless a script or a calm run was asked for.
    pub scenario: Scenario,
    /// The network.
    pub sim: Sim<'static>,
    /// Members, founders first.
    pub members: Vec<Member>,
    pub nodes: Vec<Node>,
    /// Channel of orders to the operator.
    pub orders: mpsc::UnboundedSender<Order>,
    /// Channel of orders that the operator has carried out.
    pub done: mpsc::UnboundedReceiver<Order>,
    pub story: Story,
    /// Links that are not whole.
    pub links: Links,
    /// Plugs of all machines, by name.
    pub plugs: BTreeMap<String, Plug>,
    pub(crate) clients: Vec<Process>,
    pub(crate) operator: Process,
    pub(crate) addresses: Arc<[Address]>,
    pub(crate) names: BTreeSet<String>,
    pub(crate) world: World,
    pub(crate) history: History,
    /// Taken out while it looks.
    pub(crate) panel: Option<Panel>,
    pub(crate) journal: Journal,
    pub(crate) closing: Arc<AtomicBool>,
    /// Somebody without any right, in runs that have one.
    pub(crate) stranger: Option<Stranger>,
    pub(crate) healed_at: Option<Duration>,
    pub(crate) looked_at: Duration,
}

impl Simulation {
    /// Runs to the end, or to the first thing that is broken.
    pub fn run(mut self) -> Outcome {
        let mut faults = Faults::new(&self.scenario, &self.journal);
        let founders: Vec<String> =
            self.members.iter().take(self.scenario.founders).map(|own| own.name.clone()).collect();
        for member in &mut self.members {
            member.start();
        }
        self.order(Order::Found(founders, self.scenario.terms()));
        self.order(Order::Rules);
        let violation = self.run_through(&mut faults).err();
        let mut coverage = self.panel.as_mut().map(Panel::coverage).unwrap_or_default();
        self.stranger.iter().flat_map(Stranger::seen).for_each(|sight| coverage.see(sight));
        Outcome {
            violation,
            simulated: now(),
            coverage,
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
        while now() < trouble_ends && !faults.are_over() {
            self.step()?;
            if self.scenario.faults && now() > FOUNDING {
                faults.step(self)?;
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
        if let Some(stranger) = &mut self.stranger {
            stranger.step();
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
            fresh: member.pool().is_some_and(|pool| pool.status().borrow().quorum_fresh),
            stopped: member.is_stopped(),
        });
        View {
            now: now(),
            members: members.collect(),
            newest: self.journal.newest(),
            world: &self.world,
            history: &self.history,
            healed_for: self.healed_at.map(|at| now().saturating_sub(at)),
            nodes: &self.names,
            script: self.scenario.script.filter(|_| now() >= SETTLED && self.healed_at.is_none()),
            aftermath: self.stranger.as_ref().map(|stranger| stranger.aftermath(&self.members, &self.nodes)),
        }
    }

    fn look(&mut self, last: bool) -> Result<(), Violation> {
        let mut panel = std::mem::take(&mut self.panel);
        let looked = panel.as_mut().map_or(Ok(()), |panel| panel.look(&self.view(), &self.story, last));
        self.panel = panel;
        looked
    }
}
