//! A job as it is shown.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_api::v1;

use super::time::{Clock, seconds, text};
use super::{AffinityView, HostView, ReasonView, words};
use crate::print::{Column, Tabular};

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobView {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// Who submitted it.
    pub submitter: String,
    /// Where it stands.
    pub state: String,
    /// Why.
    pub reason: ReasonView,
    /// What it waits for now, in lists of jobs; absent where that was not asked or it does not wait.
    pub waits_for: Option<String>,
    /// On hold.
    pub held: bool,
    /// Suspended by a person.
    pub parked: bool,
    /// 0 to 100.
    pub priority: u32,
    /// Whether it may be preempted.
    pub preemptible: bool,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Virtual cards that start together.
    pub gang: u32,
    /// Least number of them that it starts with.
    pub gang_min: u32,
    /// What each must offer.
    pub virtual_card: VirtualCardView,
    /// What each worker needs of its host.
    pub host: HostView,
    /// Where its workers would rather be, and must not be.
    pub affinity: AffinityView,
    /// How its virtual cards are laid over the pool; absent: as its queue or the pool says.
    pub packing: Option<String>,
    /// It is not preempted before it has run so long.
    pub min_runtime_seconds: Option<f64>,
    /// What suspending does to its work.
    pub checkpoint_mode: String,
    /// What happens when its node is cut off.
    pub on_disconnect: String,
    /// Longest run of an attempt.
    pub time_limit_seconds: Option<f64>,
    /// Retries allowed after failures.
    pub max_retries: u32,
    /// Environment variables it set.
    pub environment: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Labels its nodes must carry.
    pub node_labels: BTreeMap<String, String>,
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

/// What one virtual card must offer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VirtualCardView {
    /// Compute.
    pub tflops: f64,
    /// In this precision.
    pub precision: String,
    /// Memory.
    pub memory_mib: u64,
    /// How far it may spread.
    pub span: String,
    /// Kinds that may back it; empty: any.
    pub kinds: Vec<String>,
    /// Whether kinds may mix.
    pub mixed: bool,
    /// Weakest isolation.
    pub isolation: String,
    /// Vendors that may back it; empty: any.
    pub vendors: Vec<String>,
    /// Models that may back it; empty: any.
    pub models: Vec<String>,
    /// Whether nobody else computes on its cards.
    pub whole_cards: bool,
    /// Least memory on each card.
    pub slice_memory_mib: u64,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptView {
    /// From 1.
    pub number: u32,
    /// Its grant.
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
}

/// A grant.
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
    pub member: u32,
    /// Its node.
    pub node: String,
    /// Where it stands.
    pub state: String,
    /// Its slices.
    pub slices: Vec<SliceView>,
    /// How it ended.
    pub exit: Option<ExitView>,
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

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExitView {
    /// Why.
    pub cause: String,
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// Whether it wrote a checkpoint.
    pub checkpointed: bool,
    /// For people.
    pub message: String,
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
        let spec = job.spec.unwrap_or_default();
        let last = job.history.last();
        let (exit_code, signal) = last.map_or((None, None), |attempt| (attempt.exit_code, attempt.signal));
        Self {
            id: job.id,
            name: spec.name,
            queue: spec.queue,
            submitter: job.submitter,
            state: words::job_state(job.state),
            reason: job.reason.map(Into::into).unwrap_or_default(),
            waits_for: None,
            held: job.held,
            parked: job.parked,
            priority: spec.priority.unwrap_or(50),
            preemptible: spec.preemptible.unwrap_or(true),
            command: spec.command,
            gang: spec.gang.max(1),
            gang_min: spec.gang_min.unwrap_or(spec.gang).max(1),
            host: spec.host.map(Into::into).unwrap_or_default(),
            affinity: spec.affinity.map(Into::into).unwrap_or_default(),
            packing: (spec.packing != 0).then(|| words::packing(spec.packing)),
            min_runtime_seconds: seconds(spec.min_runtime.as_ref()),
            virtual_card: spec.virtual_card.unwrap_or_default().into(),
            checkpoint_mode: words::checkpoint_mode(spec.checkpoint.map_or(0, |policy| policy.mode)),
            on_disconnect: words::on_disconnect(spec.on_disconnect),
            time_limit_seconds: seconds(spec.time_limit.as_ref()),
            max_retries: spec.retry.map_or(0, |retry| retry.max_retries),
            environment: spec.environment,
            labels: spec.labels,
            node_labels: spec.node_labels,
            submitted_at: text(job.submitted_at.as_ref()),
            changed_at: text(job.changed_at.as_ref()),
            started_at: text(job.started_at.as_ref()),
            ended_at: text(job.ended_at.as_ref()),
            not_before: text(job.not_before.as_ref()),
            attempts: job.attempts,
            retries: job.retries,
            history: job.history.into_iter().map(Into::into).collect(),
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

impl From<v1::VirtualCardRequest> for VirtualCardView {
    fn from(card: v1::VirtualCardRequest) -> Self {
        Self {
            tflops: tflops(card.milli_tflops),
            precision: words::precision(card.precision),
            memory_mib: card.memory_mib,
            span: words::span(card.span),
            kinds: card.kinds.into_iter().map(words::kind).collect(),
            mixed: card.mixed,
            isolation: words::isolation(card.isolation),
            vendors: card.vendors,
            models: card.models,
            whole_cards: card.whole_cards,
            slice_memory_mib: card.slice_memory_mib,
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
            member: worker.member,
            node: worker.node_name,
            state: words::worker_state(worker.state),
            slices: worker.slices.into_iter().map(Into::into).collect(),
            exit: worker.exit.map(|exit| ExitView {
                cause: words::stop_cause(exit.cause),
                code: exit.code,
                signal: exit.signal,
                checkpointed: exit.checkpointed,
                message: exit.message,
            }),
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

    /// Whether it waits for a grant, or would if nobody kept it from that.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "suspended")
    }

    fn nodes(&self) -> String {
        let workers = self.allocation.iter().flat_map(|allocation| &allocation.workers);
        let mut nodes: Vec<&str> = workers.map(|worker| worker.node.as_str()).collect();
        nodes.dedup();
        if nodes.is_empty() { "-".to_owned() } else { nodes.join(",") }
    }

    fn demand(&self) -> String {
        let each = self.virtual_card.tflops;
        if self.gang > 1 { format!("{}x{each}", self.gang) } else { each.to_string() }
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
            self.name.clone(),
            self.queue.clone(),
            self.state.clone(),
            self.waits_for.clone().unwrap_or_else(|| self.reason.code.clone()),
            self.demand(),
            self.priority.to_string(),
            clock.ago(self.submitted_at.as_deref()),
            clock.between(self.started_at.as_deref(), self.ended_at.as_deref()),
            self.nodes(),
            self.virtual_card.span.clone(),
            format!("{} MiB", self.virtual_card.memory_mib),
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
