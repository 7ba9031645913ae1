//! One worker on a machine: its supervisor, which is the real state machine, and its program, which is simulated.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tessera_agent::boot::BootTime;
use tessera_agent::config::LONGEST_LEASE;
use tessera_agent::node::{LaunchOrder, policy_of};
use tessera_agent::process::ProcessId;
use tessera_agent::supervisor::machine::{Effect, Event, Machine, Now, Rules};
use tessera_agent::supervisor::message::Request;
use tessera_agent::supervisor::status::{Exit, Status};
use tessera_agent::worker::{WorkerId, WorkerUse};
use tessera_ledger::{HostRequest, Mebibytes, MilliCpus};
use tokio::sync::mpsc;

use crate::machine::now;
use crate::story::Story;
use crate::world::{Computation, Share, World};

/// Time after which a kill is called unconfirmed, as agents have it by default.
const KILL_CONFIRMATION: Duration = Duration::from_secs(3);

/// Longest time by which a killed program outlasts its lease: less than what lies between the end of a lease and the
/// loss of a node. That much is assumed of kernels (docs/failure-model.md); while the lease is renewed a kill may hang
/// for longer.
const OUTLASTS_LEASE: Duration = Duration::from_millis(300);

/// The surroundings of a supervisor while it acts.
pub struct Ground<'a> {
    /// The boot clock.
    pub boot: BootTime,
    /// The wall clock.
    pub unix_ms: u64,
    pub machine: &'a str,
    /// The story in which events are recorded.
    pub story: &'a Story,
    /// The world in which programs record that they compute.
    pub world: &'a World,
}

impl Ground<'_> {
    fn now(&self) -> Now {
        Now { boot: self.boot, unix_ms: self.unix_ms }
    }
}

/// The behaviour of a program, as its job sets it in its environment; hanging is drawn.
#[derive(Clone, Copy, Debug)]
struct Behaviour {
    runs_for: Duration,
    exit_code: i32,
    /// Time that it takes to end after the signal to stop; `None`: it ignores the signal.
    stops_within: Option<Duration>,
    /// Time for which it hangs in the kernel after a kill.
    hangs_for: Duration,
    /// For how long attempts before it have computed, as far as that was saved.
    computed: Duration,
    /// Between which times of its life it stands still.
    stands_still: Option<(Duration, Duration)>,
}

impl Behaviour {
    fn of(order: &LaunchOrder, computed: Duration, random: &mut SmallRng) -> Self {
        let environment = order.order.spec.as_ref().map(|spec| &spec.environment);
        let number = |name: &str| environment.and_then(|all| all.get(name)?.parse::<u64>().ok());
        let hangs = random.random_bool(0.05);
        let stands_still = number("STILL_FROM_MS").zip(number("STILL_MS"));
        let between = |(from, lasts)| (Duration::from_millis(from), Duration::from_millis(from + lasts));
        Self {
            runs_for: Duration::from_millis(number("RUN_MS").unwrap_or(1_000)),
            exit_code: number("EXIT").and_then(|code| i32::try_from(code).ok()).unwrap_or(0),
            stops_within: number("STOP_MS").map(Duration::from_millis),
            computed,
            stands_still: stands_still.map(between),
            hangs_for: if hangs { Duration::from_millis(random.random_range(100..5_000)) } else { Duration::ZERO },
        }
    }
}

struct Program {
    began: Duration,
    /// Time of the last measurement.
    measured: Duration,
    /// Between which moments it computes nothing.
    stands_still: Option<(Duration, Duration)>,
    ends_at: Duration,
    exit: Exit,
    /// It was told to stop, or killed.
    told: bool,
}

impl Program {
    /// The share of the time that it computed since it was measured last; `None`: there was no such time.
    fn measure(&mut self) -> Option<f64> {
        let (from, to) = (std::mem::replace(&mut self.measured, now()), now());
        let still =
            self.stands_still.map_or(Duration::ZERO, |(begins, ends)| ends.min(to).saturating_sub(begins.max(from)));
        let whole = to.saturating_sub(from);
        (!whole.is_zero()).then(|| 1.0 - still.as_secs_f64() / whole.as_secs_f64())
    }
}

/// One worker, with its supervisor.
pub struct Supervised {
    worker: WorkerId,
    job: u64,
    machine: Machine,
    behaviour: Behaviour,
    shares: Vec<Share>,
    host: HostRequest,
    program: Option<Program>,
    /// It gets no turn: the machine is too busy.
    starved: bool,
    /// Requests that came meanwhile.
    waiting: Vec<Request>,
    abandoned: bool,
    exited: Option<Exit>,
    /// For how long its program and those before it have computed.
    computed: Duration,
    listeners: Vec<mpsc::UnboundedSender<Status>>,
    published: Option<Status>,
    pid: i32,
}

