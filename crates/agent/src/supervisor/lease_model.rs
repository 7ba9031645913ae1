//! A model of leases: can work of a node go on when a leader has given the node up (law L2)? Every interleaving is
//! explored, up to a horizon.
//!
//! Real in the model: the supervisor ([`Machine`]), with the deadlines of real [`Lease`]s. Modelled after the code:
//!
//! * the supervisor may be killed while its agent is stopped or dead (one that is at work would search for what is
//!   left): the kernel then ends the worker's processes;
//! * the agent: it counts a lease from when it sent the heartbeat, starts its worker only under a valid one, and passes
//!   renewals on. It may be stopped at any time while its worker and the supervisor go on;
//! * leaders: heartbeats are heard, a quorum is asked after that, the table of leases answers; a node is condemned when
//!   it was silent for `REGRANT_AFTER`, and lost once that is committed. Leaders are deposed without noticing.
//!
//! Abstracted, and why that hides nothing:
//!
//! * one node and one worker: a lease belongs to a node and each supervisor keeps its own deadline, so nodes and
//!   workers meet only in the share of nodes that may be lost at once, which only ever forbids losses;
//! * time in ticks of a leader's clock; the node's clock may fall behind by one tick in any `DRIFT_WINDOW`, the bound
//!   that is assumed of clocks. Clocks that are fast on the node end work earlier. What happens within a tick comes in
//!   any order;
//! * messages are delayed without bound and in any order, or never arrive. A heartbeat or a lease that is older than
//!   the longest lease is dropped: it could only bring a lease that has run out. Of leases under way the last one given
//!   is kept: deadlines only ever go up, so an older one that comes late changes nothing that its loss does not;
//! * an agent that restarts has forgotten which heartbeats it sent: its leases never arrive, a case of loss. One that
//!   is stopped stays so: one that goes on again is a case of delay;
//! * the ledger is one bit, "lost": what follows from it is explored in the ledger's own models.
//!
//! [`Flaw`] switches one rule off; the model must then find work that goes on where it must not.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};
use tessera_ledger::{AllocationId, Epoch, Rank};

use super::super::message::Request;
use super::super::status::{Exit, Phase, Status};
use super::{Effect, Event, Machine, Now, Rules};
use crate::boot::BootTime;
use crate::config::LONGEST_LEASE;
use crate::process::ProcessId;
use crate::worker::{Fence, Lease, StopPolicy, Term, WorkerId};

/// Ticks after which workers are told to stop.
const STOP_AFTER: u64 = 2;
/// Ticks after which they are killed.
const KILL_AFTER: u64 = 3;
/// Ticks that a kill takes at most.
const KILL_TAKES: u64 = 1;
/// Ticks of silence after which a node is given up: the kill, and one tick in `DRIFT_WINDOW` for the clocks.
const REGRANT_AFTER: u64 = 5;
/// In so many ticks of a leader the node's clock falls behind by at most one.
const DRIFT_WINDOW: u64 = 5;
/// Ticks explored. A lease given in the first two and all that can follow from it fit.
const HORIZON: u64 = 6;
/// Leaders that follow each other.
const REIGNS: usize = 2;
/// Heartbeats under way at once.
const UNDER_WAY: usize = 2;

/// One rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The agent counts the lease from when it came.
    CountedFromReceipt,
    /// A leader grants without asking a quorum.
    NoQuorum,
    /// A new leader trusts the silence of a node that it has not listened to.
    NoWait,
    /// A node is granted a lease while its loss is on its way into the log.
    CondemnedIsGranted,
    /// The agent holds the deadline itself.
    AgentHoldsDeadline,
    /// Kills take longer than there is time for.
    SlowKill,
    /// Clocks differ by more than is assumed.
    MoreDrift,
    /// Of a worker whose supervisor is killed only the first process ends, and what it forked computes on.
    FirstProcessOnly,
}

/// A leader, or somebody who still thinks so. Its term is its place, from 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reign {
    /// When the node was heard last, or the leader won.
    heard_at: u64,
    condemned: bool,
}

/// A heartbeat on its way to a reign, or heard and waiting for the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Heartbeat {
    reign: usize,
    sent_at: u64,
    heard: bool,
}

