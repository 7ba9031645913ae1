//! Generated clusters and lines of waiting jobs: seeded, mixed in kinds and sizes, the same at every run.

pub mod openb;

use tessera_ledger::*;

/// A small generator of numbers (SplitMix64): benchmarks must be the same at every run and need no more.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        let count = choices.len() as u64;
        choices[usize::try_from(self.next() % count).expect("the remainder is below the count")]
    }
}

/// Models of cards: kind, maker, model, TFLOPS, MiB.
const MODELS: [(CardKind, &str, &str, u64, u64); 6] = [
    (CardKind::Gpu, "nvidia", "H100", 989, 81_920),
    (CardKind::Gpu, "nvidia", "A100", 312, 40_960),
    (CardKind::Gpu, "amd", "MI250", 362, 65_536),
    (CardKind::Npu, "huawei", "910B", 320, 65_536),
    (CardKind::Npu, "huawei", "910A", 256, 32_768),
    (CardKind::Fpga, "amd", "U280", 24, 8_192),
];

fn card(index: u32, model: usize) -> CardDescription {
    let (kind, vendor, name, tflops, memory) = MODELS[model];
    let (vendor, model) = (vendor.to_owned(), name.to_owned());
    CardDescription { index, vendor, model, ..tessera_testkit::card(kind, tflops, memory) }
}

/// Nodes of one rack.
const RACK: usize = 16;

/// A node of which no more is known than its name and where it stands: labels that every node of a real pool carries.
fn node(number: usize) -> NodeDescription {
    let name = format!("node-{number}");
    let labels = [("host", name.clone()), ("rack", (number / RACK).to_string())];
    let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
    NodeDescription { labels, ..tessera_testkit::node(&name) }
}

/// A ledger that entries are applied to.
pub struct Cluster {
    pub state: State,
    entry: u64,
}

impl Cluster {
    /// A ledger without nodes.
    pub fn empty() -> Self {
        let mut cluster = Self { state: State::new(), entry: 0 };
        // A full pool of 10,000 nodes runs more jobs than a ledger takes by itself.
        let config = PoolConfig { event_limit: 16, limits: PoolLimits::NONE, ..PoolConfig::default() };
        cluster.apply([Command::SetConfig { config, expected: None }]);
        cluster
    }

    /// `nodes` nodes of `cards` cards each; most nodes have one model, one in eight has two.
    pub fn new(nodes: u32, cards: u32) -> Self {
        let mut cluster = Self::empty();
        let mut numbers = Numbers(7);
        let commands: Vec<Command> = (0..nodes)
            .map(|number| {
                let model = numbers.choose(&[0usize, 1, 1, 2, 3, 3, 4, 5]);
                let other = if number % 8 == 0 { numbers.choose(&[4usize, 5]).max(model) } else { model };
                let cards = (0..cards).map(|index| card(index, if index < cards / 2 { model } else { other }));
                Command::RegisterNode { node: node(number as usize), cards: cards.collect() }
            })
            .collect();
        cluster.apply(commands);
        cluster
    }

    pub fn apply(&mut self, commands: impl IntoIterator<Item = Command>) -> Vec<Outcome> {
        self.entry += 1;
        let at = EntryPosition { revision: Revision(self.entry), time: LogTime(self.entry) };
        let requests: Vec<Request> = commands.into_iter().map(tessera_testkit::request).collect();
        self.state.apply(at, &requests)
    }

    /// Submits jobs of a few hundred different shapes.
    pub fn submit(&mut self, jobs: u32, numbers: &mut Numbers) {
        let commands: Vec<Command> = (0..jobs)
            .map(|_| {
                let tflops =
                    numbers.choose(&[1, 2, 4, 5, 8, 10, 16, 20, 24, 30, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256]);
                let memory = tflops * numbers.choose(&[16, 64, 128, 200]);
                let kinds = numbers.choose(&[&[CardKind::Gpu][..], &[CardKind::Npu], &[]]);
                tessera_testkit::submission(job(tflops, memory, kinds))
            })
            .collect();
        self.apply(commands);
    }

    /// Starts every worker of these allocations.
    pub fn start(&mut self, allocations: &[AllocationId]) {
        let mut commands = Vec::new();
        for allocation in allocations.iter().filter_map(|id| self.state.allocation(*id)) {
            for worker in allocation.workers.iter() {
                let report = WorkerReport { worker: allocation.owner(worker.rank), observation: Observation::Running };
                commands.push(Command::ReportWorkers { node: worker.node, reports: vec![report] });
            }
        }
        self.apply(commands);
    }

    /// Starts every worker of these allocations and ends it at once, as far as `which` says.
    pub fn end(&mut self, allocations: &[AllocationId]) {
        let mut commands = Vec::new();
        for id in allocations {
            let Some(allocation) = self.state.allocation(*id).cloned() else { continue };
            for worker in allocation.workers.iter() {
                let exit = tessera_testkit::exit(StopCause::Exited, Some(0));
                for observation in [Observation::Running, Observation::Stopped(exit)] {
                    let reports = vec![WorkerReport { worker: allocation.owner(worker.rank), observation }];
                    commands.push(Command::ReportWorkers { node: worker.node, reports });
                }
            }
        }
        self.apply(commands);
    }
}

/// A job of one virtual card on one card.
pub fn job(tflops: u64, memory: u64, kinds: &[CardKind]) -> JobSpec {
    let spec = tessera_testkit::job(tflops, memory);
    let kinds = kinds.iter().copied().collect();
    JobSpec { virtual_card: VirtualCardRequest { kinds, ..spec.virtual_card }, ..spec }
}
