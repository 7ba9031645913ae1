//! The faults of a run, with their times and durations: drawn from the seed, in bursts, several at once; then all of it
//! is mended.
//!
//! Each run has its own selection of kinds, so that rare combinations are not drowned by the common ones. Two things
//! are never done, because no pool survives them: the data of more than one member is never lost at once, and the
//! operator never removes members below three voters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tessera_ledger::LeaseTimings;

use crate::fault::Fault;
use crate::interruptions::{Director, Hit};
use crate::journal::Journal;
use crate::links::{Cut, FaultId};
use crate::machine::now;
use crate::operator::Order;
use crate::oracle::Violation;
use crate::scenario::{Scenario, brisk, hasty};
use crate::script::{Scheduled, Script};
use crate::simulation::Simulation;

/// Kinds of faults that a run may have.
const KINDS: u32 = 36;
/// Earliest time at which scripts begin: nodes have their first work.
pub const SETTLED: Duration = Duration::from_secs(6);
/// Longest time that supervisors get no turn: together with a kill that hangs, less than the shortest time between the
/// end of a lease and the loss of a node.
const LONGEST_STARVATION_MS: u64 = 1_200;
/// Fewest voters that the operator leaves.
const FEWEST_VOTERS: usize = 3;

/// A fault that is in force.
struct Active {
    id: FaultId,
    fault: Fault,
    ends_at: Duration,
}

/// The faults of a run.
pub struct Faults {
    random: SmallRng,
    kinds: Vec<u32>,
    next_burst: Duration,
    pause: (u64, u64),
    active: Vec<Active>,
    /// Start of a script, and the faults that it still has to make, the last first.
    scheduled: Option<(Duration, Vec<Scheduled>)>,
    /// The director, which makes the faults of a script that waits for moments.
    director: Option<Director>,
    made: FaultId,
    counts: BTreeMap<String, u64>,
    /// A member whose data was damaged and that may still run.
    damaged: BTreeSet<usize>,
    /// Members that lost their data and are on their way back.
    rebuilding: BTreeSet<String>,
    /// Machines on which nobody is a member.
    spares: BTreeSet<String>,
    /// Number of voters that are certain: members count once added, and no longer once their removal is ordered.
    voters: usize,
}

impl Faults {
    /// The faults that a scenario's seed decides; nothing is broken yet.
    pub fn new(scenario: &Scenario, journal: &Journal) -> Self {
        let mut random = SmallRng::seed_from_u64(scenario.seed_for("faults"));
        let mut kinds: Vec<u32> = (0..KINDS).filter(|_| random.random_bool(0.45)).collect();
        if kinds.is_empty() {
            kinds = (0..KINDS).collect();
        }
        let pause = [(100, 1_500), (300, 4_000), (1_000, 8_000)][random.random_range(0..3)];
        let directed = scenario.script == Some(Script::Interrupted);
        let director = directed.then(|| Director::new(scenario, journal.reader()));
        let spare = scenario.founders + 1..=scenario.founders + scenario.spares;
        Self {
            random,
            kinds,
            next_burst: Duration::ZERO,
            pause,
            active: Vec::new(),
            scheduled: None,
            director,
            made: 0,
            counts: BTreeMap::new(),
            damaged: BTreeSet::new(),
            rebuilding: BTreeSet::new(),
            spares: spare.map(|n| format!("m{n}")).collect(),
            voters: scenario.founders,
        }
    }

