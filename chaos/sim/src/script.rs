//! Scripts: faults that are not drawn but follow one another on purpose, for what chance alone meets too seldom.
//!
//! A script is a schedule of ordinary faults, made when the pool is at work: who leads then, and on which node
//! something computes, decides whom it hits. Some seeds have one ([`Script::drawn_by`]), and any seed can be given one
//! by name. What a script does is legal: a pool without bugs survives it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::fault::Fault;
use crate::links::Cut;
use crate::operator::Order;
use crate::scenario::hasty;
use crate::simulation::Simulation;
use crate::stranger::Forgery;

/// Every so many seeds one has a script.
const EVERY: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// The leader and a node that works for it are cut off together, for much longer than a lease.
    Stranded,
    /// The line between the leader and a node becomes slower and slower; then the node is not heard any more, while
    /// what was said to it still arrives.
    SlowLine,
    /// The leader is cut off from the members and a node from the leader; when the node works for the new leader, it is
    /// cut off from that one and finds its way back to the old one.
    Deposed,
    /// The disks of all members are busy, so that plans are made long before they are carried out, while nodes are
    /// cordoned and opened again.
    StalePlans,
    /// A node is cut off, and at once the leader's process dies: the next leader knows nothing of the node's lease.
    Orphaned,
    /// The disks of all members are busy and their processes die at once, again and again.
    Blackouts,
    /// An upgrade: one after the other every member is ended in order and started again, and then every agent.
    Rolling,
    /// Jobs are moved all the time, and the nodes that they come from and go to lose power or are cut off.
    Moves,
    /// One node after the other is so busy that its supervisors get no turn for longer than a lease lasts, while leases
    /// are renewed and programs end.
    Starved,
    /// On a node that cannot end what its workers forked, the agent and every supervisor are killed, and for longer
    /// than a lease lasts nobody looks after the rest.
    Bereaved,
    /// The leader's wall clock is ten years ahead while jobs fail and are tried again; then that of the next leader is.
    Astray,
    /// Small jobs lie spread over all cards, which offer more than they are rated for and then no more than that, while
    /// the pool is compacted again and again and nodes come and go.
    Scattered,
    /// A node is cut off under a long lease, the timings are shortened, and then the leader's process dies: the next
    /// one never granted a lease like that.
    Retimed,
    /// Whoever has a part in moving, suspending, preempting, draining, saving or growing a job is hit in each step of
    /// it ([`crate::interruptions`]).
    Interrupted,
    /// Somebody without any right sends forged messages to members, and takes a member's place towards an agent, while
    /// a copy of a member's data folder runs. In the end nobody listens to anybody for a minute.
    Stranger,
    /// Followers may take a leader that lives for dead: both of them when their connections break and for less than a
    /// lease nothing is answered, then one of them when its connections are refused, whom the other one asks for its
    /// vote afterwards.
    FalseAlarm,
    /// Whoever leads stands still for a little longer than a lease, again and again.
    Pauses,
    /// Copies of the data folders of both followers run, one after the other; then the leader's process dies, and two
    /// members live of which neither is listened to at first.
    Deafened,
}

/// A fault that a script has for some moment.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// Time at which it begins, from the script's own beginning.
    pub after: Duration,
    pub lasts: Duration,
    pub fault: Fault,
}

/// A name that no script has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScript(String);

impl fmt::Display for UnknownScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no script is called {:?}; there are:", self.0)?;
        Script::ALL.iter().try_for_each(|script| write!(f, " {}", script.name()))
    }
}

impl std::error::Error for UnknownScript {}

impl FromStr for Script {
    type Err = UnknownScript;

