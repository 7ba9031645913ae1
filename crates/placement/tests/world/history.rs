//! Random pools and random histories: everything that can happen to a pool, in any order.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::*;

use super::company::{Company, company, data, packing};
use super::{World, card, exit, job};

/// One thing that happens. Numbers choose among what there is, modulo its count.
#[derive(Clone, Debug)]
pub enum Step {
    Submit(Box<Request>),
    Start(usize),
    Finish(usize),
    Fail(usize),
    Obey(usize),
    Cancel(usize),
    Suspend(usize),
    Resume(usize),
    Hold(usize),
    Release(usize),
    Eligibility(usize, Eligibility),
    Health(usize, bool),
    Lose(usize),
    Return(usize),
    Quarantine(usize),
    /// A queue gets another maximum, and is guaranteed so much as far as that allows it.
    Queue(usize, Option<(u64, u64)>, (u64, u64)),
    Pass(u64),
    /// A node registers again in another rack and zone.
    Relabel(usize, u32),
    /// A node reports the data that it has on its disks.
    Cached(usize, usize),
    /// A queue gets another packing of its jobs over the pool, or none.
    Packing(usize, Option<Packing>),
    Order(usize, Option<u32>),
    /// A decision is made and committed.
    Decide,
    /// A decision is made and its plan is lost.
    DecideInVain,
}

/// A job to be submitted.
#[derive(Clone, Debug)]
pub struct Request {
    pub tflops: u64,
    pub memory: u64,
    pub gang: u32,
    pub priority: u32,
    pub preemptible: bool,
    pub span: Span,
    pub kinds: Vec<CardKind>,
    pub mixed: bool,
    pub queue: usize,
    pub zone: Option<u32>,
    pub int8: bool,
    pub limit: Option<u64>,
    /// Thousandths of a processor, and whether whole cards are taken.
    pub host: (u64, bool),
    pub slice_memory: u64,
    pub gang_min: Option<u32>,
    pub min_runtime: u64,
    pub company: Company,
}

/// The smallest job there is.
impl Default for Request {
    fn default() -> Self {
        Self {
            tflops: 1,
            memory: 0,
            gang: 1,
            priority: 10,
            preemptible: false,
            span: Span::Card,
            kinds: Vec::new(),
            mixed: false,
            queue: 0,
            zone: None,
            int8: false,
            limit: None,
            host: (0, false),
            slice_memory: 0,
            gang_min: None,
            min_runtime: 0,
            company: Company::default(),
        }
    }
}

const QUEUES: [&str; 4] = ["default", "top", "left", "right"];
pub const ZONES: u32 = 2;
const RACKS: u32 = 3;
impl Request {
    pub fn spec(&self) -> JobSpec {
        let mut spec = job(self.tflops, self.memory);
        spec.gang = self.gang;
        spec.priority = self.priority;
        spec.preemptible = self.preemptible;
        spec.virtual_card.span = self.span;
        spec.virtual_card.kinds = self.kinds.iter().copied().collect();
        spec.virtual_card.mixed = self.mixed;
        spec.virtual_card.precision = self.int8.then_some(Precision::Int8);
        spec.queue = QUEUES[self.queue % QUEUES.len()].to_owned();
        spec.time_limit = self.limit.map(Duration::from_secs);
        spec.gang_min = self.gang_min.map(|least| least.min(self.gang));
        spec.min_runtime = Duration::from_secs(self.min_runtime);
        spec.retry.max_retries = 2;
        spec.host.cpu = MilliCpus(self.host.0);
        spec.virtual_card.whole_cards = self.host.1;
        spec.virtual_card.slice_memory = Mebibytes(self.slice_memory);
        self.company.enter(&mut spec);
        if let Some(zone) = self.zone {
            spec.node_labels.insert("zone".to_owned(), (zone % ZONES).to_string());
        }
        spec
    }
}

fn kind() -> impl Strategy<Value = CardKind> {
    prop::sample::select(CardKind::ALL.to_vec())
}

