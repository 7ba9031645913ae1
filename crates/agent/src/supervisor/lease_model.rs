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

#[path = "lease_steps.rs"]
mod steps;

use std::collections::BTreeSet;
use std::time::Duration;

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
    AgentHoldsDeadline,
    /// Kills take longer than there is time for.
    SlowKill,
    /// Clocks differ by more than is assumed.
    MoreDrift,
    /// Only the first process ends when the supervisor of a worker is killed, and what that process forked computes on.
    FirstProcessOnly,
}

/// A leader, or somebody who still thinks so. Its term is its place, from 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reign {
    /// The tick at which the node was heard last, or at which the leader won.
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
        };
        world.supervisor = Some(Machine::new(rules, status));
    }
}
