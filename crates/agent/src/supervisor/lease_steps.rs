//! The actions that can happen in the model of leases, the properties that must hold in it, and the search of all its
//! states.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{
    Action, DRIFT_WINDOW, Flaw, HORIZON, Heartbeat, KILL_AFTER, Leases, Process, REGRANT_AFTER, REIGNS, Reign,
    UNDER_WAY, World, boot,
};
use crate::supervisor::message::Request;
use crate::supervisor::status::Phase;

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
