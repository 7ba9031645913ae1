//! A rehearsal: what would happen, played through on a copy of the ledger with the code that decides and the code
//! that applies. Its agents obey at once: what is told to stop has stopped, what is granted runs. Nothing of it
//! reaches the pool.

use std::collections::BTreeSet;

use tessera_calendar::Judge;
use tessera_ledger::{
    Allocation, AllocationPhase, Command, EntryPosition, JobId, LogTime, MovePhase, NodeId, Observation, Outcome, Plan,
    PlanPart, Request, Revision, State, StopCause, WorkerExit, WorkerReport, WorkerState,
};
use tessera_placement::Limits;
use tessera_placement::Pool;

/// Most decisions in a row at one moment.
const ROUNDS: usize = 64;

/// A pool that is played with.
#[derive(Clone)]
pub(crate) struct Rehearsal {
    pub(crate) state: State,
    pub(crate) now: LogTime,
    pool: Pool,
    revision: u64,
    windows: Judge,
}

/// The outcome of a rehearsed moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The time of the next change by the passing of time alone.
    pub(crate) next_wakeup: Option<LogTime>,
    /// True if nothing is left to be decided; otherwise the rehearsal was cut short.
    pub(crate) whole: bool,
}

impl Rehearsal {
    /// A copy of the pool as it is at `now`.
    pub(crate) fn of(state: &State, now: LogTime) -> Self {
        let mut state = state.clone();
        state.take_touched();
        let pool = Pool::new(&state);
        Self { now: now.max(state.time()), revision: state.revision().0, pool, state, windows: Judge::default() }
    }

    /// Lets what is under way in the pool come to its end: who was told to stop has stopped, who was granted
    /// blocks runs.
    pub(crate) fn catch_up(&mut self) {
        let jobs: Vec<JobId> = self.state.allocations().map(|allocation| allocation.job).collect();
        for job in jobs {
            self.obey(job);
            self.follow(job);
        }
    }

    /// Applies a command as an entry of its own.
    pub(crate) fn apply(&mut self, command: Command) -> Outcome {
        self.revision += 1;
        let at = EntryPosition { revision: Revision(self.revision), time: self.now };
        let request = Request { key: None, actor: "rehearsal".to_owned(), command };
        let outcome = self.state.apply(at, &[request]).pop().unwrap_or(Outcome::Done);
        let touched = self.state.take_touched();
        self.pool.refresh(&self.state, &touched);
        outcome
    }

    /// The index of the copy.
    pub(crate) fn pool(&mut self) -> (&mut Pool, &State) {
        (&mut self.pool, &self.state)
    }

    /// Decides and carries out until nothing more happens at this moment.
    pub(crate) fn settle(&mut self, limits: &Limits) -> Settled {
        let mut next_wakeup = None;
        self.open_and_close();
        for _ in 0..ROUNDS {
            let decision = self.pool.decide(&self.state, self.now, limits);
            next_wakeup = decision.next_wakeup;
            if !decision.plan.parts.is_empty() {
                self.carry_out(decision.plan);
            } else if !decision.more {
                return Settled { next_wakeup, whole: true };
            }
        }
        Settled { next_wakeup, whole: false }
    }

    /// The time at which the next time window opens or closes.
    pub(crate) fn next_window(&self) -> Option<LogTime> {
        self.windows.next()
    }

    /// Time windows open and close as they do in the pool; who has to stop for it does.
    fn open_and_close(&mut self) {
        loop {
            let due = self.windows.due(&self.state, self.now);
            if due.is_empty() {
                return;
            }
            for command in due {
                let Command::CloseUntil { whose, time, .. } = &command else { continue };
                let stopped = if *time > self.now { self.state.running_within(whose) } else { BTreeSet::new() };
                if !matches!(self.apply(command), Outcome::Done) {
                    return;
                }
                stopped.into_iter().for_each(|job| self.obey(job));
            }
        }
    }

    /// Applies a plan; whoever it concerns obeys. Answers whether every part was accepted.
    pub(crate) fn carry_out(&mut self, plan: Plan) -> bool {
        let parts = plan.parts.clone();
        let outcome = self.apply(Command::CommitPlan { plan });
        for part in &parts {
            match part {
                PlanPart::Grant { job, victims, .. } => {
                    victims.iter().for_each(|victim| self.obey(*victim));
                    self.obey(*job);
                }
                PlanPart::Evict { job, .. } => self.obey(*job),
                PlanPart::Move { job, .. } => self.follow(*job),
                PlanPart::Renumber { .. } => {}
            }
        }
        matches!(outcome, Outcome::Planned(answers) if answers.iter().all(Result::is_ok))
    }

    /// The workers of a job do what they are told.
    pub(crate) fn obey(&mut self, job: JobId) {
        let present = |this: &Self| {
            let id = this.state.job(job)?.allocation?;
            this.state.allocation(id).cloned()
        };
        let Some(allocation) = present(self) else { return };
        for worker in allocation.workers.iter() {
            let observation = match (allocation.phase, worker.state) {
                (_, WorkerState::Draining) => Observation::Stopped(ended(StopCause::Ordered)),
                (AllocationPhase::Active, WorkerState::Held) => Observation::Running,
                _ => continue,
            };
            self.report(&allocation, worker.node, worker.rank, observation);
        }
    }

    /// A job that was told to move does so.
    fn follow(&mut self, job: JobId) {
        let id = self.state.job(job).and_then(|job| job.moving);
        let Some(id) = id else { return };
        self.apply(Command::AdvanceMove { id, from: MovePhase::Reserved, proceed: true });
        self.obey(job);
        self.apply(Command::AdvanceMove { id, from: MovePhase::Transferring, proceed: true });
        self.obey(job);
    }

    /// All workers of a job end well.
    pub(crate) fn end(&mut self, job: JobId) {
        let allocation = self.state.job(job).and_then(|job| self.state.allocation(job.allocation?)).cloned();
        let Some(allocation) = allocation else { return };
        for worker in allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped) {
            let observation = Observation::Stopped(WorkerExit { code: Some(0), ..ended(StopCause::Exited) });
            self.report(&allocation, worker.node, worker.rank, observation);
        }
    }

    fn report(&mut self, allocation: &Allocation, node: NodeId, rank: tessera_ledger::Rank, observation: Observation) {
        let report = WorkerReport { worker: allocation.owner(rank), observation };
        self.apply(Command::ReportWorkers { node, reports: vec![report] });
    }
}

fn ended(cause: StopCause) -> WorkerExit {
    WorkerExit {
        cause,
        code: None,
        signal: None,
        checkpointed: true,
        message: String::new(),
        not_saved: String::new(),
        ended_at: LogTime(0),
    }
}
