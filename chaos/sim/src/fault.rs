//! One fault: what it breaks, and how that is mended.

use std::time::Duration;

use tessera_agent::worker::WorkerId;
use tessera_api::v1::CardHealth;
use tessera_store::memory::{MemoryDisk, Place};

use crate::links::{Cut, FaultId};
use crate::machine::now;
use crate::member::Member;
use crate::operator::Order;
use crate::process::Process;
use crate::simulation::Simulation;
use crate::stranger::{self, Forgery};

/// Additional time of a flush on a busy disk.
const BUSY: Duration = Duration::from_millis(400);

/// A year, for wall clocks that are wrong by some.
const YEAR_MS: i64 = 365 * 86_400_000;

/// Something that goes wrong for a while. Members and nodes are given by their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A member's process is killed; what it had not flushed is lost, or part of it. It starts again at the end.
    CrashMember(usize),
    /// A member's process is asked to end, and started again when it has.
    RestartMember(usize),
    /// A member's process stands still.
    StopMember(usize),
    /// The process of whoever leads stands still.
    StopLeader,
    /// An agent is killed; its workers go on. It starts again at the end.
    CrashAgent(usize),
    /// An agent stands still; its workers go on.
    StopAgent(usize),
    /// A node's machine loses power. It boots at the end.
    LosePower(usize),
    /// A node is so busy that supervisors get no turn, though for less than lies between the end of a lease and the
    /// loss of a node.
    Starve(usize),
    /// A worker's supervisor is killed, and the worker with it.
    KillSupervisor(usize),
    /// The supervisor of one worker on a node is killed, and the worker with it.
    KillWorker(usize, WorkerId),
    /// The disks of all members are busy; at the end every member's process is killed at once, as when their room loses
    /// power, and starts again.
    CrashMembers,
    /// A member is cut off from the other members only: it may still believe that it leads, and is still believed.
    PartMember(String, Cut),
    /// A member and a node are cut off together from all others, for longer than a lease lasts.
    Strand(String, String),
    /// A machine is cut off from all others.
    Isolate(String, Cut),
    /// Some machines are cut off from the rest.
    Split(Vec<String>, Cut),
    /// Two machines are cut off from each other.
    Part(String, String, Cut),
    /// A machine hears others and is not heard by them.
    Mute(String),
    /// A machine is heard by others and does not hear them.
    Deafen(String),
    /// Messages over a link take up to that long: a later message on another connection may arrive first.
    Jitter(String, String, Duration),
    /// A link is slow.
    Delay(String, String, Duration),
    /// All that a machine sends and hears takes that long. When it is over the machine is cut off altogether, as when a
    /// congested line breaks down: what was on its way then still arrives.
    Congest(String, Duration),
    /// All connections of a machine break.
    Reset(String),
    /// Connections that the first machine opens to the second one are refused, those that it has break, and what the
    /// second one opens goes on.
    Refuse(String, String),
    /// A member's disk has no room left.
    FillDisk(usize),
    /// A member's disk takes that much longer for a flush.
    SlowDisk(usize, Duration),
    /// A node's disk does.
    SlowNodeDisk(usize, Duration),
    /// A bit of a member's log flips while its process is down; it must refuse to serve, and is rebuilt.
    FlipBit(usize, usize),
    /// An entry of a member's log is there by half, although its disk said that it was written; the same follows.
    TearEntry(usize, usize),
    /// The agent of a node is started anew and finds one of its cards unhealthy; at the end it finds it healthy again.
    SickCard(usize, usize),
    /// A member's wall clock jumps, by milliseconds, and is put right at the end.
    Jump(usize, i64),
    /// A member's wall clock leaps, by years, and leaps back at the end.
    Leap(usize, i64),
    /// A stranger sends a forged message.
    Forge(Forgery),
    /// An agent finds a stranger wherever it looks for a member.
    Mislead(String),
    /// A copy of a member's data folder is started on another machine; at the end it stops for good.
    Double(usize),
    /// The operator does something.
    Operate(Order),
}

