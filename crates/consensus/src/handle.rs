//! The handle to one member's consensus.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use smallvec::{SmallVec, smallvec};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::apply::Applier;
use crate::clock::ClockStatus;
use crate::error::{ProposeError, ReadError, StopReason};
use crate::ids::Identity;
use crate::machine::{LogIndex, LogTime, Machine, Term};
use crate::propose::{Commands, Proposal, Refusal, Ticket};
use crate::reads::{Confirmed, NotConfirmed, Question};
use crate::shared::Shared;
use crate::status::{Leadership, Role, Status};
use crate::transport::Links;
use crate::types::{LogId, TypeConfig, term_of};

/// Pause before another try when no quorum answered: short, since a new leader needs only one round trip to be
/// writable.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A command that was committed and applied on this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied<O> {
    /// Index of the entry that carried it.
    pub index: LogIndex,
    /// Term of that entry.
    pub term: Term,
    /// The moment at which the command went into that entry; before that it waited for a place among the entries in
    /// flight.
    pub entered: Instant,
    pub outcome: O,
}

/// Permission to read this member's state as current: it had applied everything that was acknowledged anywhere before
/// the barrier was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBarrier {
    /// The state read includes at least this entry.
    pub index: LogIndex,
    /// Term of the leader that confirmed it.
    pub term: Term,
}

/// One member's consensus. Clones are handles to the same; dropping the last one ends it like
/// [`shutdown`](Consensus::shutdown), without waiting.
pub struct Consensus<M: Machine> {
    pub(crate) inner: Arc<Inner<M>>,
}

impl<M: Machine> Clone for Consensus<M> {
    fn clone(&self) -> Self {
        Consensus { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Machine> std::fmt::Debug for Consensus<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consensus").field("identity", &self.inner.shared.identity).finish_non_exhaustive()
    }
}

pub(crate) struct Inner<M: Machine> {
    pub shared: Arc<Shared>,
    pub raft: openraft::Raft<TypeConfig, Applier<M>>,
    pub links: Arc<Links>,
    pub proposals: mpsc::Sender<Proposal<M::Outcome>>,
    /// Bytes of commands that may still be put into `proposals`.
    pub room: Arc<Semaphore>,
    pub questions: mpsc::Sender<Question>,
    pub status: watch::Receiver<Status>,
    pub leadership: watch::Receiver<Leadership>,
    pub tasks: TaskTracker,
    pub end: CancellationToken,
    /// One change of the membership by this member at a time.
    pub changing: Arc<tokio::sync::Mutex<()>>,
}

impl<M: Machine> Drop for Inner<M> {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Withdraws a command whose caller goes away before it was taken into an entry.
struct Withdraw(Ticket);

impl Drop for Withdraw {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl<M: Machine> Consensus<M> {
    pub fn identity(&self) -> &Identity {
        &self.inner.shared.identity
    }

    /// Proposes a command and waits until it is applied on this member, which must lead. Commands proposed concurrently
    /// share entries; a lone one is proposed at once. Dropping the future before the command went into an entry
    /// withdraws it.
    ///
    /// # Errors
    /// [`ProposeError`]; all but [`ProposeError::OutcomeUnknown`] promise that the command was not proposed and never
    /// will be.
    pub async fn propose(&self, command: Bytes, deadline: Instant) -> Result<Applied<M::Outcome>, ProposeError> {
        let Applied { index, term, entered, outcome } = self.propose_together(smallvec![command], deadline).await?;
        // As many outcomes come back as there are commands.
        let outcome = outcome.into_iter().next().ok_or(ProposeError::OutcomeUnknown)?;
        Ok(Applied { index, term, entered, outcome })
    }

