//! Queues: a tenant's place in the tree of queues, with what it is guaranteed and may use at most.

use std::time::Duration;

use crate::affinity::Packing;
use crate::config::PoolConfig;
use crate::idle::IdlePolicy;
use crate::order::AttainedOrder;
use crate::past_use::PastUse;
use crate::state::State;
use crate::units::{LogTime, Mebibytes, MilliTflops};

/// An amount of both resources that queues share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueAmount {
    /// Compute at the pool's reference precision.
    pub compute: MilliTflops,
    pub memory: Mebibytes,
}

impl QueueAmount {
    /// Returns whether both resources are within `limit`.
    #[must_use]
    pub fn within(self, limit: Self) -> bool {
        self.compute <= limit.compute && self.memory <= limit.memory
    }

    /// Returns whether the amount is above `limit` in a resource of which `part` is not zero.
    #[must_use]
    pub fn is_above_with(self, limit: Self, part: Self) -> bool {
        self.compute > limit.compute && part.compute > MilliTflops::ZERO
            || self.memory > limit.memory && part.memory > Mebibytes::ZERO
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { compute: self.compute.saturating_add(other.compute), memory: self.memory.saturating_add(other.memory) }
    }

    /// The share of `all` in the resource of which it is more, as a count of `parts`.
    #[must_use]
    pub fn dominant(self, all: Self, parts: u64) -> u64 {
        let of = |amount: u64, all: u64| u128::from(amount) * u128::from(parts) / u128::from(all.max(1));
        let most = of(self.compute.0, all.compute.0).max(of(self.memory.0, all.memory.0));
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// The difference of both resources, never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            compute: MilliTflops(self.compute.0.saturating_sub(other.compute.0)),
            memory: self.memory.saturating_sub(other.memory),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueSettings {
    /// Unique name; path-like names are only names.
    pub name: String,
    /// The queue above; empty: a top one.
    pub parent: String,
    /// The amount that its jobs can always have, lent to others while unused.
    pub guaranteed: QueueAmount,
    /// The amount that its jobs can have at most; `None`: the pool.
    pub maximum: Option<QueueAmount>,
    /// Its share of what is left over, against its neighbours.
    pub weight: u32,
    /// Distribution of virtual cards of its jobs over the pool; `None`: as the pool says.
    pub packing: Option<Packing>,
    /// Times at which its jobs and those of the queues below it may run, as `tessera-calendar` reads them; empty: any
    /// time.
    pub windows: Vec<String>,
    /// The idle ladder ([`idle`](crate::idle)) for jobs that compute next to nothing: those of the queue, and of the
    /// queues below it that have no ladder of their own. `None`: the ladder of the queue above.
    pub idle: Option<IdlePolicy>,
    /// The most space that checkpoints of its jobs, and of the jobs of the queues below it, may take; each checkpoint
    /// is counted once wherever it lies. The newest of each job is retained even above the bound. `None`: no bound.
    pub checkpoints: Option<Mebibytes>,
    /// The order among its own jobs by what they have had ([`order`](crate::order)). `None`: by submission.
    pub attained: Option<AttainedOrder>,
}

impl QueueSettings {
    /// A queue below none that is guaranteed nothing, is not bounded, and has an ordinary share of what is left over.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parent: String::new(),
            guaranteed: QueueAmount::default(),
            maximum: None,
            weight: 1,
            packing: None,
            windows: Vec::new(),
            idle: None,
            checkpoints: None,
            attained: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    pub settings: QueueSettings,
    /// The amount that the allocations of its jobs, and of the queues below it, hold now.
    pub used: QueueAmount,
    /// As far as those of `used` that were told to stop hold it still.
    pub leaving: QueueAmount,
    /// As far as jobs that are not preemptible hold it, and were not told to stop.
    pub firm: QueueAmount,
    /// Compute that its own guarded jobs ask for ([`order`](crate::order)).
    pub guarded: MilliTflops,
    /// Jobs that are not over, of this queue alone.
    pub jobs: u64,
    pub past: PastUse,
    /// Nothing is granted to its jobs before this time ([`window`](crate::window)).
    pub closed_until: LogTime,
}

impl Queue {
    /// A queue that holds nothing and never did.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        let nothing = QueueAmount::default();
        let past = PastUse::default();
        Self {
            settings,
            used: nothing,
            leaving: nothing,
            firm: nothing,
            guarded: MilliTflops::ZERO,
            jobs: 0,
            past,
            closed_until: LogTime::default(),
        }
    }

    /// The amount that the queue holds, less `leaving` (told to stop, or the target of a move whose source is not):
    /// guarantees are compared with it.
    #[must_use]
    pub fn standing(&self) -> QueueAmount {
        self.used.minus(self.leaving)
    }

    /// The mean of what it has held up to `now`, in which the past counts half as much for every half-life that it
    /// is ago.
    #[must_use]
    pub fn mean_use(&self, now: LogTime, config: &PoolConfig) -> QueueAmount {
        let mut past = self.past;
        past.advance(self.used, now, half_life(config));
        past.mean(half_life(config))
    }
}

impl State {
    /// The amount that a queue has borrowed, now and on average in the past, divided by its weight: the dominant share
    /// of what it holds above its guarantee, in millionths of the pool. Among siblings, the queue with the least goes
    /// first.
    #[must_use]
    pub fn share_of(&self, queue: &Queue) -> u64 {
        let all = self.capacity().amount(self.config().reference_precision);
        let above = |amount: QueueAmount| amount.minus(queue.settings.guaranteed);
        let borrowed = above(queue.standing()).plus(above(queue.mean_use(self.time(), self.config())));
        borrowed.dominant(all, 1_000_000) / u64::from(queue.settings.weight.max(1))
    }
}

/// The time in which what a queue has held counts half as much for its fair share.
pub(crate) fn half_life(config: &PoolConfig) -> Duration {
    config.fair_share_half_life
}

/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