/// Any job.
pub fn request() -> impl Strategy<Value = Request> {
    let shape = (
        1u64..24,
        prop::sample::select(vec![0u64, 1, 50, 300]),
        prop::sample::select(vec![1u32, 1, 2, 3, 6]),
        prop::sample::select(vec![10u32, 50, 90]),
    );
    let span = prop::sample::select(vec![Span::Card, Span::Card, Span::Node, Span::Pool]);
    let rest =
        (span, prop::collection::vec(kind(), 0..3), any::<bool>(), 0usize..8, prop::option::weighted(0.2, 0u32..2));
    let limit = prop::option::weighted(0.5, prop::sample::select(vec![20u64, 100, 900]));
    let host = (prop::sample::select(vec![0u64, 0, 1000, 2500]), prop::bool::weighted(0.1));
    let slice_memory = prop::sample::select(vec![0u64, 0, 0, 40]);
    let elastic = (prop::option::weighted(0.3, 1u32..3), prop::sample::select(vec![0u64, 0, 0, 50, 7200]));
    let flags = (prop::bool::weighted(0.8), prop::bool::weighted(0.2), limit, elastic, slice_memory);
    (shape, rest, flags, host, company()).prop_map(
        |(shape, rest, (preemptible, int8, limit, (gang_min, min_runtime), slice_memory), host, company)| Request {
            tflops: shape.0,
            memory: shape.1,
            gang: shape.2,
            priority: shape.3,
            preemptible,
            span: rest.0,
            kinds: rest.1,
            mixed: rest.2,
            queue: rest.3.saturating_sub(4),
            zone: rest.4,
            int8,
            limit,
            host,
            gang_min,
            min_runtime,
            slice_memory,
            company,
        },
    )
}

pub fn step() -> impl Strategy<Value = Step> {
    let which = 0usize..64;
    let eligibility = prop::sample::select(vec![
        Eligibility::Eligible,
        Eligibility::Eligible,
        Eligibility::Eligible,
        Eligibility::Cordoned,
        Eligibility::Draining,
    ]);
    let maximum = prop::option::weighted(0.4, (5u64..60, 100u64..2000));
    let guaranteed = prop::sample::select(vec![(0u64, 0u64), (10, 1000), (20, 500), (30, 3000)]);
    prop_oneof![
        30 => request().prop_map(|request| Step::Submit(Box::new(request))),
        24 => Just(Step::Decide),
        2 => Just(Step::DecideInVain),
        16 => which.clone().prop_map(Step::Start),
        12 => which.clone().prop_map(Step::Finish),
        1 => which.clone().prop_map(Step::Fail),
        16 => which.clone().prop_map(Step::Obey),
        2 => which.clone().prop_map(Step::Cancel),
        1 => which.clone().prop_map(Step::Suspend),
        2 => which.clone().prop_map(Step::Resume),
        1 => which.clone().prop_map(Step::Hold),
        2 => which.clone().prop_map(Step::Release),
        2 => (which.clone(), eligibility).prop_map(|(node, eligibility)| Step::Eligibility(node, eligibility)),
        2 => (which.clone(), prop::bool::weighted(0.75)).prop_map(|(card, healthy)| Step::Health(card, healthy)),
        1 => which.clone().prop_map(Step::Lose),
        3 => which.clone().prop_map(Step::Return),
        1 => which.clone().prop_map(Step::Quarantine),
        3 => (which, maximum, guaranteed).prop_map(|(queue, maximum, guaranteed)| Step::Queue(queue, maximum, guaranteed)),
        4 => (1u64..1000).prop_map(Step::Pass),
        1 => (0usize..64, 0u32..6).prop_map(|(node, place)| Step::Relabel(node, place)),
        1 => (0usize..64, 0usize..4).prop_map(|(node, data)| Step::Cached(node, data)),
        1 => (0usize..4, prop::option::of(packing())).prop_map(|(queue, packing)| Step::Packing(queue, packing)),
        1 => (0usize..4, prop::option::of(0u32..60)).prop_map(|(queue, guard)| Step::Order(queue, guard)),
    ]
}

/// A card of a random pool: kind, TFLOPS, MiB, most slices, whether it computes int8 twice as fast.
pub type RandomCard = (CardKind, u64, u64, u32, bool);

/// A random pool: nodes with their cards.
pub fn nodes() -> impl Strategy<Value = Vec<Vec<RandomCard>>> {
    let memory = prop::sample::select(vec![100u64, 400, 1000]);
    let slices = prop::sample::select(vec![0u32, 0, 0, 2, 3]);
    let card = (kind(), prop::sample::select(vec![3u64, 8, 10, 20]), memory, slices, any::<bool>());
    prop::collection::vec(prop::collection::vec(card, 1..4), 1..6)
}