    fn from_str(name: &str) -> Result<Self, UnknownScript> {
        Self::ALL.into_iter().find(|script| script.name() == name).ok_or_else(|| UnknownScript(name.to_owned()))
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Script {
    pub const ALL: [Self; 18] = [
        Self::Stranded,
        Self::SlowLine,
        Self::Deposed,
        Self::StalePlans,
        Self::Orphaned,
        Self::Blackouts,
        Self::Rolling,
        Self::Moves,
        Self::Starved,
        Self::Bereaved,
        Self::Astray,
        Self::Scattered,
        Self::Retimed,
        Self::Interrupted,
        Self::Stranger,
        Self::FalseAlarm,
        Self::Pauses,
        Self::Deafened,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stranded => "stranded",
            Self::SlowLine => "slow-line",
            Self::Deposed => "deposed",
            Self::StalePlans => "stale-plans",
            Self::Orphaned => "orphaned",
            Self::Blackouts => "blackouts",
            Self::Rolling => "rolling",
            Self::Moves => "moves",
            Self::Starved => "starved",
            Self::Bereaved => "bereaved",
            Self::Astray => "astray",
            Self::Scattered => "scattered",
            Self::Retimed => "retimed",
            Self::Interrupted => "interrupted",
            Self::Stranger => "stranger",
            Self::FalseAlarm => "false-alarm",
            Self::Pauses => "pauses",
            Self::Deafened => "deafened",
        }
    }

    /// The script that a seed has of its own: every tenth has one, in turn.
    pub fn drawn_by(seed: u64) -> Option<Self> {
        let turn = usize::try_from(seed / EVERY).unwrap_or(0) % Self::ALL.len();
        (seed % EVERY == EVERY - 1).then(|| Self::ALL[turn])
    }

    /// The faults and their times; `None` while the pool is not ready for them: nobody leads, or no node works.
    pub fn schedule(self, pool: &Simulation) -> Option<Vec<Scheduled>> {
        let leader = pool.members.iter().find(|member| member.leads().is_some())?.name.clone();
        let busiest = pool.nodes.iter().max_by_key(|node| node.machine.supervisors())?;
        if busiest.machine.supervisors() == 0 {
            return None;
        }
        let node = busiest.name.clone();
        Some(match self {
            Self::Stranded => vec![at(0, 20_000, Fault::Strand(leader, node))],
            Self::SlowLine => slow_line(&leader, &node),
            Self::Deposed => deposed(pool, &leader, &node),
            Self::StalePlans => stale_plans(pool),
            Self::Orphaned => {
                let place = pool.members.iter().position(|member| member.name == leader)?;
                vec![at(0, 12_000, Fault::Isolate(node, Cut::Lose)), at(20, 5_000, Fault::CrashMember(place))]
            }
            Self::Blackouts => (0..8).map(|turn| at(turn * 4_000, 1_000, Fault::CrashMembers)).collect(),
            Self::Rolling => rolling(pool),
            Self::Moves => moves(pool),
            Self::Starved => starved(pool),
            Self::Bereaved => bereaved(pool)?,
            Self::Astray => astray(pool, &leader),
            Self::Scattered => scattered(pool),
            // Nothing of it is known before: its director waits for each step.
            Self::Interrupted => Vec::new(),
            Self::Stranger => stranger(pool, &leader, node),
            Self::FalseAlarm => false_alarm(pool, &leader),
            Self::Deafened => deafened(pool, &leader),
            Self::Pauses => (0..8).map(|turn| at(turn * 2_000, 310, Fault::StopLeader)).collect(),
            Self::Retimed => {
                let place = pool.members.iter().position(|member| member.name == leader)?;
                vec![
                    at(0, 25_000, Fault::Isolate(node, Cut::Lose)),
                    at(0, 1, Fault::Operate(Order::Lease(hasty()))),
                    at(1_500, 5_000, Fault::CrashMember(place)),
                ]
            }
        })
    }
}

const fn at(after: u64, lasts: u64, fault: Fault) -> Scheduled {
    Scheduled { after: ms(after), lasts: ms(lasts), fault }
}

/// Each step is smaller than a lease: heartbeats are answered later and later, and never stay unanswered for long.
fn slow_line(leader: &str, node: &str) -> Vec<Scheduled> {
    let delay = |after, by| at(after, 20_000 - after, Fault::Delay(leader.to_owned(), node.to_owned(), ms(by)));
    vec![delay(0, 450), delay(2_500, 900), delay(5_500, 1_350), at(11_000, 9_000, Fault::Mute(node.to_owned()))]
}

fn deposed(pool: &Simulation, leader: &str, node: &str) -> Vec<Scheduled> {
    let (leader, node) = (leader.to_owned(), node.to_owned());
    let mut schedule = vec![
        at(0, 30_000, Fault::PartMember(leader.clone(), Cut::Lose)),
        at(0, 8_000, Fault::Part(leader.clone(), node.clone(), Cut::Lose)),
        at(100, 1, Fault::Reset(node.clone())),
    ];
    let others = pool.members.iter().map(|member| member.name.clone()).filter(|other| *other != leader);
    schedule.extend(others.map(|other| at(8_000, 22_000, Fault::Part(other, node.clone(), Cut::Lose))));
    schedule.push(at(8_100, 1, Fault::Reset(node)));
    schedule
}

fn stale_plans(pool: &Simulation) -> Vec<Scheduled> {
    let busy = (0..pool.members.len()).map(|place| at(0, 25_000, Fault::SlowDisk(place, ms(250))));
    let cordons = (0u64..)
        .zip(pool.nodes.iter().cycle().take(30))
        .map(|(turn, node)| at(500 + turn * 800, 1_500, Fault::Operate(Order::Cordon(node.name.clone()))));
    busy.chain(cordons).collect()
}

fn rolling(pool: &Simulation) -> Vec<Scheduled> {
    let members = (0..pool.scenario.founders).map(Fault::RestartMember);
    let agents = (0..pool.nodes.len()).map(Fault::CrashAgent);
    (0u64..).zip(members.chain(agents)).map(|(turn, fault)| at(turn * 2_500, 400, fault)).collect()
}

/// One node after the other, so that there is always somewhere to go; each for longer than a lease lasts.
fn moves(pool: &Simulation) -> Vec<Scheduled> {
    let turns = (0u64..4).zip((0..pool.nodes.len()).cycle());
    let gone = |(turn, place): (u64, usize)| {
        let name = pool.nodes[place].name.clone();
        let fault = if turn % 2 == 0 { Fault::Isolate(name, Cut::Lose) } else { Fault::LosePower(place) };
        at(turn * 8_000, 7_000, fault)
    };
    turns.map(gone).collect()
}

/// Nothing else goes wrong meanwhile: nodes that are heard from are not given up, and so nothing is granted twice.
fn starved(pool: &Simulation) -> Vec<Scheduled> {
    let turns = (0u64..16).zip((0..pool.nodes.len()).cycle());
    turns.map(|(turn, place)| at(turn * 2_000, 3_500, Fault::Starve(place))).collect()
}

/// `None` while no such node works.
fn bereaved(pool: &Simulation) -> Option<Vec<Scheduled>> {
    let works = |place: &usize| {
        let machine = &pool.nodes[*place].machine;
        !machine.is_contained() && machine.supervisors() > 0
    };
    // In a pool where every node ends what was forked, the same harms nobody.
    let place = (0..pool.nodes.len()).find(works).or_else(|| {
        let contained = pool.nodes.iter().all(|node| node.machine.is_contained());
        (0..pool.nodes.len()).find(|place| contained && pool.nodes[*place].machine.supervisors() > 0)
    })?;
    let supervisors = pool.nodes[place].machine.supervisors();
    let kills = (0..supervisors).map(|_| at(20, 1, Fault::KillSupervisor(place)));
    Some(std::iter::once(at(0, 40_000, Fault::CrashAgent(place))).chain(kills).collect())
}

/// The copy is the leader's or a follower's, as the seed says; the last forged words are said in the names of the
/// others.
fn stranger(pool: &Simulation, leader: &str, node: String) -> Vec<Scheduled> {
    let founders = pool.scenario.founders;
    let leads = pool.members.iter().position(|member| member.name == leader).unwrap_or(0);
    let doubled = (leads + usize::from(!pool.scenario.seed.is_multiple_of(2))) % founders;
    let others = |of: usize| (0..founders).filter(move |other| *other != of);
    let mut schedule = vec![
        at(0, 25_000, Fault::Double(doubled)),
        at(1_000, 1_500, Fault::Mislead(node)),
        at(4_000, 1, Fault::Forge(Forgery::Hello)),
    ];
    for to in others(leads) {
        schedule.push(at(300, 1, Fault::Forge(Forgery::Entry { to })));
        schedule.push(at(600, 1, Fault::Forge(Forgery::Snapshot { to })));
    }
    for (turn, of) in (0u64..3).flat_map(|turn| others(doubled).map(move |of| (turn, of))) {
        let words = others(of).map(|to| at(19_000 + turn * 2_000, 1, Fault::Forge(Forgery::Start { of, to })));
        schedule.extend(words);
    }
    schedule
}

/// The leader stays dead for as long as the run goes on.
fn deafened(pool: &Simulation, leader: &str) -> Vec<Scheduled> {
    let (leads, follow): (Vec<usize>, Vec<usize>) =
        (0..pool.scenario.founders).partition(|place| pool.members[*place].name == leader);
    let copies = (0u64..).zip(follow).map(|(turn, place)| at(turn * 25_100, 25_000, Fault::Double(place)));
    copies.chain(leads.into_iter().map(|place| at(50_500, 200_000, Fault::CrashMember(place)))).collect()
}

/// In each step the leader is heard by a quorum before a lease has run out.
fn false_alarm(pool: &Simulation, leader: &str) -> Vec<Scheduled> {
    let names: Vec<String> = pool.members.iter().map(|member| member.name.clone()).collect();
    let followers: Vec<&String> = names.iter().filter(|name| *name != leader).collect();
    let mut schedule = Vec::new();
    for turn in (0..4).map(|turn| turn * 1_500) {
        schedule.push(at(turn, 150, Fault::Isolate(leader.to_owned(), Cut::Hold)));
        schedule.extend(followers.iter().map(|name| at(turn, 1, Fault::Reset((*name).clone()))));
    }
    if let [one, other, ..] = followers[..] {
        schedule.push(at(8_000, 8_000, Fault::Refuse(one.clone(), leader.to_owned())));
        for turn in (0..4).map(|turn| 9_000 + turn * 1_500) {
            schedule.push(at(turn, 700, Fault::Part(other.clone(), leader.to_owned(), Cut::Lose)));
        }
    }
    // Nobody elects a member that lacks what was written meanwhile: so little is.
    schedule.push(at(8_000, 8_000, Fault::Split(names, Cut::Lose)));
    schedule
}

/// One clock at a time, that of the leader first.
fn astray(pool: &Simulation, leader: &str) -> Vec<Scheduled> {
    let first = pool.members.iter().position(|member| member.name == leader).unwrap_or(0);
    let places = (0..pool.scenario.founders).map(|turn| (first + turn) % pool.scenario.founders);
    (0u64..).zip(places).map(|(turn, place)| at(turn * 7_000, 6_000, Fault::Leap(place, 10))).collect()
}

/// Changes the offers of cards while they are full, and compacts free blocks while nodes lose power.
fn scattered(pool: &Simulation) -> Vec<Scheduled> {
    let offers = (0u64..).zip([200, 100, 150, 100]);
    let offers = offers.map(|(turn, percent)| at(turn * 8_000, 1, Fault::Operate(Order::Offer(percent))));
    let compactions = (0..10).map(|turn| at(2_000 + turn * 3_000, 1, Fault::Operate(Order::Compact)));
    let places = (0u64..3).zip((0..pool.nodes.len()).cycle());
    let losses = places.map(|(turn, place)| at(9_000 + turn * 9_000, 4_000, Fault::LosePower(place)));
    offers.chain(compactions).chain(losses).collect()
}
