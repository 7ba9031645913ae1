//! The victims of interruptions.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tessera_ledger::State;

use super::moment::{Sighting, Spot};
use crate::fault::Fault;
use crate::links::Cut;
use crate::operator::Order;
use crate::simulation::Simulation;

/// The victim that is hit at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// The leader hands over to another member.
    LeaderHandsOver,
    /// The leader's process is killed.
    LeaderDies,
    /// The leader is cut off from the other members, and not from agents and clients.
    LeaderParted,
    /// The leader is cut off from everybody.
    LeaderCutOff,
    /// The agent where the job computes or did is killed.
    SourceAgent,
    /// The job's worker there is killed, with its supervisor.
    SourceWorker,
    /// The machine there loses power.
    SourceMachine,
    /// The agent where the job is to compute is killed.
    TargetAgent,
    /// The job's worker there is killed as soon as it is there.
    TargetWorker,
    /// The machine there loses power.
    TargetMachine,
}

/// Absence of an agent or a machine, in milliseconds: it is back before anybody misses it, or later than that.
const AWAY_MS: [std::ops::Range<u64>; 2] = [400..1_500, 10_500..12_000];
/// Duration for which a leader is cut off: longer than a lease lasts.
const CUT_OFF: Duration = Duration::from_secs(8);

impl Victim {
    pub const ALL: [Self; 10] = [
        Self::LeaderHandsOver,
        Self::LeaderDies,
        Self::LeaderParted,
        Self::LeaderCutOff,
        Self::SourceAgent,
        Self::SourceWorker,
        Self::SourceMachine,
        Self::TargetAgent,
        Self::TargetWorker,
        Self::TargetMachine,
    ];

    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeaderHandsOver => "leader hands over",
            Self::LeaderDies => "leader dies",
            Self::LeaderParted => "leader cut off from the members",
            Self::LeaderCutOff => "leader cut off from everybody",
            Self::SourceAgent => "agent of the source dies",
            Self::SourceWorker => "worker of the source dies",
            Self::SourceMachine => "machine of the source loses power",
            Self::TargetAgent => "agent of the target dies",
            Self::TargetWorker => "worker of the target dies",
            Self::TargetMachine => "machine of the target loses power",
        }
    }

    /// Returns whether no lease may end for it: nobody who has work is hit, and agents are told to look for the next
    /// leader, or see that theirs is gone. A leader that is only silent has to be noticed first, and leases are short
    /// here.
    pub const fn leaves_leases(self) -> bool {
        matches!(self, Self::LeaderHandsOver | Self::LeaderDies | Self::LeaderParted)
    }

    /// The fault that hits the victim, and its duration; `None`: the victim is not there, or not yet.
    pub fn fault(self, sighting: &Sighting, pool: &Simulation, random: &mut SmallRng) -> Option<(Fault, Duration)> {
        let at = match self {
            Self::TargetAgent | Self::TargetWorker | Self::TargetMachine => sighting.target,
            _ => sighting.source,
        };
        let place = |at: Option<Spot>| place_of(pool, &*pool.journal.newest()?, at?);
        let leads = || Some(pool.members[leader(pool)?].name.clone());
        let away = AWAY_MS[random.random_range(0..AWAY_MS.len())].clone();
        let away = Duration::from_millis(random.random_range(away));
        Some(match self {
            Self::LeaderHandsOver => (Fault::Operate(Order::Transfer), Duration::from_millis(1)),
            Self::LeaderDies => (Fault::CrashMember(leader(pool)?), Duration::from_millis(1_500)),
            Self::LeaderParted => (Fault::PartMember(leads()?, Cut::Lose), CUT_OFF),
            Self::LeaderCutOff => (Fault::Isolate(leads()?, Cut::Lose), CUT_OFF),
            Self::SourceAgent | Self::TargetAgent => (Fault::CrashAgent(place(at)?), away),
            Self::SourceMachine | Self::TargetMachine => (Fault::LosePower(place(at)?), away),
            Self::SourceWorker | Self::TargetWorker => {
                let (place, worker) = (place(at)?, at?.worker);
                let there = pool.nodes[place].machine.supervises(worker);
                (there.then_some(Fault::KillWorker(place, worker))?, Duration::from_millis(1))
            }
        })
    }
}

/// The place of the leader among the members, by the newest term.
fn leader(pool: &Simulation) -> Option<usize> {
    let leading = pool.members.iter().enumerate().filter_map(|(place, member)| Some((member.leads()?, place)));
    leading.max().map(|(_, place)| place)
}

/// The place of a node among those of the run.
fn place_of(pool: &Simulation, state: &State, at: Spot) -> Option<usize> {
    let name = &state.node(at.node)?.description.name;
    pool.nodes.iter().position(|node| node.name == *name)
}
