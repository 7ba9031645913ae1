//! A pool for tests: commands in, state out, with every law checked after each entry.
#![allow(dead_code)] // each test file uses its part

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::{
    Allocation, BlockCount, BlockIndex, CardDescription, CardId, CardKind, Command, EntryPosition, Isolation, JobId,
    JobSpec, Level, LogTime, Mebibytes, MilliTflops, NodeId, Observation, Outcome, Plan, PlanPart, PlannedWorker, Rank,
    Rejection, Request, RetryPolicy, Revision, SavedPart, Slice, State, StopCause, WorkerReport, laws,
};
pub use tessera_testkit::node;

pub struct Pool {
    pub state: State,
    pub time: u64,
    /// The entries that were applied.
    pub log: Vec<(EntryPosition, Vec<Request>)>,
}

pub fn card(kind: CardKind, tflops: u64) -> CardDescription {
    tessera_testkit::card(kind, tflops, 64 * 1024)
}

pub fn numbered(cards: &[CardDescription]) -> Vec<CardDescription> {
    (0u32..)
        .zip(cards)
        .map(|(index, card)| CardDescription { index, uuid: format!("card-{index}"), ..card.clone() })
        .collect()
}

pub fn slice(node: u32, card: u32, start: u32, blocks: u32) -> Slice {
    Slice {
        card: CardId { node: NodeId(node), index: card },
        start: BlockIndex(start),
        length: BlockCount(blocks),
        memory: Mebibytes(1024),
        isolation: Isolation::Soft,
    }
}

pub fn spec() -> JobSpec {
    let retry = RetryPolicy { max_retries: 1, max_backoff: Duration::from_secs(60), ..RetryPolicy::default() };
    JobSpec { name: "job".to_owned(), retry, ..tessera_testkit::job(1, 512) }
}

pub fn exited(code: i32) -> Observation {
    stopped(StopCause::Exited, Some(code))
}

pub fn stopped(cause: StopCause, code: Option<i32>) -> Observation {
    Observation::Stopped(tessera_testkit::exit(cause, code))
}

/// A worker's part of a checkpoint is saved.
pub fn saved(sequence: u64, progress: u64) -> Observation {
    // What was written differs with how far the work was.
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&progress.to_be_bytes());
    let ticket = 0xabcd_ef01;
    Observation::Saved(SavedPart { progress, hash, ticket, ..tessera_testkit::saved(sequence, 1 << 20) })
}

pub fn tflops(amount: u64) -> MilliTflops {
    MilliTflops::from_tflops(amount)
}

pub fn one_card(blocks: u64) -> Pool {
    Pool::with_nodes(&[&[card(CardKind::Gpu, blocks)]])
}

/// The refusal that an outcome is.
pub fn rejected(outcome: Outcome) -> Rejection {
    match outcome {
        Outcome::Rejected(rejection) => rejection,
        Outcome::Planned(mut parts) => parts.remove(0).unwrap_err(),
        other => panic!("not refused: {other:?}"),
    }
}

impl Pool {
    pub fn with_nodes(nodes: &[&[CardDescription]]) -> Self {
        Self::begin(State::at(Level::NEWEST), nodes)
    }

    /// A pool whose log begins with these nodes.
    pub fn begin(state: State, nodes: &[&[CardDescription]]) -> Self {
        let mut pool = Self { state, time: 1_000, log: vec![] };
        for (index, cards) in nodes.iter().enumerate() {
            let outcome = pool.run(Command::RegisterNode { node: node(&format!("n{index}")), cards: numbered(cards) });
            assert!(matches!(outcome, Outcome::Registered { .. }), "{outcome:?}");
        }
        pool
    }

    /// The patent's reference pool (P8).
    pub fn reference() -> Self {
        use CardKind::{Fpga, Gpu, Npu};
        Self::with_nodes(&[
            &[card(Gpu, 9), card(Gpu, 9), card(Npu, 20), card(Fpga, 25)],
            &[card(Gpu, 10), card(Gpu, 10), card(Npu, 18), card(Npu, 18)],
            &[card(Npu, 3), card(Fpga, 8), card(Fpga, 8), card(Fpga, 7)],
            &[card(Gpu, 14), card(Gpu, 14), card(Npu, 15), card(Fpga, 12)],
        ])
    }

    pub fn apply(&mut self, requests: &[Request]) -> Vec<Outcome> {
        let revision = Revision(self.state.revision().0 + 1);
        self.time += 10;
        let at = EntryPosition { revision, time: LogTime(self.time) };
        let outcomes = self.state.apply(at, requests);
        self.log.push((at, requests.to_vec()));
        let broken = laws::check(&self.state);
        assert!(broken.is_empty(), "after {requests:#?}: {broken:#?}");
        outcomes
    }

    pub fn run(&mut self, command: Command) -> Outcome {
        let request = Request { key: None, actor: "tester".to_owned(), command };
        self.apply(&[request]).remove(0)
    }

    pub fn submit(&mut self, change: impl FnOnce(&mut JobSpec)) -> JobId {
        let mut spec = spec();
        change(&mut spec);
        match self.run(tessera_testkit::submission(spec)) {
            Outcome::Submitted(job) => job,
            other => panic!("{other:?}"),
        }
    }

    pub fn plan(&mut self, parts: Vec<PlanPart>) -> Outcome {
        let revision = self.state.revision();
        self.run(Command::CommitPlan { plan: Plan { revision, parts } })
    }

    pub fn accept(&mut self, part: PlanPart) {
        let outcome = self.plan(vec![part]);
        assert!(matches!(&outcome, Outcome::Planned(parts) if parts[0].is_ok()), "{outcome:?}");
    }

    /// Grants one worker with these slices, all of one node.
    pub fn grant(&mut self, job: JobId, slices: Vec<Slice>) {
        self.grant_over(job, slices, vec![]);
    }

    pub fn grant_over(&mut self, job: JobId, slices: Vec<Slice>, victims: Vec<JobId>) {
        let worker = PlannedWorker { virtual_card: 0, node: slices[0].card.node, slices };
        self.accept(PlanPart::Grant { job, workers: vec![worker], victims });
    }

    pub fn allocation_of(&self, job: JobId) -> Arc<Allocation> {
        let id = self.state.job(job).unwrap().allocation.expect("the job has an allocation");
        self.state.allocation(id).unwrap().clone()
    }

    /// Every worker of the job says the same.
    /// A worker that a job has says something.
    pub fn report(&mut self, job: JobId, rank: u32, observation: Observation) {
        let allocation = self.allocation_of(job);
        let worker = allocation.worker(Rank(rank)).expect("it has so many");
        let reports = vec![WorkerReport { worker: allocation.owner(worker.rank), observation }];
        self.run(Command::ReportWorkers { node: worker.node, reports });
    }

    /// All of them say the same.
    pub fn report_all(&mut self, job: JobId, observation: &Observation) {
        for worker in self.allocation_of(job).workers.iter() {
            self.report(job, worker.rank.0, observation.clone());
        }
    }
}