impl Fault {
    /// The kind, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CrashMember(_) => "crash of a member",
            Self::RestartMember(_) => "restart of a member in order",
            Self::StopMember(_) => "pause of a member",
            Self::StopLeader => "pause of the leader",
            Self::CrashAgent(_) => "crash of an agent",
            Self::StopAgent(_) => "pause of an agent",
            Self::LosePower(_) => "power loss of a node",
            Self::Starve(_) => "supervisors without a turn",
            Self::KillSupervisor(_) | Self::KillWorker(..) => "kill of a supervisor",
            Self::CrashMembers => "crash of all members",
            Self::Strand(..) => "member and node cut off together",
            Self::PartMember(..) => "member cut off from members",
            Self::Isolate(_, Cut::Hold) => "isolation, traffic delayed",
            Self::Isolate(..) => "isolation, traffic lost",
            Self::Split(_, Cut::Hold) => "split, traffic delayed",
            Self::Split(..) => "split, traffic lost",
            Self::Part(_, _, Cut::Hold) => "cut link, traffic delayed",
            Self::Part(..) => "cut link, traffic lost",
            Self::Mute(_) | Self::Deafen(_) => "one-way cut",
            Self::Jitter(..) => "messages overtake one another",
            Self::Delay(..) => "slow link",
            Self::Congest(..) => "congestion, then isolation",
            Self::Reset(_) => "reset of connections",
            Self::Refuse(..) => "connections refused",
            Self::FillDisk(_) => "full disk",
            Self::SlowDisk(..) | Self::SlowNodeDisk(..) => "slow disk",
            Self::FlipBit(..) => "flipped bit",
            Self::TearEntry(..) => "torn entry",
            Self::SickCard(..) => "unhealthy card",
            Self::Jump(..) => "clock jump",
            Self::Leap(..) => "clock wrong by years",
            Self::Forge(_) => "forged message",
            Self::Mislead(_) => "agent led to a stranger",
            Self::Double(_) => "copy of a member",
            Self::Operate(Order::Add(_)) => "member added",
            Self::Operate(Order::Remove(_)) => "member removed",
            Self::Operate(Order::Transfer) => "leadership transfer",
            Self::Operate(Order::Drain(_)) => "drain",
            Self::Operate(Order::Lease(_)) => "timings of leases changed",
            Self::Operate(Order::Offer(_)) => "oversubscription changed",
            Self::Operate(Order::Compact) => "compaction begun",
            Self::Operate(_) => "other order",
        }
    }

    /// Lets it go wrong.
    pub fn begin(&self, id: FaultId, pool: &mut Simulation) {
        match self {
            Self::CrashMember(place) => pool.members[*place].kill(),
            Self::RestartMember(place) => pool.members[*place].upgrade(),
            Self::StopMember(place) => {
                if let Some(process) = pool.members[*place].process() {
                    process.stop();
                }
            }
            Self::StopLeader => {
                let leading = pool.members.iter_mut().filter(|member| member.leads().is_some());
                if let Some(process) = leading.max_by_key(|member| member.leads()).and_then(Member::process) {
                    process.stop();
                }
            }
            Self::CrashAgent(place) => {
                let node = &mut pool.nodes[*place];
                node.agent = None;
                node.restart_at = None;
            }
            Self::StopAgent(place) => {
                if let Some(agent) = &mut pool.nodes[*place].agent {
                    agent.stop();
                }
            }
            Self::LosePower(place) => {
                let node = &mut pool.nodes[*place];
                node.agent = None;
                node.restart_at = None;
                node.machine.lose_power();
                node.plug.reset();
            }
            Self::Starve(place) => pool.nodes[*place].machine.starve(true),
            Self::KillSupervisor(place) => {
                let id = usize::try_from(id).unwrap_or(0);
                if let Some(worker) = pool.nodes[*place].machine.some_worker(id) {
                    kill_worker(pool, *place, worker);
                }
            }
            Self::KillWorker(place, worker) => kill_worker(pool, *place, *worker),
            Self::CrashMembers => pool.members.iter_mut().for_each(|member| member.slow_disk = BUSY),
            Self::PartMember(machine, cut) => {
                let others: Vec<String> = pool.members.iter().map(|member| member.name.clone()).collect();
                for other in others.iter().filter(|other| *other != machine) {
                    pool.links.cut(&pool.sim, id, machine, other, *cut);
                }
            }
            Self::Strand(member, node) => pool.cut_off(id, &[member.clone(), node.clone()], Cut::Lose),
            Self::Isolate(machine, cut) => pool.cut_off(id, std::slice::from_ref(machine), *cut),
            Self::Split(machines, cut) => pool.cut_off(id, machines, *cut),
            Self::Part(one, other, cut) => pool.links.cut(&pool.sim, id, one, other, *cut),
            Self::Mute(machine) => {
                for other in pool.others(machine) {
                    pool.links.silence(&pool.sim, id, machine, &other);
                }
            }
            Self::Deafen(machine) => {
                for other in pool.others(machine) {
                    pool.links.silence(&pool.sim, id, &other, machine);
                }
            }
            Self::Delay(one, other, delay) => {
                pool.sim.set_link_latency(one.as_str(), other.as_str(), *delay);
            }
            Self::Jitter(one, other, most) => {
                // The link may be slow at present: its least latency is never above its most.
                pool.sim.set_link_latency(one.as_str(), other.as_str(), pool.scenario.latency.0);
                pool.sim.set_link_max_message_latency(one.as_str(), other.as_str(), *most);
            }
            Self::Congest(machine, delay) => {
                for other in pool.others(machine) {
                    pool.sim.set_link_latency(machine.as_str(), other.as_str(), *delay);
                }
            }
            Self::Reset(machine) => {
                if let Some(plug) = pool.plugs.get(machine) {
                    plug.reset();
                }
            }
            Self::Refuse(from, to) => {
                if let Some(plug) = pool.plugs.get(from) {
                    plug.refuse(to, true);
                    plug.reset();
                }
            }
            Self::FillDisk(place) => {
                let disk = &pool.members[*place].disk;
                disk.set_capacity(Some(disk.used_bytes() + 2_000));
            }
            Self::SlowDisk(place, by) => pool.members[*place].slow_disk = *by,
            Self::SlowNodeDisk(place, by) => pool.nodes[*place].machine.slow_down(*by),
            Self::FlipBit(place, bit) => {
                let flipped = damage(pool, *place, *bit, |disk, entry| disk.flip_bit(entry, *bit));
                pool.story.tell(&pool.members[*place].name, format!("a bit of its log is flipped: {flipped}"));
            }
            Self::TearEntry(place, back) => {
                let torn = damage(pool, *place, *back, MemoryDisk::tear);
                pool.story.tell(&pool.members[*place].name, format!("an entry of its log is torn: {torn}"));
            }
            Self::SickCard(place, card) => pool.nodes[*place].find_card(*card, CardHealth::Unhealthy),
            Self::Jump(place, by) => pool.members[*place].jump(*by),
            Self::Leap(place, years) => pool.members[*place].jump(*years * YEAR_MS),
            Self::Forge(forgery) => stranger::forge(pool, forgery),
            Self::Mislead(node) => stranger::mislead(pool, node),
            Self::Double(place) => stranger::double(pool, *place),
            Self::Operate(order) => pool.order(order.clone()),
        }
    }

    /// Mends it.
    pub fn end(&self, id: FaultId, pool: &mut Simulation) {
        match self {
            Self::CrashMember(place) | Self::FlipBit(place, _) | Self::TearEntry(place, _) => {
                let member = &mut pool.members[*place];
                if !member.is_there() {
                    member.restart_at = Some(now());
                }
            }
            Self::StopMember(place) => {
                if let Some(process) = pool.members[*place].process() {
                    process.go_on();
                }
            }
            Self::StopLeader => pool.members.iter_mut().filter_map(Member::process).for_each(Process::go_on),
            Self::CrashAgent(place) | Self::LosePower(place) => {
                let node = &mut pool.nodes[*place];
                if node.agent.is_none() {
                    node.restart_at = Some(now());
                }
            }
            Self::StopAgent(place) => {
                if let Some(agent) = &mut pool.nodes[*place].agent {
                    agent.go_on();
                }
            }
            Self::CrashMembers => {
                for member in &mut pool.members {
                    member.kill();
                    member.slow_disk = Duration::ZERO;
                    member.restart_at = Some(now());
                }
            }
            Self::PartMember(..)
            | Self::Strand(..)
            | Self::Isolate(..)
            | Self::Split(..)
            | Self::Part(..)
            | Self::Mute(_)
            | Self::Deafen(_) => {
                pool.links.mend(&pool.sim, id);
            }
            Self::Delay(one, other, _) | Self::Jitter(one, other, _) => {
                let (least, most) = pool.scenario.latency;
                pool.sim.set_link_latency(one.as_str(), other.as_str(), least);
                pool.sim.set_link_max_message_latency(one.as_str(), other.as_str(), most);
            }
            Self::Congest(machine, _) => {
                let (least, most) = pool.scenario.latency;
                for other in pool.others(machine) {
                    pool.sim.set_link_latency(machine.as_str(), other.as_str(), least);
                    pool.sim.set_link_max_message_latency(machine.as_str(), other.as_str(), most);
                }
            }
            Self::Refuse(from, to) => {
                if let Some(plug) = pool.plugs.get(from) {
                    plug.refuse(to, false);
                }
            }
            Self::FillDisk(place) => pool.members[*place].disk.set_capacity(None),
            Self::SickCard(place, card) => pool.nodes[*place].find_card(*card, CardHealth::Healthy),
            Self::Jump(place, by) => pool.members[*place].jump(-*by),
            Self::Leap(place, years) => pool.members[*place].jump(-*years * YEAR_MS),
            Self::Starve(place) => pool.nodes[*place].machine.starve(false),
            Self::SlowDisk(place, _) => pool.members[*place].slow_disk = Duration::ZERO,
            Self::SlowNodeDisk(place, _) => pool.nodes[*place].machine.slow_down(Duration::ZERO),
            Self::Mislead(node) => stranger::mislead_no_more(pool, node),
            Self::Double(place) => stranger::double_no_more(pool, *place),
            Self::Operate(Order::Drain(node) | Order::Cordon(node)) => pool.order(Order::Uncordon(node.clone())),
            Self::RestartMember(_)
            | Self::KillSupervisor(_)
            | Self::KillWorker(..)
            | Self::Reset(_)
            | Self::Forge(_)
            | Self::Operate(_) => {}
        }
    }
}

fn kill_worker(pool: &Simulation, place: usize, worker: WorkerId) {
    let node = &pool.nodes[place];
    if node.machine.kill_supervisor(worker) {
        pool.story.tell(&node.name, format!("the supervisor of {worker} is killed"));
    }
}

/// Ends a member's process and damages one of the last entries of its log; answers whether there was one.
fn damage(pool: &mut Simulation, place: usize, back: usize, how: impl FnOnce(&MemoryDisk, Place) -> bool) -> bool {
    let member = &mut pool.members[place];
    let last = member.pool().map_or(0, |pool| pool.status().borrow().last.0);
    member.kill();
    how(&member.disk, Place::Entry(last.saturating_sub(back as u64 % 8)))
}
