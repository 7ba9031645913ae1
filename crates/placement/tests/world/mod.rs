//! A pool to test placement on: the real ledger, driven by its public commands, and agents that report what they
//! are told.

#![allow(dead_code, reason = "each test binary uses its own part of this module")]

pub mod company;
pub mod history;
pub mod stream;

use std::time::Duration;

use tessera_explain::{Explanation, Preview};
use tessera_ledger::*;
use tessera_placement::{Decision, Limits, Pool};
pub use tessera_testkit::{exit, job};

/// A ledger with what a test needs to drive it.
pub struct World {
    pub state: State,
    pub time: u64,
}

impl Default for World {
    fn default() -> Self {
        Self { state: State::new(), time: 1_000_000 }
    }
}

/// The number of random cases that a property is tried on: `usual`, or on request as many as the variable says that
/// proptest itself reads.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(usual)
}

/// A job whose virtual cards may spread so far.
pub fn spanning(span: Span, spec: JobSpec) -> JobSpec {
    JobSpec { virtual_card: VirtualCardRequest { span, ..spec.virtual_card.clone() }, ..spec }
}

/// A healthy simulated card.
pub fn card(index: u32, kind: CardKind, tflops: u64, memory: u64) -> CardDescription {
    CardDescription { index, ..tessera_testkit::card(kind, tflops, memory) }
}

/// Cards in order of their index.
pub fn cards(list: &[(CardKind, u64, u64)]) -> Vec<CardDescription> {
    (0u32..).zip(list).map(|(index, (kind, tflops, memory))| card(index, *kind, *tflops, *memory)).collect()
}

impl World {
    /// A pool in which everything of this release is in force.
    pub fn of_this_release() -> Self {
        Self { state: State::at(Level::NEWEST), ..Self::default() }
    }

    /// Applies one command in its own entry.
    pub fn apply(&mut self, command: Command) -> Outcome {
        tessera_testkit::apply(&mut self.state, LogTime(self.time), command)
    }

    /// Goes on where another world stands.
    pub fn resume_from(&mut self, other: &Self) {
        (self.state, self.time) = (other.state.clone(), other.time);
    }

    pub fn pass(&mut self, time: Duration) {
        self.time += u64::try_from(time.as_millis()).unwrap();
        self.apply(Command::Tick);
    }

    pub fn node(&mut self, name: &str, cards: Vec<CardDescription>) -> NodeId {
        self.labelled_node(name, cards, &[])
    }

    pub fn labelled_node(&mut self, name: &str, cards: Vec<CardDescription>, labels: &[(&str, &str)]) -> NodeId {
        self.hosted_node(name, cards, labels, None)
    }

    /// A node whose host offers so much, if that is known.
    pub fn hosted_node(
        &mut self,
        name: &str,
        cards: Vec<CardDescription>,
        labels: &[(&str, &str)],
        host: Option<HostCapacity>,
    ) -> NodeId {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let node = NodeDescription { labels, host, ..tessera_testkit::node(name) };
        match self.apply(Command::RegisterNode { node, cards }) {
            Outcome::Registered { node, .. } => node,
            other => panic!("the node was not registered: {other:?}"),
        }
    }

