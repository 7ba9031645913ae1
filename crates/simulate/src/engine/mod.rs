//! The engine: the ledger and placement as they run in a control plane, with time that is set instead of read, and
//! agents that do at once what they are told.
//!
//! Nothing is re-implemented. Jobs are submitted, plans decided and committed, workers reported and moves advanced by
//! the same commands that members apply; each command is one log entry at the simulated time.

mod agents;
mod mapping;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_foresight::{compact, make_way};
use tessera_ledger::{
    AttainedOrder, Command, EntryPosition, JobId, JobState, LogTime, Outcome, Plan, PlanPart, QueueSettings, Rejection,
    Request, Revision, State, Touched,
};
use tessera_placement::{CompactionOrder, Decision, Limits, PlannedMove, Pool};

use crate::plain::Place;
use crate::trace::{TraceJob, TraceNode};

pub use mapping::{Counted, Scale, spec};

/// The beginning of the simulated log: any time will do, but not zero, which the ledger uses for "never".
const BEGINNING: LogTime = LogTime(1_000_000_000_000);

/// The ledger refused what it should have taken: a fault of the engine or of placement.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{what} was refused: {why}")]
    Refused { what: String, why: Rejection },
    /// A command was answered with something else than it asks for.
    #[error("{0} was answered with something else")]
    Unexpected(String),
}

/// A job that has its virtual cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub job: JobId,
    /// The places of its workers, in order of rank.
    pub places: Vec<Place>,
}

/// The result of one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Jobs that run now.
    pub placed: Vec<Placed>,
    /// Jobs that were suspended for them.
    pub preempted: Vec<JobId>,
    /// Jobs that were moved, and where they are now.
    pub moved: Vec<Placed>,
    /// Parts of the plan that the ledger refused.
    pub refused: Vec<Rejection>,
    /// The next moment at which time alone changes something.
    pub wakeup: Option<LogTime>,
    /// True if a limit cut the decision short.
    pub more: bool,
    /// The time that placement took: reading what had changed, and deciding.
    pub took: Duration,
}

/// A pool in memory.
pub struct Engine {
    state: State,
    pool: Pool,
    revision: Revision,
    now: LogTime,
    limits: Limits,
    counted: Counted,
    nodes: Vec<TraceNode>,
    /// The times of the moves within an hour that made way.
    made_way: Vec<LogTime>,
    /// Changes by applied entries that placement has not read.
    touched: Vec<Touched>,
    /// The same, as the agents see it.
    for_agents: Vec<Touched>,
}

impl Engine {
    /// A pool of these nodes, with a queue for each name.
    ///
    /// # Errors
    /// [`EngineError`] when the ledger refuses a node or a queue.
    pub fn new(nodes: &[TraceNode], queues: &[&str], scale: Scale, limits: Limits) -> Result<Self, EngineError> {
        let mut engine = Self {
            state: State::new(),
            pool: Pool::default(),
            revision: Revision(0),
            now: BEGINNING,
            limits,
            counted: Counted::of(nodes, scale),
            nodes: nodes.to_vec(),
            made_way: Vec::new(),
            touched: Vec::new(),
            for_agents: Vec::new(),
        };
        engine.carry_out("the settings", Command::SetConfig { config: mapping::config(), expected: None })?;
        for name in queues {
            engine.carry_out("a queue", Command::SetQueue { queue: QueueSettings::new(*name) })?;
        }
        for node in nodes {
            let (description, cards) = mapping::node(node, engine.counted);
            engine.carry_out(&node.name, Command::RegisterNode { node: description, cards })?;
        }
        engine.pool = Pool::new(&engine.state);
        engine.touched.clear();
        engine.for_agents.clear();
        Ok(engine)
    }