impl Supervised {
    /// A supervisor that waits for the word to begin.
    /// `computed`: for how long attempts before it have, as far as that was saved.
    pub fn new(order: &LaunchOrder, boot_id: String, computed: Duration, random: &mut SmallRng) -> Self {
        let mut status = Status::new(order.worker, order.order.job_id, order.fence, boot_id);
        status.lease = order.lease;
        let pid = random.random_range(2..4_000_000);
        status.supervisor = Some(ProcessId { pid, start_ticks: 1 });
        let spec = order.order.spec.clone().unwrap_or_default();
        let rules = Rules {
            stop: policy_of(order.order.stop.as_ref()),
            time_limit: spec
                .time_limit
                .and_then(|limit| limit.try_into().ok())
                .filter(|limit: &Duration| !limit.is_zero()),
            kill_confirmation: KILL_CONFIRMATION,
            longest_lease: LONGEST_LEASE,
            dumps: false,
        };
        let host = spec.host.unwrap_or_default();
        let host = HostRequest { cpu: MilliCpus(host.milli_cpus), memory: Mebibytes(host.memory_mib) };
        Self {
            worker: order.worker,
            job: order.order.job_id,
            machine: Machine::new(rules, status),
            behaviour: Behaviour::of(order, computed, random),
            shares: Share::of(&order.order, order.worker.rank.0),
            host,
            program: None,
            starved: false,
            waiting: Vec::new(),
            abandoned: false,
            exited: None,
            computed,
            listeners: Vec::new(),
            published: None,
            pid,
        }
    }

    /// Its blocks have other numbers.
    pub fn readdress(&mut self, shares: Vec<Share>) {
        self.shares = shares;
    }

    pub fn status(&self) -> &Status {
        self.machine.status()
    }

    /// For how long its program and those before it have computed.
    pub fn computed(&self) -> Duration {
        let running = self.program.as_ref().map(|program| now().saturating_sub(program.began));
        running.map_or(self.computed, |running| self.behaviour.computed + running)
    }

    /// Measures the use of its cards, all alike, since the last measurement: a worker whose program has not begun uses
    /// nothing.
    pub fn measure(&mut self) -> Option<WorkerUse> {
        let utilization = self.program.as_mut().map_or(Some(0.0), Program::measure)?;
        let mut used = WorkerUse::default();
        for share in &self.shares {
            let index = share.card.index;
            let slice = used.slices.entry(index).or_default();
            (slice.card_index, slice.utilization) = (index, utilization);
        }
        Some(used)
    }

    /// Returns whether nothing of the program is left.
    pub fn is_gone(&self) -> bool {
        self.program.is_none()
    }

    /// Listens to what it says; how the worker stands now is said at once.
    pub fn listen(&mut self) -> mpsc::UnboundedReceiver<Status> {
        let (listener, notices) = mpsc::unbounded_channel();
        if listener.send(self.machine.status().clone()).is_ok() {
            self.listeners.push(listener);
        }
        notices
    }

    /// Takes the status that was published since the last call.
    pub fn take_published(&mut self) -> Option<Status> {
        self.published.take()
    }

    /// It gets no turn for now, or gets turns again.
    pub fn starve(&mut self, starved: bool) {
        self.starved = starved;
    }

    /// The agent that started it is gone.
    pub fn abandon(&mut self, ground: &Ground<'_>) {
        self.abandoned = true;
        self.turn(ground);
    }

    /// An agent asks.
    pub fn ask(&mut self, ground: &Ground<'_>, request: Request) {
        self.waiting.push(request);
        self.turn(ground);
    }

    /// Time passes.
    pub fn step(&mut self, ground: &Ground<'_>) {
        let lease = self.machine.status().lease;
        let given_way = lease.is_some_and(|lease| lease.kill_at.after(OUTLASTS_LEASE) <= ground.boot);
        let ends = |program: &mut Program| program.ends_at <= now() || program.exit == Exit::Signal(9) && given_way;
        if let Some(program) = self.program.take_if(ends) {
            ground.world.end(ground.machine, self.worker, program.exit, program.told);
            ground
                .story
                .tell(ground.machine, format!("worker {} of job {} ends: {:?}", self.worker, self.job, program.exit));
            self.computed = self.behaviour.computed + now().saturating_sub(program.began);
            self.exited = Some(program.exit);
        }
        self.turn(ground);
    }