    pub fn try_submit(&mut self, spec: JobSpec) -> Option<JobId> {
        match self.apply(tessera_testkit::submission(spec)) {
            Outcome::Submitted(id) => Some(id),
            _ => None,
        }
    }

    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        self.try_submit(spec).expect("the job is accepted")
    }

    pub fn queue(&mut self, name: &str, parent: &str, maximum: Option<(u64, u64)>) {
        self.queue_of(name, parent, (0, 0), maximum, 1);
    }

    /// A queue with what it is guaranteed and may have, in TFLOPS and MiB.
    pub fn queue_of(
        &mut self,
        name: &str,
        parent: &str,
        guaranteed: (u64, u64),
        maximum: Option<(u64, u64)>,
        weight: u32,
    ) {
        let amount =
            |(tflops, memory)| QueueAmount { compute: MilliTflops::from_tflops(tflops), memory: Mebibytes(memory) };
        let (parent, guaranteed, maximum) = (parent.to_owned(), amount(guaranteed), maximum.map(amount));
        let queue = QueueSettings { parent, guaranteed, maximum, weight, ..QueueSettings::new(name) };
        assert_eq!(self.apply(Command::SetQueue { queue }), Outcome::Done);
    }

    /// Returns whether a queue, or one above it, has a maximum: it may forbid what fits.
    pub fn is_limited(&self, queue: &str) -> bool {
        let queues = std::iter::successors(self.state.queue(queue), |queue| self.state.queue(&queue.settings.parent));
        queues.take(8).any(|queue| queue.settings.maximum.is_some())
    }

    /// Decides on a fresh index, demands that plan and check agree, and commits; answers the parts.
    pub fn place(&mut self) -> Vec<PlanPart> {
        let mut pool = Pool::new(&self.state);
        let decision = pool.decide(&self.state, LogTime(self.time), &Limits::default());
        self.commit(&decision)
    }

    /// Decides and does as decided, again and again, until nothing happens any more; answers the jobs that gave way, in
    /// order. Fails when that takes more than `rounds`.
    pub fn settle(&mut self, rounds: usize) -> Vec<JobId> {
        let mut gave_way = Vec::new();
        for _ in 0..rounds {
            let parts = self.place();
            if parts.is_empty() {
                return gave_way;
            }
            for part in parts {
                let PlanPart::Grant { job, victims, .. } = part else { continue };
                for victim in &victims {
                    self.stop(*victim);
                }
                gave_way.extend(victims);
                self.start(job);
            }
        }
        panic!("something still happens after {rounds} rounds; {} jobs gave way", gave_way.len());
    }

    /// The amount that a queue holds, in TFLOPS and MiB, without what is on its way back.
    pub fn standing(&self, queue: &str) -> (u64, u64) {
        let held = self.state.queue(queue).expect("the queue is known").standing();
        (held.compute.0 / 1000, held.memory.0)
    }

    /// Has a pool that is kept decide once more, and applies what it has decided.
    pub fn decide(&mut self, pool: &mut Pool) -> Vec<PlanPart> {
        let touched = self.state.take_touched();
        pool.refresh(&self.state, &touched);
        let decision = pool.decide(&self.state, LogTime(self.time), &Limits::default());
        self.commit(&decision)
    }

    /// Checks a plan and applies it; every part must be accepted.
    pub fn commit(&mut self, decision: &Decision) -> Vec<PlanPart> {
        let plan = decision.plan.clone();
        assert_eq!(tessera_check::check(&self.state, &plan), Ok(()), "{plan:#?}");
        let parts = plan.parts.clone();
        match self.apply(Command::CommitPlan { plan }) {
            Outcome::Planned(answers) => {
                for (part, answer) in parts.iter().zip(answers) {
                    assert!(answer.is_ok(), "{part:#?} was refused: {answer:?}");
                }
            }
            other => panic!("the plan was refused: {other:?}"),
        }
        assert_eq!(laws::check(&self.state), vec![]);
        parts
    }

    /// An agent says something of a worker.
    pub fn report(&mut self, allocation: AllocationId, rank: Rank, observation: Observation) {
        let Some(known) = self.state.allocation(allocation).cloned() else { return };
        let Some(worker) = known.worker(rank) else { return };
        let report = WorkerReport { worker: known.owner(rank), observation };
        self.apply(Command::ReportWorkers { node: worker.node, reports: vec![report] });
    }

    fn all_of(&mut self, job: JobId, observation: &Observation) {
        let Some(id) = self.state.job(job).and_then(|job| job.allocation) else { return };
        let ranks: Vec<Rank> = self.state.allocation(id).unwrap().workers.iter().map(|worker| worker.rank).collect();
        for rank in ranks {
            self.report(id, rank, observation.clone());
        }
    }

    /// Submits a job and sees it run.
    pub fn run(&mut self, spec: JobSpec) -> JobId {
        let id = self.submit(spec);
        self.place();
        self.start(id);
        assert_eq!(self.job_state(id), JobState::Running);
        id
    }

    /// All workers of a job are started.
    pub fn start(&mut self, job: JobId) {
        self.all_of(job, &Observation::Running);
    }

    /// All workers of a job save the same, so that it can go on from there.
    pub fn save(&mut self, job: JobId, sequence: u64) {
        let allocation = self.state.job(job).and_then(|job| self.state.allocation(job.allocation?)).cloned();
        for worker in allocation.iter().flat_map(|allocation| allocation.workers.iter()) {
            let hash = [u8::try_from(self.state.revision().0 % 251).unwrap_or(0); 32];
            let saved = SavedPart {
                sequence,
                progress: 0,
                bytes: 10,
                hash,
                ticket: 1,
                shared: false,
                mode: tessera_ledger::CheckpointMode::Cooperative,
            };
            let owner = allocation.as_ref().expect("it has workers").owner(worker.rank);
            let report = WorkerReport { worker: owner, observation: Observation::Saved(saved) };
            self.apply(Command::ReportWorkers { node: worker.node, reports: vec![report] });
        }
    }

    /// All workers of a job end well.
    pub fn finish(&mut self, job: JobId) {
        self.all_of(job, &Observation::Stopped(exit(StopCause::Exited, Some(0))));
    }

    /// All workers of a job that was told to stop have stopped.
    pub fn stop(&mut self, job: JobId) {
        self.all_of(job, &Observation::Stopped(exit(StopCause::Ordered, None)));
    }

    pub fn job_state(&self, job: JobId) -> JobState {
        self.state.job(job).expect("the job is known").state
    }

    /// Slices of a job's allocation in order of rank.
    pub fn slices(&self, job: JobId) -> Vec<Slice> {
        let allocation = self.state.job(job).and_then(|job| job.allocation).and_then(|id| self.state.allocation(id));
        allocation.into_iter().flat_map(|allocation| allocation.workers.iter()).flat_map(|w| w.slices.clone()).collect()
    }

    /// Block numbers of a job, first and last of each slice (P2).
    pub fn numbers(&self, job: JobId) -> Vec<(u64, u64)> {
        let number = |card, index| self.state.block_number(card, index).unwrap().0;
        let run =
            |slice: &Slice| (number(slice.card, slice.start.0), number(slice.card, slice.start.0 + slice.length.0 - 1));
        self.slices(job).iter().map(run).collect()
    }
}

