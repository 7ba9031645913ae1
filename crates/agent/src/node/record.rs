//! The record that a node has of one worker.

use std::sync::Arc;
use std::time::Duration;

use prost_types::Timestamp;
use tessera_api::v1 as wire;
use tessera_ledger::wire::{WireEnum, duration_if_any};
use tessera_ledger::{AllocationId, CheckpointKey, Epoch, Rank, SavedPart};

use crate::boot::BootTime;
use crate::supervisor::status::{Cause, Exit, Phase, Status};
use crate::worker::{StopPolicy, StopSignal, WorkerId, is_cooperative, is_transparent};

/// The time between signal and kill for a worker whose order has no stop policy.
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// The progress of a worker on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Accepted; waits for a lease, or for an older allocation to be gone.
    Waiting,
    /// Handed to the launcher: from here on it exists once and for all.
    Launched,
    Over,
}

/// The record that a node has of one worker.
#[derive(Clone, Debug)]
pub struct WorkerRecord {
    pub status: Status,
    /// The newest order; `None` for a worker that was found and not yet ordered.
    pub order: Option<Arc<wire::WorkerOrder>>,
    pub stage: Stage,
    /// The time at which this agent was first ordered to run it; zero where an earlier one was.
    pub ordered_at: BootTime,
    /// The time at which this agent launched it.
    pub launched_at: Option<BootTime>,
    /// The leader's newest word: it should be here.
    pub granted: bool,
    /// The leader's word that it is settled in the ledger.
    pub settled: bool,
    /// The newest part of a checkpoint that was saved of it.
    pub saved: Option<SavedPart>,
    /// Its part of the checkpoint that it was to go on from cannot be had; and whether it never can be.
    pub unusable: Option<bool>,
    /// The reason that the newest image that was to be made while it ran is not kept; empty: it is.
    pub snapshot_failed: String,
    /// Policy and cause of its stop, once that was decided.
    pub stop: Option<(StopPolicy, Cause)>,
    /// Counts changes of what is reported.
    pub version: u64,
    /// Highest version that was acknowledged.
    pub acknowledged: u64,
    /// Highest version that was sent on the present session.
    pub sent: u64,
    /// True if an earlier agent launched it.
    adopted: bool,
    reported: wire::WorkerReport,
}

impl WorkerRecord {
    /// A worker that was ordered just now.
    #[must_use]
    pub fn ordered(now: BootTime, status: Status, order: Arc<wire::WorkerOrder>) -> Self {
        Self { ordered_at: now, ..Self::new(status, Some(order), Stage::Waiting) }
    }

    /// A worker that was found after a start of the agent.
    #[must_use]
    pub fn found(status: Status, order: Option<Arc<wire::WorkerOrder>>) -> Self {
        let stage = if status.is_final() { Stage::Over } else { Stage::Launched };
        Self { adopted: true, ..Self::new(status, order, stage) }
    }

    #[must_use]
    pub fn with_saved(mut self, saved: Option<SavedPart>) -> Self {
        self.saved = saved;
        self.reported = self.report();
        self
    }

    /// Returns whether an earlier agent launched it, and nothing shows that all of it ends with its supervisor.
    #[must_use]
    pub fn may_outlive_supervisor(&self) -> bool {
        self.adopted && self.stage == Stage::Launched && self.status.init.is_none()
    }

    fn new(status: Status, order: Option<Arc<wire::WorkerOrder>>, stage: Stage) -> Self {
        let mut record = Self {
            status,
            order,
            stage,
            ordered_at: BootTime::default(),
            launched_at: None,
            granted: true,
            settled: false,
            saved: None,
            unusable: None,
            snapshot_failed: String::new(),
            stop: None,
            version: 1,
            acknowledged: 0,
            sent: 0,
            adopted: false,
            reported: wire::WorkerReport::default(),
        };
        record.reported = record.report();
        record
    }

    /// Notes that something may have changed; what is reported differently is reported anew.
    pub fn touch(&mut self) {
        if self.status.is_final() {
            self.stage = Stage::Over;
        }
        let report = self.report();
        if report != self.reported {
            self.reported = report;
            self.version += 1;
        }
    }

    /// Reports it again, although nothing changed: the leader seems not to know.
    pub const fn report_again(&mut self) {
        self.version += 1;
    }

    /// Returns whether its newest state was acknowledged.
    #[must_use]
    pub const fn is_acknowledged(&self) -> bool {
        self.acknowledged >= self.version
    }

    /// Ends a worker of which no process was ever made.
    pub fn end_unstarted(&mut self, cause: Cause, message: &str) {
        self.status.phase = Phase::Stopped;
        self.status.cause = Some(cause);
        self.status.message = message.to_owned();
        self.touch();
    }

    /// The stop policy of its order, or the default one.
    #[must_use]
    pub fn stop_policy(&self) -> StopPolicy {
        policy_of(self.order.as_ref().and_then(|order| order.stop.as_ref()))
    }

    /// Returns whether something of it may be saved when it is stopped.
    #[must_use]
    pub fn saves(&self) -> bool {
        self.order.as_ref().is_some_and(|order| is_cooperative(order) || is_transparent(order))
    }

