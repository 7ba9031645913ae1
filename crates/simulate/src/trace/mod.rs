//! Traces: what real clusters had and what was asked of them, read from CSV files.
//!
//! Which format a file has is told by its header. Three are known: the Alibaba `openb` lists of nodes and pods, the
//! Philly jobs, and a plain one of our own (documented in docs/simulate.md). All become the same [`TraceNode`]s and
//! [`TraceJob`]s: amounts of host and shares of cards, in thousandths of a card, because that is what all of them have
//! in common.

mod error;
mod jobs;
mod nodes;
mod size;
mod table;

use std::collections::BTreeSet;

pub use error::TraceError;
pub use jobs::{JobFormat, JobList, read_jobs};
pub(crate) use jobs::{check_cards, models};
pub use nodes::read_nodes;
pub use size::{made_up, read_cluster};

/// Most cards of one node; the ledger takes no more beside the host's own processors.
pub(crate) const CARD_LIMIT: u32 = 1000;

/// Thousandths of a card in one card.
pub const WHOLE_CARD: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceNode {
    /// Its name, unique in its list.
    pub name: String,
    /// Thousandths of a processor of the host.
    pub cpu_milli: u64,
    /// Memory of the host in MiB.
    pub memory_mib: u64,
    pub cards: u32,
    /// Model of the cards; empty when there are none.
    pub model: String,
    /// Memory of one card in MiB, where the trace says it.
    pub card_memory_mib: Option<u64>,
}

/// The request of one worker of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask {
    /// Thousandths of a processor of the host.
    pub cpu_milli: u64,
    /// Memory of the host in MiB.
    pub memory_mib: u64,
    /// Number of cards, all on one node; 0 for work on the host alone.
    pub cards: u32,
    /// Thousandths of each card; less than [`WHOLE_CARD`] only with one card.
    pub card_milli: u32,
    /// Memory of each card in MiB; 0 where the trace does not say.
    pub card_memory_mib: u64,
    /// Models that will do; empty: any.
    pub models: BTreeSet<String>,
}

impl Ask {
    /// Returns whether the worker takes whole cards, so that nobody else is on them.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.cards > 0 && self.card_milli == WHOLE_CARD
    }

    /// Returns whether the worker asks for a part of one card.
    #[must_use]
    pub const fn is_fraction(&self) -> bool {
        self.cards == 1 && self.card_milli < WHOLE_CARD
    }

    /// Thousandths of a card in all.
    #[must_use]
    pub const fn all_cards_milli(&self) -> u64 {
        self.cards as u64 * self.card_milli as u64
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    pub name: String,
    /// The time of submission, in milliseconds after the first of its list; 0 where the trace does not say.
    pub submitted_ms: u64,
    /// The duration of the run, in milliseconds; `None` where the trace does not say.
    pub runtime_ms: Option<u64>,
    /// The time limit that the job was submitted with, in milliseconds; it ends then if it still runs.
    pub limit_ms: Option<u64>,
    /// Number of workers, placed together or not at all.
    pub workers: u32,
    pub ask: Ask,
    pub queue: String,
    /// 0 to 100; higher goes first.
    pub priority: u32,
    /// True if the job may be suspended for one of higher priority.
    pub preemptible: bool,
}

/// Queue and priority of jobs whose trace knows neither.
pub const DEFAULT_QUEUE: &str = "default";
/// See [`DEFAULT_QUEUE`].
pub const DEFAULT_PRIORITY: u32 = 50;

impl TraceJob {
    /// A job of one worker that arrives at once and of which nothing else is known.
    #[must_use]
    pub fn of(name: String, ask: Ask) -> Self {
        Self {
            name,
            submitted_ms: 0,
            runtime_ms: None,
            limit_ms: None,
            workers: 1,
            ask,
            queue: DEFAULT_QUEUE.to_owned(),
            priority: DEFAULT_PRIORITY,
            preemptible: true,
        }
    }

    /// The time for which the job makes progress, in milliseconds; 0 where the trace does not say.
    #[must_use]
    pub fn length_ms(&self) -> u64 {
        self.runtime_ms.unwrap_or(0).min(self.limit_ms.unwrap_or(u64::MAX))
    }
}