    /// The number of faults made, by kind.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.clone()
    }

    /// Returns whether a director has played all of its scenes; false without a director.
    pub fn are_over(&self) -> bool {
        self.director.as_ref().is_some_and(Director::is_done)
    }

    /// Lets go wrong what is due, and mends what is due.
    ///
    /// # Errors
    /// What a director saw.
    pub fn step(&mut self, pool: &mut Simulation) -> Result<(), Violation> {
        self.mend(pool, |active| active.ends_at <= now());
        self.restore(pool);
        match (&mut self.director, pool.scenario.script) {
            (Some(director), _) => {
                if let Some(hit) = director.step(pool, self.active.is_empty())? {
                    self.hit(pool, hit);
                }
            }
            (None, Some(script)) => self.follow(pool, script),
            (None, None) => self.burst(pool),
        }
        Ok(())
    }

    fn hit(&mut self, pool: &mut Simulation, hit: Hit) {
        *self.counts.entry(hit.pair.name()).or_default() += 1;
        self.begin_for(pool, hit.fault, hit.lasts);
    }

    fn burst(&mut self, pool: &mut Simulation) {
        if now() < self.next_burst {
            return;
        }
        let pause = self.random.random_range(self.pause.0..self.pause.1);
        self.next_burst = now() + Duration::from_millis(pause);
        for _ in 0..[1, 1, 1, 2, 4][self.random.random_range(0..5)] {
            if let Some(fault) = self.draw(pool) {
                self.begin(pool, fault);
            }
        }
    }

    /// Lets begin what a script has for this moment.
    fn follow(&mut self, pool: &mut Simulation, script: Script) {
        if self.scheduled.is_none() && now() >= SETTLED {
            self.scheduled = script.schedule(pool).map(|mut schedule| {
                schedule.sort_by_key(|scheduled| std::cmp::Reverse(scheduled.after));
                (now(), schedule)
            });
        }
        let Some((began, mut schedule)) = self.scheduled.take() else { return };
        while let Some(due) = schedule.pop_if(|next| began + next.after <= now()) {
            self.begin_for(pool, due.fault, due.lasts);
        }
        self.scheduled = Some((began, schedule));
    }

    fn begin(&mut self, pool: &mut Simulation, fault: Fault) {
        let longest = [300, 2_000, 6_000, 15_000][self.random.random_range(0..4)];
        let bounds = match fault {
            Fault::Strand(..) => 7_000..15_000,
            Fault::Starve(_) => 50..LONGEST_STARVATION_MS,
            _ => 50..longest,
        };
        let lasts = Duration::from_millis(self.random.random_range(bounds));
        self.begin_for(pool, fault, lasts);
    }

    fn begin_for(&mut self, pool: &mut Simulation, fault: Fault, lasts: Duration) {
        self.made += 1;
        pool.story.tell("!!", format!("{fault:?} for {lasts:?}"));
        *self.counts.entry(fault.kind().to_owned()).or_default() += 1;
        fault.begin(self.made, pool);
        self.active.push(Active { id: self.made, fault, ends_at: now() + lasts });
    }

    /// Mends everything.
    pub fn heal(&mut self, pool: &mut Simulation) {
        // What ends may leave something else behind.
        while !self.active.is_empty() {
            self.mend(pool, |_| true);
        }
        self.restore(pool);
    }

    fn mend(&mut self, pool: &mut Simulation, due: impl Fn(&Active) -> bool) {
        let (ended, active) = std::mem::take(&mut self.active).into_iter().partition(due);
        self.active = active;
        let ended: Vec<Active> = ended;
        for Active { id, fault, .. } in ended {
            pool.story.tell("!!", format!("{fault:?} is over"));
            fault.end(id, pool);
            if let Fault::Congest(machine, _) = &fault {
                self.begin(pool, Fault::Isolate(machine.clone(), Cut::Lose));
            }
            // Another fault of the kind may still hold the same thing down.
            let still: Vec<(FaultId, Fault)> = self
                .active
                .iter()
                .filter(|other| other.fault == fault)
                .map(|other| (other.id, other.fault.clone()))
                .collect();
            for (id, fault) in still.into_iter().take(1) {
                fault.begin(id, pool);
            }
        }
    }

    /// Goes on with what takes time to mend: members that lost their data.
    pub fn restore(&mut self, pool: &mut Simulation) {
        while let Ok(done) = pool.done.try_recv() {
            match done {
                Order::Rebuild(machine) => {
                    self.rebuilding.remove(&machine);
                }
                Order::Add(_) => self.voters += 1,
                Order::Remove(machine) => {
                    if let Some(member) = pool.members.iter_mut().find(|member| member.name == machine) {
                        member.kill();
                        member.replace_disk();
                        member.start();
                    }
                    self.spares.insert(machine);
                }
                _ => {}
            }
        }
        let broken: Vec<usize> = self.damaged.iter().copied().filter(|place| pool.members[*place].refuses()).collect();
        for place in broken {
            self.damaged.remove(&place);
            let member = &mut pool.members[place];
            member.kill();
            member.replace_disk();
            member.start();
            let name = member.name.clone();
            pool.story.tell(&name, "refused its damaged disk and is rebuilt on an empty one");
            self.rebuilding.insert(name.clone());
            pool.order(Order::Rebuild(name));
        }
    }

    /// Returns whether a member that lost its data is still being rebuilt.
    pub fn is_restoring(&self) -> bool {
        !self.rebuilding.is_empty()
    }

    fn draw(&mut self, pool: &Simulation) -> Option<Fault> {
        let kind = self.kinds[self.random.random_range(0..self.kinds.len())];
        let member = self.member(pool);
        let node = self.random.random_range(0..pool.nodes.len());
        let cut = if self.random.random_bool(0.5) { Cut::Hold } else { Cut::Lose };
        let slow = Duration::from_millis(self.random.random_range(5..800));
        Some(match kind {
            0 | 1 => Fault::CrashMember(member),
            2 | 3 => Fault::StopMember(member),
            4 => Fault::CrashAgent(node),
            5 => Fault::StopAgent(node),
            6 => Fault::LosePower(node),
            7 => Fault::KillSupervisor(node),
            8 => Fault::Isolate(pool.members[member].name.clone(), cut),
            9 => Fault::Isolate(pool.nodes[node].name.clone(), cut),
            10 => Fault::Split(self.some(pool), cut),
            11 => {
                let (one, other) = self.two(pool)?;
                Fault::Part(one, other, cut)
            }
            12 => Fault::Mute(self.any(pool)),
            13 => Fault::Deafen(self.any(pool)),
            14 => {
                let (one, other) = self.two(pool)?;
                Fault::Delay(one, other, slow)
            }
            15 => Fault::Reset(self.any(pool)),
            16 => Fault::FillDisk(member),
            17 if self.random.random_bool(0.7) => Fault::SlowDisk(member, slow),
            17 => Fault::SlowNodeDisk(node, slow),
            18 => self.damage(pool, member)?,
            19 if self.random.random_bool(0.4) => self.leap(member)?,
            19 => Fault::Jump(member, self.random.random_range(-120_000..120_000)),
            20 => Fault::Operate(self.change_members(pool)?),
            23 => Fault::Congest(
                pool.nodes[node].name.clone(),
                Duration::from_millis(self.random.random_range(1_500..4_000)),
            ),
            25 => Fault::SickCard(node, self.random.random_range(0..pool.nodes[node].cards())),
            24 => Fault::Strand(pool.members[member].name.clone(), pool.nodes[node].name.clone()),
            21 => Fault::CrashMembers,
            22 => Fault::PartMember(pool.members[member].name.clone(), cut),
            28 => self.starve(node)?,
            26 => Fault::RestartMember(member),
            27 => {
                let (one, other) = self.two(pool)?;
                Fault::Jitter(one, other, slow)
            }
            29 => Fault::Operate(Order::Lease(self.leases())),
            32 => Fault::Operate(Order::Offer([100, 150, 200][self.random.random_range(0..3)])),
            33 | 34 => Fault::Operate(Order::Compact),
            _ => match self.random.random_range(0..3) {
                0 => Fault::Operate(Order::Transfer),
                1 => Fault::Operate(Order::Drain(pool.nodes[node].name.clone())),
                _ => Fault::Operate(Order::Cordon(pool.nodes[node].name.clone())),
            },
        })
    }

    /// Other timings than the pool may have now: short and long ones, and those between.
    fn leases(&mut self) -> LeaseTimings {
        [hasty(), brisk(), LeaseTimings::default()][self.random.random_range(0..3)]
    }

    /// Some member; the leader more often than others.
    fn member(&mut self, pool: &Simulation) -> usize {
        let leader = pool.members.iter().position(|member| member.leads().is_some());
        let any = self.random.random_range(0..pool.scenario.founders);
        if self.random.random_bool(0.4) { leader.unwrap_or(any) } else { any }
    }

    fn any(&mut self, pool: &Simulation) -> String {
        let names: Vec<&String> = pool.plugs.keys().collect();
        if self.random.random_bool(0.5) {
            return pool.members[self.member(pool)].name.clone();
        }
        names[self.random.random_range(0..names.len())].clone()
    }

    fn two(&mut self, pool: &Simulation) -> Option<(String, String)> {
        let (one, other) = (self.any(pool), self.any(pool));
        (one != other).then_some((one, other))
    }

    fn some(&mut self, pool: &Simulation) -> Vec<String> {
        let share = self.random.random_range(0.2..0.8);
        pool.plugs.keys().filter(|_| self.random.random_bool(share)).cloned().collect()
    }

    /// Only while no other member lost its data or may have.
    fn damage(&mut self, pool: &Simulation, member: usize) -> Option<Fault> {
        let whole = self.damaged.is_empty() && self.rebuilding.is_empty() && self.voters >= FEWEST_VOTERS;
        let there = pool.members[member].pool().is_some();
        (whole && there).then(|| {
            self.damaged.insert(member);
            let place = self.random.random_range(0..10_000);
            if place % 10 < 3 { Fault::TearEntry(member, place) } else { Fault::FlipBit(member, place) }
        })
    }

    /// Not while the node is starved already: that would last too long.
    fn starve(&self, node: usize) -> Option<Fault> {
        let fault = Fault::Starve(node);
        let already = self.active.iter().any(|active| active.fault == fault);
        (!already).then_some(fault)
    }

    /// One member at a time: what a majority of clocks shows is the time.
    fn leap(&mut self, member: usize) -> Option<Fault> {
        let already = self.active.iter().any(|active| matches!(active.fault, Fault::Leap(..)));
        let years = self.random.random_range(1..=20);
        let back = self.random.random_bool(0.3);
        (!already).then_some(Fault::Leap(member, if back { -years } else { years }))
    }

    fn change_members(&mut self, pool: &Simulation) -> Option<Order> {
        if self.random.random_bool(0.6) {
            return self.spares.pop_first().map(Order::Add);
        }
        let member = self.random.random_range(0..pool.members.len());
        let name = pool.members[member].name.clone();
        let spared = self.spares.contains(&name) || self.rebuilding.contains(&name) || self.damaged.contains(&member);
        (!spared && self.voters > FEWEST_VOTERS).then(|| {
            self.voters -= 1;
            Order::Remove(name)
        })
    }
}
