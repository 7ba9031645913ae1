//! Shapes: jobs that ask for the same. If one of a shape does not fit, none of it does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{
    Affinity, CardKind, CheckpointPolicy, HostRequest, Isolation, JobSpec, LogTime, MilliTflops, Packing, Precision,
    QueueAmount, Span, VirtualCardRequest,
};

use crate::demand::Demand;

/// Number of a shape in one index; carries no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeId(pub(crate) usize);

/// Number of a queue's line in one index; carries no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineId(pub(crate) usize);

/// Everything in a job that decides where it fits, and whom it may preempt for that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeKey {
    compute: u64,
    memory: u64,
    /// Early, because requests that are alike in compute differ in it most often.
    host: HostRequest,
    gang: u32,
    gang_min: Option<u32>,
    span: Span,
    mixed: bool,
    precision: Option<Precision>,
    isolation: Isolation,
    kinds: BTreeSet<CardKind>,
    vendors: BTreeSet<String>,
    models: BTreeSet<String>,
    node_labels: BTreeMap<String, String>,
    whole_cards: bool,
    slice_memory: u64,
    affinity: Affinity,
    packing: Option<Packing>,
    /// Its queue; left empty where queues do not matter.
    pub(crate) queue: String,
    /// Its priority; left zero where queues do not matter.
    pub(crate) priority: u32,
    /// The class of its time limit; left zero where queues do not matter.
    pub(crate) limit: u32,
    /// Whether its jobs gave way before: then they take less from others.
    pub(crate) gave_way: bool,
}

/// A time limit, rounded up so that there are few different ones: the power of two of its seconds; 0 for none.
fn limit_class(limit: Option<Duration>) -> u32 {
    let seconds = |limit: Duration| limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0)).max(1);
    limit.map_or(0, |limit| seconds(limit).checked_next_power_of_two().map_or(64, u64::trailing_zeros) + 1)
}

impl ShapeKey {
    /// A time within which all its jobs are over once they run, if they all have a time limit.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let seconds = 1u64.checked_shl(self.limit.checked_sub(1)?).unwrap_or(u64::MAX);
        Some(Duration::from_secs(seconds))
    }

    pub(crate) fn of(spec: &JobSpec, gave_way: bool) -> Self {
        // Every field is named: what makes no difference to where the job fits, or whom it may preempt for that, is
        // let go of here and nowhere else.
        let JobSpec {
            name: _,
            queue,
            command: _,
            environment: _,
            working_directory: _,
            script: _,
            gang,
            virtual_card,
            priority,
            preemptible: _,
            checkpoint: CheckpointPolicy { mode: _, signal: _, grace, every: _ },
            on_disconnect: _,
            time_limit,
            retry: _,
            labels: _,
            node_labels,
            output_retention: _,
            held: _,
            host,
            gang_min,
            min_runtime: _,
            affinity,
            packing,
        } = spec;
        let VirtualCardRequest {
            compute,
            memory,
            precision,
            span,
            kinds,
            mixed,
            isolation,
            vendors,
            models,
            whole_cards,
            slice_memory,
        } = virtual_card;
        Self {
            compute: compute.0,
            memory: memory.0,
            host: *host,
            gang: *gang,
            gang_min: *gang_min,
            span: *span,
            mixed: *mixed,
            precision: *precision,
            isolation: *isolation,
            kinds: kinds.clone(),
            vendors: vendors.clone(),
            models: models.clone(),
            node_labels: node_labels.clone(),
            whole_cards: *whole_cards,
            slice_memory: slice_memory.0,
            affinity: affinity.clone(),
            packing: *packing,
            queue: queue.clone(),
            priority: *priority,
            // Told to stop at its limit, it still has its grace time.
            limit: limit_class(time_limit.map(|limit| limit.saturating_add(*grace))),
            gave_way,
        }
    }
}

/// Why the first job of a shape could not start when it was tried last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Nothing free is large enough, and nobody may be made to give way for it.
    Capacity {
        /// When a job that was preempted too often can be preempted again.
        retry_at: Option<LogTime>,
        /// Whether room in its queue would help as well.
        in_queue: bool,
        /// Whether somebody could give way for it, if its queue might hold more.
        over_maximum: bool,
        /// Virtual cards for which there was no room: so many must find some before another try makes sense.
        missing: u32,
    },
    /// Its queue, or one above it, cannot take even the least that the job could be granted.
    Queue,
    /// Something in the present round forbids it; it is tried again in the next.
    Round,
}

/// Jobs that ask for the same.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) key: Arc<ShapeKey>,
    /// The line of its queue.
    pub(crate) line: LineId,
    /// One of the jobs' specs: they are alike in all that matters here.
    pub(crate) spec: Arc<JobSpec>,
    /// The request against the present classes.
    pub(crate) demand: Demand,
    /// Jobs that may start now, in line order.
    pub(crate) jobs: BTreeSet<WaitingKey>,
    /// Jobs of this shape that wait for their backoff or were granted in an unconfirmed plan, beside `jobs`.
    pub(crate) others: usize,
    /// Why the first one cannot start; `None`: to be tried.
    pub(crate) block: Option<Block>,
    /// The pool's count of prospects when it had no cards that could be kept for the shape, even if everything on
    /// them ended.
    pub(crate) hopeless_at: Option<u64>,
}

impl Shape {
    /// The first job in line.
    pub(crate) fn head(&self) -> Option<WaitingKey> {
        self.jobs.first().copied()
    }

    /// The least that a grant of this shape can count for in its queue.
    pub(crate) fn least(&self, block_size: MilliTflops) -> QueueAmount {
        self.demand.least(block_size)
    }
}