    /// Gives all queues an order.
    ///
    /// # Errors
    /// [`EngineError`] when the ledger refuses it.
    pub fn order_by(&mut self, attained: Option<AttainedOrder>) -> Result<(), EngineError> {
        let settings: Vec<QueueSettings> = self.state.queues().map(|queue| queue.settings.clone()).collect();
        for settings in settings {
            let queue = QueueSettings { attained, ..settings };
            self.carry_out("the order of a queue", Command::SetQueue { queue })?;
        }
        Ok(())
    }

    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Milliseconds since the beginning of the simulation.
    #[must_use]
    pub const fn elapsed_ms(&self) -> u64 {
        self.now.0 - BEGINNING.0
    }

    /// A time of the ledger as milliseconds since the beginning.
    #[must_use]
    pub const fn elapsed_at(time: LogTime) -> u64 {
        time.0.saturating_sub(BEGINNING.0)
    }

    /// Lets time pass; it never goes back.
    pub fn advance_to(&mut self, elapsed_ms: u64) {
        self.now = self.now.max(LogTime(BEGINNING.0.saturating_add(elapsed_ms)));
    }

    /// Applies one command in its own log entry.
    fn apply(&mut self, command: Command) -> Outcome {
        self.revision = Revision(self.revision.0 + 1);
        let at = EntryPosition { revision: self.revision, time: self.now };
        let request = Request { key: None, actor: "simulation".to_owned(), command };
        let outcome = self.state.apply(at, &[request]).pop().unwrap_or(Outcome::Done);
        let touched = self.state.take_touched();
        self.for_agents.extend(&touched);
        self.touched.extend(touched);
        outcome
    }

    /// Applies a command that must be accepted.
    fn carry_out(&mut self, what: &str, command: Command) -> Result<Outcome, EngineError> {
        match self.apply(command) {
            Outcome::Rejected(why) => Err(EngineError::Refused { what: what.to_owned(), why }),
            outcome => Ok(outcome),
        }
    }

    /// Tells placement of jobs that were seen in the past, so that it knows what to expect.
    pub fn expect(&mut self, job: &TraceJob, weight: u64) {
        self.pool.observe(&spec(job, self.counted), weight);
    }

    /// Submits a job.
    ///
    /// # Errors
    /// The ledger's refusal, such as that the pool could never hold it.
    pub fn submit(&mut self, job: &TraceJob) -> Result<JobId, Rejection> {
        let spec = Arc::new(spec(job, self.counted));
        match self.apply(Command::SubmitJob { spec, traceparent: String::new(), secret: None }) {
            Outcome::Submitted(id) => Ok(id),
            Outcome::Rejected(why) => Err(why),
            _ => Err(Rejection::UnknownQueue(job.queue.clone())),
        }
    }

    /// Takes a job back that waits.
    ///
    /// # Errors
    /// [`EngineError`] when it does not wait.
    pub fn cancel(&mut self, job: JobId) -> Result<(), EngineError> {
        self.carry_out("a cancellation", Command::CancelJob { job }).map(|_| ())
    }

    /// All workers of a job end well.
    ///
    /// # Errors
    /// [`EngineError`] when the ledger refuses their reports.
    pub fn finish(&mut self, job: JobId) -> Result<(), EngineError> {
        let Some(allocation) = self.state.job(job).and_then(|job| job.allocation) else { return Ok(()) };
        self.report_exits(allocation)?;
        self.follow_orders()
    }

    /// Decides once, commits the plan, and lets the agents follow it.
    ///
    /// # Errors
    /// [`EngineError`] when the ledger does not answer a plan as a plan, or refuses reports about it.
    pub fn decide(&mut self) -> Result<Decided, EngineError> {
        let began = Instant::now();
        self.refresh();
        let decision = self.pool.decide(&self.state, self.now, &self.limits);
        let mut decided =
            Decided { wakeup: decision.next_wakeup, more: decision.more, took: began.elapsed(), ..Decided::default() };
        self.commit(decision, &mut decided)?;
        Ok(decided)
    }