    /// One turn: what has happened counts before the deadlines that have passed.
    fn turn(&mut self, ground: &Ground<'_>) {
        if self.starved {
            return;
        }
        if let Some(exit) = self.exited.take() {
            self.happen(ground, Event::Exited { exit, because: None });
        }
        for request in std::mem::take(&mut self.waiting) {
            self.serve(ground, request);
        }
        if std::mem::take(&mut self.abandoned) {
            self.happen(ground, Event::Abandoned);
        }
        if self.machine.next_deadline().is_some_and(|deadline| deadline <= ground.boot) {
            self.happen(ground, Event::TimePassed);
        }
    }

    fn serve(&mut self, ground: &Ground<'_>, request: Request) {
        let before = self.machine.status().fence;
        let fence = match &request {
            Request::Renew { fence, .. } | Request::Stop { fence, .. } => Some(*fence),
            Request::Begin | Request::Snapshot { .. } | Request::Rest { .. } | Request::GoOn | Request::Status => None,
        };
        match self.machine.on_request(ground.now(), request) {
            Ok(effects) => {
                if let Some(fence) = fence.filter(|fence| before.refuses(*fence)) {
                    let what = format!("the supervisor of {} obeys {fence:?} after {before:?}", self.worker);
                    ground.world.obeyed_older(what);
                }
                self.perform(ground, effects);
            }
            Err(reason) => {
                ground.story.tell(ground.machine, format!("supervisor of {} refuses: {reason}", self.worker));
                let what =
                    format!("the agent of {} obeys {fence:?}; {} has seen {before:?}", ground.machine, self.worker);
                ground.world.obeyed_older(what);
            }
        }
    }

    fn happen(&mut self, ground: &Ground<'_>, event: Event) {
        let effects = self.machine.on(ground.now(), event);
        self.perform(ground, effects);
    }

    fn perform(&mut self, ground: &Ground<'_>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start => self.start(ground),
                Effect::Signal(_) => {
                    if let (Some(program), Some(within)) = (&mut self.program, self.behaviour.stops_within) {
                        program.told = true;
                        program.ends_at = program.ends_at.min(now() + within);
                        program.exit = Exit::Code(0);
                    }
                }
                Effect::Kill => {
                    if let Some(program) = self.program.as_mut().filter(|program| program.exit != Exit::Signal(9)) {
                        program.ends_at = now() + self.behaviour.hangs_for;
                        program.exit = Exit::Signal(9);
                        program.told = true;
                    }
                }
                Effect::Dump | Effect::Snapshot(_) => unreachable!("no job of a workload is dumped"),
                Effect::Rest | Effect::GoOn => unreachable!("no card of a simulation is divided by turns"),
                Effect::Probe => self.happen(ground, Event::Probed { empty: self.program.is_none() }),
                Effect::Publish => self.publish(),
                Effect::Finish => {
                    let status = self.machine.status();
                    ground.world.conclude(self.worker, status.cause);
                    let cause = status.cause.map(|cause| cause.to_string()).unwrap_or_default();
                    ground.story.tell(ground.machine, format!("worker {} is over: {cause}", self.worker));
                    self.publish();
                }
            }
        }
    }

    fn start(&mut self, ground: &Ground<'_>) {
        let Behaviour { runs_for, exit_code, computed, stands_still, .. } = self.behaviour;
        let at = |life: Duration| now() + life.saturating_sub(computed);
        let stands_still = stands_still
            .map(|(from, to)| (at(from), at(to)))
            .filter(|(_, to)| *to > now() && !ground.world.has_stood_still(self.job, self.worker.rank));
        let (began, measured, exit) = (now(), now(), Exit::Code(exit_code));
        self.program = Some(Program { began, measured, stands_still, ends_at: at(runs_for), exit, told: false });
        ground.story.tell(
            ground.machine,
            format!("worker {} of job {} computes on {}", self.worker, self.job, described(&self.shares)),
        );
        ground.world.begin(Computation {
            worker: self.worker,
            job: self.job,
            machine: ground.machine.to_owned(),
            shares: self.shares.clone(),
            host: self.host,
            began: now(),
            computed,
            stands_still,
        });
        self.happen(ground, Event::Started(ProcessId { pid: self.pid + 1, start_ticks: 1 }));
    }

    fn publish(&mut self) {
        let status = self.machine.status().clone();
        self.listeners.retain(|listener| listener.send(status.clone()).is_ok());
        self.published = Some(status);
    }
}

/// Shares, for people.
fn described(shares: &[Share]) -> String {
    let one = |share: &Share| format!("{} blocks {}..{}", share.card, share.start, share.start + share.length);
    shares.iter().map(one).collect::<Vec<_>>().join(", ")
}
