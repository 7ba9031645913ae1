//! A job as it is shown.

use serde::Serialize;
use tessera_api::v1;

use super::checkpoint::{CheckpointView, name_of};
use super::shown::Shown;
use super::spec::SpecView;
use super::time::{Clock, text};
use super::{ReasonView, UseView, words};
use crate::print::{Column, Tabular};

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobView {
    /// Its number.
    pub id: u64,
    /// Who submitted it.
    pub submitter: String,
    /// Where it stands.
    pub state: String,
    /// Why.
    pub reason: ReasonView,
    /// What it waits for now, in lists of jobs; absent where that was not asked or it does not wait.
    pub waits_for: Option<String>,
    /// What it uses of what it holds; absent where that was not asked or it holds nothing.
    pub used: Option<UseView>,
    /// On hold.
    pub held: bool,
    /// Suspended by a person.
    pub parked: bool,
    /// What was submitted.
    #[serde(flatten)]
    pub spec: SpecView,
    /// How idle it is; absent: it is not, or nothing has followed from it yet.
    pub idle: Option<IdleView>,
    /// When it was submitted.
    pub submitted_at: Option<String>,
    /// When its state changed last.
    pub changed_at: Option<String>,
    /// When its newest attempt ran.
    pub started_at: Option<String>,
    /// When it was over.
    pub ended_at: Option<String>,
    /// Not granted before.
    pub not_before: Option<String>,
    /// Attempts so far.
    pub attempts: u32,
    /// Retries used up.
    pub retries: u32,
    /// The newest attempts, oldest first.
    pub history: Vec<AttemptView>,
    /// What it can go on from, newest first.
    pub checkpoints: Vec<CheckpointView>,
    /// What it holds.
    pub allocation: Option<AllocationView>,
    /// The move in progress.
    pub r#move: Option<MoveView>,
    /// Preemptions within the last hour.
    pub preempted_at: Vec<String>,
    /// Exit code of its last attempt.
    pub exit_code: Option<i32>,
    /// Signal that ended its last attempt.
    pub signal: Option<i32>,
    /// The request that submitted it.
    pub request_id: String,
    /// Trace context of the submission.
    pub traceparent: String,
    /// Revision of its last change.
    pub revision: u64,
}

/// That a job computes next to nothing with what it holds.
pub type IdleView = Shown<v1::Idle>;

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptView {
    /// From 1.
    pub number: u32,
    /// Its allocation.
    pub allocation_id: u64,
    /// When it was granted.
    pub granted_at: Option<String>,
    /// When all its workers ran.
    pub started_at: Option<String>,
    /// When it was over.
    pub ended_at: Option<String>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// How it ended.
    pub reason: Option<ReasonView>,
    /// The checkpoint that it went on from; absent: it began from the beginning.
    pub from: Option<String>,
    /// When the newest checkpoint that it saved itself was whole.
    pub saved_at: Option<String>,
    /// Seconds that it computed and no checkpoint holds.
    pub lost_seconds: f64,
    /// What that was, in TFLOPS times seconds.
    pub lost_tflops_seconds: f64,
    /// Why nothing was saved when it was told to stop; absent: nobody says so.
    pub not_saved: Option<String>,
    /// How the newest checkpoint that it saved itself was saved; absent: it saved none.
    pub saved_as: Option<String>,
    /// Blocks that it holds, or gave back when it ended.
    pub blocks: u32,
    /// Memory of cards likewise.
    pub memory_mib: u64,
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AllocationView {
    /// Its number.
    pub id: u64,
    /// The log entry that made it.
    pub epoch: u64,
    /// Whether it is in force.
    pub phase: String,
    /// Which try.
    pub attempt: u32,
    /// Where rank 0 listens.
    pub master: String,
    /// Its workers by rank.
    pub workers: Vec<WorkerView>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerView {
    /// From 0.
    pub rank: u32,
    /// Which virtual card of the gang.
    #[serde(rename = "member")]
    pub virtual_card: u32,
    /// Its node.
    pub node: String,
    /// Where it stands.
    pub state: String,
    /// Whether it runs a program of the job; else it only serves slices to one.
    pub runs_program: bool,
    /// Its slices.
    pub slices: Vec<SliceView>,
    /// How it ended.
    pub exit: Option<Shown<v1::WorkerExit>>,
}

/// A slice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceView {
    /// Index of the card.
    pub card: u32,
    /// Kind of the card.
    pub kind: String,
    /// Model of the card.
    pub model: String,
    /// Pool-wide number of its first block.
    pub first_block: u64,
    /// Pool-wide number of its last block.
    pub last_block: u64,
    /// Its memory.
    pub memory_mib: u64,
    /// Isolation granted.
    pub isolation: String,
}

/// A move in progress.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveView {
    /// Its number.
    pub id: u64,
    /// How far it is.
    pub phase: String,
    /// When it began.
    pub started_at: Option<String>,
}

impl From<v1::Job> for JobView {
    fn from(job: v1::Job) -> Self {
        let last = job.history.last();
        let (exit_code, signal) = last.map_or((None, None), |attempt| (attempt.exit_code, attempt.signal));
        Self {
            id: job.id,
            submitter: job.submitter,
            state: words::job_state(job.state),
            reason: job.reason.map(Into::into).unwrap_or_default(),
            waits_for: None,
            used: None,
            held: job.held,
            parked: job.parked,
            spec: job.spec.unwrap_or_default().into(),
            submitted_at: text(job.submitted_at.as_ref()),
            changed_at: text(job.changed_at.as_ref()),
            started_at: text(job.started_at.as_ref()),
            ended_at: text(job.ended_at.as_ref()),
            idle: job.idle.map(Into::into),
            not_before: text(job.not_before.as_ref()),
            attempts: job.attempts,
            retries: job.retries,
            history: job.history.into_iter().map(Into::into).collect(),
            checkpoints: job.checkpoints.into_iter().map(Into::into).collect(),
            allocation: job.allocation.map(Into::into),
            r#move: job.r#move.map(|of| MoveView {
                id: of.id,
                phase: words::move_phase(of.phase),
                started_at: text(of.started_at.as_ref()),
            }),
            preempted_at: job.preempted_at.iter().filter_map(|time| text(Some(time))).collect(),
            exit_code,
            signal,
            request_id: job.request_id,
            traceparent: job.traceparent,
            revision: job.revision,
        }
    }
}

