//! The pool's settings. They are part of the replicated state: a change is a log entry (law L6).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::affinity::Packing;
use crate::card::{CardKind, Precision};
use crate::lease::LeaseTimings;
use crate::units::{MilliTflops, Percent};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolConfig {
    /// Precision in which blocks are counted.
    pub reference_precision: Precision,
    /// Size of a block at that precision: 1 TFLOPS unless the pool was created with another size (P2).
    pub block_size: MilliTflops,
    /// Time for which an answered request id is remembered (law L3): at least [`REQUEST_AHEAD`](crate::REQUEST_AHEAD).
    pub request_retention: Duration,
    /// Most request ids remembered; the oldest go first, but none that was made within `REQUEST_AHEAD`.
    pub request_limit: u64,
    /// Time for which an ended job stays in the ledger.
    pub job_retention: Duration,
    /// Most ended jobs kept; the oldest go first.
    pub ended_job_limit: u64,
    /// Most jobs that are not over; further submissions are refused.
    pub job_limit: u64,
    /// Time for which output is retained on nodes when a job does not say.
    pub output_retention: Duration,
    /// Most log entries' events that a watch can go back.
    pub event_limit: u64,
    /// Most times that one job is preempted within an hour (law L4).
    pub preemptions_per_hour: u32,
    /// First port that workers meet at.
    pub first_master_port: u16,
    /// Number of ports that workers may meet at, on each node.
    pub master_ports: u16,
    /// Distribution of virtual cards over the pool when neither job nor queue says.
    pub packing: Packing,
    /// After how long past use counts half in fair shares.
    pub fair_share_half_life: Duration,
    /// Blocks that cards of a kind offer, in percent of those that they are rated for; a kind that is not named: 100.
    /// Above 100 the cards offer isolation `shared` only.
    pub oversubscription: BTreeMap<CardKind, Percent>,
    /// Policy of moving jobs so that free blocks come together (P7).
    pub compaction: CompactionPolicy,
    /// For how long leases are granted from now on.
    pub leases: LeaseTimings,
    /// Limits on the size of the ledger.
    pub limits: PoolLimits,
    /// True if the release level stays as it is although every member can apply a higher one: the way back to the
    /// release before stays open.
    pub hold_level: bool,
}

/// Limits on the size of the ledger, so that nobody can fill the memory of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolLimits {
    /// Most bytes of all jobs, ended ones included, as [`JobSpec::bytes`](crate::JobSpec::bytes) counts them. The
    /// oldest ended jobs go before a submission is refused.
    pub spec_bytes: u64,
    pub queues: u64,
    /// Most nodes, forgotten ones included: their numbers are never used again.
    pub nodes: u64,
    /// Most cards of all nodes together.
    pub cards: u64,
    /// Most events that are remembered, over all entries; the oldest go first.
    pub events: u64,
}

impl PoolLimits {
    /// No limits, for simulations that measure something else.
    pub const NONE: Self =
        Self { spec_bytes: u64::MAX, queues: u64::MAX, nodes: u64::MAX, cards: u64::MAX, events: u64::MAX };
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { spec_bytes: 512 << 20, queues: 10_000, nodes: 20_000, cards: 200_000, events: 1_000_000 }
    }
}

/// Policy of moving jobs so that free blocks come together (P7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompactionPolicy {
    /// True if jobs are moved without a request from an operator.
    pub automatic: bool,
    /// Share of the free blocks that is in pieces above which they are.
    pub threshold: Percent,
    pub moves_per_hour: u32,
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self { automatic: false, threshold: Percent(50), moves_per_hour: 60 }
    }
}

impl PoolConfig {
    /// Time in which past use counts half, unless set otherwise.
    pub const FAIR_SHARE_HALF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

    /// Blocks that cards of a kind offer, in percent of those that they are rated for.
    #[must_use]
    pub fn oversubscribed(&self, kind: CardKind) -> Percent {
        self.oversubscription.get(&kind).copied().unwrap_or(Percent::WHOLE)
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            reference_precision: Precision::Fp16,
            block_size: MilliTflops::from_tflops(1),
            request_retention: Duration::from_secs(3600),
            request_limit: 1_000_000,
            job_retention: Duration::from_secs(24 * 3600),
            ended_job_limit: 100_000,
            job_limit: 1_000_000,
            output_retention: Duration::from_secs(7 * 24 * 3600),
            event_limit: 50_000,
            preemptions_per_hour: 4,
            first_master_port: 20_000,
            master_ports: 10_000,
            packing: Packing::Stack,
            fair_share_half_life: Self::FAIR_SHARE_HALF_LIFE,
            oversubscription: BTreeMap::new(),
            compaction: CompactionPolicy::default(),
            limits: PoolLimits::default(),
            leases: LeaseTimings::default(),
            hold_level: false,
        }
    }
}