impl World {
    /// A pool of random nodes, with queues of two levels.
    pub fn random(nodes: &[Vec<RandomCard>]) -> Self {
        let mut world = Self::default();
        world.queue_of("top", "", (30, 2000), None, 1);
        world.queue_of("left", "top", (15, 800), Some((40, 1500)), 2);
        world.queue("right", "top", None);
        for (number, list) in (0u32..).zip(nodes) {
            let mut list = list.clone();
            list.sort_by_key(|card| card.0);
            let cards = (0u32..).zip(&list).map(|(index, (kind, tflops, memory, slices, int8))| {
                let mut description = card(index, *kind, *tflops, *memory);
                description.max_slices = *slices;
                if *int8 {
                    description.rated.insert(Precision::Int8, MilliTflops(tflops * 2000 + 7));
                }
                description
            });
            let (zone, rack) = ((number % ZONES).to_string(), (number % RACKS).to_string());
            let host = HostCapacity { cpu: MilliCpus(3000 + 1000 * u64::from(number)), memory: Mebibytes(1024) };
            let host = (number % 3 > 0).then_some(host);
            world.hosted_node(&format!("node-{number}"), cards.collect(), &[("zone", &zone), ("rack", &rack)], host);
        }
        world
    }

    fn active(&self) -> Vec<JobId> {
        self.state.allocations().map(|allocation| allocation.job).collect()
    }

    fn pick<T: Copy>(list: &[T], which: usize) -> Option<T> {
        list.get(which.checked_rem(list.len())?).copied()
    }

    fn pick_active(&self, which: usize) -> Option<JobId> {
        Self::pick(&self.active(), which)
    }

    fn pick_job(&self, which: usize) -> Option<JobId> {
        let jobs: Vec<JobId> = self.state.jobs_from(JobId(0)).map(|job| job.id).collect();
        Self::pick(&jobs, which)
    }