/// A lease on its way to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Grant {
    reign: usize,
    sent_at: u64,
}

/// The processes of the worker, all of them, as they really are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Process {
    None,
    Computes,
    /// Killed; gone at this tick of the node at the latest.
    Dying(u64),
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    boot: u64,
    since_slip: u64,
    reigns: Vec<Reign>,
    heartbeats: BTreeSet<Heartbeat>,
    grant: Option<Grant>,
    agent_stopped: bool,
    highest_term: usize,
    lease: Option<Lease>,
    supervisor: Option<Machine>,
    process: Process,
    lost: bool,
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick { node_too: bool },
    Elect,
    Send { reign: usize },
    Hear(Heartbeat),
    Answer(Heartbeat),
    TakeGrant(Grant),
    StopAgent,
    KillSupervisor,
    Launch,
    Begin,
    End,
    Condemn,
    Lose,
}

struct Leases {
    flaw: Option<Flaw>,
}

const fn boot(ticks: u64) -> BootTime {
    BootTime(ticks * 1000)
}

impl World {
    const fn clock(&self) -> Now {
        Now { boot: boot(self.boot), unix_ms: 0 }
    }

    fn leader(&self) -> usize {
        self.reigns.len() - 1
    }

    const fn is_alive(&self) -> bool {
        matches!(self.process, Process::Computes | Process::Dying(_))
    }

    fn phase(&self) -> Option<Phase> {
        self.supervisor.as_ref().map(|machine| machine.status().phase)
    }

    /// Performs what the supervisor decides, as its shell does.
    fn perform(&mut self, effects: Vec<Effect>, kill_takes: u64) {
        for effect in effects {
            let event = match effect {
                Effect::Start => {
                    self.process = Process::Computes;
                    Event::Started(ProcessId { pid: 2, start_ticks: 0 })
                }
                Effect::Kill => {
                    if self.process == Process::Computes {
                        self.process = Process::Dying(self.boot + kill_takes);
                    }
                    continue;
                }
                Effect::Probe => Event::Probed { empty: !self.is_alive() },
                Effect::Rest
                | Effect::GoOn
                | Effect::Dump
                | Effect::Snapshot(_)
                | Effect::Signal(_)
                | Effect::Publish
                | Effect::Finish => continue,
            };
            self.tell(event, kill_takes);
        }
    }

    fn tell(&mut self, event: Event, kill_takes: u64) {
        let now = self.clock();
        if let Some(machine) = &mut self.supervisor {
            let effects = machine.on(now, event);
            self.perform(effects, kill_takes);
        }
    }

    fn ask(&mut self, request: Request, kill_takes: u64) {
        let now = self.clock();
        if let Some(machine) = &mut self.supervisor {
            let effects = machine.on_request(now, request).unwrap_or_default();
            self.perform(effects, kill_takes);
        }
    }

    fn ends(&mut self, kill_takes: u64) {
        self.process = Process::Gone;
        self.tell(Event::Exited { exit: Exit::Signal(9), because: None }, kill_takes);
    }
}

impl Leases {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn kill_takes(&self) -> u64 {
        if self.has(Flaw::SlowKill) { KILL_TAKES + 1 } else { KILL_TAKES }
    }

    fn may_slip(&self, world: &World) -> bool {
        let window = if self.has(Flaw::MoreDrift) { DRIFT_WINDOW - 2 } else { DRIFT_WINDOW };
        world.since_slip >= window - 1
    }

    fn fence(world: &World) -> Fence {
        Fence { term: Term(world.highest_term as u64), epoch: Epoch(1) }
    }

    fn pass_time(&self, world: &mut World, node_too: bool) {
        world.now += 1;
        world.since_slip = if node_too { (world.since_slip + 1).min(DRIFT_WINDOW) } else { 0 };
        if node_too {
            world.boot += 1;
            if matches!(world.process, Process::Dying(by) if by <= world.boot) {
                world.ends(self.kill_takes());
            }
            if !(self.has(Flaw::AgentHoldsDeadline) && world.agent_stopped) {
                world.tell(Event::TimePassed, self.kill_takes());
            }
        }
        let boot = world.boot;
        let useful = |sent_at: u64| boot < sent_at + KILL_AFTER || self.has(Flaw::CountedFromReceipt);
        world.heartbeats.retain(|heartbeat| useful(heartbeat.sent_at));
        world.grant = world.grant.filter(|grant| useful(grant.sent_at));
    }