impl From<v1::Attempt> for AttemptView {
    fn from(attempt: v1::Attempt) -> Self {
        Self {
            number: attempt.number,
            allocation_id: attempt.allocation_id,
            granted_at: text(attempt.granted_at.as_ref()),
            started_at: text(attempt.started_at.as_ref()),
            ended_at: text(attempt.ended_at.as_ref()),
            exit_code: attempt.exit_code,
            signal: attempt.signal,
            reason: attempt.reason.map(Into::into),
            from: (attempt.from_attempt > 0).then(|| name_of(attempt.from_attempt, attempt.from_sequence)),
            saved_at: text(attempt.saved_at.as_ref()),
            lost_seconds: attempt.lost_seconds,
            lost_tflops_seconds: attempt.lost_tflops_seconds,
            not_saved: Some(attempt.not_saved).filter(|why| !why.is_empty()),
            saved_as: (attempt.saved_as != 0).then(|| words::checkpoint_mode(attempt.saved_as)),
            blocks: attempt.blocks,
            memory_mib: attempt.memory_mib,
        }
    }
}

impl From<v1::Allocation> for AllocationView {
    fn from(allocation: v1::Allocation) -> Self {
        Self {
            id: allocation.id,
            epoch: allocation.epoch,
            phase: words::allocation_phase(allocation.phase),
            attempt: allocation.attempt,
            master: format!("{}:{}", allocation.master_address, allocation.master_port),
            workers: allocation.workers.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::Worker> for WorkerView {
    fn from(worker: v1::Worker) -> Self {
        Self {
            rank: worker.rank,
            virtual_card: worker.member,
            node: worker.node_name,
            state: words::worker_state(worker.state),
            runs_program: !worker.only_serves,
            slices: worker.slices.into_iter().map(Into::into).collect(),
            exit: worker.exit.map(Into::into),
        }
    }
}

impl From<v1::SliceView> for SliceView {
    fn from(view: v1::SliceView) -> Self {
        let slice = view.slice.unwrap_or_default();
        Self {
            card: slice.card_index,
            kind: words::kind(view.kind),
            model: view.model,
            first_block: view.first_block_number,
            last_block: view.last_block_number,
            memory_mib: slice.memory_mib,
            isolation: words::isolation(slice.isolation),
        }
    }
}

/// Thousandths of a TFLOPS as TFLOPS.
pub(super) fn tflops(milli: u64) -> f64 {
    milli as f64 / 1000.0
}

impl JobView {
    /// Whether nothing follows its state.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "failed" | "cancelled" | "timeout")
    }

    /// Whether it waits for an allocation, or would if nobody kept it from that.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "suspended")
    }

    /// Why it is where it is, in a word.
    #[must_use]
    pub fn why_short(&self) -> String {
        self.waits_for.clone().unwrap_or_else(|| self.reason.code.clone())
    }

    /// What one virtual card must offer.
    pub(super) fn card(&self) -> v1::VirtualCardRequest {
        self.spec.virtual_card.clone().unwrap_or_default()
    }

    fn nodes(&self) -> String {
        let workers = self.allocation.iter().flat_map(|allocation| &allocation.workers);
        let mut nodes: Vec<&str> = workers.map(|worker| worker.node.as_str()).collect();
        nodes.dedup();
        if nodes.is_empty() { "-".to_owned() } else { nodes.join(",") }
    }

    fn demand(&self) -> String {
        let each = tflops(self.card().milli_tflops);
        if self.spec.gang > 1 { format!("{}x{each}", self.spec.gang) } else { each.to_string() }
    }
}

impl Tabular for JobView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::right("JOB"),
            Column::left("NAME"),
            Column::left("QUEUE"),
            Column::state("STATE"),
            Column::left("REASON"),
            Column::right("TFLOPS"),
            Column::right("PRIO"),
            Column::right("AGE"),
            Column::right("RAN"),
            Column::left("NODES"),
            Column::wide("SPAN"),
            Column::wide("MEMORY"),
            Column::wide("ATTEMPTS"),
            Column::wide("USER"),
            Column::wide("EXIT"),
        ];
        COLUMNS
    }

    fn cells(&self, clock: &Clock) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.spec.name.clone(),
            self.spec.queue.clone(),
            self.state.clone(),
            self.why_short(),
            self.demand(),
            self.spec.priority().to_string(),
            clock.ago(self.submitted_at.as_deref()),
            clock.between(self.started_at.as_deref(), self.ended_at.as_deref()),
            self.nodes(),
            words::span(self.card().span),
            format!("{} MiB", self.card().memory_mib),
            self.attempts.to_string(),
            self.submitter.clone(),
            exit_text(self.exit_code, self.signal),
        ]
    }

    fn name(&self) -> String {
        format!("job/{}", self.id)
    }
}

pub(super) fn exit_text(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => code.to_string(),
        (None, None) => "-".to_owned(),
    }
}

impl SliceView {
    /// `gpu 0 [1-9]`: kind, index of the card, block numbers.
    #[must_use]
    pub fn short(&self) -> String {
        format!("{} {} [{}-{}]", self.kind, self.card, self.first_block, self.last_block)
    }
}