/// The reference pool (P8): 200 blocks on four nodes.
pub fn reference_pool() -> World {
    use CardKind::{Fpga, Gpu, Npu};
    let mut world = World::default();
    let nodes: [&[(CardKind, u64, u64)]; 4] = [
        &[(Gpu, 9, 900), (Gpu, 9, 900), (Npu, 20, 2000), (Fpga, 25, 2500)],
        &[(Gpu, 10, 1000), (Gpu, 10, 1000), (Npu, 18, 1800), (Npu, 18, 1800)],
        &[(Npu, 3, 300), (Fpga, 8, 800), (Fpga, 8, 800), (Fpga, 7, 700)],
        &[(Gpu, 14, 1400), (Gpu, 14, 1400), (Npu, 15, 1500), (Fpga, 12, 1200)],
    ];
    for (number, list) in nodes.iter().enumerate() {
        let number = number.to_string();
        world.labelled_node(&format!("n{number}"), cards(list), &[("number", &number)]);
    }
    world
}

/// Explains why a job waits, after one decision.
pub fn explain(world: &World, id: JobId) -> Explanation {
    let mut pool = Pool::new(&world.state);
    pool.decide(&world.state, LogTime(world.time), &Limits::default());
    let job = world.state.job(id).expect("the job is known").clone();
    tessera_explain::explain(&mut pool, &world.state, &job, LogTime(world.time))
}

/// Previews the outcome of a job if it were submitted now.
pub fn preview(world: &World, spec: &JobSpec) -> Preview {
    tessera_explain::preview(&mut Pool::new(&world.state), &world.state, spec, LogTime(world.time))
}

/// Two cards with 6 and 4 of 10 blocks free.
pub fn two_cards() -> World {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
    for tflops in [6, 4] {
        let id = world.submit(job(tflops, 10));
        world.place();
        world.start(id);
    }
    let used: Vec<u64> = world.state.cards().map(|(_, card)| card.memory_used.0).collect();
    assert_eq!(used, [20, 0], "both jobs are on the first card");
    world
}
