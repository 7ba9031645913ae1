//! Requests: a job's spec, taken apart once. Everything in it that decides where the job fits, and whom it may preempt
//! for that, is here; jobs with equal requests are alike. A field of the spec that nobody has thought of does not
//! compile here, and a field of the request that placement has not thought of does not compile in
//! [`Demand::compile`](crate::demand::Demand::compile).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_ledger::{
    Affinity, CardKind, CheckpointPolicy, HostRequest, Isolation, JobSpec, LogTime, Packing, Precedence, Precision,
    Span, VirtualCardRequest,
};

/// Time for stopping a job whose time limit is over.
pub const STOPPING: Duration = Duration::from_secs(30);

/// The needs and wishes of a job, and its standing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) compute: u64,
    pub(crate) memory: u64,
    /// The part of its host that each worker asks for. Early, because requests that are alike in compute differ in it
    /// most often.
    pub(crate) host: HostRequest,
    /// The part of its host that the program of each virtual card asks for, if workers only serve it: they ask for
    /// nothing then.
    pub(crate) program: Option<HostRequest>,
    pub(crate) gang: u32,
    pub(crate) gang_min: Option<u32>,
    pub(crate) span: Span,
    pub(crate) mixed: bool,
    pub(crate) precision: Option<Precision>,
    pub(crate) isolation: Isolation,
    pub(crate) kinds: BTreeSet<CardKind>,
    pub(crate) vendors: BTreeSet<String>,
    pub(crate) models: BTreeSet<String>,
    pub(crate) node_labels: BTreeMap<String, String>,
    pub(crate) whole_cards: bool,
    pub(crate) slice_memory: u64,
    pub(crate) affinity: Affinity,
    pub(crate) packing: Option<Packing>,
    /// Its queue; left empty where it does not matter where jobs stand.
    pub(crate) queue: String,
    /// Its precedence; the lowest where that does not matter.
    pub(crate) precedence: Precedence,
    /// The class of its time limit; left zero where that does not matter.
    pub(crate) limit: u32,
    /// True if its jobs gave way before: then they take less from others.
    pub(crate) gave_way: bool,
}

/// The needs and wishes of a job in its queue, whatever its precedence, to be compared with those of others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask(Request);

impl Ask {
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        Self(Request::of(spec, Precedence::default(), false))
    }
}

/// A time limit, rounded up so that there are few different ones: the power of two of its seconds; 0 for none.
fn limit_class(limit: Option<Duration>) -> u32 {
    let seconds = |limit: Duration| limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0)).max(1);
    limit.map_or(0, |limit| seconds(limit).checked_next_power_of_two().map_or(64, u64::trailing_zeros) + 1)
}

impl Request {
    pub(crate) fn asks_of_hosts(&self) -> bool {
        !self.host.is_zero() || self.program.is_some_and(|program| !program.is_zero())
    }

    /// With how many virtual cards a job may start at least.
    pub(crate) fn gang_min(&self) -> u32 {
        self.gang_min.unwrap_or(self.gang)
    }

    /// By when all its jobs are over that start now, if they all have a time limit.
    pub(crate) fn over_by(&self, now: LogTime) -> Option<LogTime> {
        let seconds = 1u64.checked_shl(self.limit.checked_sub(1)?).unwrap_or(u64::MAX);
        Some(now.after(Duration::from_secs(seconds).saturating_add(STOPPING)))
    }

    /// The needs and wishes of a job alone, whatever its standing.
    pub(crate) fn anywhere(spec: &JobSpec) -> Self {
        Self { queue: String::new(), limit: 0, ..Self::of(spec, Precedence::default(), false) }
    }

    /// The request of a job of that precedence, which gave way before or never did.
    pub(crate) fn of(spec: &JobSpec, precedence: Precedence, gave_way: bool) -> Self {
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
            priority: _,
            preemptible: _,
            checkpoint: CheckpointPolicy { mode: _, signal: _, grace, every: _, keep: _, fallback: _ },
            on_disconnect: _,
            time_limit,
            retry: _,
            labels: _,
            node_labels,
            output_retention: _,
            held: _,
            host,
            gang_min,
            grow_after: _,
            min_runtime: _,
            affinity,
            packing,
            windows: _,
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
            access: _,
            elastic: _,
        } = virtual_card;
        // A program that must be with slices is, whichever of its nodes it comes to: each has room for it.
        let apart = spec.program_may_be_beside();
        Self {
            compute: compute.0,
            memory: memory.0,
            host: if apart { HostRequest::ZERO } else { *host },
            program: apart.then_some(*host),
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
            precedence,
            // Told to stop at its limit, it still has its grace time.
            limit: limit_class(time_limit.map(|limit| limit.saturating_add(*grace))),
            gave_way,
        }
    }
}
