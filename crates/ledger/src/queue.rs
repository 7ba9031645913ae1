//! Queues: a tenant's place in the tree of queues, with what it is guaranteed and may use at most.

use crate::job::Packing;
use crate::units::{Mebibytes, MilliTflops};

/// An amount of both resources that queues share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueAmount {
    /// Compute at the pool's reference precision.
    pub compute: MilliTflops,
    /// Memory.
    pub memory: Mebibytes,
}

impl QueueAmount {
    /// Whether both resources are within `limit`.
    #[must_use]
    pub fn within(self, limit: Self) -> bool {
        self.compute <= limit.compute && self.memory <= limit.memory
    }

    /// The sum of both resources.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { compute: self.compute.saturating_add(other.compute), memory: self.memory.saturating_add(other.memory) }
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

/// The settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueSettings {
    /// Unique name; path-like names are only names.
    pub name: String,
    /// The queue above; empty: a top one.
    pub parent: String,
    /// What its jobs can always have, lent to others while unused.
    pub guaranteed: QueueAmount,
    /// What its jobs can have at most; `None`: the pool.
    pub maximum: Option<QueueAmount>,
    /// Its share of what is left over, against its neighbours.
    pub weight: u32,
    /// How virtual cards of its jobs are laid over the pool; `None`: as the pool says.
    pub packing: Option<Packing>,
}

/// A queue in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    /// Its settings.
    pub settings: QueueSettings,
    /// What the grants of its jobs, and of the queues below it, hold now.
    pub used: QueueAmount,
    /// Jobs that are not over, of this queue alone.
    pub jobs: u64,
}

/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
