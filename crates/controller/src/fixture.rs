//! A small pool for tests of actors: made, like any other, by commands.

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::{
    Allocation, AllocationId, BlockCount, BlockIndex, CardDescription, CardId, CardKind, Command, Isolation, JobId,
    JobSpec, LogTime, Mebibytes, NodeDescription, NodeId, Observation, Outcome, Owner, Plan, PlanPart, PlannedWorker,
    Rank, Slice, Span, State, StopCause, WorkerExit, WorkerReport,
};

/// A ledger with a clock that moves a second per entry.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub state: State,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { state: State::new() }
    }
}

impl Ledger {
    pub fn now(&self) -> LogTime {
        LogTime(self.state.time().0)
    }

    pub fn shared(&self) -> Arc<State> {
        Arc::new(self.state.clone())
    }

    pub fn apply(&mut self, command: Command) -> Outcome {
        let time = self.state.time().after(Duration::from_secs(1));
        tessera_testkit::apply(&mut self.state, time, command)
    }

    pub fn pass(&mut self, time: Duration) {
        let time = self.state.time().after(time);
        tessera_testkit::apply(&mut self.state, time, Command::Tick);
    }

    /// Registers a node with one card of so many TFLOPS each.
    pub fn node(&mut self, name: &str, tflops: &[u64]) -> NodeId {
        let cards = (0u32..).zip(tflops).map(|(index, tflops)| card(name, index, *tflops)).collect();
        match self.apply(Command::RegisterNode { node: node(name), cards }) {
            Outcome::Registered { node, .. } => node,
            other => panic!("the node is not registered: {other:?}"),
        }
    }

    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        let command = Command::SubmitJob { spec: Arc::new(spec), traceparent: "00-trace".to_owned(), secret: None };
        match self.apply(command) {
            Outcome::Submitted(job) => job,
            other => panic!("the job is not submitted: {other:?}"),
        }
    }

    /// Grants a job one worker with so many blocks on the first card of each of these nodes.
    pub fn grant(&mut self, job: JobId, places: &[(NodeId, u32, u32)]) -> Arc<Allocation> {
        let span_pool = self.state.job(job).is_some_and(|job| job.spec.virtual_card.span == Span::Pool);
        let workers = (0u32..)
            .zip(places)
            .map(|(number, (node, start, length))| PlannedWorker {
                virtual_card: if span_pool { 0 } else { number },
                node: *node,
                slices: vec![Slice {
                    card: CardId { node: *node, index: 0 },
                    start: BlockIndex(*start),
                    length: BlockCount(*length),
                    memory: Mebibytes(0),
                    isolation: Isolation::Shared,
                }],
            })
            .collect();
        self.commit(PlanPart::Grant { job, workers, victims: Vec::new() })
    }

    pub fn commit(&mut self, part: PlanPart) -> Arc<Allocation> {
        let plan = Plan { revision: self.state.revision(), parts: vec![part] };
        match self.apply(Command::CommitPlan { plan }) {
            Outcome::Planned(parts) => match parts.as_slice() {
                [Ok(Some(id))] => self.allocation(*id),
                other => panic!("the part is not accepted: {other:?}"),
            },
            other => panic!("a plan is answered part by part: {other:?}"),
        }
    }

    pub fn allocation(&self, id: AllocationId) -> Arc<Allocation> {
        Arc::clone(self.state.allocation(id).expect("it is in the ledger"))
    }

    pub fn report(&mut self, node: NodeId, worker: Owner, observation: Observation) {
        let reports = vec![WorkerReport { worker, observation }];
        assert_eq!(self.apply(Command::ReportWorkers { node, reports }), Outcome::Done);
    }

    pub fn lose(&mut self, node: NodeId) {
        let epoch = self.state.node(node).expect("it is registered").epoch;
        assert_eq!(self.apply(Command::NodeLost { node, epoch }), Outcome::Done);
    }
}

/// The worker of a rank.
pub(crate) fn owner(allocation: &Allocation, rank: u32) -> Owner {
    allocation.owner(Rank(rank))
}

/// The exit of a worker with `code`, or by SIGTERM if that is `None`; `checkpointed`: it has saved a checkpoint.
pub(crate) fn exit(cause: StopCause, code: Option<i32>, checkpointed: bool) -> WorkerExit {
    let signal = code.is_none().then_some(15);
    WorkerExit { signal, checkpointed, ..tessera_testkit::exit(cause, code) }
}

pub(crate) fn node(name: &str) -> NodeDescription {
    let (address, worker_host) = (format!("{name}:7100"), format!("{name}.workers"));
    NodeDescription { address, worker_host, ..tessera_testkit::node(name) }
}

pub(crate) fn card(node: &str, index: u32, tflops: u64) -> CardDescription {
    let (uuid, model) = (format!("{node}-{index}"), "a1".to_owned());
    CardDescription {
        index,
        uuid,
        model,
        isolation: Isolation::Hard,
        ..tessera_testkit::card(CardKind::Gpu, tflops, 16_384)
    }
}

/// A job that asks for one virtual card of so many TFLOPS.
pub(crate) fn job(tflops: u64) -> JobSpec {
    JobSpec { name: "train".to_owned(), ..tessera_testkit::job(tflops, 0) }
}