    /// The leader has asked the others whether it still leads, and looks into its table.
    fn answer(&self, world: &mut World, heartbeat: Heartbeat) {
        world.heartbeats.remove(&heartbeat);
        let leads = heartbeat.reign == world.leader();
        if !leads && !self.has(Flaw::NoQuorum) {
            world.refused = true;
            return;
        }
        let reign = &world.reigns[heartbeat.reign];
        if reign.condemned && !self.has(Flaw::CondemnedIsGranted) {
            return;
        }
        world.grant = Some(Grant { reign: heartbeat.reign, sent_at: heartbeat.sent_at });
    }

    fn take_grant(&self, world: &mut World, grant: Grant) {
        world.grant = None;
        if grant.reign + 1 < world.highest_term {
            return;
        }
        world.highest_term = grant.reign + 1;
        let from = if self.has(Flaw::CountedFromReceipt) { world.boot } else { grant.sent_at };
        let lease = Lease { stop_at: boot(from + STOP_AFTER), kill_at: boot(from + KILL_AFTER) };
        let lease = world.lease.map_or(lease, |before| before.extended_by(lease));
        world.lease = Some(lease);
        world.ask(Request::Renew { fence: Self::fence(world), lease }, self.kill_takes());
    }

    /// The first process is killed by the kernel at once, and with it, where the host gives that, the whole tree.
    fn kill_supervisor(&self, world: &mut World) {
        world.supervisor = None;
        world.process = match world.process {
            Process::Computes if self.has(Flaw::FirstProcessOnly) => Process::Computes,
            Process::Computes => Process::Dying(world.boot + self.kill_takes()),
            Process::None => Process::Gone,
            dying => dying,
        };
    }

    fn launch(world: &mut World) {
        let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };
        let mut status = Status::new(worker, 1, Self::fence(world), String::new());
        status.lease = world.lease;
        let stop = StopPolicy { grace: Duration::from_secs(60), ..StopPolicy::default() };
        let rules = Rules {
            stop,
            time_limit: None,
            kill_confirmation: Duration::from_secs(60),
            longest_lease: LONGEST_LEASE,
            dumps: false,
            is_beside_card: false,
        };
        world.supervisor = Some(Machine::new(rules, status));
    }
}

