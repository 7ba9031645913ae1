//! The handle to the pool for services and actors: read the ledger, propose a command, ask placement.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tessera_actor::{Address, AskError, TellError};
use tessera_connection::Outbound;
use tessera_consensus::{Applied, Consensus, Leadership, Status};
use tessera_explain::{Explanation, Preview, WaitCode};
use tessera_ledger::wire::encode_request;
use tessera_ledger::{Command, JobId, JobSpec, LogTime, Outcome, Request, Revision, State};
use tessera_otlp::Span;
use tessera_placement::CompactionOrder;
use tessera_usage::Keeper;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::ControllerConfig;
use crate::disk::DiskSpace;
use crate::machine::LedgerMachine;
use crate::metrics::Metrics;
use crate::new_pool::NewPool;
use crate::placement_actor::{self, CompactionProgress, Question};
use crate::telemetry::Telemetry;
use crate::trace;
use crate::view::{LedgerView, NotReached};

/// A command that was committed, applied and published on this member, or refused before it was because it needs a
/// release level that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Revision of the entry that carried it.
    pub revision: Revision,
    /// The answer of the ledger. A refusal is an answer too: [`Outcome::Rejected`].
    pub outcome: Outcome,
}

/// The reason why a command was not applied, or why its outcome is unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProposeError {
    /// Consensus did not take it, or lost sight of it.
    #[error(transparent)]
    Consensus(#[from] tessera_consensus::ProposeError),
    /// The disk is nearly full and nothing may be added to the ledger. Nothing was proposed.
    #[error(
        "this member's disk has {free_bytes} bytes free, less than its reserve of {reserve_bytes}; make room on it, or \
         retry when another member leads"
    )]
    StorageFull {
        free_bytes: u64,
        /// The space that must be free, in bytes.
        reserve_bytes: u64,
    },
}

impl ProposeError {
    /// True if the command itself cannot be accepted; otherwise the error says nothing about the command.
    pub const fn is_of_the_command(&self) -> bool {
        matches!(self, Self::Consensus(tessera_consensus::ProposeError::TooLarge { .. }))
    }
}

/// The freshness required of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Everything acknowledged anywhere before the read was asked for is in it.
    #[default]
    Linearizable,
    /// Whatever this member has; the answer says how old that may be.
    Stale,
}

/// The greatest possible age of what was read: the time since this member last knew that it had applied everything
/// committed. Zero for a linearizable read; `None`: it has not known since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub Option<Duration>);