    /// Proposes commands that go into one entry together, which must hold as many.
    pub(crate) async fn propose_together(
        &self,
        commands: Commands,
        deadline: Instant,
    ) -> Result<Applied<SmallVec<[M::Outcome; 1]>>, ProposeError> {
        let limit = self.inner.shared.config.max_batch_bytes;
        let bytes = commands.iter().map(Bytes::len).sum();
        if bytes > limit {
            return Err(ProposeError::TooLarge { bytes, limit });
        }
        let began = Instant::now();
        loop {
            match self.propose_once(commands.clone(), bytes, deadline).await {
                Ok(applied) => {
                    self.inner.shared.meters.proposed(began.elapsed());
                    return Ok(applied);
                }
                Err(ProposeError::Unavailable) if Instant::now() + RETRY_PAUSE < deadline => {
                    self.quorum_or_follower(deadline).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until another try makes sense: a quorum acknowledges this leader again, or it leads no more.
    async fn quorum_or_follower(&self, deadline: Instant) -> Result<(), ProposeError> {
        // The status may be a little behind; without the pause this would spin until it has caught up.
        tokio::time::sleep(RETRY_PAUSE).await;
        let mut status = self.inner.status.clone();
        let changed = status.wait_for(|status| status.quorum_fresh || status.role != Role::Leader);
        match timeout_at(deadline, changed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ProposeError::Stopped(self.why_stopped())),
            Err(_) => Err(ProposeError::Unavailable),
        }
    }

    async fn propose_once(
        &self,
        commands: Commands,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Applied<SmallVec<[M::Outcome; 1]>>, ProposeError> {
        if let Some(reason) = self.inner.shared.stopper.reason() {
            return Err(ProposeError::Stopped(reason));
        }
        // A proposal is never larger than a batch, which is far below 4 GiB.
        let bytes = u32::try_from(bytes).map_err(|_| ProposeError::Overloaded)?;
        let room = Arc::clone(&self.inner.room).try_acquire_many_owned(bytes);
        let room = room.map_err(|_| ProposeError::Overloaded)?;
        let (answer, answered) = oneshot::channel();
        let ticket = Ticket::default();
        let proposal = Proposal { commands, deadline, ticket: ticket.clone(), answer, room };
        self.inner.proposals.try_send(proposal).map_err(|full_or_closed| match full_or_closed {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopped(self.why_stopped()),
        })?;
        let withdraw = Withdraw(ticket);
        match timeout_at(deadline, answered).await {
            Ok(Ok(Ok(applied))) => Ok(applied),
            Ok(Ok(Err(Refusal::NotLeader(leader)))) => Err(ProposeError::NotLeader { leader }),
            Ok(Ok(Err(Refusal::NoQuorum))) => Err(ProposeError::Unavailable),
            Ok(Ok(Err(Refusal::Unknown))) => Err(ProposeError::OutcomeUnknown),
            // Dropped with the core, or too late: if it was never taken, nothing happened.
            Ok(Err(_)) if withdraw.0.withdraw() => Err(ProposeError::Stopped(self.why_stopped())),
            Err(_) if withdraw.0.withdraw() => Err(ProposeError::Unavailable),
            Ok(Err(_)) | Err(_) => Err(ProposeError::OutcomeUnknown),
        }
    }

    fn why_stopped(&self) -> StopReason {
        self.inner.shared.stopper.reason().unwrap_or(StopReason::Shutdown)
    }

    /// Waits until a read of this member's state is linearizable: a quorum confirms the leader after this call began
    /// (ReadIndex; a follower asks the leader), and this member applies what had been committed by then. Concurrent
    /// callers share one round.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] or [`ReadError::Stopped`].
    pub async fn read_barrier(&self, deadline: Instant) -> Result<ReadBarrier, ReadError> {
        let upto = loop {
            match self.ask(false, deadline).await? {
                Ok(upto) => break upto,
                Err(_) => self.pause(deadline).await?,
            }
        };
        self.wait_applied(LogIndex(upto.index), deadline).await?;
        Ok(ReadBarrier { index: LogIndex(upto.index), term: term_of(&upto) })
    }

    /// Confirms that this member leads: a quorum acknowledged it after this call began. Never answered from a lease in
    /// time, so agents' leases may be built on it. Concurrent callers share one round.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn confirm_leadership(&self, deadline: Instant) -> Result<Term, ReadError> {
        self.own_read_index(deadline).await.map(|upto| term_of(&upto))
    }

    /// Up to where a reader anywhere must have applied, if this member leads.
    pub(crate) async fn own_read_index(&self, deadline: Instant) -> Result<LogId, ReadError> {
        loop {
            match self.ask(true, deadline).await? {
                Ok(upto) => return Ok(upto),
                Err(NotConfirmed::NotLeader(leader)) => return Err(ReadError::NotLeader { leader }),
                Err(NotConfirmed::NoQuorum) => self.pause(deadline).await?,
            }
        }
    }

    async fn ask(&self, own: bool, deadline: Instant) -> Result<Confirmed, ReadError> {
        if let Some(reason) = self.inner.shared.stopper.reason() {
            return Err(ReadError::Stopped(reason));
        }
        let (answer, answered) = oneshot::channel();
        let asked = timeout_at(deadline, async {
            self.inner.questions.send(Question { own, answer }).await.ok()?;
            answered.await.ok()
        });
        match asked.await {
            Ok(Some(confirmed)) => Ok(confirmed),
            Ok(None) => Err(ReadError::Stopped(self.why_stopped())),
            Err(_) => Err(ReadError::Unavailable),
        }
    }

    async fn pause(&self, deadline: Instant) -> Result<(), ReadError> {
        if Instant::now() + RETRY_PAUSE >= deadline {
            return Err(ReadError::Unavailable);
        }
        tokio::time::sleep(RETRY_PAUSE).await;
        Ok(())
    }

    /// Waits until this member has applied and published the entry at `index`.
    ///
    /// # Errors
    /// [`ReadError::Unavailable`] or [`ReadError::Stopped`].
    pub async fn wait_applied(&self, index: LogIndex, deadline: Instant) -> Result<(), ReadError> {
        let mut applied = self.inner.shared.applied.subscribe();
        tokio::select! {
            reached = timeout_at(deadline, applied.wait_for(|applied| applied.index >= index)) => {
                reached.map(drop).map_err(|_| ReadError::Unavailable)
            }
            reason = self.stopped() => Err(ReadError::Stopped(reason)),
        }
    }

    /// The status that this member reports, now and on every change.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.inner.status.clone()
    }

    /// The leadership of this member, now and on every change. Every transition counts only for the term it names: a
    /// watcher may miss short reigns, never see one out of order.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// The greatest possible age of a read without a barrier: the time since this member last knew that it had applied
    /// everything committed; `None` when it has not known since it started.
    pub fn staleness(&self) -> Option<Duration> {
        self.staleness_of(|| ()).1
    }

    /// Reads without a barrier; answers how old what was read may be, too: neither what is applied while it is read nor
    /// a stop of this process makes that too small.
    pub fn staleness_of<T>(&self, read: impl FnOnce() -> T) -> (T, Option<Duration>) {
        let current = self.inner.shared.current();
        let read = read();
        (read, current.map(|current| current.at.elapsed()))
    }

    /// Log time now: what an entry proposed now would carry, if this member leads. It goes on with the monotonic clock,
    /// steered by the wall clocks of a quorum. Elsewhere it goes on from the newest entry applied.
    pub fn log_time(&self) -> LogTime {
        self.inner.shared.time.now()
    }

    /// The longest time until log time reaches `time`; log time that is ahead of the clocks goes slowly.
    pub fn until(&self, time: LogTime) -> Duration {
        self.inner.shared.time.until(time)
    }

    /// The time that a quorum of the members' wall clocks agree on now; log time while too few are known. It may jump:
    /// it is what is compared with the clocks of others, and never written into entries.
    pub fn right_time(&self) -> LogTime {
        self.inner.shared.time.right_time()
    }

    /// Compares this member's wall clock with those of the others.
    pub fn clock(&self) -> ClockStatus {
        self.inner.shared.time.status()
    }

    /// The number of times that members' states were found to differ since this process started; anything but 0 is a
    /// reason to look.
    pub fn hash_mismatches(&self) -> u64 {
        self.inner.shared.meters.hash_mismatch_count()
    }

    /// Registers this member's metrics. Their names begin with `tessera_`: the registry must not add a prefix.
    pub fn register_metrics(&self, registry: &mut Registry) {
        crate::metrics::register(&self.inner.shared, self.inner.status.clone(), registry);
    }

    /// Returns whether the loop of this member's Raft answers before `deadline`. It answers on members without a quorum
    /// too.
    pub async fn answers(&self, deadline: Instant) -> bool {
        matches!(timeout_at(deadline, self.inner.raft.is_initialized()).await, Ok(Ok(_)))
    }

    /// Takes a snapshot soon, whatever the thresholds say. The log before it is then compacted as configured.
    pub async fn take_snapshot(&self) {
        // An error means that the core has ended, which `stopped` says.
        let _ = self.inner.raft.trigger().snapshot().await;
    }

    /// Ends this member's consensus and waits until nothing of it runs any more.
    pub async fn shutdown(&self) {
        self.inner.shared.stopper.stop(StopReason::Shutdown);
        self.inner.end.cancel();
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "the raft core did not end in order");
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Waits for the end and says why. Unless it was [`StopReason::Shutdown`], the process must exit.
    pub async fn stopped(&self) -> StopReason {
        self.inner.shared.stopper.stopped().await
    }
}