    fn pick_node(&self, which: usize) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.state.nodes().map(|node| node.id).collect();
        Self::pick(&nodes, which)
    }

    /// Carries a step out, as far as it makes sense now. Decisions are the test's own business.
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Submit(request) => drop(self.try_submit(request.spec())),
            Step::Start(which) => self.each(*which, |world, job| world.start(job)),
            Step::Finish(which) => self.each(*which, |world, job| {
                if world.job_state(job) == JobState::Running {
                    world.finish(job);
                }
            }),
            Step::Fail(which) => self.each(*which, |world, job| {
                if let Some(allocation) = world.state.job(job).and_then(|job| job.allocation) {
                    world.report(allocation, Rank(0), Observation::Stopped(exit(StopCause::Exited, Some(1))));
                }
            }),
            Step::Obey(which) => self.each(*which, Self::obey),
            Step::Cancel(which) => self.command(self.pick_job(*which).map(|job| Command::CancelJob { job })),
            Step::Suspend(which) => self.command(self.pick_active(*which).map(|job| Command::SuspendJob { job })),
            Step::Resume(which) => self.command(self.pick_job(*which).map(|job| Command::ResumeJob { job })),
            Step::Hold(which) => self.command(self.pick_job(*which).map(|job| Command::HoldJob { job })),
            Step::Release(which) => self.command(self.pick_job(*which).map(|job| Command::ReleaseJob { job })),
            Step::Eligibility(which, eligibility) => {
                let eligibility = *eligibility;
                self.command(self.pick_node(*which).map(|node| Command::SetEligibility {
                    node,
                    eligibility,
                    reason: String::new(),
                }));
            }
            Step::Health(which, healthy) => self.set_health(*which, *healthy),
            Step::Lose(which) => {
                let node = self.pick_node(*which).and_then(|id| self.state.node(id)).cloned();
                self.command(node.map(|node| Command::NodeLost { node: node.id, epoch: node.epoch }));
            }
            Step::Return(which) => {
                let node = self.pick_node(*which);
                self.command(node.map(|node| Command::NodeReturned { node, incarnation: 1 }));
            }
            Step::Quarantine(which) => self.each(*which, |world, job| {
                if let Some(allocation) = world.state.job(job).and_then(|job| job.allocation) {
                    world.report(allocation, Rank(0), Observation::Unconfirmed { message: String::new() });
                }
            }),
            Step::Queue(which, maximum, guaranteed) => self.change_queue(*which, *maximum, *guaranteed),
            Step::Relabel(which, place) => self.relabel(*which, *place),
            Step::Cached(which, which_data) => {
                let cached = data(*which_data).collect();
                self.command(self.pick_node(*which).map(|node| Command::UpdateCached { node, cached }));
            }
            Step::Packing(which, packing) => {
                let queue = self.state.queue(QUEUES[which % QUEUES.len()]).map(|queue| queue.settings.clone());
                self.command(
                    queue.map(|queue| Command::SetQueue { queue: QueueSettings { packing: *packing, ..queue } }),
                );
            }
            Step::Order(which, guard) => {
                // Bands of a few seconds, so that jobs fall through them within a history.
                let first_band = Duration::from_secs(5);
                let attained =
                    guard.map(|guard| AttainedOrder { first_band, guard: Percent(guard), ..AttainedOrder::default() });
                let queue = self.state.queue(QUEUES[which % QUEUES.len()]).map(|queue| queue.settings.clone());
                self.command(queue.map(|queue| Command::SetQueue { queue: QueueSettings { attained, ..queue } }));
            }
            Step::Pass(seconds) => self.pass(Duration::from_secs(*seconds)),
            Step::Decide | Step::DecideInVain => {}
        }
    }

    fn each(&mut self, which: usize, act: impl Fn(&mut Self, JobId)) {
        if let Some(job) = self.pick_active(which) {
            act(self, job);
        }
    }

    fn command(&mut self, command: Option<Command>) {
        if let Some(command) = command {
            self.apply(command);
        }
    }

    /// The workers of a job that were told to stop do so.
    fn obey(&mut self, job: JobId) {
        let told: Vec<(AllocationId, Rank)> = self
            .state
            .allocations()
            .filter(|allocation| allocation.job == job)
            .flat_map(|allocation| allocation.workers.iter().map(move |worker| (allocation.id, worker)))
            .filter(|(_, worker)| worker.state == WorkerState::Draining)
            .map(|(id, worker)| (id, worker.rank))
            .collect();
        for (allocation, rank) in told {
            self.report(allocation, rank, Observation::Stopped(exit(StopCause::Ordered, None)));
        }
    }

    /// Every job but one is cancelled, and whatever is told to stop does so.
    pub fn leave_only(&mut self, one: JobId) {
        let others: Vec<JobId> = self.state.jobs_from(JobId(0)).map(|job| job.id).filter(|id| *id != one).collect();
        for job in others {
            self.apply(Command::CancelJob { job });
            self.obey(job);
        }
    }

    fn set_health(&mut self, which: usize, healthy: bool) {
        let cards: Vec<CardId> = self.state.cards().map(|(id, _)| id).collect();
        let Some(id) = Self::pick(&cards, which) else { return };
        let mut description = self.state.card(id).expect("the card was just listed").description.clone();
        description.health = if healthy { CardHealth::Healthy } else { CardHealth::Unhealthy };
        self.apply(Command::UpdateCards { node: id.node, cards: vec![description] });
    }

    /// A node registers again as it is, but for its place: odd ones lose their rack.
    fn relabel(&mut self, which: usize, place: u32) {
        let Some(node) = self.pick_node(which).and_then(|id| self.state.node(id)).cloned() else { return };
        let cards = self.state.cards_of(node.id).map(|(_, card)| card.description.clone()).collect();
        let mut description = node.description.clone();
        description.labels.insert("zone".to_owned(), (place % ZONES).to_string());
        match place % 2 {
            0 => description.labels.insert("rack".to_owned(), (place / 2 % RACKS).to_string()),
            _ => description.labels.remove("rack"),
        };
        self.command(Some(Command::RegisterNode { node: description, cards }));
    }

    fn change_queue(&mut self, which: usize, maximum: Option<(u64, u64)>, guaranteed: (u64, u64)) {
        let name = QUEUES[which % QUEUES.len()];
        let parents = BTreeMap::from([("left", "top"), ("right", "top")]);
        let within = maximum.unwrap_or((u64::MAX / 1000, u64::MAX));
        let guaranteed = (guaranteed.0.min(within.0), guaranteed.1.min(within.1));
        self.queue_of(name, parents.get(name).copied().unwrap_or(""), guaranteed, maximum, 1 + guaranteed.0 as u32);
    }
}

/// Bounds that cut no decision short, and reservations within the times that histories pass.
pub fn limits() -> tessera_placement::Limits {
    tessera_placement::Limits {
        grants: 1000,
        evictions: 1000,
        preemption_searches: 1000,
        reserve_after: Duration::from_secs(60),
        stuck_after: Duration::from_secs(8 * 60),
        reservations: 4,
    }
}