    /// Returns whether its order lets it run without a lease.
    #[must_use]
    pub fn keeps_on_disconnect(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.keep_on_disconnect)
    }

    #[must_use]
    pub fn report(&self) -> wire::WorkerReport {
        let status = &self.status;
        let (exit_code, signal) = match status.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(number)) => (None, Some(number)),
            None => (None, None),
        };
        wire::WorkerReport {
            worker: Some(to_ref(status.worker)),
            job_id: status.job,
            phase: phase_of(status.phase).into(),
            cause: status.cause.map_or(wire::StopCause::Unspecified, cause_of).into(),
            exit_code,
            signal,
            message: status.message.clone(),
            started_at: status.started_unix_ms.map(timestamp),
            stopped_at: status.stopped_unix_ms.map(timestamp),
            exited_at: status.exited_unix_ms.map(timestamp),
            checkpointed: status.is_final() && self.saved_at_the_end(),
            saved: self.saved.as_ref().map(saved_to_wire),
            unusable: self.unusable.is_some(),
            unusable_for_good: self.unusable.unwrap_or(false),
            not_saved: self.not_saved(),
        }
    }

    /// The reason that nothing was saved of it when it was told to stop or, where nobody tried that, while it ran.
    fn not_saved(&self) -> String {
        let status = &self.status;
        if !status.not_saved.is_empty() || !status.is_final() || self.saved_at_the_end() {
            return status.not_saved.clone();
        }
        // An earlier agent may have told what it was, and this one was not.
        let by_supervisor = status.snapshot.as_ref().map_or("", |snapshot| snapshot.why.as_str());
        match [self.snapshot_failed.as_str(), by_supervisor].into_iter().find(|why| !why.is_empty()) {
            Some(why) => format!("it was not dumped while it ran: {why}"),
            None => String::new(),
        }
    }

    /// Returns whether what it wrote when it was told to stop is kept.
    fn saved_at_the_end(&self) -> bool {
        self.saved.as_ref().is_some_and(|saved| saved.sequence == CheckpointKey::LAST && saved.bytes > 0)
    }
}

fn saved_to_wire(saved: &SavedPart) -> wire::SavedCheckpoint {
    let SavedPart { sequence, progress, bytes, hash, ticket, shared, mode } = saved;
    wire::SavedCheckpoint {
        sequence: *sequence,
        progress: *progress,
        bytes: *bytes,
        hash: hash.to_vec().into(),
        ticket: ticket.to_be_bytes().to_vec().into(),
        shared: *shared,
        mode: mode.to_wire(),
    }
}

/// A stop policy as ordered, or SIGTERM and some seconds where nothing was ordered. An unknown signal becomes SIGTERM,
/// which every program understands.
#[must_use]
pub fn policy_of(policy: Option<&wire::StopPolicy>) -> StopPolicy {
    let Some(policy) = policy else { return StopPolicy { signal: StopSignal::default(), grace: DEFAULT_GRACE } };
    let grace = duration_if_any(policy.grace.as_ref()).unwrap_or_default();
    StopPolicy { signal: policy.signal.parse().unwrap_or_default(), grace }
}

#[must_use]
pub const fn to_ref(worker: WorkerId) -> wire::WorkerRef {
    wire::WorkerRef { allocation_id: worker.allocation.0, epoch: worker.epoch.0, rank: worker.rank.0 }
}

/// The name of a worker as this crate writes it.
#[must_use]
pub const fn from_ref(worker: &wire::WorkerRef) -> WorkerId {
    WorkerId { allocation: AllocationId(worker.allocation_id), epoch: Epoch(worker.epoch), rank: Rank(worker.rank) }
}

const fn phase_of(phase: Phase) -> wire::WorkerPhase {
    match phase {
        Phase::Preparing => wire::WorkerPhase::Starting,
        Phase::Running => wire::WorkerPhase::Running,
        Phase::Stopping => wire::WorkerPhase::Stopping,
        Phase::Unconfirmed => wire::WorkerPhase::Unconfirmed,
        Phase::Stopped => wire::WorkerPhase::Stopped,
    }
}

#[must_use]
pub const fn cause_of(cause: Cause) -> wire::StopCause {
    match cause {
        Cause::Exited => wire::StopCause::Exited,
        Cause::StartFailed => wire::StopCause::StartFailed,
        Cause::NodeFault => wire::StopCause::NodeFault,
        Cause::Ordered => wire::StopCause::Ordered,
        Cause::LeaseExpired => wire::StopCause::LeaseExpired,
        Cause::TimeLimit => wire::StopCause::TimeLimit,
        Cause::NotGranted => wire::StopCause::NotGranted,
        Cause::OutOfMemory => wire::StopCause::OutOfMemory,
        Cause::HostLost => wire::StopCause::HostLost,
        Cause::NotRestored => wire::StopCause::NotRestored,
        Cause::PortTaken => wire::StopCause::PortTaken,
        Cause::Vanished => wire::StopCause::Vanished,
    }
}

fn timestamp(unix_ms: u64) -> Timestamp {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(unix_ms % 1000).unwrap_or(0) * 1_000_000;
    Timestamp { seconds, nanos }
}