    /// Moves jobs so that a waiting one can start; nothing is moved that does not help it. Answers what was moved.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub fn make_room(&mut self, job: JobId, most: u32) -> Result<Vec<Placed>, EngineError> {
        self.refresh();
        let order = CompactionOrder { moves: most, ..CompactionOrder::default() };
        let moves = self.pool.make_room(&self.state, self.now, job, &order);
        self.carry_out_moves(moves.into_iter().flatten())
    }

    /// Moves jobs so that waiting ones can start and free room lies together. Answers what was moved.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub fn compact(&mut self, most: u32) -> Result<Vec<Placed>, EngineError> {
        let order = CompactionOrder { moves: most, ..CompactionOrder::default() };
        let moves = compact(&self.state, self.now, &order).moves;
        self.carry_out_moves(moves.into_iter())
    }

    /// Moves jobs so that those can start which wait in queues by attained service, as a leader does by itself. Answers
    /// what was moved.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub fn make_way(&mut self) -> Result<Vec<Placed>, EngineError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let order = CompactionOrder::automatic();
        let per_hour = self.state.config().compaction.moves_per_hour as usize;
        self.made_way.retain(|at| self.now.since(*at) < HOUR);
        let left = per_hour.saturating_sub(self.made_way.len());
        let moves = order.moves.min(u32::try_from(left).unwrap_or(u32::MAX));
        let planned = make_way(&self.state, self.now, &CompactionOrder { moves, ..order }).moves;
        self.made_way.extend(planned.iter().map(|_| self.now));
        self.carry_out_moves(planned.into_iter())
    }

    /// Each move is carried out before the next one begins, for it may need what the one before has left.
    fn carry_out_moves(&mut self, moves: impl Iterator<Item = PlannedMove>) -> Result<Vec<Placed>, EngineError> {
        let mut moved = Vec::new();
        for planned in moves {
            let plan = Plan { revision: self.revision, parts: planned.parts() };
            for answer in self.commit_plan(plan)? {
                answer.map_err(|why| EngineError::Refused { what: format!("a move of job {}", planned.job), why })?;
            }
            self.follow_orders()?;
            moved.push(Placed { job: planned.job, places: mapping::planned_places(&planned.workers, &self.nodes) });
        }
        Ok(moved)
    }

    fn refresh(&mut self) {
        self.touched.sort_unstable();
        self.touched.dedup();
        self.pool.refresh(&self.state, &self.touched);
        self.touched.clear();
    }

    fn commit(&mut self, decision: Decision, decided: &mut Decided) -> Result<(), EngineError> {
        let Decision { plan, .. } = decision;
        if plan.parts.is_empty() {
            return Ok(());
        }
        let parts = plan.parts.clone();
        let answers = self.commit_plan(plan)?;
        for (part, answer) in parts.into_iter().zip(answers) {
            match (part, answer) {
                (_, Err(why)) => decided.refused.push(why),
                (PlanPart::Grant { job, workers, victims }, Ok(())) => {
                    decided.preempted.extend(victims);
                    decided.placed.push(Placed { job, places: mapping::planned_places(&workers, &self.nodes) });
                }
                (PlanPart::Move { job, workers }, Ok(())) => {
                    decided.moved.push(Placed { job, places: mapping::planned_places(&workers, &self.nodes) });
                }
                (PlanPart::Renumber { .. } | PlanPart::Evict { .. }, Ok(())) => {}
            }
        }
        self.follow_orders()
    }

    /// Commits a plan; answers each part.
    fn commit_plan(&mut self, plan: Plan) -> Result<Vec<Result<(), Rejection>>, EngineError> {
        match self.carry_out("a plan", Command::CommitPlan { plan })? {
            Outcome::Planned(answers) => Ok(answers.into_iter().map(|answer| answer.map(|_| ())).collect()),
            _ => Err(EngineError::Unexpected("a plan".to_owned())),
        }
    }

    /// Jobs that are running or on their way to.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.state.job_count(JobState::Starting) + self.state.job_count(JobState::Running)
    }

    /// Jobs that wait, by their state.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.state.job_count(JobState::Pending) + self.state.job_count(JobState::Suspended)
    }
}