/// The reason why the ledger could not be read as requested.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// No quorum confirmed in time that this member is current.
    #[error(transparent)]
    Consensus(#[from] tessera_consensus::ReadError),
    /// This member lags.
    #[error(transparent)]
    NotReached(#[from] NotReached),
}

/// The handle of a member's services and actors to the pool. Clones are handles to the same pool.
#[derive(Clone, Debug)]
pub struct PoolHandle {
    inner: Arc<Parts>,
    /// The settings of the pool that this founder was given, if it is one.
    new_pool: Arc<OnceLock<NewPool>>,
    /// True from the moment at which this member begins to stop.
    stopping: Arc<AtomicBool>,
}

/// The parts of a [`PoolHandle`].
#[derive(Debug)]
pub struct Parts {
    pub consensus: Consensus<LedgerMachine>,
    pub view: LedgerView,
    /// The measurements of agents; filled on the leader.
    pub telemetry: Telemetry,
    /// The metrics that Prometheus reads.
    pub metrics: Arc<Metrics>,
    pub config: Arc<ControllerConfig>,
    /// Opens connections to other members and to agents.
    pub outbound: Outbound,
    /// The placement actor, while this member leads.
    pub placement: watch::Receiver<Option<Address<Question>>>,
    /// The room on the disk.
    pub room: watch::Receiver<DiskSpace>,
    /// The accounts of what jobs have held; `None`: this member keeps none.
    pub usage: Option<Keeper>,
}

fn committed(applied: Applied<Outcome>) -> Committed {
    Committed { revision: Revision(applied.index.0), outcome: applied.outcome }
}

impl PoolHandle {
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self { inner: Arc::new(parts), new_pool: Arc::default(), stopping: Arc::default() }
    }

    /// The ledger as this member has applied it.
    #[must_use]
    pub fn view(&self) -> &LedgerView {
        &self.inner.view
    }

    /// The settings of the pool that this founder was given.
    pub fn new_pool(&self) -> Option<NewPool> {
        self.new_pool.get().copied()
    }

    /// Keeps in mind what this founder is told of the pool; the first word counts.
    pub fn found_with(&self, pool: NewPool) {
        // A founding that is taken up again says the same once more.
        let _ = self.new_pool.set(pool);
    }

    /// Waits until the ledger says of the pool what this founder was told.
    pub async fn is_founded(&self) {
        let Some(new) = self.new_pool() else { return };
        // Nothing is published any more when the member ends, and nobody waits then.
        let _ = self.inner.view.changes().wait_for(|state| new.is_that_of(state.config())).await;
    }

    /// Notes that this member begins to stop: it is not to be asked any more, though it still answers.
    pub fn stops(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns whether this member has begun to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the part that opens this member's connections to other members and to agents.
    #[must_use]
    pub fn outbound(&self) -> &Outbound {
        &self.inner.outbound
    }

    /// Proposes a command and waits until it is applied and published here. This member must lead.
    ///
    /// # Errors
    /// [`ProposeError`]; all but `OutcomeUnknown` promise that the command was not proposed and never will be.
    pub async fn propose(&self, request: Request, deadline: Instant) -> Result<Committed, ProposeError> {
        let command = match self.command_of(&request, &self.inner.view.current()) {
            Ok(command) => command,
            Err(answer) => return answer,
        };
        let span = Span::here("propose");
        let applied = self.inner.consensus.propose(command, deadline).await.map_err(ProposeError::from);
        trace::proposed(span, std::slice::from_ref(&applied));
        let applied = applied?;
        tracing::debug!(
            index = applied.index.0,
            term = applied.term.0,
            actor = request.actor,
            "a command is committed"
        );
        Ok(committed(applied))
    }

    /// Proposes commands, each as [`propose`](Self::propose) does, and waits until all are applied and published here,
    /// or never will be. Answers one result for each, in their order; they share entries of the log, and the cost of
    /// waiting.
    pub async fn propose_all(&self, requests: Vec<Request>, deadline: Instant) -> Vec<Result<Committed, ProposeError>> {
        let state = self.inner.view.current();
        let (mut answers, mut commands) = (Vec::with_capacity(requests.len()), Vec::with_capacity(requests.len()));
        for request in &requests {
            let command = self.command_of(request, &state).map(|command| commands.push(command));
            answers.push(command.err());
        }
        // They are encoded: what they were made from need not wait with them.
        drop((state, requests));
        let span = Span::here("propose");
        let applied = self.inner.consensus.propose_all(commands, deadline).await;
        trace::proposed(span, &applied);
        tracing::debug!(commands = applied.len(), "commands are committed, or refused");
        let mut applied = applied.into_iter().map(|applied| Ok(committed(applied?)));
        answers.into_iter().filter_map(|answer| answer.or_else(|| applied.next())).collect()
    }

    /// A request as the log keeps it, or the answer that it has without being proposed.
    fn command_of(&self, request: &Request, state: &State) -> Result<Bytes, Result<Committed, ProposeError>> {
        if let (Command::SubmitJob { .. }, DiskSpace::Short { free_bytes, reserve_bytes }) =
            (&request.command, *self.inner.room.borrow())
        {
            return Err(Err(ProposeError::StorageFull { free_bytes, reserve_bytes }));
        }
        // What is refused here would be refused by the ledger as well, if every member could read it.
        let encoded = encode_request(request, state.level());
        let answer = |refusal| Ok(Committed { revision: state.revision(), outcome: Outcome::Rejected(refusal) });
        encoded.map(Bytes::from).map_err(answer)
    }

    /// The ledger, as current as asked.
    ///
    /// # Errors
    /// [`ReadError`] when no quorum confirmed in time that the state is current; a stale read always succeeds.
    pub async fn read(&self, consistency: Consistency, deadline: Instant) -> Result<(Arc<State>, Age), ReadError> {
        match consistency {
            Consistency::Stale => {
                let (state, age) = self.inner.consensus.staleness_of(|| self.inner.view.current());
                Ok((state, Age(age)))
            }
            Consistency::Linearizable => {
                let barrier = self.inner.consensus.read_barrier(deadline).await?;
                let state = self.inner.view.at_least(Revision(barrier.index.0), deadline).await?;
                Ok((state, Age(Some(Duration::ZERO))))
            }
        }
    }

    /// The leadership of this member, now and whenever it changes.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.consensus.leadership()
    }

    /// This member's report about itself, now and whenever it changes.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.inner.consensus.status()
    }

    /// Log time now, on the leader as an entry proposed now would carry it: what everything that the ledger dates is
    /// compared with. It goes on at its own pace, whatever this member's wall clock does.
    #[must_use]
    pub fn log_time(&self) -> LogTime {
        LogTime(self.inner.consensus.log_time().0)
    }

    /// The time that a quorum of the members' wall clocks agree on, to compare with the clocks of clients.
    #[must_use]
    pub fn right_time(&self) -> LogTime {
        LogTime(self.inner.consensus.right_time().0)
    }

    /// The longest time until log time has reached `time`; zero when it has.
    #[must_use]
    pub fn until(&self, time: LogTime) -> Duration {
        self.inner.consensus.until(tessera_consensus::LogTime(time.0))
    }

    /// This member's consensus, for changes of the membership.
    #[must_use]
    pub fn consensus(&self) -> &Consensus<LedgerMachine> {
        &self.inner.consensus
    }

    /// The accounts of what jobs have held; `None`: this member keeps none.
    #[must_use]
    pub fn usage(&self) -> Option<&Keeper> {
        self.inner.usage.as_ref()
    }

    /// Explains why a job waits; `None` when there is no such job. Answered by the placement actor, so only on the
    /// leader.
    ///
    /// # Errors
    /// [`AskError`] when this member does not lead, or placement did not answer in time.
    pub async fn explain(&self, job: JobId, deadline: Instant) -> Result<Option<Explanation>, AskError> {
        self.placement()?.ask(|reply| Question::Explain { job, reply }, deadline).await
    }

    /// Returns those of some jobs that wait, each with its wait code. Answered by the placement actor, so only on the
    /// leader.
    ///
    /// # Errors
    /// [`AskError`] when this member does not lead, or placement did not answer in time.
    pub async fn waits(&self, jobs: Vec<JobId>, deadline: Instant) -> Result<Vec<(JobId, WaitCode)>, AskError> {
        self.placement()?.ask(|reply| Question::Waits { jobs, reply }, deadline).await
    }

    /// Returns the outcome of a job if it were submitted now. Answered by the placement actor, so only on the leader.
    ///
    /// # Errors
    /// [`AskError`] when this member does not lead, or placement did not answer in time.
    pub async fn preview(&self, spec: JobSpec, deadline: Instant) -> Result<Preview, AskError> {
        self.placement()?.ask(|reply| Question::Preview { spec: Box::new(spec), reply }, deadline).await
    }

    /// Begins to compact the pool, unless that is under way; answers whether it began. Only on the leader.
    ///
    /// # Errors
    /// [`AskError`] when this member does not lead, or placement did not answer in time.
    pub async fn start_compaction(
        &self,
        order: CompactionOrder,
        at_once: u32,
        deadline: Instant,
    ) -> Result<(bool, CompactionProgress), AskError> {
        self.placement()?.ask(|reply| Question::StartCompaction { order, at_once, reply }, deadline).await
    }

    /// Returns the progress of compaction. Only on the leader.
    ///
    /// # Errors
    /// [`AskError`] when this member does not lead, or placement did not answer in time.
    pub async fn compaction(&self, deadline: Instant) -> Result<CompactionProgress, AskError> {
        self.placement()?.ask(Question::Compaction, deadline).await
    }

    /// Begins no further move. Only on the leader.
    ///
    /// # Errors
    /// [`AskError`] when this member does not lead, or placement did not answer in time.
    pub async fn stop_compaction(&self, deadline: Instant) -> Result<CompactionProgress, AskError> {
        self.placement()?.ask(Question::StopCompaction, deadline).await
    }

    fn placement(&self) -> Result<Address<Question>, TellError> {
        let here = self.inner.placement.borrow().clone();
        here.ok_or(TellError::Gone { actor: placement_actor::NAME })
    }

    /// The measurements of agents, and which agents have a session; empty on members that do not lead.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    /// The metrics of this member for Prometheus.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    #[must_use]
    pub fn config(&self) -> &Arc<ControllerConfig> {
        &self.inner.config
    }

    /// The room on the disk.
    #[must_use]
    pub fn room(&self) -> watch::Receiver<DiskSpace> {
        self.inner.room.clone()
    }
}