impl Model for Leases {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            boot: 0,
            since_slip: DRIFT_WINDOW,
            reigns: vec![Reign { heard_at: 0, condemned: false }],
            heartbeats: BTreeSet::new(),
            grant: None,
            agent_stopped: false,
            highest_term: 0,
            lease: None,
            supervisor: None,
            process: Process::None,
            lost: false,
            refused: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < HORIZON {
            actions.push(Action::Tick { node_too: true });
            if self.may_slip(world) {
                actions.push(Action::Tick { node_too: false });
            }
        }
        let reign = &world.reigns[world.leader()];
        if reign.condemned && !world.lost {
            actions.push(Action::Lose);
        } else if !world.lost && world.now >= reign.heard_at + REGRANT_AFTER {
            actions.push(Action::Condemn);
        }
        if world.process == Process::Gone {
            return; // A worker is started once: nothing can compute any more.
        }
        if world.reigns.len() < REIGNS {
            actions.push(Action::Elect);
        }
        for heartbeat in &world.heartbeats {
            let ask = if heartbeat.heard { Action::Answer } else { Action::Hear };
            actions.push(ask(*heartbeat));
        }
        if !world.agent_stopped {
            if world.is_alive() {
                actions.push(Action::StopAgent);
            }

            actions.extend(world.grant.map(Action::TakeGrant));
            if world.heartbeats.len() < UNDER_WAY {
                let listening = if world.lost { world.leader() } else { world.reigns.len() };
                let willing = (0..listening).filter(|reign| reign + 1 >= world.highest_term);
                actions.extend(willing.map(|reign| Action::Send { reign }));
            }
            let leased = world.lease.is_some_and(|lease| boot(world.boot) < lease.stop_at);
            match world.phase() {
                None if leased && world.process == Process::None => actions.push(Action::Launch),
                Some(Phase::Preparing) => actions.push(Action::Begin),
                _ => {}
            }
        }
        if world.supervisor.is_some() && world.is_alive() && world.agent_stopped {
            actions.push(Action::KillSupervisor);
        }
        if world.is_alive() && world.phase() == Some(Phase::Stopping) {
            actions.push(Action::End);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Tick { node_too } => self.pass_time(&mut next, node_too),
            Action::Elect => {
                // What a deposed leader heard changes nothing: its losses are never committed.
                next.reigns.iter_mut().for_each(|reign| reign.heard_at = 0);
                let heard_at = if self.has(Flaw::NoWait) { 0 } else { next.now };
                next.reigns.push(Reign { heard_at, condemned: false });
            }
            Action::Send { reign } => {
                next.heartbeats.insert(Heartbeat { reign, sent_at: next.boot, heard: false });
            }
            Action::Hear(heartbeat) => {
                next.heartbeats.remove(&heartbeat);
                if heartbeat.reign == next.leader() {
                    next.reigns[heartbeat.reign].heard_at = next.now;
                }
                next.heartbeats.insert(Heartbeat { heard: true, ..heartbeat });
            }
            Action::Answer(heartbeat) => self.answer(&mut next, heartbeat),
            Action::TakeGrant(grant) => self.take_grant(&mut next, grant),
            Action::StopAgent => next.agent_stopped = true,
            Action::KillSupervisor => self.kill_supervisor(&mut next),
            Action::Launch => Self::launch(&mut next),
            Action::Begin => next.ask(Request::Begin, self.kill_takes()),
            Action::End => next.ends(self.kill_takes()),
            Action::Condemn => next.reigns.last_mut()?.condemned = true,
            Action::Lose => {
                next.lost = true;
                // A leader that knows of the loss answers no heartbeat.
                let leader = next.leader();
                next.heartbeats.retain(|heartbeat| heartbeat.reign != leader);
            }
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(GIVEN_AWAY, |_, world: &World| !(world.lost && world.is_alive())),
            Property::sometimes("a node is lost after its worker computed", |_, world: &World| {
                world.lost && world.process == Process::Gone
            }),
            Property::sometimes("a worker is killed at its deadline while its agent is stopped", |_, world: &World| {
                world.agent_stopped && matches!(world.process, Process::Dying(_))
            }),
            Property::sometimes("a lease of a second leader keeps a worker of the first alive", |_, world: &World| {
                world.highest_term == REIGNS && world.boot > KILL_AFTER + 1 && world.process == Process::Computes
            }),
            Property::sometimes("a worker dies with its supervisor while its agent is stopped", |_, world: &World| {
                world.agent_stopped && world.supervisor.is_none() && matches!(world.process, Process::Dying(_))
            }),
            Property::sometimes("a deposed leader is refused by the quorum", |_, world: &World| world.refused),
            Property::sometimes("a worker whose lease ran out before its start is not started", |_, world: &World| {
                world.phase() == Some(Phase::Stopped) && world.process == Process::None
            }),
        ]
    }
}

const GIVEN_AWAY: &str = "work is given away only after it has ended";

#[test]
fn work_of_a_lost_node_has_ended() {
    let checker = Leases { flaw: None }.checker().threads(2).spawn_dfs().join();
    println!("leases: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn each_rule_of_leases_is_needed() {
    let flaws = [
        Flaw::CountedFromReceipt,
        Flaw::NoQuorum,
        Flaw::NoWait,
        Flaw::CondemnedIsGranted,
        Flaw::AgentHoldsDeadline,
        Flaw::SlowKill,
        Flaw::MoreDrift,
        Flaw::FirstProcessOnly,
    ];
    for flaw in flaws {
        let checker = Leases { flaw: Some(flaw) }
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .threads(2)
            .spawn_bfs()
            .join();
        println!("without a rule ({flaw:?}): {} states", checker.unique_state_count());
        assert!(checker.discovery(GIVEN_AWAY).is_some(), "{flaw:?} does no harm in the model");
    }
}
