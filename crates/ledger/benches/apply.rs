//! Speed of applying entries to the ledger, and its memory: `cargo bench -p tessera-ledger`.
//!
//! The pool has 10,000 nodes, 80,000 cards and 100,000 waiting jobs. Memory per job and per card is printed first, read
//! from the process' resident set.

#![expect(clippy::print_stdout, reason = "what a developer runs by hand prints for its developer")]

use tessera_ledger::{
    BlockCount, BlockIndex, CardDescription, CardId, CardKind, Command, EntryPosition, Isolation, JobId, JobSpec,
    LogTime, Mebibytes, NodeId, Observation, Outcome, Plan, PlanPart, PlannedWorker, Request, RequestId, RequestKey,
    Revision, Slice, State, StopCause, WorkerReport,
};

const NODES: u32 = 10_000;
const CARDS_PER_NODE: u32 = 8;
const JOBS: u64 = 100_000;
/// Commands per log entry, as group commit makes them under load.
const BATCH: u64 = 64;

fn main() {
    let (before, mut pool) = (resident_kib(), Bench::new());
    pool.register_nodes();
    let with_cards = resident_kib();
    pool.submit(JOBS);
    let with_jobs = resident_kib();
    println!("memory per card: {} bytes", (with_cards - before) * 1024 / u64::from(NODES * CARDS_PER_NODE));
    println!("memory per job: {} bytes", (with_jobs - with_cards) * 1024 / JOBS);
    drop(pool);
    divan::main();
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

struct Bench {
    state: State,
    requests: u128,
}

impl Bench {
    fn new() -> Self {
        Self { state: State::new(), requests: 0 }
    }

    fn full() -> Self {
        let mut pool = Self::new();
        pool.register_nodes();
        pool.submit(JOBS);
        pool.state.take_touched();
        pool
    }

    fn apply(&mut self, commands: Vec<Command>) -> Vec<Outcome> {
        let requests: Vec<Request> = commands
            .into_iter()
            .map(|command| {
                self.requests += 1;
                let key = RequestKey { id: RequestId(self.requests), fingerprint: 0 };
                Request { key: Some(key), actor: "bench".to_owned(), command }
            })
            .collect();
        let revision = Revision(self.state.revision().0 + 1);
        self.state.apply(EntryPosition { revision, time: LogTime(revision.0) }, &requests)
    }

    fn register_nodes(&mut self) {
        let cards: Vec<CardDescription> = (0..CARDS_PER_NODE).map(card).collect();
        for number in 0..NODES {
            let node = tessera_testkit::node(&format!("node-{number}"));
            self.apply(vec![Command::RegisterNode { node, cards: cards.clone() }]);
        }
    }

    fn submit(&mut self, jobs: u64) {
        for _ in 0..jobs / BATCH {
            let commands = (0..BATCH).map(|_| submission()).collect();
            self.apply(commands);
        }
    }
}

fn card(index: u32) -> CardDescription {
    CardDescription {
        index,
        vendor: "NVIDIA".to_owned(),
        model: "H100 SXM5 80GB".to_owned(),
        uuid: format!("GPU-{index}"),
        ..tessera_testkit::card(CardKind::Gpu, 989, 80 * 1024)
    }
}

fn submission() -> Command {
    let spec = JobSpec { name: "bench".to_owned(), ..tessera_testkit::job(10, 1024) };
    tessera_testkit::submission(spec)
}

/// Submissions per second into a full pool.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn submissions(bencher: divan::Bencher) {
    let pool = Bench::full();
    bencher
        .counter(divan::counter::ItemsCount::new(BATCH))
        .with_inputs(|| Bench { state: pool.state.clone(), requests: 1 << 64 })
        .bench_values(|mut pool| {
            pool.submit(BATCH);
            pool
        });
}

/// The life of a job, grant to end, three commands each, in a full pool.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn grant_run_end(bencher: divan::Bencher) {
    let pool = Bench::full();
    bencher
        .counter(divan::counter::ItemsCount::new(BATCH * 3))
        .with_inputs(|| Bench { state: pool.state.clone(), requests: 1 << 64 })
        .bench_values(|mut pool| {
            let parts = (1..=BATCH).map(|job| grant(JobId(job), u32::try_from(job).unwrap_or(0))).collect();
            let plan = Plan { revision: pool.state.revision(), parts };
            let outcome = pool.apply(vec![Command::CommitPlan { plan }]);
            assert!(matches!(&outcome[0], Outcome::Planned(parts) if parts.iter().all(Result::is_ok)));
            for observation in [Observation::Running, exited()] {
                let reports = (1..=BATCH).filter_map(|job| report(&pool.state, JobId(job), &observation)).collect();
                pool.apply(reports);
            }
            pool
        });
}

/// A copy for a snapshot: what stands between two entries.
#[divan::bench]
fn freeze(bencher: divan::Bencher) {
    let pool = Bench::full();
    bencher.bench(|| pool.state.clone());
}

fn grant(job: JobId, node: u32) -> PlanPart {
    let slice = Slice {
        card: CardId { node: NodeId(node), index: 0 },
        start: BlockIndex(0),
        length: BlockCount(10),
        memory: Mebibytes(1024),
        isolation: Isolation::Soft,
    };
    PlanPart::Grant {
        job,
        workers: vec![PlannedWorker { virtual_card: 0, node: NodeId(node), slices: vec![slice] }],
        victims: vec![],
    }
}

fn exited() -> Observation {
    Observation::Stopped(tessera_testkit::exit(StopCause::Exited, Some(0)))
}

fn report(state: &State, job: JobId, observation: &Observation) -> Option<Command> {
    let allocation = state.allocation(state.job(job)?.allocation?)?;
    let worker = allocation.workers.first()?;
    let report = WorkerReport { worker: allocation.owner(worker.rank), observation: observation.clone() };
    Some(Command::ReportWorkers { node: worker.node, reports: vec![report] })
}
